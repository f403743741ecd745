"""Finds, counts and removes parts that stand in many rows of a table, such as greetings and signatures.

A part is a line, a sentence of a line, or a phrase of at most four words before a comma with which the first or last
sentence of a text begins ("Dear all,"). Parts are equal if their words are, whatever the case and punctuation. Lines
that begin with "#" are headings, and no parts.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from data.text.same_text import normalized, words_of

_LEAST_TEXTS = 5  # a part that stands in at most so many texts always stays
_SENTENCE = re.compile(r".*?(?:[.!?\u2026]+(?=\s)|[\u3002\uff01\uff1f]|\u2028|\n|\Z)\s*", re.DOTALL)
_OPENING = re.compile(r"\s*(?:[^\s,]+\s+){0,3}[^\s,]+[,\uff0c\u060c]\s*")
_MAX_SHOWN, _SHOWN_CHARACTERS = 5, 40


def parts_of(text: str) -> list[str]:
    """Split a text into parts; joined, they give the text."""
    sentences = [match for match in _SENTENCE.findall(text) if match]
    parts = list[str]()
    for place, sentence in enumerate(sentences):
        opening = _OPENING.match(sentence) if place in (0, len(sentences) - 1) else None
        parts += [sentence] if opening is None else [opening[0], sentence[opening.end() :]]
    return [part for part in parts if part]


def _key(part: str) -> str:
    """The words of a part, by which parts are compared; "" for a heading, which always stays."""
    return "" if part.lstrip().startswith("#") else " ".join(words_of(part))


@dataclass(frozen=True)
class RepeatedParts:
    """The parts that many texts have in common.

    Attributes:
        counts: number of different texts that have each part, by the words of the part.
        texts: number of different texts that were searched.
    """

    counts: Mapping[str, int]
    texts: int

    @classmethod
    def of(cls, texts: Sequence[str], share: float) -> "RepeatedParts":
        """Count the parts that stand in more than `share` of the texts. Equal texts count once."""
        counts, different = Counter[str](), {normalized(text): text for text in texts if text.strip()}
        for text in different.values():
            counts.update({key for part in parts_of(text) if (key := _key(part))})
        least = max(_LEAST_TEXTS, share * len(different))
        return cls({key: count for key, count in counts.items() if count > least}, len(different))

    def removed_from(self, text: str) -> str:
        """Remove the repeated parts from a text; empty if it has no other parts."""
        if not self.counts:
            return text
        return "".join(part for part in parts_of(text) if _key(part) not in self.counts).strip()

    def notes(self, share: float, what: str) -> Iterator[str]:
        """A line for the user with the removed parts and their counts; no line if there are none."""
        if self.counts:
            most = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
            shown = ", ".join(f"{key[:_SHOWN_CHARACTERS]!r} {count:,}" for key, count in most[:_MAX_SHOWN])
            more = ", ..." if len(most) > _MAX_SHOWN else ""
            number = f"{len(most):,} part{'s' * (len(most) > 1)}"
            yield (
                f"taken out of {what}: {number} of over {share:.0%} of the {self.texts:,} different ones "
                f"({shown}{more}); --repeated-share 1 keeps all"
            )
