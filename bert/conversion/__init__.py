"""Checkpoints of other libraries: found, read and written without those libraries, and without executing anything.

Paddle is not imported here; our own checkpoint directories are in `bert.checkpoints`. README.md lists the parts.
"""
