"""Reads source text in LDDL's layout: one document per line, which begins with its id.

The files are treated as one long text that is cut into blocks by position; a block owns the lines that start in it. So
blocks are independent, and take the same time for large and small files and for long and short lines.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bert.files import read_json, shown
from bert.interpreter import shell_command
from data.text.findings import Findings
from data.text.folders import files_below
from data.text.lddl_writer import REPORT_NAME, character_start

_SAMPLED_FILES, _SAMPLED_BYTES = 20, 1 << 16
_NUMBERED = re.compile(r"(?:.*[-_])?\d+\.txt")
_ID = re.compile(r"[\w$(#][^\s<>\"]*(?<![.,;:!?'\")])")
_DISTINCTIVE = re.compile(r"\d|\w[-_:/#]\w")
_TIME = re.compile(r"\[?\d{1,4}[-/:.]\d{1,2}[-/:.T]")
_MIN_LINES, _LEAST_DISTINCT, _LEAST_IDS = 10, 0.9, 0.95
_OF_A_REPORT = {"settings", "counts"}  # keys of report.json


def corpus_of(path: Path) -> Path | None:
    """Folder that holds source/N.txt or source/<language>/N.txt; None for a file with another name."""
    if not _NUMBERED.fullmatch(path.name):
        return None
    return next((above.parent for above in path.parents[:2] if above.name == "source"), None)


def report_of(corpus: Path) -> Path | None:
    """Report of the command that wrote a corpus; None without one."""
    reports = (folder / REPORT_NAME for folder in (corpus, corpus.parent))
    return next((report for report in reports if report.exists()), None)


def is_source_text(path: Path) -> bool:
    """Whether a file is source text: by its name, and by report.json or lines that begin with ids."""
    corpus = corpus_of(path)
    if corpus is None:
        return False
    report = report_of(corpus)
    if report is not None and _OF_A_REPORT <= read_json(report).keys():
        return True
    words = _first_words(str(path))
    return bool(words) and not is_raw(words, in_layout=False)


def check_source_text(folder: Path, files: Sequence[str]) -> None:
    """Raise ValueError if a file of the folder holds raw text; it names the import command."""
    for file in files[:: max(1, len(files) // _SAMPLED_FILES)]:
        corpus = corpus_of(Path(file))
        if corpus is not None and report_of(corpus) is not None:
            continue
        words = _first_words(file)
        if is_raw(words, corpus is not None):
            words, target = list(dict.fromkeys(words[:5])), shown(_imported(folder))
            importing = shell_command("data.import_text", "--input", shown(folder), "--output-dir", target)
            raise ValueError(
                f"{shown(file)}: is raw text; lines of source text begin with the ids of documents, these with "
                f"{' '.join(words)}. Import it, and give {target}/source instead of {shown(folder)}: "
                f"{importing} (if these are ids, move the file to FOLDER/source/en/0.txt). To train on it at once: "
                f"{shell_command('scripts/run_pretraining.sh', '--text', shown(folder))}"
            )


def is_raw(words: Sequence[str], in_layout: bool) -> bool:
    """Whether the first words of a file's lines are not ids."""
    if not words:
        return False
    ids = sum(bool(_ID.fullmatch(word) and _DISTINCTIVE.search(word) and not _TIME.match(word)) for word in words)
    num_distinct, are_ids = len(set(words)), ids >= _LEAST_IDS * len(words)
    if in_layout:
        return len(words) >= _MIN_LINES and 1 < num_distinct < _LEAST_DISTINCT * len(words) and not are_ids
    return not are_ids or num_distinct < len(words)


def _first_words(file: str) -> list[str]:
    """First word of each line in the first 64 kB."""
    with open(file, "rb") as opened:
        data = opened.read(_SAMPLED_BYTES)
    lines = data.decode("utf-8-sig", "replace").split("\n")
    if len(data) == _SAMPLED_BYTES and len(lines) > 1:
        lines.pop()  # which may end inside its first word
    return [line.split(None, 1)[0] for line in lines if line.strip()]


def _imported(folder: Path) -> Path:
    """Folder for an import of the files, next to the original."""
    whole = Path(os.path.abspath(folder))
    return (folder if folder.name else whole).with_name(f"{whole.name}-imported")


