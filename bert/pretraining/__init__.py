"""Pre-training as a task: its settings, its recipes, and how its data, objective and evaluation are put together."""
