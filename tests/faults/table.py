"""All rows, in the order of their numbers."""

from tests.faults import rows_files, rows_runs, rows_training

ROWS = sorted([*rows_files.ROWS, *rows_runs.ROWS, *rows_training.ROWS], key=lambda row: row.number)
