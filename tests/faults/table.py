"""All rows, in the order of their numbers."""

from tests.faults import rows_files, rows_runs

ROWS = sorted([*rows_files.ROWS, *rows_runs.ROWS], key=lambda row: row.number)