MAX_DOCUMENT_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_SPACE = re.compile(rb"[ \t\r\n]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class SourceFile:
    """A text file and its size in bytes."""

    path: str
    num_bytes: int


@dataclass(frozen=True)
class Block:
    """Byte ranges (file, start, stop) of the source text; every block but the last has num_bytes."""

    index: int
    num_bytes: int
    ranges: tuple[tuple[str, int, int], ...]


def list_sources(folders: Sequence[str | Path], others: Counter | None = None) -> tuple[SourceFile, ...]:
    """All *.txt files below the folders, sorted by folder and name; `others` counts other files.

    In a corpus folder only its `source` is searched. Hidden files and folders, such as unfinished downloads and
    checkpoints of notebooks, are left out and not counted.
    """
    sources: list[SourceFile] = []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such directory; give the folder that holds source/<language>/N.txt")
        if all((folder / part / "source").is_dir() for part in ("train", "held_out")):
            raise ValueError(
                f"{folder}: holds {folder}/held_out, which is not for training, beside {folder}/train; "
                "give one of the two"
            )
        files = files_below(folder / "source" if (folder / "source").is_dir() else folder, Findings(), hidden=False)
        texts = [SourceFile(str(path), path.stat().st_size) for path in files if path.suffix == ".txt"]
        if others is not None and len(files) > len(texts):
            others["files left out, as they are not named *.txt"] += len(files) - len(texts)
        if not sum(source.num_bytes for source in texts):
            raise ValueError(
                f"{folder}: its {len(texts)} *.txt files hold no text; download the corpus first, or import your own "
                f"text with {shell_command('data.import_text')}: one document per line, the first word being its id"
            )
        check_source_text(folder, [source.path for source in texts])
        sources += sorted(texts, key=lambda source: (_natural(source.path), source.path))
    seen: dict[str, str] = {}
    for source in sources:
        other = seen.setdefault(os.path.realpath(source.path), source.path)
        if other is not source.path:
            raise ValueError(
                f"{source.path}: the same file as {other}, so its text would count twice; give each "
                "folder once, remove links to files (--duplicate-factor makes several samples of each "
                "document)"
            )
    return tuple(sources)


def _natural(path: str) -> tuple:
    """Sort key that orders numbers in names: 10.txt after 9.txt."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in path.replace(".", os.sep).split(os.sep)
    )


def plan_blocks(sources: Sequence[SourceFile], block_bytes: int) -> tuple[Block, ...]:
    """Divide the source into blocks of `block_bytes`; the last one is smaller."""
    blocks: list[Block] = []
    ranges: list[tuple[str, int, int]] = []
    room = block_bytes
    for source in sources:
        start = 0
        while start < source.num_bytes:
            stop = min(source.num_bytes, start + room)
            ranges.append((source.path, start, stop))
            room -= stop - start
            start = stop
            if room == 0:
                blocks.append(Block(len(blocks), block_bytes, tuple(ranges)))
                ranges, room = [], block_bytes
    if ranges:
        blocks.append(Block(len(blocks), block_bytes, tuple(ranges)))
    return tuple(blocks)


def numbered_documents(block: Block, counts: Counter) -> Iterator[tuple[int, str]]:
    """(number, text) of the block's documents without their ids, in ascending order.

    Documents longer than MAX_DOCUMENT_BYTES come in pieces with one number; bytes that are not UTF-8 become U+FFFD,
    which BERT's tokenisation drops. Both are counted, as are documents without text.
    """
    number = -1
    for path, start, stop in block.ranges:
        with open(path, "rb", buffering=_READ_BYTES) as file:
            for raw, is_piece in _lines(file, start, stop, block.num_bytes):
                counts["input bytes"] += len(raw)
                if not raw.strip():
                    counts["blank lines"] += 1
                    continue
                if number < 0 or not is_piece:
                    number += 1
                    counts["documents read"] += 1
                counts["pieces cut from long lines"] += is_piece
                text = raw if is_piece else b"".join(raw.lstrip().split(None, 1)[1:])
                if not text:
                    counts["documents without text"] += 1
                    continue
                try:
                    yield number, text.decode("utf-8")
                except UnicodeDecodeError:
                    counts["documents not UTF-8"] += 1
                    yield number, text.decode("utf-8", errors="replace")


def _lines(file: BinaryIO, start: int, stop: int, step: int) -> Iterator[tuple[bytes, bool]]:
    """Lines that start in bytes [start, stop) of a file: (bytes, whether they continue a divided line).

    Blocks end every `step` bytes from `stop` on. A line that began more than MAX_DOCUMENT_BYTES before the end of a
    block is cut at the next white space after that end, and the rest belongs to the next block as if a line began
    there. So very long lines are divided among the blocks. What is yielded is not longer than MAX_DOCUMENT_BYTES.
    """
    position, is_piece = _first_line(file, start, stop)
    file.seek(position)
    end, carried, is_cut = stop, b"", False  # where the line has to be cut; its bytes that were read already
    while position < stop or is_cut:
        if not is_piece:
            num_blocks = -(-(position + MAX_DOCUMENT_BYTES + 1 - stop) // step)
            end = stop + max(0, num_blocks) * step
        room = min(MAX_DOCUMENT_BYTES, end - position)
        line, carried, is_cut = carried + file.readline(room - len(carried)), b"", False
        if position + len(line) == end and not line.endswith(b"\n"):
            cut = _block_cut(file, end)
            file.seek(end)
            line += file.read(cut - end)
        elif len(line) == MAX_DOCUMENT_BYTES and not line.endswith(b"\n"):
            cut = line.rfind(b" ", len(line) // 2) + 1 or min(character_start(line, len(line) - 4), len(line) - 1)
            line, carried, is_cut = line[:cut], line[cut:], True
        if not line:
            return
        yield line, is_piece
        position += len(line)
        is_piece = is_cut


def _first_line(file: BinaryIO, start: int, stop: int) -> tuple[int, bool]:
    """Start of the first line or piece of one (`stop` if there is none), and whether it is a piece."""
    if start == 0:
        return len(_BYTE_ORDER_MARK) * (file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK), False
    low = max(0, start - MAX_DOCUMENT_BYTES - 1)
    file.seek(low)
    before = file.read(start - low)
    if before.endswith(b"\n"):
        return start, False
    if start > MAX_DOCUMENT_BYTES and b"\n" not in before:
        cut = _block_cut(file, start)
        file.seek(cut - 1)
        return cut, file.read(1) != b"\n"
    position = start
    while position < stop and (skipped := file.readline(_READ_BYTES)):
        position += len(skipped)
        if skipped.endswith(b"\n"):
            return position, False
    return stop, False


def _block_cut(file: BinaryIO, end: int) -> int:
    """Where to divide a long line: from `end` on, after white space or at the start of a character.

    All positions up to the one returned give the same cut, so every block agrees on it.
    """
    file.seek(end - 1)
    data = file.read(_READ_BYTES)
    space = _SPACE.search(data)
    return end - 1 + (space.end() if space else character_start(data, 1))
