"""Fine-tuning: shared code (settings, batches, best weights, prediction), and a package for each task.

The training loop, ranks and checkpoints are in `bert.training`, networks and losses in `bert.model`; no task imports
another.
"""
