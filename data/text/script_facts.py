"""Counts how lower-casing and WordPiece would change a text, while it is read."""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from bert.tokenization.normalization import CASED, UNCASED, Normalization, stripped
from bert.tokenization.segmentation import CUTTING, UNSPACED, WITH_DICTIONARY, version_of

_CHANGED_SHARE = 0.01  # of the running words: beyond it lower-casing loses more than capitals
_SHARE_WITHOUT_CASE = 1 / 3  # of the characters, of which others are marks, digits, spaces and foreign letters
_CHINESE, _KANA = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"), re.compile("[\u3040-\u30ff]")
_CHINESE_SHARE = 1 / 3  # of the characters of a Chinese text; the rest are marks, digits, Latin letters and markup
_MOST_KANA = 0.1  # for each Chinese character
_UNSPACED_SHARE = 0.01  # of the characters, of scripts without spaces
_SCRIPT_SHARE = 1 / 3  # of the characters, of the script that tells a language
# A script, by ranges of its letters, and a language that ends sentences as all of that script do.
_SCRIPTS = {
    "el": "\u0370-\u03ff\u1f00-\u1fff", "ru": "\u0400-\u052f", "hy": "\u0531-\u0587", "he": "\u0591-\u05ff",
    "ar": "\u0600-\u06ff\u0750-\u077f", "hi": "\u0900-\u097f", "bn": "\u0980-\u09ff", "pa": "\u0a00-\u0a7f",
    "gu": "\u0a80-\u0aff", "or": "\u0b00-\u0b7f", "ta": "\u0b80-\u0bff", "te": "\u0c00-\u0c7f",
    "kn": "\u0c80-\u0cff", "ml": "\u0d00-\u0d7f", "si": "\u0d80-\u0dff", "th": "\u0e00-\u0e7f",
    "lo": "\u0e80-\u0eff", "bo": "\u0f00-\u0fff", "my": "\u1000-\u109f", "ka": "\u10a0-\u10ff",
    "am": "\u1200-\u139f", "km": "\u1780-\u17ff", "mn": "\u1800-\u18af", "jv": "\ua980-\ua9df",
    "ko": "\u1100-\u11ff\uac00-\ud7a3",
}  # fmt: skip
_ASCII = re.compile("[\x00-\x7f]+")
_MOST_EXAMPLES = 10_000


@lru_cache(maxsize=1 << 16)
def _without_accents(word: str) -> str | None:
    """The word without accents, as BERT's lower-casing would leave it; None if only capitals change."""
    lower = word.lower()
    return None if (left := stripped(lower)) == lower else left


@dataclass
class ScriptFacts:
    """Counts of words separated by white space, and of characters."""

    words: int = 0
    characters: int = 0
    changed: int = 0  # words of which BERT's lower-casing changes more than capitals
    _examples: Counter = field(default_factory=Counter)
    _others: Counter = field(default_factory=Counter)  # counts of characters beyond ASCII

    def add(self, text: str) -> None:
        words = text.split()
        self.words += len(words)
        self.characters += len(text)
        if not text.isascii():
            self._others.update(_ASCII.sub("", text))
            changed = [word for word in words if not word.isascii() and _without_accents(word) is not None]
            self.changed += len(changed)
            self._examples.update(changed if len(self._examples) < _MOST_EXAMPLES else ())

    def changed_share(self) -> float:
        return self.changed / max(1, self.words)

    def example(self) -> str:
        """The most frequently changed word, before and after; empty without any."""
        word = min(self._examples, key=lambda word: (-self._examples[word], word), default="")
        return f"{word[:20]} -> {str(_without_accents(word))[:20]}" if word else ""

    def is_caseless(self) -> bool:
        """Whether the script has no capitals."""
        caseless = sum(count for letter, count in self._others.items() if letter.lower() == letter.upper())
        return caseless > _SHARE_WITHOUT_CASE * self.characters

    def case(self) -> Normalization:
        """Recommended case: kept if BERT's lower-casing would delete letters or has nothing to do."""
        return CASED if self.changed_share() > _CHANGED_SHARE or self.is_caseless() else UNCASED

    def why(self) -> str:
        """Reason for the recommended `case`, as a phrase for the user."""
        if self.changed_share() <= _CHANGED_SHARE and self.is_caseless():
            return "its script has no capitals"
        such = f", such as {self.example()}" if self.changed else ""
        share = f"{self.changed_share():.0%}" if self.changed_share() > 0.1 else f"{self.changed_share():.1%}"
        return f"lower-casing would strip marks of {share} of the words{such}"

    def cutter(self) -> str:
        """Segmenter that the text needs to have words; "" if it needs none."""
        least = _UNSPACED_SHARE * self.characters
        return "icu" if self._count(WITH_DICTIONARY) > least else "syllables" if self._count(UNSPACED) > least else ""

    def is_chinese(self) -> bool:
        """Whether at least a third of the text are Chinese characters; Japanese has as many kana too."""
        chinese = self._count(_CHINESE)
        return chinese > _CHINESE_SHARE * self.characters and self._count(_KANA) < _MOST_KANA * chinese

    def language(self) -> str:
        """A language whose sentences end like this text's, by its script; "en" for Latin letters."""
        if self.is_chinese():
            return "zh"
        least = _SCRIPT_SHARE * self.characters
        kana = self._count(_KANA)
        if kana and kana + self._count(_CHINESE) > least:
            return "ja"
        shares = {language: self._count(re.compile(f"[{letters}]")) for language, letters in _SCRIPTS.items()}
        language = max(shares, key=shares.__getitem__)
        return language if shares[language] > least else "en"

    def _count(self, pattern: re.Pattern[str]) -> int:
        return sum(count for letter, count in self._others.items() if pattern.match(letter))


def case_of(measured: Normalization, lowercase: bool | None, strip_accents: bool | None) -> Normalization:
    """Case of the text for a new vocabulary: as requested, otherwise as measured."""
    if lowercase is None and strip_accents is None:
        return measured
    return Normalization(True if lowercase is None else lowercase, strip_accents)


def segmenter_of(needed: str, given: str) -> str | None:
    """Segmenter for a text that needs one, or "": as requested; "auto" is ICU."""
    if given != "auto" or not needed:
        return given if given in CUTTING else None
    try:
        version_of("icu")  # which gives the same syllables: runs from before have its name
    except ValueError as error:
        if needed == "syllables":
            return needed
        raise ValueError(
            f"the script of the text has no spaces between words: {error}; --word-segmenter none takes whole clauses "
            "for words, most of them unknown, and data.train_vocabulary --tokenizer unigram makes a vocabulary without"
        ) from None
    return "icu"
