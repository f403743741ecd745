"""Labelled lines of a probe (--probe-file): a table with the columns text and label."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from data.text.columns import NoColumnError, TableForm
from data.text.encodings import NotTextError
from data.text.tables import user_table

COLUMNS = ("text", "label")
FOLDS = 3
MOST_LINES = 2_000  # of a longer file, lines spread over all of it


class LabelledLines(NamedTuple):
    texts: list[str]
    labels: list[str]
    most_frequent_share: float  # the accuracy of always guessing the most frequent label


def read_labelled_lines(path: Path) -> LabelledLines:
    """ValueError without both columns, with fewer than two labels, or with lines that a label is too rare on."""
    if not path.is_file():
        raise ValueError(f"probe_file={path} must be an existing table; correct --probe-file")
    try:
        rows = list(user_table(path, TableForm(COLUMNS, quotes="cells")).rows)
    except NoColumnError as error:
        raise ValueError(f"probe_file={error}; it must have the columns text and label") from None
    except NotTextError as error:
        raise ValueError(f"probe_file={error}; correct --probe-file") from None
    cells = [[(row.values or {}).get(name) for name in COLUMNS] for row in rows]
    found = [["" if cell is None else str(cell).strip() for cell in pair] for pair in cells]  # null: without a label
    whole = [pair for pair in found if all(pair)]
    number = min(len(whole), MOST_LINES)
    chosen = [whole[index * len(whole) // number] for index in range(number)]
    counts = Counter(label for _, label in chosen)
    if len(counts) < 2 or min(counts.values()) < FOLDS:
        rare = f"{min(counts, key=counts.__getitem__)!r} on {min(counts.values())}" if counts else "none"
        raise ValueError(
            f"probe_file={path} has {len(counts)} labels in {number} lines, the rarest {rare}; it must have "
            f"two labels and each on at least {FOLDS} lines: add lines, or join labels"
        )
    texts, labels = map(list, zip(*chosen, strict=True))
    return LabelledLines(texts, labels, max(counts.values()) / number)
