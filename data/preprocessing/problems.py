"""Finds problems that raise no error: unknown words, and an unbalanced share of random next sentences."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert.tokenization.library import TextTokenizer
from data.text.sentences import CUT_SENTENCES, PARTS_OF_SENTENCES

MOST_UNKNOWN = 0.01  # share of the tokens
_RANDOM_NEXT_ERROR, _SIGMAS = 0.05, 4.0  # from a half, and of the chance in few pairs
_MOST_CUT = 0.5  # share of the sentences
_SHOWN, _SHOWN_LETTERS = 10, 20


class Unknown(NamedTuple):
    """Share of [UNK] in a number of tokens, and counts of the unknown words."""

    share: float
    tokens: int
    words: Counter[str]

    def __str__(self) -> str:
        """Describe the problem without its remedy."""
        return f"{self.share:.1%} of the tokens are [UNK]{most_frequent(self.words)}"


def most_frequent(words: Counter[str]) -> str:
    """The most frequent words as the end of a sentence; empty without any."""
    short: Counter[str] = Counter()
    for word, count in words.items():
        short[word[:_SHOWN_LETTERS] + "..." * (len(word) > _SHOWN_LETTERS)] += count
    examples = " ".join(sorted(short, key=lambda word: (-short[word], word))[:_SHOWN])
    return f", most often of {examples}" if examples else ""


def unknown_words(texts: Sequence[str], tokenizer: TextTokenizer) -> Unknown:
    """Count the unknown words of texts, which must be valid UTF-8 (no lone surrogates)."""
    encoded = tokenizer.encode_with_offsets(texts)
    unknown = np.flatnonzero(encoded.ids == tokenizer.vocabulary.id_of("[UNK]"))
    owners = np.searchsorted(encoded.offsets, unknown, side="right") - 1
    spans = zip(owners.tolist(), encoded.starts[unknown].tolist(), encoded.ends[unknown].tolist(), strict=True)
    words = Counter(texts[owner][start:end] for owner, start, end in spans)
    return Unknown(len(unknown) / max(1, len(encoded.ids)), len(encoded.ids), words)


def problems_of_counts(counts: Mapping[str, int], words: Counter[str]) -> list[str]:
    """Problems that the counts of preprocessing show, before the shards are read.

    Args:
        words: unknown words of a part of the text.
    """
    tokens, pairs = counts.get("tokens", 0), counts.get("samples", 0)
    problems = problems_of_tokens(Unknown(counts.get("unknown tokens", 0) / max(1, tokens), tokens, words))
    cut, parts = counts.get(CUT_SENTENCES, 0), counts.get(PARTS_OF_SENTENCES, 0)
    whole = counts.get("sentences", 0) - parts + cut  # before they were cut
    if cut > _MOST_CUT * whole:
        problems.append(
            f"{cut / max(1, whole):.0%} of the {whole:,} sentences are longer than half a sample and were cut by their "
            "length; are their ends not marked, or in a language other than --language?"
        )
    if "samples with a random next" in counts:
        problems += problems_of_pairs(pairs, counts["samples with a random next"] / max(1, pairs))
    return problems


def problems_of_tokens(unknown: Unknown) -> list[str]:
    is_much = unknown.share > MOST_UNKNOWN
    return [f"{unknown}; does the vocabulary belong to this text, and in its case?"] if is_much else []


def problems_of_pairs(pairs: int, random_next: float, more: float = 0.0) -> list[str]:
    """A problem if not half of the pairs have a random next sentence; otherwise empty.

    Args:
        more: the share above a half that is allowed as well.
    """
    allowed, apart = max(_RANDOM_NEXT_ERROR, _SIGMAS * 0.5 / math.sqrt(max(1, pairs))), random_next - 0.5
    if not pairs or -allowed <= apart <= allowed + more:
        return []
    return [
        f"{random_next:.1%} of the pairs have a random next sentence; it should be half: documents need several "
        "sentences each (--document-separator of data.import_text), or pass --objective mlm"
    ]
