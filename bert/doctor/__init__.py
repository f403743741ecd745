"""`python -m bert.doctor`: is this machine fit to train, and if not, what to do.

Reads facts and judges them; changes nothing. `requirements` runs before anything is installed (standard library only).
"""
