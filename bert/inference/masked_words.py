"""Fills masks in text with a pre-trained model, and encodes texts as vectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.inference.model_folder import OpenedModel
from bert.inference.trained_model import Request, Result, TrainedModel, probabilities

MASK = "[MASK]"


class SentenceEncoder(TrainedModel):
    """Sentence vectors: means of the last hidden states."""

    task = "encoder"

    def run(self, requests: Sequence[Request]) -> list[Result]:
        return vector_results(self.encode([text for (text,) in requests]))


def vector_results(vectors: np.ndarray) -> list[Result]:
    return [{"vector": [float(f"{value:.7g}") for value in vector.tolist()]} for vector in vectors]


class MaskFiller(TrainedModel):
    """The most likely tokens at each [MASK] of a text."""

    task = "masked-lm"

    def __init__(self, opened: OpenedModel, **settings: Any) -> None:
        super().__init__(opened, **settings)
        self._words = self.vocabulary.replacement_ids()  # special tokens are not words of a text
        self._mask_id = self.vocabulary.id_of(MASK)

    def check(self, texts: Request) -> None:
        super().check(texts)
        if MASK not in texts[0]:
            raise ValueError(f"no {MASK} in the text; write {MASK} for the word to fill, or ask for vectors (--encode)")
        if len(self._window(texts[0])) > self.max_seq_length - 2:
            raise ValueError(
                f"the masks are more than max_seq_length={self.max_seq_length} tokens apart; split the text"
            )

    def fill_mask(self, text: str, top_k: int = 5) -> list[list[dict[str, Any]]]:
        return self._fill([self.request(text)[0]], top_k)[0]

    def run(self, requests: Sequence[Request]) -> list[Result]:
        found = self._fill([text for (text,) in requests], self.top_k)
        return [
            {"filled": _filled(text, [mask[0]["token"] for mask in masks]), "masks": masks}
            for (text,), masks in zip(requests, found, strict=True)
        ]

    def _fill(self, texts: Sequence[str], top_k: int) -> list[list[list[dict[str, Any]]]]:
        cls_id, sep_id = self.vocabulary.id_of("[CLS]"), self.vocabulary.id_of("[SEP]")
        rows = [[cls_id, *self._window(text), sep_id] for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        table = self.table_of(np.concatenate(rows).astype(np.int64), offsets_of(lengths), lengths)
        found: list[list[list[dict[str, Any]]]] = [[] for _ in texts]
        for batch in self.batches(table):
            ids = batch.feed["input_ids"]
            positions = np.flatnonzero(ids == self._mask_id)
            outputs = self.network.run("masked-lm", {**batch.feed, "masked_lm_positions": positions})
            likely = probabilities(outputs["masked_lm_logits"][:, : len(self.vocabulary)])
            for position, row in zip(positions.tolist(), likely, strict=True):
                best = self._words[np.argsort(-row[self._words], kind="stable")[:top_k]]
                fills = [{"token": self.vocabulary.tokens[i], "probability": round(float(row[i]), 6)} for i in best]
                found[batch.rows[position // ids.shape[1]]].append(fills)
        return found

    def _window(self, text: str) -> list[int]:
        """The tokens of a text; of one that is too long, those around its masks."""
        first_part, *parts = text.split(MASK)
        ids = self.tokenizer.encode(first_part)
        for part in parts:
            ids += [self._mask_id, *self.tokenizer.encode(part)]
        room = self.max_seq_length - 2
        if len(ids) <= room:
            return ids
        first, last = ids.index(self._mask_id), len(ids) - 1 - ids[::-1].index(self._mask_id)
        if last - first >= room:
            return ids[first : last + 1]
        start = max(0, min(first - (room - (last + 1 - first)) // 2, len(ids) - room))
        return ids[start : start + room]


def _filled(text: str, tokens: Sequence[str]) -> str:
    """The text with its masks replaced; a word piece (##ing) is joined to the word before it."""
    for token in tokens:
        before, after = text.split(MASK, 1)
        text = (before.rstrip() if token.startswith("##") else before) + token.removeprefix("##") + after
    return text
