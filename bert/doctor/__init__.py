"""Checks whether this machine can train, and prints a remedy for each problem: `python -m bert.doctor`.

It changes nothing. `requirements` uses only the standard library, because it runs before anything is installed.
"""
