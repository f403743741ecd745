"""Cuts plain text into words as the words of a training were cut, and writes tagged words as plain text.

Text is cut at white space, and each part of it into pieces: a run of letters and digits, or one other character. Where
two pieces are of one word is learned from the training (`WordRules`); where that says nothing, `_USUAL_WORDS` does.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.conversion.model_description import WordRules
from bert.finetuning.ner.conll import TaggedText
from bert.finetuning.ner.tags import Span
from bert.tokenization.segmentation import UNSPACED, cutter

_MARKS = "".join(c for c in map(chr, range(0x300, 0xFE30)) if unicodedata.category(c)[0] == "M") + "\u200c\u200d"
_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # each Chinese or Japanese character is a word
_LETTER = rf"(?:[^\W_{_ALONE}]|[{_MARKS}])"  # or a digit; vowel signs and accents belong to letters
_OTHER = r"[^\s\u200b]"  # U+200B separates words
_RUN = re.compile(_LETTER)
_PIECES = re.compile(rf"[{_ALONE}]|{_LETTER}+|{_OTHER}")
# As in CoNLL-2003: punctuation stands alone, but not inside a word (U.N., 1,000.5, well-known, O'Brien); the genitive
# 's is a word.
_USUAL_WORDS = re.compile(
    rf"[{_ALONE}]|['\u2019][sS]\b|(?:(?!\d){_LETTER}\.){{2,}}|\d+(?:[.,:/]\d+)*(?:-?{_LETTER}+)?"
    rf"|{_LETTER}(?:{_LETTER}|[-.&@/'\u2019_](?!['\u2019]?[sS]\b(?![-\w]))(?={_LETTER}))*|{_OTHER}"
)
_UNSPACED = re.compile(rf"[{_ALONE}]|{UNSPACED.pattern}")
_CLOSES = re.compile(rf"[.,;:!?%)\]}}\u00bb\u201d\u2019\u2026\u3001\u3002]+$|''$|['\u2019]{_LETTER}|n['\u2019]t$")
_OPENS = re.compile(rf"[(\[{{$\u00a3\u20ac\u00ab\u201e\u201c\u2018]+$|``$|{_LETTER}+['\u2019]$")  # or l', dell'
_LONGEST_EXCEPTION = 12  # characters, of a word that is kept: abbreviations, not what else a text says


def split_words(text: str, rules: WordRules | None = None, segmenter: str | None = None) -> list[tuple[int, int]]:
    """The words of plain text, start and end in characters; by `_USUAL_WORDS` without rules."""
    parts = cutter(segmenter)(text)
    starts = offsets_of([len(part) for part in parts]).tolist()
    return [(s + start, s + end) for s, part in zip(starts, parts, strict=False) for start, end in _words(part, rules)]


def _words(text: str, rules: WordRules | None) -> list[tuple[int, int]]:
    usual = [match.span() for match in _USUAL_WORDS.finditer(text)]
    if rules is None:
        return usual
    usual_ends, kept, words = {end for _, end in usual}, frozenset(rules["words"]), []
    for part in _parts(text):
        kinds, first = _kinds(text, part), 0
        while first < len(part):
            last = first
            while last + 1 < len(part):
                full, short = _contexts(kinds, first, last)
                if not rules["joints"].get(full, rules["joints"].get(short, part[last][1] not in usual_ends)):
                    break
                last += 1
            for number in range(last, min(len(part), first + _LONGEST_EXCEPTION)):
                last = number if text[part[first][0] : part[number][1]] in kept else last
            words.append((part[first][0], part[last][1]))
            first = last + 1
    return words


def _parts(text: str) -> Iterator[list[tuple[int, int]]]:
    """The pieces between white space, start and end in characters."""
    part: list[tuple[int, int]] = []
    for match in _PIECES.finditer(text):
        if part and part[-1][1] != match.start():
            yield part
            part = []
        part.append(match.span())
    if part:
        yield part


def _kinds(text: str, part: Sequence[tuple[int, int]]) -> list[str]:
    """What rules know of each piece: w for letters, 9 for digits, itself if it is another character, or 's, 'll ..."""
    kinds = [""]
    for start, end in part:
        piece, is_clitic = text[start:end], end - start <= 2 and kinds[-1] in ("'", "\u2019")
        is_run = _RUN.match(piece) is not None and not is_clitic
        kinds.append(("9" if piece.isdigit() else "w") if is_run else piece.lower())
    return [*kinds[1:], ""]


def _contexts(kinds: Sequence[str], first: int, number: int) -> tuple[str, str]:
    """What decides whether the word that begins with piece `first` goes on behind piece `number`: long, short."""
    around = [kinds[number - 1] if number > first else "", *kinds[number : number + 3]]
    return " ".join(around), " ".join(around[:3])


def learn_rules(sentences: Sequence[Sequence[str]]) -> WordRules:
    """The rules by which most of the words of tagged sentences are cut."""
    inside = {character for sentence in sentences for word in sentence for character in word[1:-1]}
    alone = {word for sentence in sentences for word in sentence if len(word) == 1 and not _RUN.match(word)}
    joints, kept, glued = Counter[str](), Counter[str](), alone - inside
    for sentence in sentences:
        text, spans = rejoined(sentence, glued)
        _count_joints(text, spans, joints)
        kept.update(word for word in sentence if len(word) <= _LONGEST_EXCEPTION)
        for (start, end), (next_start, next_end) in pairwise(spans):
            kept[text[start:next_end]] -= 1  # two words that could be one
            if next_start > end and not _RUN.search(
                text[start:end]
            ):  # punctuation that may have had no space behind it
                pair = text[start:end] + text[next_start:next_end]
                _count_joints(pair, [(0, end - start), (end - start, len(pair))], joints)
    rules = WordRules(joints={key: number > 0 for key, number in sorted(joints.items()) if number}, words=[])
    often = sorted(word for word, number in kept.items() if number >= 2 and not word.isalnum())
    return {**rules, "words": [word for word in often if _words(word, rules)[0][1] < len(word)]}


def _count_joints(text: str, spans: Sequence[tuple[int, int]], joints: Counter[str]) -> None:
    """Count 1 for each context in which a word of a text goes on, and -1 for each in which it ends."""
    starts, first = {start for start, _ in spans}, 0
    for part in _parts(text):
        kinds = _kinds(text, part)
        for number, (_, end) in enumerate(part[:-1]):
            first = number if part[number][0] in starts else first
            joints.update(dict.fromkeys(_contexts(kinds, first, number), -1 if end in starts else 1))


def rejoined(words: Sequence[str], glued: Container[str] = ()) -> tuple[str, list[tuple[int, int]]]:
    """Words as a writer puts them together, and their places: without a space before a comma, around `glued` ..."""
    text, spans, quotes, is_open = "", list[tuple[int, int]](), Counter[str](), True
    for word in words:
        joins = len(text) > 0 and _UNSPACED.match(text[-1]) and _UNSPACED.match(word)
        closes = joins or _CLOSES.match(word) or word in glued or (word in "\"'" and quotes[word] % 2 == 1)
        text += "" if is_open or closes else " "
        spans.append((len(text), len(text) + len(word)))
        text += word
        quotes[word] += 1
        is_open = bool(_OPENS.match(word)) or word in glued or (word in "\"'" and quotes[word] % 2 == 1)
    return text, spans


def as_plain_text(
    text: TaggedText, rules: WordRules | None, segmenter: str | None = None
) -> tuple[TaggedText, list[tuple[int, int]], list[Span]]:
    """The sentences of a tagged text as they are cut where a writer put their words together.

    Returns:
        the new words, without tags; their places, and the entities, in characters of all sentences one after the other.
    """
    words, places, offsets, characters = list[str](), list[tuple[int, int]](), [0], 0
    of_words: list[tuple[int, int]] = []  # places of the words of `text`
    for words_of_sentence in text.sentences():
        sentence, spans = rejoined(words_of_sentence)
        cut = split_words(sentence, rules, segmenter)
        words += [sentence[start:end] for start, end in cut]
        offsets.append(len(words))
        for found, all_found in ((cut, places), (spans, of_words)):
            all_found += [(characters + start, characters + end) for start, end in found]
        characters += len(sentence) + 1
    entities = in_characters(text.spans or (), of_words)
    cut_text = replace(text, words=words, sentence_offsets=np.array(offsets, np.int64), spans=None)
    return cut_text, places, entities


def in_characters(spans: Iterable[Span], places: Sequence[tuple[int, int]]) -> list[Span]:
    """Entities of words as entities of characters."""
    return [Span(span.type, places[span.start][0], places[span.stop - 1][1]) for span in spans]
