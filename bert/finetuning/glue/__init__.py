"""GLUE and a user's own sentences: tasks, readers, features, metrics, prediction files."""
