"""Tells source text (one document per line, its id first) from raw text, whose lines would lose their first words.

The text that our commands and LDDL's write is in FOLDER/source/<language>/N.txt. There it is taken for raw text only if
its lines begin with words that repeat, and our commands left no report beside it. Elsewhere each line has to begin with
an id of its own, which has a digit or words joined by - _ : / or #.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from bert.files import shown
from bert.interpreter import shell_command
from data.text.import_report import REPORT_NAME

_SAMPLED_FILES, _SAMPLED_BYTES = 20, 1 << 16
_NUMBERED = re.compile(r"(?:.*[-_])?\d+\.txt")
_ID = re.compile(r"[\w$(#][^\s<>\"]*(?<![.,;:!?'\")])")
_DISTINCTIVE = re.compile(r"\d|\w[-_:/#]\w")
_TIME = re.compile(r"\[?\d{1,4}[-/:.]\d{1,2}[-/:.T]")
_MIN_LINES, _LEAST_DISTINCT, _LEAST_IDS = 10, 0.9, 0.95


def check_source_text(folder: Path, files: Sequence[str]) -> None:
    """ValueError, with the command that imports the folder, if one of its files holds raw text."""
    step = max(1, len(files) // _SAMPLED_FILES)
    for file in files[::step]:
        source = _source_folder(Path(file))
        if source is not None and any((above / REPORT_NAME).exists() for above in list(source.parents)[:2]):
            continue
        words = first_words(file)
        if is_raw(words, source is not None):
            examples = " ".join(dict.fromkeys(words[:5]))
            target = shown(_imported(folder))
            importing = shell_command("data.import_text", "--input", shown(folder), "--output-dir", target)
            raise ValueError(
                f"{shown(file)}: is raw text; lines of source text begin with the ids of documents, these with "
                f"{examples}. Import it, and give {target}/source instead of {shown(folder)}: {importing} (if these "
                "are ids, move the file to FOLDER/source/en/0.txt)"
            )


def is_raw(words: Sequence[str], in_layout: bool) -> bool:
    """Whether the first words of a file's lines are not ids."""
    if not words:
        return False
    ids = sum(bool(_ID.fullmatch(word) and _DISTINCTIVE.search(word) and not _TIME.match(word)) for word in words)
    if in_layout:
        repeated = len(words) >= _MIN_LINES and 1 < len(set(words)) < _LEAST_DISTINCT * len(words)
        return repeated and ids < _LEAST_IDS * len(words)
    return ids < _LEAST_IDS * len(words) or len(set(words)) < len(words)


def first_words(file: str) -> list[str]:
    """The first word of each line in the first 64 kB."""
    with open(file, "rb") as opened:
        data = opened.read(_SAMPLED_BYTES)
    lines = data.decode("utf-8-sig", "replace").split("\n")
    if len(data) == _SAMPLED_BYTES and len(lines) > 1:
        lines.pop()  # which may end inside its first word
    return [line.split(None, 1)[0] for line in lines if line.strip()]


def _source_folder(file: Path) -> Path | None:
    """The folder `source` of .../source/N.txt or .../source/<language>/N.txt; None for other paths."""
    folders = [folder for folder in list(file.parents)[:2] if folder.name == "source"]
    return folders[0] if folders and _NUMBERED.fullmatch(file.name) else None


def _imported(folder: Path) -> Path:
    """Where to import a folder: beside it."""
    whole = Path(os.path.abspath(folder))
    return (folder if folder.name else whole).with_name(f"{whole.name}-imported")
