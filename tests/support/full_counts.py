"""How often the fault matrix injects a fault: a few times, or in full with BERT_FULL_FAULTS=1."""

import os

IS_FULL = os.environ.get("BERT_FULL_FAULTS") == "1"


def times(few: int, full: int) -> int:
    return full if IS_FULL else few
