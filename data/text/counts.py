"""Counts of a data command on standard output, unless whoever started it shows its own summary."""

import os
from collections.abc import Mapping
from typing import Any

REPORT_NAME = "report.json"  # of an import
QUIET_COUNTS = "BERT_QUIET_COUNTS"  # environment variable: a launcher runs the command; its report keeps the counts


def print_counts(counts: Mapping[str, Any]) -> None:
    """One indented line for each count."""
    if QUIET_COUNTS not in os.environ:
        for name, value in counts.items():
            print(f"  {name}: {value}")
