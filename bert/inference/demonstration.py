"""What a pre-trained model can do now: it fills masked words of held-out sentences and finds the nearest sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from bert.files import sha256_of
from bert.inference.example_sentences import LENGTHS, frequent_units, has_spaces, units
from bert.inference.masked_words import MASK
from bert.inference.nearest import cosines
from bert.inference.trained_model import TrainedModel

_ALIKE = 0.5  # share of common words above which two sentences are copies rather than neighbours


@dataclass(frozen=True)
class FilledSentence:
    """A sentence with a masked word or, where no spaces separate words, a masked character.

    Attributes:
        word: what was masked.
        fills: {"token", "probability"}, most likely first.
    """

    text: str
    word: str
    fills: list[dict[str, Any]]

    def lines(self) -> list[str]:
        fills = ", ".join(f"{fill['token']} {fill['probability']:.1%}" for fill in self.fills)
        what = "word" if has_spaces(self.text) else "character"
        return [f"  {self.text}", f"    true {what}: {self.word}; fills: {fills}"]


@dataclass(frozen=True)
class Neighbours:
    """Two sentences that the model finds alike. `similarity`: cosine of their vectors without the mean vector."""

    first: str
    second: str
    similarity: float


@dataclass(frozen=True)
class Demonstration:
    filled: list[FilledSentence]
    neighbours: list[Neighbours]

    def lines(self) -> list[str]:
        """For the terminal."""
        what = "words" if all(has_spaces(sentence.text) for sentence in self.filled) else "characters"
        lines = [f"masked {what} of held-out sentences, the three most likely fills:"] if self.filled else []
        lines += [line for sentence in self.filled for line in sentence.lines()]
        lines += ["nearest sentences (cosine):"] if self.neighbours else []
        for pair in self.neighbours:
            lines += [f"  {pair.similarity:.2f}  {pair.first}", f"        {pair.second}"]
        return lines or [f"the text has too few sentences of {LENGTHS} to show what the model can do"]


def demonstrate(model: TrainedModel, sentences: Sequence[str], count: int = 3) -> Demonstration:
    """Fill a content word in `count` sentences and find the `count` nearest pairs.

    The sentences and words are a function of the text (by hash), not of how well the model does. A model without a
    masked-LM head only has neighbours.

    Args:
        sentences: as `held_out_sentences` returns them.
    """
    filled = []
    if model.task == "masked-lm":
        for sentence, word, place in islice(_masked_words(model, sentences), count):
            text = sentence[:place] + MASK + sentence[place + len(word) :]
            filled.append(FilledSentence(text, word, model.fill_mask(text, 3)[0]))
    return Demonstration(filled, _nearest_pairs(model, sentences, count))


def _masked_words(model: TrainedModel, sentences: Sequence[str]) -> Iterable[tuple[str, str, int]]:
    """(sentence, word or character, its place): those that are one known token, so that one mask stands for them."""
    frequent = frequent_units(sentences)
    for sentence in sentences:
        rare = [(word, place) for word, place in units(sentence) if word.lower() not in frequent]
        known = [(word, place) for word, place in rare if _is_one_token(model, sentence, word, place)]
        if known:
            word, place = known[int(sha256_of(sentence.encode())[:8], 16) % len(known)]
            yield sentence, word, place


def _is_one_token(model: TrainedModel, sentence: str, word: str, place: int) -> bool:
    """Whether a word is one known token, also inside of its sentence: letters of some scripts are pieces of words."""
    encode, token = model.tokenizer.encode, model.tokenizer.encode(word)
    if len(token) != 1 or token[0] == model.vocabulary.id_of("[UNK]"):
        return False
    return encode(sentence) == [*encode(sentence[:place]), *token, *encode(sentence[place + len(word) :])]


def _nearest_pairs(model: TrainedModel, sentences: Sequence[str], count: int) -> list[Neighbours]:
    """The pairs with the most similar vectors, each sentence once; pairs that share most words are left out."""
    if len(sentences) < 3:
        return []
    vectors = model.encode(sentences)
    similarity = cosines(vectors, vectors)
    words = [frozenset(word.lower() for word, _ in units(sentence)) for sentence in sentences]
    first, second = np.triu_indices(len(sentences), 1)
    order = np.argsort(-similarity[first, second], kind="stable")
    used: set[int] = set()
    pairs: list[Neighbours] = []
    for one, other in zip(first[order].tolist(), second[order].tolist(), strict=True):
        alike = len(words[one] & words[other]) > _ALIKE * max(1, len(words[one] | words[other]))
        if not alike and not {one, other} & used:
            used |= {one, other}
            pairs.append(Neighbours(sentences[one], sentences[other], round(float(similarity[one, other]), 4)))
            if len(pairs) == count:
                break
    return pairs
