"""Settings that every run shares, the sizes of models, and the command line and YAML made from the settings.

Nothing here depends on a task: the settings and recipes of a task are in the task's package.
"""
