"""Named-entity recognition: CoNLL files, tagging schemes, windows, span F1 and recipes.

Nothing here knows of questions or of GLUE.
"""
