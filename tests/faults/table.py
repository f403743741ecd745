"""All rows, in the order of their numbers."""

from tests.faults import rows_files

ROWS = sorted([*rows_files.ROWS], key=lambda row: row.number)
