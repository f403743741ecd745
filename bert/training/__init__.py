"""The training loop and what it is put together from: initial weights, evaluation, guards, watchdog, stopping.

Knows no task; a task gives it data, an objective and evaluation sets.
"""
