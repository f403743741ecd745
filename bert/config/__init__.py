"""Settings shared by every run, model sizes, and the command line and YAML that are made from the settings.

Nothing here depends on a task: the settings and recipes of a task are in the task's package.
"""
