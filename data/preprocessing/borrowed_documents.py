"""Documents of other blocks, for a block that one long document fills: random next sentences must not be its own.

Which bytes are borrowed depends on the seed, the block and the sources, not on the workers.
"""

import json
from functools import lru_cache
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
    write_atomically(folder / _SOURCES, json.dumps([[one.path, one.num_bytes] for one in sources]).encode())


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
    intervals = _other_intervals(_read_sources(folder), block)
    sizes = np.array([stop - start for _, start, stop in intervals], np.int64)
    total = int(sizes.sum())
    if not total:
        return []
    key = stream_key(seed, "borrowed documents", block.index)
    places = integers_below(key, np.arange(_PIECES), np.full(_PIECES, total))
    ends = np.cumsum(sizes)
    length = max(_FEWEST_BYTES, block.num_bytes // (_BLOCK_SHARE * _PIECES))
    texts = []
    for place in places.tolist():
        number = int(np.searchsorted(ends, place, side="right"))
        path, start, stop = intervals[number]
        begin = start + place - int(ends[number] - sizes[number])
        begin = max(start, min(begin, stop - length))  # the end of an interval is no shorter than its middle
        texts += _documents_at(path, begin, min(stop, begin + length), at_line_start=begin == start)
    return texts


def joined(first: TokenizedDocuments, second: TokenizedDocuments) -> TokenizedDocuments:
    """The documents of both, in this order."""

    def offsets(name: str) -> np.ndarray:
        left, right = getattr(first, name), getattr(second, name)
        return np.concatenate([left, left[-1] + right[1:]])

    continues = None
    if first.continues is not None and second.continues is not None:
        continues = np.concatenate([first.continues, second.continues])
    return TokenizedDocuments(
        np.concatenate([first.token_ids, second.token_ids]),
        offsets("sentence_offsets"),
        offsets("document_offsets"),
        continues,
    )


@lru_cache(maxsize=1)
def _read_sources(folder: Path) -> tuple[tuple[str, int], ...]:
    return tuple((path, num_bytes) for path, num_bytes in json.loads((folder / _SOURCES).read_bytes()))


def _other_intervals(sources: tuple[tuple[str, int], ...], block: Block) -> list[tuple[str, int, int]]:
    """(path, start, stop) of the lines that no document of the block is in; each begins at the start of a line."""
    sizes = dict(sources)
    own = {path: _lines_around(path, start, stop, sizes[path]) for path, start, stop in block.ranges}
    intervals = []
    for path, num_bytes in sources:
        first, last = own.get(path, (num_bytes, num_bytes))
        intervals += [(path, 0, first), (path, last, num_bytes)]
    return [(path, start, stop) for path, start, stop in intervals if stop - start >= _FEWEST_BYTES]


def _lines_around(path: str, start: int, stop: int, num_bytes: int) -> tuple[int, int]:
    """Start of the line that holds byte `start`, and the end of the line that holds byte `stop` - 1."""
    first, last = _newlines(path)
    chunk = start // _CHUNK_BYTES
    before = last[:chunk][last[:chunk] >= 0]
    chunk = -(-stop // _CHUNK_BYTES)
    after = first[chunk:][first[chunk:] >= 0]
    return int(before[-1]) + 1 if len(before) else 0, int(after[0]) + 1 if len(after) else num_bytes


@lru_cache(maxsize=4)
def _newlines(path: str) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last newline of each chunk of a file, int64 [n] each; -1 where there is none."""
    first: list[int] = []
    last: list[int] = []
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            offset = len(first) * _CHUNK_BYTES
            found = chunk.find(b"\n")
            first.append(offset + found if found >= 0 else -1)
            last.append(offset + chunk.rfind(b"\n") if found >= 0 else -1)
    return np.array(first, np.int64), np.array(last, np.int64)


def _documents_at(path: str, start: int, stop: int, *, at_line_start: bool) -> list[str]:
    """The parts of documents in bytes [start, stop) of a file, without ids; words cut at both ends are left out."""
    with open(path, "rb") as file:
        file.seek(start)
        lines = file.read(stop - start).split(b"\n")
    first, *others = (line.decode("utf-8", errors="ignore") for line in lines)
    texts = [_without_id(first) if at_line_start else _without_first_word(first), *map(_without_id, others)]
    texts[-1] = _without_last_word(texts[-1])  # "" if the bytes end with a line
    return [text for text in texts if text.strip()]


def _without_id(line: str) -> str:
    return "".join(line.lstrip().split(None, 1)[1:])


def _without_last_word(text: str) -> str:
    """Text that may end inside a word, up to the word before."""
    rest, _, word = text.rpartition(" ")
    return rest if len(word) <= _LONGEST_WORD else text


def _without_first_word(text: str) -> str:
    """Text that may begin inside a word, from the next word on; of a script without spaces, all of it."""
    word, _, rest = text.partition(" ")
    return rest if len(word) <= _LONGEST_WORD else text
