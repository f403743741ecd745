"""Settings that every run shares, the model's sizes, and the command line and YAML made from them.

Typed, frozen and checked once. Knows no task: recipes and settings of a task live with the task.
"""
