"""Labelled lines of a probe (--probe-file): a table with the columns text and label."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from data.text.columns import NoColumnError, TableForm
from data.text.encodings import NotTextError
from data.text.tables import user_table

COLUMNS = ("text", "label")
FOLDS = 3
MOST_LINES = 2_000  # of a longer file, lines spread over all of it


@dataclass(frozen=True)
class LabelledLines:
    texts: list[str]
    labels: list[str]

    def most_frequent_share(self) -> float:
        """The accuracy of always guessing the most frequent label."""
        return Counter(self.labels).most_common(1)[0][1] / len(self.labels)


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
    lines = LabelledLines([text for text, _ in chosen], [label for _, label in chosen])
    counts = Counter(lines.labels)
    if len(counts) < 2 or min(counts.values()) < FOLDS:
        rare = f"{min(counts, key=counts.__getitem__)!r} on {min(counts.values())}" if counts else "none"
        raise ValueError(
            f"probe_file={path} has {len(counts)} labels in {len(lines.labels)} lines, the rarest {rare}; it must have "
            f"two labels and each on at least {FOLDS} lines: add lines, or join labels"
        )
    return lines
