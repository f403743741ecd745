"""Source text in LDDL's layout: one document per line, its first token the document's id.

The files are read as one long text, cut into blocks; a block owns the lines that start in it. So the work can be
shared out in any way, and large and small files cost the same.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_DOCUMENT_BYTES = 4 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class SourceFile:
    """A text file and its size in bytes."""

    path: str
    num_bytes: int


@dataclass(frozen=True)
class Block:
    """Byte ranges (file, start, stop) of the source."""

    index: int
    ranges: tuple[tuple[str, int, int], ...]


def list_sources(folders: Sequence[str | Path]) -> tuple[SourceFile, ...]:
    """All *.txt files below the folders, by folder and name; of a corpus folder only what is below its `source`.

    Raises:
        ValueError: a folder is missing, or holds no text.
    """
    sources: list[SourceFile] = []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such directory; give the folder that holds source/<language>/N.txt")
        root = folder / "source" if (folder / "source").is_dir() else folder
        found = [SourceFile(str(path), path.stat().st_size) for path in root.rglob("*.txt") if path.is_file()]
        if not sum(source.num_bytes for source in found):
            raise ValueError(f"{folder}: its {len(found)} *.txt files hold no text; download or extract the corpus "
                             "first: one document per line, the first word being its id")
        sources += sorted(found, key=lambda source: _natural(source.path))
    return tuple(sources)


def _natural(path: str) -> tuple:
    """10.txt after 9.txt."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part)
                 for part in path.replace(".", os.sep).split(os.sep))


def plan_blocks(sources: Sequence[SourceFile], block_bytes: int) -> tuple[Block, ...]:
    """Cut the source into blocks of `block_bytes`, the last one smaller."""
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
                blocks.append(Block(len(blocks), tuple(ranges)))
                ranges, room = [], block_bytes
    if ranges:
        blocks.append(Block(len(blocks), tuple(ranges)))
    return tuple(blocks)


def read_documents(block: Block, counts: Counter) -> Iterator[str]:
    """The texts of the block's documents, without their ids.

    Lines longer than MAX_DOCUMENT_BYTES become several documents; bytes that are not UTF-8 become U+FFFD, which
    BERT's tokenisation drops. Both are counted, as are documents without text.
    """
    for path, start, stop in block.ranges:
        with open(path, "rb") as file:
            for raw in _lines(file, start, stop, counts):
                counts["input bytes"] += len(raw)
                counts["documents read"] += 1
                words = raw.lstrip().split(None, 1)
                if len(words) < 2:
                    counts["documents without text"] += 1
                    continue
                try:
                    yield words[1].decode("utf-8")
                except UnicodeDecodeError:
                    counts["documents not UTF-8"] += 1
                    yield words[1].decode("utf-8", errors="replace")


def _lines(file, start: int, stop: int, counts: Counter) -> Iterator[bytes]:
    """The lines that start in [start, stop), long ones in pieces; a piece after the first gets an id of its own."""
    if start:
        file.seek(start - 1)
        while not (skipped := file.readline(MAX_DOCUMENT_BYTES)).endswith(b"\n"):
            if not skipped:
                return
    elif file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
        file.seek(0)
    while file.tell() < stop:
        line = file.readline(MAX_DOCUMENT_BYTES)
        if not line:
            return
        if not line.strip():
            counts["blank lines"] += 1
            continue
        while len(line) == MAX_DOCUMENT_BYTES and not line.endswith(b"\n"):
            counts["pieces cut from long lines"] += 1
            cut = _cut(line)
            yield line[:cut]
            line = b"... " + line[cut:]
            rest = file.readline(MAX_DOCUMENT_BYTES - len(line))
            line += rest
            if not rest:
                break
        if line.strip():
            yield line


def _cut(line: bytes) -> int:
    """Where to cut a long line: after its last space in the second half, or else between two characters."""
    cut = line.rfind(b" ", len(line) // 2) + 1
    if cut:
        return cut
    cut = len(line) - 4
    while cut < len(line) - 1 and line[cut] & 0xC0 == 0x80:
        cut += 1
    return cut
