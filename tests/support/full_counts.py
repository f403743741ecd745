"""How often a fault of the fault matrix is injected: a few times, with BERT_FULL_FAULTS=1 as often as is promised."""

import os

IS_FULL = os.environ.get("BERT_FULL_FAULTS") == "1"


def times(few: int, full: int) -> int:
    return full if IS_FULL else few
