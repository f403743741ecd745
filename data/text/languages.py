"""Detects whether texts are English, by their script and by the most frequent words of 32 languages."""

import re
from collections import Counter
from collections.abc import Iterable

from data.text.code_pages import common_words
from data.text.script_facts import ScriptFacts

_WORD = re.compile(r"[^\W\d_]+")
_LEAST_WORDS = 30  # of all texts; fewer say nothing
_CLEAR, _LEAST_DIFFERENT = 1.5, 4  # times as many common words as English has; of these so many different ones
_LEAST_ACCENTED = 0.1  # of the words, of any language with so many accents


def are_foreign(texts: Iterable[str]) -> bool:
    """Whether texts are certainly not English."""
    facts, words = ScriptFacts(), Counter[str]()
    for text in texts:
        facts.add(text)
        words.update(_WORD.findall(text.lower()))
    if facts.language() != "en":
        return True
    if words.total() < _LEAST_WORDS:
        return False
    common = {language: [words[word] for word in usual if word in words] for language, usual in common_words().items()}
    most = max(sum(counts) for counts in common.values() if len(counts) >= _LEAST_DIFFERENT or counts is common["en"])
    return facts.changed_share() > _LEAST_ACCENTED or most > _CLEAR * sum(common["en"])
