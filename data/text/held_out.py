"""Divides source text into a training and a held-out part by bytes; the hash of a text decides its part.

The units are documents, and blocks of documents that are longer than a quarter of the held-out part. They are held out
in the order of the hash of their text until the share is reached, so the division depends neither on the order nor on
the number of the files, equal texts get into the same part, and added text moves few others. A unit that would
overshoot the share is cut where a sentence begins; its end is held out.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from data.text.lddl_writer import ShuffledWriter, SourceWriter
from data.text.sentence_starts import last_sentence_start, last_start

PARTS = ("train", "held_out")
MEASURABLE_BYTES = 20_000  # a loss on less text is noise
LEAST_BYTES, _LARGEST_LEAST_SHARE = 1000, 0.2  # of the held-out part of very little text
_BLOCKS = 8  # of the held-out part, if all documents are long
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 10, 8 << 20
_WINDOW_BYTES = 16 << 10  # in which a sentence's start is searched
_TOLERANCE = 0.05  # of the held-out bytes; a unit that misses them by less is not cut
_KEY_BITS = 20
_READ_BYTES = 1 << 20

Writers = Mapping[str, SourceWriter | ShuffledWriter]  # by part


@dataclass(frozen=True)
class Division:
    """Units whose key is below `threshold` are held out, of those at the threshold the last `tail` of their bytes."""

    block_bytes: int
    threshold: int
    tail: float

    def pieces(self, text: bytes) -> list[tuple[str, bytes]]:
        """(part, text) of a unit, in order."""
        key = _key(text)
        if key != self.threshold or self.tail in (0.0, 1.0):
            held_out = key < self.threshold or (key == self.threshold and self.tail == 1.0)
            return [(PARTS[held_out], text)]
        cut = _sentence_start(text, round(len(text) * (1.0 - self.tail)))
        if cut is None:
            return [(PARTS[self.tail >= 0.5], text)]
        return [(PARTS[0], text[:cut].rstrip()), (PARTS[1], text[cut:])]


def held_out_bytes(text_bytes: int, fraction: float) -> float:
    """Bytes to hold out: the share that was asked for, but of very little text at least 1 kB or a fifth."""
    return max(text_bytes * fraction, min(LEAST_BYTES, text_bytes * _LARGEST_LEAST_SHARE))


def plan_division(
    files: Sequence[Path], text_bytes: int, fraction: float, advance: Callable[[int], object]
) -> Division:
    """The division of source files that hold `text_bytes` of text without ids; `advance` gets the bytes read.

    Reads the files once; needs 16 MB of memory at most, whatever their size.
    """
    target = held_out_bytes(text_bytes, fraction)
    block_bytes = min(_MAX_BLOCK_BYTES, max(_MIN_BLOCK_BYTES, 1 << (max(1, int(target) // _BLOCKS).bit_length() - 1)))
    sizes = array("Q", bytes(8 << _KEY_BITS))
    for path in files:
        with open(path, "rb") as file:
            for _, _, text in read_units(file, block_bytes):
                sizes[_key(text)] += len(text)
                advance(len(text))
    ends = np.cumsum(np.frombuffer(sizes, np.uint64).astype(np.int64))
    threshold = int(np.searchsorted(ends, target))
    size = sizes[threshold]
    missing = target - (ends[threshold] - size)
    if missing <= _TOLERANCE * target:
        return Division(block_bytes, threshold, 0.0)
    if size - missing <= _TOLERANCE * target and ends[threshold] < ends[-1]:
        return Division(block_bytes, threshold, 1.0)
    return Division(block_bytes, threshold, float(missing / size))


def divide(
    files: Sequence[Path], division: Division, writers: Writers, advance: Callable[[int], object]
) -> dict[str, int]:
    """Write each piece to the writer of its part, deleting the files that are done; returns the bytes of each part.

    The bytes are those of the text, without ids.
    """
    written = dict.fromkeys(PARTS, 0)
    for path in files:
        pieces = _Pieces(writers)
        with open(path, "rb") as file:
            for identifier, number, text in read_units(file, division.block_bytes):
                if number == 0:
                    pieces.begin(identifier)
                for part, piece in division.pieces(text):
                    pieces.add(part, piece)
                    written[part] += len(piece)
                advance(len(text))
        pieces.end()
        path.unlink()
    return written


class _Pieces:
    """Writes a document's neighbouring pieces of one part as one document: id, id#2, id#3 ..."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers
        self._part: str | None = None
        self._id, self._number = b"", 0

    def begin(self, identifier: bytes) -> None:
        self.end()
        self._id, self._number = identifier, 0

    def add(self, part: str, piece: bytes) -> None:
        if part != self._part:
            self.end()
            self._part = part
            self._number += 1
            name = self._id if self._number == 1 else b"%s#%d" % (self._id, self._number)
            self._writers[part].write(name, is_end=False)
        self._writers[part].write(b" " + piece, is_start=False, is_end=False)

    def end(self) -> None:
        if self._part is not None:
            self._writers[self._part].write(b"\n", is_start=False)
        self._part = None


def read_units(file: BinaryIO, block_bytes: int) -> Iterator[tuple[bytes, int, bytes]]:
    """(id, number of the unit in its document, text) of a file in LDDL's layout, in order.

    A document of at most two blocks is one unit; of a longer one each unit has half a block to two blocks. Where a
    document is cut depends on its text alone.
    """
    number, held, identifier = 0, b"", None
    while piece := file.readline(max(_READ_BYTES, 2 * block_bytes)):
        held += piece
        ended = held.endswith(b"\n")
        if identifier is None:
            if b" " not in held:  # a very long id
                continue
            identifier, _, held = held.partition(b" ")
        start, stop = 0, len(held) - ended
        while stop - start > 2 * block_bytes:
            cut = start + _block_end(held[start : start + block_bytes])
            yield identifier, number, held[start:cut].rstrip()
            start, number = cut, number + 1
        held = held[start:]
        if ended:
            yield identifier, number, held[:-1]
            number, held, identifier = 0, b"", None


def _block_end(block: bytes) -> int:
    """Where to cut a block: at the last sentence's start in its second half, otherwise at a word's or a character's."""
    low, high = _character(block, max(len(block) // 2, len(block) - _WINDOW_BYTES)), _character(block, len(block) - 4)
    window = block[low:high].decode("utf-8", "replace")
    return low + len(window[: last_start(window, 0, len(window))].encode())


def _sentence_start(text: bytes, place: int) -> int | None:
    """Where the last sentence that starts in the window before `place` begins; None if none does."""
    low, high = _character(text, max(0, place - _WINDOW_BYTES)), _character(text, place)
    window = text[low:high].decode("utf-8", "replace")
    start = last_sentence_start(window, 0, len(window))
    return None if start is None else low + len(window[:start].encode())


def _character(text: bytes, place: int) -> int:
    """The first place from this one on at which a character of UTF-8 starts."""
    while place < len(text) and text[place] & 0xC0 == 0x80:
        place += 1
    return place


def _key(text: bytes) -> int:
    """The first bits of the sha256 of a text."""
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> (32 - _KEY_BITS)
