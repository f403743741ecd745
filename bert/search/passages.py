"""Cuts a document into passages of whole paragraphs, short enough for a model to read in full."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from data.text.sentences import last_start, split_sentences

JOINED_TOKENS = 128  # most tokens of paragraphs that are joined into one passage
_PARAGRAPH = re.compile(r"\S(?:.*?\S)??(?=\s*?\n[ \t\r]*(?:\n|\Z)|\s*\Z)", re.DOTALL)
_LINE = re.compile(r"\S(?:.*\S)?")
_MOST_HEADING_WORDS = 15
TokenCounts = Callable[[Sequence[str]], Sequence[int]]  # the tokens of each text


class Part(NamedTuple):
    """A part of a text: from character `start` to `end`, with its number of tokens."""

    start: int
    end: int
    tokens: int


def passages(text: str, count: TokenCounts, room: int, language: str, by_line: bool = False) -> Iterator[Part]:
    """Cut a text into passages, in order; only white space is left out.

    Paragraphs are joined up to 128 tokens, a heading with what follows it. A paragraph that is longer than the
    model reads is cut between sentences, a sentence that is longer between words.

    Args:
        count: function that counts the tokens of texts, without the special tokens that the model adds.
        room: most tokens of a passage that the model reads.
        by_line: whether each line of a text without an empty line is a passage, as in a list of questions.
    """
    found = [match.span() for match in _PARAGRAPH.finditer(text)]
    is_list = by_line and len(found) == 1
    if is_list:
        found = [match.span() for match in _LINE.finditer(text)]
    pieces = [text[start:end] for start, end in found]
    parts = list[Part]()
    for (start, end), tokens in zip(found, count(pieces), strict=True):
        if tokens <= room:
            parts.append(Part(start, end, int(tokens)))
        else:
            parts += _cut(text, start, end, count, room, language)
    yield from parts if is_list else _joined(text, parts, min(room, JOINED_TOKENS), room)


def _joined(text: str, parts: Sequence[Part], enough: int, room: int) -> Iterator[Part]:
    """Join neighbouring parts up to `enough` tokens; a heading is joined to the part that follows if both fit."""
    group = list[Part]()
    for part in parts:
        tokens = sum(one.tokens for one in group) + part.tokens
        follows_heading = len(group) == 1 and _is_heading(text[group[0].start : group[0].end])
        if group and tokens > (room if follows_heading else enough):
            is_last_heading = len(group) > 1 and _is_heading(text[group[-1].start : group[-1].end])
            carried = [group.pop()] if is_last_heading and group[-1].tokens + part.tokens <= room else []
            yield _whole(group)
            group = carried
        group.append(part)
    if group:
        yield _whole(group)


def _whole(group: Sequence[Part]) -> Part:
    return Part(group[0].start, group[-1].end, sum(part.tokens for part in group))


def _is_heading(text: str) -> bool:
    """Whether a paragraph is one short line that ends without a stop."""
    return "\n" not in text and len(text.split()) <= _MOST_HEADING_WORDS and text[-1] not in ".!:;,\u3002"


def _cut(text: str, start: int, end: int, count: TokenCounts, room: int, language: str) -> Iterator[Part]:
    """Cut a long paragraph into parts that fit: short sentences are joined, and long sentences are cut."""
    sentences = list[Part]()
    pieces = split_sentences(text[start:end], language, Counter())
    for piece, tokens in zip(pieces, count(pieces), strict=True):
        stop = start + len(piece)
        if tokens <= room:
            sentences.append(Part(start, stop, int(tokens)))
        else:
            sentences += _halves(text, start, stop, count, room)
        start = stop
    for part in _fitting(sentences, room):
        piece = text[part.start : part.end]
        begin = part.start + len(piece) - len(piece.lstrip())
        if piece.strip():
            yield Part(begin, part.start + len(piece.rstrip()), part.tokens)


def _halves(text: str, start: int, end: int, count: TokenCounts, room: int) -> Iterator[Part]:
    """Cut a long sentence between words into parts that fit; a word that is too long is cut in its middle."""
    tokens = int(count([text[start:end]])[0])
    if tokens <= room or end - start < 2:
        yield Part(start, end, tokens)
        return
    middle = (start + end) // 2
    place = last_start(text, start + (end - start) // 4, middle)
    yield from _halves(text, start, place, count, room)
    yield from _halves(text, place, end, count, room)


def _fitting(parts: Sequence[Part], room: int) -> Iterator[Part]:
    """Join neighbouring parts as long as they fit into `room` tokens."""
    current: Part | None = None
    for part in parts:
        if current is not None and current.tokens + part.tokens <= room:
            current = Part(current.start, part.end, current.tokens + part.tokens)
            continue
        if current is not None:
            yield current
        current = part
    if current is not None:
        yield current
