"""`python -m bert.reporting`: the report of one or more runs."""

from bert.reporting.report import main

if __name__ == "__main__":
    main()
