"""Named-entity recognition: CoNLL files, tagging schemes, windows, span F1 and recipes.

Nothing here depends on question answering or GLUE.
"""
