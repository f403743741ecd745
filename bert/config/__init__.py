"""Settings that every run shares, the sizes of models, and the command line and YAML made from the settings.

Nothing here knows a task: settings and recipes of a task stand with the task.
"""
