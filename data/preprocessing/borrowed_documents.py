"""Documents of other blocks, for a block that one long document fills: random next sentences must not be its own.

Which bytes are borrowed depends on the seed, the block and the sources, not on the workers.
"""

import json
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from bert.files import write_atomically
from bert.randomness import integers_below, stream_key
from data.text.lddl_reader import Block, SourceFile
from data.text.sentences import TokenizedDocuments

_LARGEST_SHARE = 0.9  # of a block's tokens; with more in one document the others are too little to draw from
_PIECES = 64  # borrowed texts of a block
_BLOCK_SHARE = 4  # they are together at most this part of a block
_FEWEST_BYTES = 256  # of a borrowed text, before it is cut at its ends
_LONGEST_WORD = 64  # characters; a text that begins inside a word loses the rest of it
_CHUNK_BYTES = 1 << 20
_SOURCES = "sources.json"


def write_sources(folder: Path, sources: tuple[SourceFile, ...]) -> None:
    """Keep the list of sources where workers find it; to send it with every task would take too long."""
    write_atomically(folder / _SOURCES, json.dumps([[file.path, file.num_bytes] for file in sources]).encode())


def needs_others(documents: TokenizedDocuments) -> bool:
    """Whether nearly all tokens of a block are of one document."""
    sizes = np.diff(documents.sentence_offsets[documents.document_offsets])
    return len(sizes) > 0 and sizes.max() > _LARGEST_SHARE * sizes.sum()


def borrowed_texts(folder: Path, block: Block, seed: int) -> list[str]:
    """Texts of other documents than those of the block, from all over the sources; [] if there is no other.

    Args:
        folder: holds what `write_sources` has written.
        block: its documents, also their parts in other blocks, are left out.
    """
    intervals = []  # (path, start, stop) of lines that no document of the block is in; each begins where a line does
    own = {path: (start, stop) for path, start, stop in block.ranges}
    for path, num_bytes in json.loads((folder / _SOURCES).read_bytes()):
        low, high = _lines_around(path, *own[path], num_bytes) if path in own else (num_bytes, num_bytes)
        intervals += [(path, start, stop) for start, stop in ((0, low), (high, num_bytes))]
    intervals = [interval for interval in intervals if interval[2] - interval[1] >= _FEWEST_BYTES]
    if not intervals:
        return []
    sizes = np.array([stop - start for _, start, stop in intervals], np.int64)
    ends = np.cumsum(sizes)
    key = stream_key(seed, "borrowed documents", block.index)
    length = max(_FEWEST_BYTES, block.num_bytes // (_BLOCK_SHARE * _PIECES))
    texts = []
    for place in integers_below(key, np.arange(_PIECES), np.full(_PIECES, ends[-1])).tolist():
        number = int(np.searchsorted(ends, place, side="right"))
        path, start, stop = intervals[number]
        begin = start + place - int(ends[number] - sizes[number])
        begin = max(start, min(begin, stop - length))  # the end of an interval is no shorter than its middle
        texts += _documents_at(path, begin, min(stop, begin + length), at_line_start=begin == start)
    return texts


def joined(first: TokenizedDocuments, second: TokenizedDocuments) -> TokenizedDocuments:
    """The documents of both, in this order."""

    def offsets(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.concatenate([left, left[-1] + right[1:]])

    continues = [part.continues for part in (first, second) if part.continues is not None]
    return TokenizedDocuments(
        np.concatenate([first.token_ids, second.token_ids]),
        offsets(first.sentence_offsets, second.sentence_offsets),
        offsets(first.document_offsets, second.document_offsets),
        np.concatenate(continues) if continues else None,
    )


def _lines_around(path: str, start: int, stop: int, num_bytes: int) -> tuple[int, int]:
    """Start of the line that holds the chunk of byte `start`, and the end of the line that holds that of `stop` - 1."""
    newlines = _newlines(path)
    before, after = newlines[: start // _CHUNK_BYTES, 1], newlines[-(-stop // _CHUNK_BYTES) :, 0]
    after = after[after >= 0]
    return int(before.max(initial=-1)) + 1, int(after[0]) + 1 if len(after) else num_bytes


@lru_cache(maxsize=4)
def _newlines(path: str) -> np.ndarray:
    """int64 [chunks, 2]: the places of the first and the last newline in each chunk of a file; -1 without any."""
    with open(path, "rb") as file:
        chunks = iter(partial(file.read, _CHUNK_BYTES), b"")
        places = np.array([(chunk.find(b"\n"), chunk.rfind(b"\n")) for chunk in chunks], np.int64)
    return np.where(places < 0, -1, places + _CHUNK_BYTES * np.arange(len(places))[:, None])


def _documents_at(path: str, start: int, stop: int, *, at_line_start: bool) -> list[str]:
    """The parts of documents in bytes [start, stop) of a file, without ids; words cut at both ends are left out."""
    with open(path, "rb") as file:
        file.seek(start)
        lines = file.read(stop - start).decode("utf-8", errors="ignore").split("\n")
    texts = ["".join(line.lstrip().split(None, 1)[1:]) for line in lines]
    if not at_line_start:  # the first word is a part of one, or in a script without spaces all of the text
        word, _, rest = lines[0].partition(" ")
        texts[0] = rest if len(word) <= _LONGEST_WORD else lines[0]
    rest, _, word = texts[-1].rpartition(" ")
    if len(word) <= _LONGEST_WORD:
        texts[-1] = rest
    return [text for text in texts if text.strip()]
