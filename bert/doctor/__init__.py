"""Checks whether this machine can train, and says what to do if not: `python -m bert.doctor`.

It changes nothing; `requirements` needs the standard library only, because it runs before anything is installed.
"""
