"""GLUE and a user's own sentences: a table of tasks, readers, features, metrics, prediction files and recipes.

Nothing here depends on question answering or named-entity recognition.
"""
