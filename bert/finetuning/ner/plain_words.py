"""Splits plain text into words in the way of the training data, and joins tagged words to plain text.

Text is cut at white space, and each part of it into pieces: a run of letters and digits, or one other character. The
rules, learned from a training's words, say whether a word goes on between two pieces, by the kinds of the pieces around
that place; where they say nothing, `_USUAL_WORDS` does.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from bert.finetuning.ner.conll import TaggedText
from bert.finetuning.ner.tags import Span
from bert.tokenization.segmentation import UNSPACED, cutter

_JOINERS = "\u200c\u200d"
_COMBINING_MARKS = "".join(c for c in map(chr, range(0x300, 0xFE30)) if unicodedata.category(c)[0] == "M") + _JOINERS
_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # each Chinese or Japanese character is a word
_LETTER = rf"(?:[^\W_{_ALONE}]|[{_COMBINING_MARKS}])"  # or a digit; vowel signs and accents belong to letters
_OTHER = r"[^\s\u200b]"  # U+200B separates words
_PIECES = re.compile(rf"[{_ALONE}]|({_LETTER}+)|{_OTHER}")
# As in CoNLL-2003: punctuation stands alone, but not inside a word (U.N., 1,000.5, well-known, O'Brien); the genitive
# 's is a word.
_USUAL_WORDS = re.compile(
    rf"[{_ALONE}]|['\u2019][sS]\b|(?:(?!\d){_LETTER}\.){{2,}}|\d+(?:[.,:/]\d+)*(?:-?{_LETTER}+)?"
    rf"|{_LETTER}(?:{_LETTER}|[-.&@/'\u2019_](?!['\u2019]?[sS]\b(?![-\w]))(?={_LETTER}))*|{_OTHER}"
)
_UNSPACED = re.compile(rf"[{_ALONE}]|{UNSPACED.pattern}")
_CLOSES = re.compile(rf"[.,;:!?%)\]}}\u00bb\u201d\u2019\u2026\u3001\u3002]+$|''$|['\u2019]{_LETTER}|n['\u2019]t$")
_OPENS = re.compile(rf"[(\[{{$\u00a3\u20ac\u00ab\u201e\u201c\u2018]+$|``$|{_LETTER}+['\u2019]$")  # or l', dell'
Place = tuple[int, int]  # start and end in characters


def split_words(text: str, rules: Mapping[str, bool] | None = None, segmenter: str | None = None) -> list[Place]:
    """The words of plain text."""
    words, begin = list[Place](), 0
    for segment in cutter(segmenter)(text):
        words += [(begin + start, begin + end) for start, end in _words(segment, rules or {})]
        begin += len(segment)
    return words


def _words(text: str, rules: Mapping[str, bool]) -> Iterator[Place]:
    usual_ends = {match.end() for match in _USUAL_WORDS.finditer(text)}
    for kinds, part in _parts(text):
        first = 0
        for number, (_, end) in enumerate(part):
            full, short = _contexts(kinds, first, number)
            if not rules.get(full, rules.get(short, end not in usual_ends)):
                yield part[first][0], end
                first = number + 1


def _parts(text: str) -> Iterator[tuple[list[str], list[Place]]]:
    """The parts of a text between white space and their kinds: w for letters, 9 for digits, others as they are."""
    kinds, part = list[str](), list[Place]()
    for match in _PIECES.finditer(text):
        if part and part[-1][1] != match.start():
            yield kinds, part
            kinds, part = [], []
        is_ending = len(match[0]) <= 2 and kinds[-1:] in (["'"], ["\u2019"])
        kind = "9" if match[0].isdigit() else "w"
        kinds.append(match[0].lower() if is_ending or match[1] is None else kind)
        part.append(match.span())
    yield kinds, part


def _contexts(kinds: Sequence[str], first: int, number: int) -> tuple[str, str]:
    """The two contexts (four pieces, three pieces) that decide whether a word continues after piece `number`."""
    around = [kinds[number - 1] if number > first else "", *kinds[number : number + 3], "", ""][:4]  # "": none, an end
    return " ".join(around), " ".join(around[:3])


def learn_rules(sentences: Sequence[Sequence[str]]) -> dict[str, bool]:
    """Learn how tagged sentences split words: context -> whether the word continues there."""
    inside = {character for sentence in sentences for word in sentence for character in word[1:-1]}
    marks = {word for sentence in sentences for word in sentence if len(word) == 1 and not word.isalnum()}
    votes = Counter[str]()
    for sentence in sentences:
        text, spans = rejoined(sentence, marks - inside)
        starts, first = {start for start, _ in spans}, 0
        for kinds, part in _parts(text):
            for number, (start, end) in enumerate(part[:-1]):
                first = number if start in starts else first
                votes.update(dict.fromkeys(_contexts(kinds, first, number), -1 if end in starts else 1))
    return {context: number > 0 for context, number in sorted(votes.items()) if number}


def rejoined(words: Sequence[str], glued: Container[str] = ()) -> tuple[str, list[Place]]:
    """Join words as a writer would, without a space before a comma or around `glued`; also returns their places."""
    text, spans, quotes, is_open = "", list[Place](), Counter[str](), True
    for word in words:
        joins = len(text) > 0 and _UNSPACED.match(text[-1]) and _UNSPACED.match(word)
        is_odd = word in "\"'" and quotes[word] % 2 == 1
        text += "" if is_open or joins or is_odd or word in glued or _CLOSES.match(word) else " "
        spans.append((len(text), len(text) + len(word)))
        text += word
        quotes[word] += 1
        is_open = bool(_OPENS.match(word)) or word in glued or (word in "\"'" and not is_odd)
    return text, spans


def cut_at_spaces(text: TaggedText) -> TaggedText:
    """Split words that contain a space, such as "New York", as plain text has them."""
    parts = [[*filter(None, word.split(" "))] or [word] for word in text.words]
    first = np.concatenate([[0], np.cumsum([*map(len, parts)])])
    spans = [Span(span.type, int(first[span.start]), int(first[span.stop])) for span in text.spans or ()]
    return replace(text, words=[*chain(*parts)], sentence_offsets=first[text.sentence_offsets], spans=spans)


def in_characters(spans: Iterable[Span], places: Sequence[Place]) -> list[Span]:
    """Convert entities from word positions to character positions."""
    return [Span(span.type, places[span.start][0], places[span.stop - 1][1]) for span in spans]


def as_plain_text(
    text: TaggedText, rules: Mapping[str, bool] | None, segmenter: str | None = None
) -> tuple[TaggedText, list[Place], list[Span]]:
    """Join the words of tagged sentences as a writer would, and split the text again as plain text is split.

    Returns:
        the new words, without tags; their places, and the entities, in characters of all sentences one after the other.
    """
    words, offsets, places, before, characters = list[str](), [0], list[Place](), list[Place](), 0
    for sentence in text.sentences():
        plain, spans = rejoined(sentence)
        cut = split_words(plain, rules, segmenter)
        words += [plain[start:end] for start, end in cut]
        offsets.append(len(words))
        for ranges, all_ranges in ((cut, places), (spans, before)):
            all_ranges += [(characters + start, characters + end) for start, end in ranges]
        characters += len(plain) + 1
    cut_text = replace(text, words=words, sentence_offsets=np.array(offsets, np.int64), spans=None)
    return cut_text, places, in_characters(text.spans or (), before)
