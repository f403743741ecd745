"""Checkpoint directories: written whole or not at all, verified when read, restored bit for bit.

`files` and `writer` handle directories and threads without Paddle; only `state` touches Paddle's variables.
"""
