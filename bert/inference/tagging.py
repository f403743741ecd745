"""Finds named entities, or other spans, in plain sentences with a fine-tuned model."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.finetuning.ner.conll import TaggedText
from bert.finetuning.ner.features import NO_WORD, token_features
from bert.finetuning.ner.tags import read_spans
from bert.inference.model_folder import OpenedModel
from bert.inference.trained_model import Request, Result, TrainedModel, probabilities

# Words as in CoNLL's files: punctuation stands alone, but not inside a word (U.N., 1,000.5, well-known, O'Brien); the
# genitive 's is a word. Each Chinese or Japanese character is one.
_WORDS = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
    r"|['\u2019][sS]\b"
    r"|(?:[^\W\d_]\.){2,}"
    r"|\d+(?:[.,:/]\d+)*(?:-?[^\W_]+)?"
    r"|[^\W_](?:[^\W_\u3040-\u30ff\u3400-\u9fff]|[-.&@/'\u2019_](?!['\u2019]?[sS]\b(?![-\w]))(?=[^\W_]))*"
    r"|\S"
)


def split_words(text: str) -> list[tuple[int, int]]:
    """The words of plain text: start and end in characters."""
    return [match.span() for match in _WORDS.finditer(text)]


class Tagger(TrainedModel):
    """The entities of a text, with their places in it."""

    task = "token-classification"

    def __init__(self, opened: OpenedModel, **settings: Any) -> None:
        super().__init__(opened, **settings)
        assert self.opened.labels is not None
        self.labels = self.opened.labels
        try:
            read_spans(self.labels)
        except ValueError as error:
            raise ValueError(
                f"{self.opened.path} is not a tagger of spans: class {error}; put its classes into labels.json there"
            ) from None

    def run(self, requests: Sequence[Request]) -> list[Result]:
        texts = [text for (text,) in requests]
        places = [split_words(text) for text in texts]
        words = [text[start:end] for text, spans in zip(texts, places, strict=True) for start, end in spans]
        offsets = offsets_of(np.array([len(spans) for spans in places], np.int64))
        likely = self._of_words(words, offsets)
        results = []
        for text, spans, first in zip(texts, places, offsets[:-1].tolist(), strict=True):
            results.append({"entities": self._entities(text, spans, likely[first : first + len(spans)])})
        return results

    def _of_words(self, words: list[str], offsets: np.ndarray) -> np.ndarray:
        """The probabilities of all classes of every word, float64 [words, classes]."""
        count = len(offsets) - 1
        numbers = np.arange(count, dtype=np.int64)
        text = TaggedText(Path(), [], np.zeros(0, np.int64), words, offsets, numbers, None, "iob2")
        arrays, _ = token_features(self.tokenizer, text, self.max_seq_length)
        table = self.table_of(arrays["input_ids"], arrays["offsets"], np.diff(arrays["offsets"]))
        likely = np.zeros((len(words), len(self.labels)))
        for batch in self.batches(table):
            logits = self.network.run(self.task, batch.feed)["logits"]
            for row, values in zip(batch.rows.tolist(), logits, strict=True):
                own = arrays["word_indices"][arrays["offsets"][row] : arrays["offsets"][row + 1]]
                likely[own[own != NO_WORD]] = probabilities(values[: len(own)][own != NO_WORD])
        return likely

    def _entities(self, text: str, spans: list[tuple[int, int]], likely: np.ndarray) -> list[dict[str, Any]]:
        entities = []
        for entity in read_spans([self.labels[index] for index in likely.argmax(-1).tolist()]):
            start, end = spans[entity.start][0], spans[entity.stop - 1][1]
            probability = round(float(likely[entity.start : entity.stop].max(-1).mean()), 6)  # of its words' classes
            place = {"start": start, "end": end, "probability": probability}
            entities.append({"text": text[start:end], "type": entity.type, **place})
        return entities
