"""A training run of any task: the loop, initial weights, logged metrics, saving, guards, watchdog and stopping.

Nothing here depends on a task: a task supplies data, an objective and an evaluation.
"""
