"""The network, its losses, objectives (inputs, loss, metrics), optimizers and schedules, as Paddle graphs.

No files, no loop, no clock; `program.py` puts the parts together.
"""
