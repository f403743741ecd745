"""Named entities and other labels of words: CoNLL files, windows, span F1, the task put together."""
