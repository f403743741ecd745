"""What a pre-trained model can do now: it fills masked words of held-out sentences and finds the nearest sentences."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bert.files import sha256_of
from bert.inference.masked_words import MASK
from bert.inference.nearest import cosines
from bert.inference.trained_model import TrainedModel
from data.text.lddl_reader import SourceFile, plan_blocks, read_documents
from data.text.sentences import split_sentences

_WORD = re.compile(r"(?<!\S)[^\W\d_]{4,}(?=[\s,.;:!?]|$)")
_WORDS_IN_A_SENTENCE = (6, 30)
_SENTENCES = 400  # compared with each other
_TEXT_BYTES = 1 << 20  # read of the text
_FREQUENT = 100  # the most frequent words are not content words
_ALIKE = 0.5  # share of common words above which two sentences are copies rather than neighbours


@dataclass(frozen=True)
class FilledSentence:
    """A sentence with a masked word. `fills`: {"token", "probability"}, most likely first."""

    text: str
    word: str
    fills: list[dict[str, Any]]


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
        lines = ["masked words of held-out sentences, the three most likely fills:"] if self.filled else []
        for sentence in self.filled:
            fills = ", ".join(f"{fill['token']} {fill['probability']:.1%}" for fill in sentence.fills)
            lines += [f"  {sentence.text}", f"    true word: {sentence.word}; fills: {fills}"]
        lines += ["nearest sentences (cosine):"] if self.neighbours else []
        for pair in self.neighbours:
            lines += [f"  {pair.similarity:.2f}  {pair.first}", f"        {pair.second}"]
        return lines or ["the text has no sentence of 6 to 30 words to show what the model can do"]


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


def held_out_sentences(path: str | Path, language: str = "en") -> list[str]:
    """Up to 400 different sentences of 6 to 30 words from the first megabyte of a text, in the order of their hashes.

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
    found: dict[str, str] = {}
    for text in _texts(files, counts):
        for sentence in (" ".join(piece.split()) for piece in split_sentences(text, language, counts)):
            few, many = _WORDS_IN_A_SENTENCE
            words = sentence.split()
            if few <= len(words) <= many and sentence[0].isupper() and sentence[-1] in ".!?" and MASK not in sentence:
                found.setdefault(sentence, sha256_of(sentence.encode()))
    return sorted(found, key=found.__getitem__)[:_SENTENCES]


def _texts(files: Iterable[Path], counts: Counter[str]) -> Iterable[str]:
    """The documents of source text; otherwise the paragraphs."""
    left = _TEXT_BYTES
    for file in files:
        if left <= 0:
            return
        size = min(file.stat().st_size, left)
        left -= size
        if file.parent.parent.name == "source":
            for block in plan_blocks((SourceFile(str(file), size),), _TEXT_BYTES):
                yield from read_documents(block, counts)
        else:
            with open(file, "rb") as opened:
                yield from re.split(r"\n\s*\n", opened.read(size).decode("utf-8", errors="replace"))


def _masked_words(model: TrainedModel, sentences: Sequence[str]) -> Iterable[tuple[str, str, int]]:
    """(sentence, content word, its place): words that are one token, so that one mask stands for them."""
    frequency = Counter(word.lower() for sentence in sentences for word in _WORD.findall(sentence))
    frequent = {word for word, _ in frequency.most_common(min(_FREQUENT, len(frequency) // 4))}
    for sentence in sentences:
        places = [match for match in _WORD.finditer(sentence) if match[0].lower() not in frequent]
        whole = [match for match in places if len(model.tokenizer.encode(match[0])) == 1]
        known = [match for match in whole if model.tokenizer.encode(match[0])[0] != model.vocabulary.id_of("[UNK]")]
        if known:
            chosen = known[int(sha256_of(sentence.encode())[:8], 16) % len(known)]
            yield sentence, chosen[0], chosen.start()


def _nearest_pairs(model: TrainedModel, sentences: Sequence[str], count: int) -> list[Neighbours]:
    """The pairs with the most similar vectors, each sentence once; pairs that share most words are left out."""
    if len(sentences) < 3:
        return []
    vectors = model.encode(sentences)
    similarity = cosines(vectors, vectors)
    words = [frozenset(word.lower() for word in _WORD.findall(sentence)) for sentence in sentences]
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
