"""The network, its losses, objectives (inputs, loss, metrics) and the optimizers with their schedule, as Paddle graphs.

No files, no loop, no clock; `program.py` puts the parts together.
"""
