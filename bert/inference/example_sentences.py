"""Picks sentences of a text to show what a model can do, and the words or characters of them that can be masked.

Scripts without spaces (Chinese, Japanese) are counted and masked in characters, and sentences may begin with a letter
of a script without capitals.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bert.files import sha256_of
from bert.inference.masked_words import MASK
from data.text.lddl_reader import SourceFile, plan_blocks, read_documents
from data.text.sentences import split_sentences

_MARKS = ".,;:!?،؛؟۔।॥։።"
_ENDS = ".!?…。！？｡؟۔।॥։።"
_WORD = re.compile(rf"(?<!\S)[^\W\d_][^\s\d{re.escape(string.punctuation + _MARKS)}]{{3,}}(?=[\s{_MARKS}]|$)")
_WORDS_IN_A_SENTENCE = (6, 30)
_CHARACTERS_IN_A_SENTENCE = (10, 60)  # without spaces
_CHARACTERS_OF_A_WORD = 12  # a sentence with more for each word has no spaces between its words
_LEAST = 3  # with fewer sentences that look like ones, any of the right length are taken
_SENTENCES = 400  # compared with each other
_TEXT_BYTES = 1 << 20  # read of the text
_FREQUENT = 100  # the most frequent words are not content words

LENGTHS = "6 to 30 words, or of 10 to 60 characters where no spaces separate words"


def held_out_sentences(path: str | Path) -> list[str]:
    """Up to 400 different sentences (`LENGTHS`) from the first megabyte of a text, in the order of their hashes.

    Args:
        path: a file of plain text, or a folder with *.txt files below it. Files in a folder `source/LANGUAGE` have one
            document per line, its id first, as data.import_text writes them.
    Raises:
        ValueError: nothing to read.
    """
    path = Path(path)
    files = sorted(file for file in path.rglob("*.txt") if file.is_file()) if path.is_dir() else [path]
    if not path.exists() or not files:
        raise ValueError(f"{path} must be a file of text, or a folder with *.txt files, e.g. held_out/source; check it")
    counts: Counter[str] = Counter()
    proper: dict[str, str] = {}
    others: dict[str, str] = {}
    for text, language in _texts(files, counts):
        for sentence in (" ".join(piece.split()) for piece in split_sentences(text, language, counts)):
            if _has_length(sentence) and MASK not in sentence:
                found = proper if _is_proper(sentence) else others
                found.setdefault(sentence, sha256_of(sentence.encode()))
    found = proper if len(proper) >= _LEAST else proper | others
    return sorted(found, key=found.__getitem__)[:_SENTENCES]


def _texts(files: Iterable[Path], counts: Counter) -> Iterable[tuple[str, str]]:
    """The documents of source text, otherwise the paragraphs; each with its language."""
    left = _TEXT_BYTES
    for file in files:
        if left <= 0:
            return
        size = min(file.stat().st_size, left)
        left -= size
        if file.parent.parent.name == "source":
            for block in plan_blocks((SourceFile(str(file), size),), _TEXT_BYTES):
                for text in read_documents(block, counts):
                    yield text, file.parent.name
        else:
            with open(file, "rb") as opened:
                for text in re.split(r"\n\s*\n", opened.read(size).decode("utf-8", errors="replace")):
                    yield text, "en"


def has_spaces(sentence: str) -> bool:
    """Whether spaces separate its words."""
    return len(sentence) <= _CHARACTERS_OF_A_WORD * len(sentence.split())


def _has_length(sentence: str) -> bool:
    few, many = _WORDS_IN_A_SENTENCE if has_spaces(sentence) else _CHARACTERS_IN_A_SENTENCE
    return few <= (len(sentence.split()) if has_spaces(sentence) else len(sentence)) <= many


def _is_proper(sentence: str) -> bool:
    """Whether it begins and ends as a sentence does; a script without capitals has no lower-case letters either."""
    return sentence[0].isalpha() and not sentence[0].islower() and sentence[-1] in _ENDS


def units(sentence: str) -> list[tuple[str, int]]:
    """Its words of four letters and more, or its letters where no spaces separate words; each with its place."""
    if has_spaces(sentence):
        return [(match[0], match.start()) for match in _WORD.finditer(sentence)]
    return [(letter, place) for place, letter in enumerate(sentence) if letter.isalpha()]


def frequent_units(sentences: Sequence[str]) -> set[str]:
    """Their most frequent words or letters, in lower case: function words rather than content words."""
    frequency = Counter(unit.lower() for sentence in sentences for unit, _ in units(sentence))
    return {unit for unit, _ in frequency.most_common(min(_FREQUENT, len(frequency) // 4))}
