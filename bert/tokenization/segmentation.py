"""Segments scripts without spaces into words, and names the segmenters that can be installed.

ICU has dictionaries of Thai, Lao, Khmer and Burmese. Javanese script has none and is cut into syllables, also without
ICU. Tibetan needs no segmenter: BERT takes the mark between its syllables for punctuation.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from typing import Any, Literal, get_args

from bert.interpreter import install_command

Cutter = Literal["icu", "syllables"]
Segmenter = Literal["jieba", Cutter]
SEGMENTERS: tuple[str, ...] = get_args(Segmenter)
_PACKAGES = {"jieba": ("jieba", "chinese"), "icu": ("icu4py", "segmentation")}  # with the extra that brings it
CUTTING: tuple[str, ...] = get_args(Cutter)  # into words, then tokens; jieba's words are of characters that are tokens
# Thai, Lao, Burmese with its extensions, Khmer: letters and signs, without digits and punctuation.
_THAI, _LAO, _KHMER = "\u0e01-\u0e3a\u0e40-\u0e4e", "\u0e81-\u0ece\u0edc-\u0edf", "\u1780-\u17d3"
_BURMESE, _JAVANESE = "\u1000-\u103f\u1050-\u109f\ua9e0-\ua9ef\uaa60-\uaa7f", "\ua980-\ua9c0"
_WITH_DICTIONARY = _THAI + _LAO + _KHMER + _BURMESE
WITH_DICTIONARY, UNSPACED = re.compile(f"[{_WITH_DICTIONARY}]"), re.compile(f"[{_WITH_DICTIONARY}{_JAVANESE}]")
ZERO_WIDTH_SPACE = "\u200b"  # the mark between words of Khmer, Lao and Burmese; Unicode calls it no white space
_JOINERS = "\u200c\u200d"
_RUN = re.compile(f"[{_WITH_DICTIONARY}][{_WITH_DICTIONARY}{_JOINERS}]*|[{_JAVANESE}][{_JAVANESE}{_JOINERS}]*")
# A letter with its signs, and letters that the sign without a vowel joins to it.
_LETTER, _SIGNS = "[\ua984-\ua9b2]", "[^\ua984-\ua9b2]"
_SYLLABLE = re.compile(f"{_LETTER}{_SIGNS}*(?:(?<=\ua9c0){_LETTER}{_SIGNS}*)*|{_SIGNS}+")


def version_of(segmenter: str) -> str:
    """Installed version of a segmenter, which decides its words; ValueError if it is missing."""
    if segmenter not in SEGMENTERS:
        raise ValueError(f"word_segmenter={segmenter!r} must be {' or '.join(SEGMENTERS)}, or left out")
    if segmenter == "syllables":
        return "1"  # our own
    package, extra = _PACKAGES[segmenter]
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ValueError(
            f"word_segmenter={segmenter!r} needs the package {package}, which is not installed: "
            f"{install_command(extra)}"
        ) from None


@lru_cache(maxsize=1)
def _breaker() -> Any:
    version_of("icu")
    from icu4py.breakers import WordBreaker

    return WordBreaker


def cutter(segmenter: str | None) -> Callable[[str], list[str]]:
    """A function that splits a text into parts whose concatenation is the text; words of unspaced scripts are parts."""
    if segmenter not in CUTTING:
        return lambda text: [text]
    breaker = _breaker() if segmenter == "icu" else lambda run, _: [run]

    def parts(text: str) -> list[str]:
        result, end = list[str](), 0
        for run in _RUN.finditer(text):
            result += [text[end : run.start()]] if run.start() > end else []
            result += _SYLLABLE.findall(run[0]) if "\ua980" <= run[0][0] <= "\ua9c0" else breaker(run[0], "en")
            end = run.end()
        return [*result, text[end:]] if end < len(text) or not result else result

    return parts


def with_spaces(text: str, segmenter: str | None) -> str:
    """The text with spaces between its words, for other tokenizers than ours."""
    return " ".join(cutter(segmenter)(text)) if segmenter in CUTTING else text
