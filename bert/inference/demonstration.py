"""What a pre-trained model can do now: it fills masked words of a text's sentences and finds the nearest sentences.

Where no spaces separate words (Chinese, Japanese), characters are counted and masked instead.
"""

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from bert.files import sha256_of
from bert.inference.heads import MASK
from bert.inference.nearest import cosines
from bert.inference.trained_model import TrainedModel
from data.text.sentences import split_sentences

_MARKS = ".,;:!?،؛؟۔।॥։。"
_ENDS = ".!?…。！？｡؟۔।॥։።"
_WORD = re.compile(rf"(?<!\S)[^\W\d_][^\s\d{re.escape(string.punctuation + _MARKS)}]{{3,}}(?=[\s{_MARKS}]|$)")
_CHARACTERS_OF_A_WORD = 12  # a sentence with more for each word has no spaces between its words
_LEAST = 3  # with fewer sentences that begin and end as sentences do, any of the right length are taken
_SENTENCES = 400  # compared with each other
_TEXT_BYTES = 1 << 20  # read of the text
_FREQUENT = 100  # the most frequent words are not content words
_ALIKE = 0.5  # share of common words above which two sentences are copies rather than neighbours
_SHOWN = 3


def example_sentences(path: Path) -> list[str]:
    """Up to 400 different sentences from the first megabyte of a text, in the order of their hashes.

    Args:
        path: a file of plain text, or a folder with *.txt files below it. Files in a folder `source/LANGUAGE` have one
            document per line, its id first, as data.import_text writes them.
    """
    files = sorted(file for file in path.rglob("*.txt") if file.is_file()) if path.is_dir() else [path]
    if not path.exists() or not files:
        raise ValueError(f"{path} must be a file of text, or a folder with *.txt files, e.g. held_out/source; check it")
    sentences: dict[str, bool] = {}  # sentence -> whether it begins and ends as one; some scripts have no capitals
    for text, language in _texts(files):
        for sentence in (" ".join(piece.split()) for piece in split_sentences(text, language, Counter())):
            few, many, size = (6, 30, len(sentence.split())) if has_spaces(sentence) else (10, 60, len(sentence))
            if few <= size <= many and MASK not in sentence:
                sentences[sentence] = sentence[0].isalpha() and not sentence[0].islower() and sentence[-1] in _ENDS
    complete = [sentence for sentence, is_complete in sentences.items() if is_complete]
    chosen = complete if len(complete) >= _LEAST else list(sentences)
    return sorted(chosen, key=lambda sentence: sha256_of(sentence.encode()))[:_SENTENCES]


def _texts(files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """The documents of source text, otherwise the paragraphs; each with its language."""
    left = _TEXT_BYTES
    for file in files:
        with open(file, "rb") as opened:
            raw = opened.read(left)
        left -= len(raw)
        is_source = file.parent.parent.name == "source"
        for text in re.split("\n" if is_source else r"\n\s*\n", raw.decode("utf-8", errors="replace")):
            yield (text.lstrip().partition(" ")[2], file.parent.name) if is_source else (text, "en")


def has_spaces(sentence: str) -> bool:
    """Whether spaces separate its words."""
    return len(sentence) <= _CHARACTERS_OF_A_WORD * len(sentence.split())


def _units(sentence: str) -> list[tuple[str, int]]:
    """Its words of four letters and more, or its letters where no spaces separate words; each with its place."""
    if has_spaces(sentence):
        return [(match[0], match.start()) for match in _WORD.finditer(sentence)]
    return [(letter, place) for place, letter in enumerate(sentence) if letter.isalpha()]


def demonstrate(model: TrainedModel, sentences: Sequence[str]) -> list[str]:
    """Lines for the terminal: three sentences with a masked content word and its fills, and the three nearest pairs.

    The sentences and words are a function of the text (by hash), not of how well the model does. A model without a
    masked-LM head only has pairs.
    """
    lines: list[str] = []
    if model.task == "masked-lm":
        for sentence, word, place in islice(_masked_words(model, sentences), _SHOWN):
            what = "word" if has_spaces(sentence) else "character"
            lines += [] if lines else [f"masked {what}s of held-out sentences, the three most likely fills:"]
            text = sentence[:place] + MASK + sentence[place + len(word) :]
            fills = ", ".join(f"{fill['token']} {fill['probability']:.1%}" for fill in model.fill_mask(text, 3)[0])
            lines += [f"  {text}", f"    true {what}: {word}; fills: {fills}"]
    pairs = _nearest_pairs(model, sentences) if len(sentences) >= _LEAST else []
    lines += ["nearest sentences (cosine):"] if pairs else []
    for first, second, similarity in pairs:
        lines += [f"  {similarity:.2f}  {first}", f"        {second}"]
    return lines or [
        "the text has too few sentences of 6 to 30 words, or of 10 to 60 characters where no spaces separate words, to "
        "show what the model can do"
    ]


def _masked_words(model: TrainedModel, sentences: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """(sentence, content word, its place): a word that is one known token, so that one mask stands for it."""
    frequency = Counter(word.lower() for sentence in sentences for word, _ in _units(sentence))
    frequent = {word for word, _ in frequency.most_common(min(_FREQUENT, len(frequency) // 4))}
    encode, unknown = model.tokenizer.encode, model.vocabulary.id_of("[UNK]")
    for sentence in sentences:
        known = []
        for word, place in _units(sentence):
            token, after = encode(word), sentence[place + len(word) :]
            # Letters of some scripts are pieces of words: the token must be one inside of its sentence too.
            if word.lower() not in frequent and len(token) == 1 and token[0] != unknown:
                if encode(sentence) == [*encode(sentence[:place]), *token, *encode(after)]:
                    known.append((word, place))
        if known:
            word, place = known[int(sha256_of(sentence.encode())[:8], 16) % len(known)]
            yield sentence, word, place


def _nearest_pairs(model: TrainedModel, sentences: Sequence[str]) -> list[tuple[str, str, float]]:
    """The pairs with the most similar vectors, each sentence once; pairs that share most words are left out."""
    vectors = model.encode(sentences)
    similarity = cosines(vectors, vectors)
    words = [frozenset(word.lower() for word, _ in _units(sentence)) for sentence in sentences]
    rows, columns = np.triu_indices(len(sentences), 1)
    order = np.argsort(-similarity[rows, columns], kind="stable")
    used: set[int] = set()
    pairs: list[tuple[str, str, float]] = []
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        are_alike = len(words[row] & words[column]) > _ALIKE * max(1, len(words[row] | words[column]))
        if len(pairs) < _SHOWN and not are_alike and not {row, column} & used:
            used |= {row, column}
            pairs.append((sentences[row], sentences[column], float(similarity[row, column])))
    return pairs
