"""Converts between tags (IOB1, IOB2, IOBES) and spans, and computes the span F1 of named-entity recognition.

A tag is O, or a prefix, a hyphen and a type. Tags of any scheme, and inconsistent tags as a model may predict them, are
read by the rules of the CoNLL-2000 scorer, which seqeval also follows: a span ends where the type changes, before B and
S, and after E and S; all other neighbouring tags belong to one span.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from bert.printable import printable

Scheme = Literal["iob1", "iob2", "iobes"]
SCHEMES: tuple[Scheme, ...] = ("iob2", "iob1", "iobes")
OUTSIDE = "O"
# The letters of BILOU and BMEWO.
_SYNONYMS = {"L": "E", "U": "S", "W": "S", "M": "I"}
_PREFIXES = frozenset("BIES")


class Span(NamedTuple):
    """An entity: the words [start, stop)."""

    type: str
    start: int
    stop: int


@lru_cache(maxsize=10_000)
def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and type: ("B", "PER") for "B-PER", ("O", "") for "O"."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, hyphen, kind = tag.partition("-")
    prefix = _SYNONYMS.get(prefix, prefix)
    if prefix not in _PREFIXES or not hyphen or not kind or printable(kind) != kind:
        raise ValueError(f"tag {tag!r} must be O, or B-, I-, E- or S- and a type without control characters")
    return prefix, kind


def read_spans(tags: Sequence[str], sentence_starts: Iterable[int] = (0,)) -> list[Span]:
    """Entity spans of a sequence of tags; spans end at the start of a sentence."""
    starts = frozenset(sentence_starts)
    spans: list[Span] = []
    begin, previous, previous_type = -1, OUTSIDE, ""
    for place, tag in enumerate(tags):
        prefix, kind = split_tag(tag)
        if place in starts or prefix in "BSO" or previous in "ESO" or kind != previous_type:
            if begin >= 0:
                spans.append(Span(previous_type, begin, place))
            begin = place if prefix != OUTSIDE else -1
        previous, previous_type = prefix, kind
    if begin >= 0:
        spans.append(Span(previous_type, begin, len(tags)))
    return spans


def write_tags(
    spans: Iterable[Span], num_words: int, scheme: Scheme, sentence_starts: Iterable[int] = (0,)
) -> list[str]:
    """Tags of spans that do not overlap; the inverse of `read_spans`."""
    tags = [OUTSIDE] * num_words
    starts = frozenset(sentence_starts)
    previous = Span("", -1, -1)
    for span in sorted(spans, key=lambda span: span.start):
        first, last, only = "B", "I", "B"
        if scheme == "iobes":
            last, only = "E", "S"
        elif scheme == "iob1":
            touches = previous.stop == span.start and previous.type == span.type and span.start not in starts
            first = only = "B" if touches else "I"
        tags[span.start : span.stop] = [f"I-{span.type}"] * (span.stop - span.start)
        tags[span.stop - 1] = f"{last}-{span.type}"
        tags[span.start] = f"{only if span.stop - span.start == 1 else first}-{span.type}"
        previous = span
    return tags


def detect_scheme(
    tags: Sequence[str], sentence_starts: Sequence[int], schemes: Sequence[Scheme] = SCHEMES
) -> tuple[Scheme, int]:
    """The tag scheme that fits most tags (the first of equals), and the number of tags that do not fit it."""
    spans = read_spans(tags, sentence_starts)
    normal = [tag if tag == OUTSIDE else "-".join(split_tag(tag)) for tag in tags]
    misfits: dict[Scheme, int] = {}
    for scheme in schemes:
        written = write_tags(spans, len(tags), scheme, sentence_starts)
        misfits[scheme] = sum(a != b for a, b in zip(normal, written, strict=True))
    best = min(misfits, key=misfits.__getitem__)
    return best, misfits[best]


def score_spans(gold: Iterable[Span], predicted: Iterable[Span]) -> dict[str, float]:
    """Micro-averaged precision, recall and f1 of spans, and the F1 of each type, TYPE_f1; 0 where undefined.

    A span is correct if type and extent are exact.
    """
    gold, predicted = set(gold), set(predicted)
    right = gold & predicted
    scores = {
        "precision": len(right) / max(1, len(predicted)),
        "recall": len(right) / max(1, len(gold)),
        "f1": 2 * len(right) / max(1, len(gold) + len(predicted)),
    }
    in_either, in_both = Counter(span.type for span in (*gold, *predicted)), Counter(span.type for span in right)
    return scores | {f"{kind}_f1": 2 * in_both[kind] / in_either[kind] for kind in sorted(in_either)}
