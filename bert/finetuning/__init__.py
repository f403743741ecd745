"""Fine-tuning: what its tasks share (settings, batches, the best weights, prediction), and a package for each task.

The training loop, ranks and checkpoints are in `bert.training`, networks and losses in `bert.model`; no task imports
another.
"""
