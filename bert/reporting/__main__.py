"""`python -m bert.reporting`."""

from bert.reporting.report import main

if __name__ == "__main__":
    main()
