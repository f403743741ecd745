"""Pre-training as a task: settings, recipes, data, objective and held-out evaluation.

The loop is in `bert.training`, shards and batches in `bert.samples`, making shards in `data`.
"""
