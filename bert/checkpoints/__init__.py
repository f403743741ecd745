"""Checkpoint directories: written whole or not at all, verified when read, pruned, and restored bit for bit.

Only `state` touches Paddle's variables; when to save is decided in `bert.training`, other libraries' formats are in
`bert.conversion`.
"""
