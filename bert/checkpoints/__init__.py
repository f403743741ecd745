"""Checkpoint directories: written atomically, verified when read, pruned, and restored bit for bit.

Only `state` touches Paddle's variables. `bert.training` decides when to save, and `bert.conversion` reads and writes
other libraries' formats.
"""
