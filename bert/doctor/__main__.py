"""`python -m bert.doctor`."""

from bert.doctor.checks import main

if __name__ == "__main__":
    raise SystemExit(main())
