"""A training run of any task: the loop, initial weights, logged metrics, saving, guards, watchdog and stopping.

Nothing here knows a task: a task gives data, an objective and an evaluation.
"""
