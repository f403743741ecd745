"""All rows, in the order of their numbers."""

from tests.faults import rows_disks, rows_endurance, rows_finetuning, rows_runs, rows_suites, rows_training

_PARTS = (rows_disks, rows_endurance, rows_finetuning, rows_runs, rows_suites, rows_training)
ROWS = sorted((row for part in _PARTS for row in part.ROWS), key=lambda row: row.number)
