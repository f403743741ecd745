"""The network, its losses, the objectives (network + inputs + loss + metrics) and the optimizers, as Paddle graphs.

No files, no loops, no clock.
"""
