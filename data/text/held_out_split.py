"""Divides imported documents into training and held-out text; the hash of a text decides its part.

Documents are held out in the order of their hashes until the share is reached. So the division depends neither on the
order nor on the number of the files, equal texts get into the same part, and added text moves few others. A document
longer than a quarter of the held-out part is cut into blocks, where sentences start, each with a hash of its own: so a
single huge document is divided too. With groups, the hash of the group's name decides for all of its documents, whole.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bert.arrays.ragged import offsets_of, positions_in_rows
from data.text.held_out_groups import held_out_in_order
from data.text.lddl_writer import ShuffledWriter, SourceWriter, character_start
from data.text.sentences import last_start

PARTS = ("train", "held_out")
MEASURABLE_BYTES = 20_000  # a loss on less text is noise
LEAST_BYTES, _LARGEST_LEAST_SHARE = 1000, 0.2  # of the held-out part of very little text
_BLOCKS = 8  # of the held-out part, if all documents are long
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 256, 8 << 20
_WINDOW_BYTES = 16 << 10  # in which a sentence's start is searched
_READ_BYTES = 1 << 16
_NEXT_BLOCK = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: the hashes of a document's blocks are spread evenly


@dataclass
class Documents:
    """A 64-bit hash of each document's text and its size without the id; 17 bytes of memory each."""

    hashes: array = field(default_factory=lambda: array("Q"))
    sizes: array = field(default_factory=lambda: array("Q"))
    are_grouped: array = field(
        default_factory=lambda: array("b")
    )  # whether the hash is a group's, which is not divided

    def add(self, sha256: bytes, num_bytes: int, is_grouped: bool) -> None:
        self.are_grouped.append(is_grouped)
        self.hashes.append(int.from_bytes(sha256[:8], "big"))
        self.sizes.append(num_bytes)


def held_out_bytes(text_bytes: int, fraction: float) -> float:
    """Bytes to hold out: the requested share; for very little text at least 1 kB or a fifth."""
    return max(text_bytes * fraction, min(LEAST_BYTES, text_bytes * _LARGEST_LEAST_SHARE))


def check_groups(group_by: str | None, number: int) -> None:
    """Raise ValueError if no document has the requested group, or all are in one group."""
    if group_by is not None and number < 2:
        problem = "all documents are of one group" if number else "no document has a group"
        raise ValueError(
            f"group_by={group_by}: {problem}; name a column that tables have, folder (of each file), or folder:1 (the "
            "first folder of its path)"
        )


def plan_split(documents: Documents, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Number of blocks of each document, int64 [n], and whether each block is held out, bool [blocks]."""
    are_grouped = np.frombuffer(documents.are_grouped, bool)
    hashes, sizes = np.frombuffer(documents.hashes, np.uint64), np.frombuffer(documents.sizes, np.uint64).astype(float)
    target = held_out_bytes(int(sizes.sum()), fraction)
    block_bytes = min(_MAX_BLOCK_BYTES, max(_MIN_BLOCK_BYTES, int(target) // _BLOCKS))
    is_divided = (sizes > 2 * block_bytes) & ~are_grouped
    num_blocks = np.where(is_divided, np.ceil(sizes / block_bytes), 1).astype(np.int64)
    numbers = positions_in_rows(offsets_of(num_blocks)).astype(np.uint64)
    keys = np.repeat(hashes, num_blocks) + numbers * np.uint64(_NEXT_BLOCK)
    return num_blocks, held_out_in_order(keys, np.repeat(sizes / num_blocks, num_blocks), target)


def divide(
    files: Sequence[tuple[Path, int]],
    documents: Documents,
    fraction: float,
    train: ShuffledWriter,
    held_out: SourceWriter,
    advance: Callable[[int], object],
) -> None:
    """Write each document to the writer of its part, and delete finished files.

    The neighbouring blocks of one part become one document: id, id#2, id#3 ...

    Args:
        files: with the number of their documents, in the order of `documents`.
        advance: gets the bytes that are done.
    """
    num_blocks, are_held_out = plan_split(documents, fraction)
    sizes, blocks, part_of = iter(documents.sizes), iter(num_blocks.tolist()), iter(are_held_out.tobytes())
    writers = (train, held_out)
    for path, num_documents in files:
        with open(path, "rb") as file:
            for _ in range(num_documents):
                count = next(blocks)
                identifier, pieces = _read_document(file, next(sizes), count)
                parts = [next(part_of) for _ in range(count)]
                number = 0
                for block, piece in enumerate(pieces):
                    writer, is_end = writers[parts[block]], parts[block] not in parts[block + 1 : block + 2]
                    if block == 0 or parts[block - 1] != parts[block]:
                        number += 1
                        name = identifier if number == 1 else b"%s#%d" % (identifier, number)
                        writer.write(name + b" ", is_end=False)
                    writer.write(piece.rstrip() + b"\n" if is_end else piece, is_start=False, is_end=is_end)
                    advance(len(piece))
        path.unlink()


def _read_document(file: BinaryIO, num_bytes: int, num_blocks: int) -> tuple[bytes, Iterator[bytes]]:
    """Read a line of LDDL's layout: (id, text in blocks of about equal size)."""
    head = b""
    while b" " not in head:
        head += file.readline(_READ_BYTES)
    identifier, _, text = head.partition(b" ")
    return identifier, _text_blocks(file, text, num_bytes, num_blocks)


def _text_blocks(file: BinaryIO, held: bytes, num_bytes: int, num_blocks: int) -> Iterator[bytes]:
    """Blocks of a text with its line end; `held` was read before. The cuts depend only on the text."""
    start, read = 0, len(held)
    for block in range(1, num_blocks):
        stop = num_bytes * block // num_blocks
        held += file.read(max(0, stop - read))
        read = max(read, stop)
        cut = _block_end(held[: stop - start])
        yield held[:cut]
        held, start = held[cut:], start + cut
    yield held + file.read(num_bytes + 1 - read)


def _block_end(block: bytes) -> int:
    """End of a block: the last sentence start in its second half, otherwise a word's or a character's."""
    low = character_start(block, max(len(block) // 2, len(block) - _WINDOW_BYTES))
    high = character_start(block, len(block) - 4)
    window = block[low:high].decode("utf-8", "replace")
    return low + len(window[: last_start(window, 0, len(window))].encode())
