"""The tasks of GLUE: their table, files, settings and recipes. They are trained and scored by `bert.labels`."""
