"""Pre-training as a task: its settings, its recipes, its data, objective and held-out evaluation.

The loop is in `bert.training`, shards and batches in `bert.samples`, making shards in `data`.
"""
