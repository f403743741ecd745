"""Fine-tuning: settings, features, loader and the run that SQuAD, GLUE and NER share, and a package for each of them.

A task reads files, makes features, and scores outputs; programs, ranks and checkpoints are handled in `bert.training`.
"""
