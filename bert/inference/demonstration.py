"""Shows what a pre-trained model can do with a text: it fills masked words and finds the nearest sentences.

In Chinese and Japanese, where no spaces separate words, characters are masked instead.
"""

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from bert.arrays.vectors import unit
from bert.files import sha256_of
from bert.inference.trained_model import MASK, TrainedModel
from data.text.sentences import split_sentences

_PUNCTUATION = re.escape(string.punctuation + "،؛؟۔।॥։。")
# A Chinese character, which is a token wherever it stands, or a word of four letters and more.
_WORD = re.compile(rf"[\u3400-\u9fff]|(?<!\S)[^\W\d_][^\s\d{_PUNCTUATION}]{{3,}}(?=[\s{_PUNCTUATION}]|$)")
_ENDS = ".!?…。！？｡؟۔।॥։።"
_TOKENS = range(8, 61)  # numbers of tokens that a sentence may have
_SENTENCES = 400  # most sentences that are compared with each other
_TEXT_BYTES = 1 << 20  # bytes of the text that are read
_FREQUENT = 100  # the most frequent words are not content words
_ALIKE = 0.5  # share of common words above which two sentences are copies rather than neighbours
_SHOWN = 3


def demonstrate(model: TrainedModel, path: Path) -> list[str]:
    """Lines for the terminal: three sentences with a masked content word and its fills, and the three nearest pairs.

    Sentences and words are chosen by hashes of the text, so the quality of the model has no influence. A model without
    a masked-LM head shows pairs only.

    Args:
        path: a file of plain text, or a folder with *.txt files below it. Files in a folder `source/LANGUAGE` have one
            document per line, its id first, as data.import_text writes them.
    """
    lines: list[str] = []
    sentences = _sentences(model, path)
    if model.task == "masked-lm":
        for sentence, word in islice(_masked_words(model, sentences), _SHOWN):
            unit = "word" if len(word[0]) > 1 else "character"
            lines += [] if lines else [f"masked {unit}s, the three most likely fills:"]
            text = sentence[: word.start()] + MASK + sentence[word.end() :]
            fills = ", ".join(f"{fill['token']} {fill['probability']:.1%}" for fill in model.fill_mask(text, 3)[0])
            lines += [f"  {text}", f"    true {unit}: {word[0]}; fills: {fills}"]
    for number, (first, second, similarity) in enumerate(_nearest_pairs(model, sentences)):
        lines += [] if number else ["nearest sentences (cosine):"]
        lines += [f"  {similarity:.2f}  {first}", f"        {second}"]
    return lines or [
        f"the text has too few sentences of {_TOKENS.start} to {_TOKENS.stop - 1} tokens to show what the model can do"
    ]


def _sentences(model: TrainedModel, path: Path) -> list[str]:
    """Up to 400 different sentences from the first megabyte of a text, in the order of their hashes.

    Only sentences that begin with a capital and end with a stop are taken, unless there are none: some scripts have no
    capitals.
    """
    files = sorted(file for file in path.rglob("*.txt") if file.is_file()) if path.is_dir() else [path]
    if not path.exists() or not files:
        raise ValueError(f"{path} must be a file of text, or a folder with *.txt files, e.g. held_out/source; check it")
    pieces = (piece for text, language in _texts(files) for piece in split_sentences(text, language, Counter()))
    sentences = {sentence for sentence in (" ".join(piece.split()) for piece in pieces) if MASK not in sentence}
    sentences = {sentence for sentence in sentences if len(model.tokenizer.encode(sentence)) in _TOKENS}
    complete = {s for s in sentences if s[0].isalpha() and not s[0].islower() and s[-1] in _ENDS}
    return sorted(complete or sentences, key=lambda sentence: sha256_of(sentence.encode()))[:_SENTENCES]


def _texts(files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yield (text, language): the documents of source files (`source/LANGUAGE`), or the paragraphs of other files."""
    left = _TEXT_BYTES
    for file in files:
        with open(file, "rb") as opened:
            raw = opened.read(left)
        left -= len(raw)
        is_source = file.parent.parent.name == "source"
        for text in re.split("\n" if is_source else r"\n\s*\n", raw.decode("utf-8", errors="replace")):
            yield (text.lstrip().partition(" ")[2], file.parent.name) if is_source else (text, "en")


def _words_of(sentence: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(sentence)]


def _masked_words(model: TrainedModel, sentences: Sequence[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield (sentence, content word to mask); the word is one known token, so that one mask replaces it."""
    frequency = Counter(word for sentence in sentences for word in _words_of(sentence))
    frequent = {word for word, _ in frequency.most_common(min(_FREQUENT, len(frequency) // 4))}
    unknown = model.vocabulary.id_of("[UNK]")
    for sentence in sentences:
        words = [word for word in _WORD.finditer(sentence) if word[0].lower() not in frequent]
        ids, offsets = model.tokenizer.encode_words([word[0] for word in words])
        first = zip(words, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        known = [word for word, start, stop in first if stop - start == 1 and ids[start] != unknown]
        if known:
            yield sentence, known[int(sha256_of(sentence.encode())[:8], 16) % len(known)]


def _nearest_pairs(model: TrainedModel, sentences: Sequence[str]) -> list[tuple[str, str, float]]:
    """The sentence pairs with the most similar vectors; no sentence is used twice, and near-copies are left out."""
    if len(sentences) < 2:
        return []
    vectors = model.encode(sentences)
    units = unit(vectors - vectors.mean(0))  # why: `NearestSentences`
    similarity = units @ units.T
    words = [set(_words_of(sentence)) for sentence in sentences]
    pairs: dict[tuple[int, int], float] = {}
    for row, column in zip(*np.unravel_index(np.argsort(-similarity, axis=None), similarity.shape), strict=True):
        are_alike = len(words[row] & words[column]) > _ALIKE * max(1, len(words[row] | words[column]))
        if row < column and not are_alike and not {row, column} & {*chain(*pairs)}:
            pairs[row, column] = similarity[row, column]
            if len(pairs) == _SHOWN:
                break
    return [(sentences[row], sentences[column], value) for (row, column), value in pairs.items()]
