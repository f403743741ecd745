"""Model classes, one for each kind of head, and `load_model`, which opens any model.

model = load_model("results/quickstart")
model.fill_mask("Paris is the capital of [MASK].")
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.config.setting_errors import suggest
from bert.conversion.usage import READER_FILE
from bert.finetuning.loader import FeatureTable, check_finite, single_sequences
from bert.finetuning.ner.conll import TaggedText
from bert.finetuning.ner.features import NO_WORD, token_features
from bert.finetuning.ner.plain_words import split_words
from bert.finetuning.ner.tags import read_spans
from bert.finetuning.squad.answer_settings import ReaderSettings, read_reader_settings
from bert.finetuning.squad.examples import Question, SquadExamples
from bert.finetuning.squad.features import build_features
from bert.finetuning.squad.predictions import AnswerCandidate, predict
from bert.inference.classifier import Classifier, rounded
from bert.inference.given_texts import one_text, whole_number
from bert.inference.linear_classifier import is_linear, load_linear
from bert.inference.model_folder import OpenedModel, open_model
from bert.inference.rows import QUESTION_KEYS, RawRequest, Request, texts_of
from bert.inference.settings import ModelSettings, refuse_address
from bert.inference.trained_model import MASK, Result, TrainedModel, probabilities
from bert.model.head_specs import PREDICTIONS
from bert.runtime.hardware import use_cores
from bert.samples.sample_table import Slices


class SentenceEncoder(TrainedModel):
    """Makes vectors of texts, as the model was trained, otherwise means of the last hidden states (see `pooling`)."""

    task = "encoder"

    def run(self, requests: Sequence[Request]) -> list[Result]:
        if self.pooling != "none":
            return vector_results(self.encode([text for (text,) in requests]))
        table = self.sequences([text for (text,) in requests])
        results: list[Result] = [{} for _ in requests]
        for row, states, *_ in self.outputs(self.task, table):
            ids = table.input_ids[table.offsets[row] : table.offsets[row + 1]].tolist()
            vectors = [result["vector"] for result in vector_results(states[: len(ids)])]
            results[row] = {"tokens": [self.vocabulary.tokens[index] for index in ids], "vectors": vectors}
        return results

    def columns(self) -> dict[str, type]:
        return {"tokens": str, "vectors": str} if self.pooling == "none" else {"vector": str}


def vector_results(vectors: np.ndarray) -> list[Result]:
    return [{"vector": [float(f"{value:.7g}") for value in vector.tolist()]} for vector in vectors]


class MaskFiller(TrainedModel):
    """Predicts the most likely tokens at each [MASK] of a text."""

    task = "masked-lm"

    def __init__(self, opened: OpenedModel, **settings: Any) -> None:
        super().__init__(opened, **settings)
        self._words = self.vocabulary.replacement_ids()  # special tokens are not words of a text
        self._mask_id = self.vocabulary.id_of(MASK)

    def request(self, raw: RawRequest) -> Request:
        """Check a request. The mask may also have its name in the vocabulary, such as <mask>."""
        texts, named = texts_of(raw, self.text_keys()), self.vocabulary.name_of(MASK)
        return super().request([text.replace(named, MASK) if isinstance(text, str) else text for text in texts])

    def check(self, texts: Request) -> None:
        super().check(texts)
        if MASK not in texts[0]:
            raise ValueError(f"no {MASK} in the text; write {MASK} for the word to fill, or ask for vectors (--encode)")
        if len(self._window(texts[0])) > self.max_seq_length - 2:
            raise ValueError(
                f"the masks are more than max_seq_length={self.max_seq_length} tokens apart; split the text"
            )

    def fill_mask(self, text: str, top_k: int = 5) -> list[list[dict[str, Any]]]:
        return self._fill([self.request(one_text(text))[0]], whole_number("top_k", top_k))[0]

    def run(self, requests: Sequence[Request]) -> list[Result]:
        texts = [text for (text,) in requests]
        return [
            {"filled": self._fill_masks(text, [mask[0]["token"] for mask in masks]), "masks": masks}
            for text, masks in zip(texts, self._fill(texts, self.top_k), strict=True)
        ]

    def columns(self) -> dict[str, type]:
        return {"filled": str, "masks": str}

    def _fill(self, texts: Sequence[str], top_k: int) -> list[list[list[dict[str, Any]]]]:
        rows = [self._window(text) for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        cls_id, sep_id = self.vocabulary.id_of("[CLS]"), self.vocabulary.id_of("[SEP]")
        pieces = Slices.of_rows(np.concatenate(rows).astype(np.int64), lengths)
        ids, offsets = single_sequences(pieces, cls_id, sep_id)
        masks: list[list[list[dict[str, Any]]]] = [[] for _ in texts]
        for batch_rows, feed in self.batches(FeatureTable(ids, offsets, pad_id=self.vocabulary.id_of("[PAD]"))):
            positions = np.flatnonzero(feed["input_ids"] == self._mask_id)
            outputs = self.forward("masked-lm", {**feed, "masked_lm_positions": positions})
            likely = probabilities(outputs["masked_lm_logits"][:, : len(self.vocabulary)])
            for row, values in zip(batch_rows[positions // feed["input_ids"].shape[1]], likely, strict=True):
                best = self._words[np.argsort(-values[self._words], kind="stable")[:top_k]]
                fills = [{"token": self.vocabulary.shown(i), "probability": rounded(values[i])} for i in best]
                masks[row].append(fills)
        return masks

    def _window(self, text: str) -> list[int]:
        """Tokenise a text; a text that is too long is cut to the tokens around its masks."""
        ids = self.tokenizer.encode_masked(text)
        room = self.max_seq_length - 2
        if len(ids) <= room:
            return ids
        first, last = ids.index(self._mask_id), len(ids) - 1 - ids[::-1].index(self._mask_id)
        if last - first >= room:
            return ids[first : last + 1]
        start = max(0, min(first - (room - (last + 1 - first)) // 2, len(ids) - room))
        return ids[start : start + room]

    def _fill_masks(self, text: str, tokens: Sequence[str]) -> str:
        """Replace the masks of a text by tokens; a word piece (##ing) is joined to the word before it."""
        for token in tokens:
            before, after = text.split(MASK, 1)
            text = self.vocabulary.insert(before, token) + after
        return text


@dataclass(frozen=True)
class AnsweredQuestion:
    """The model's answer to one question."""

    text: str  # words of the paragraph; "" for no answer
    score: float  # probability among the n best answers
    start: int  # first character in the paragraph; 0 for no answer
    end: int  # after the last character; 0 for no answer
    n_best: tuple[AnswerCandidate, ...]  # the n best answers, best first
    null_odds: float | None = None  # score of no answer minus the best answer's score; None if a model always answers

    def to_result(self, top_k: int) -> Result:
        """Convert to JSON values: the answer, the best `top_k` answers, and the probability that there is none."""
        listed = [candidate for candidate in self.n_best if candidate.text][:top_k]
        result = {
            "answer": self.text,
            **_place(self.score, self.start, self.end),
            "answers": [{"text": c.text, **_place(c.probability, c.start, c.end)} for c in listed],
        }
        if self.null_odds is not None:
            empty = next(candidate for candidate in self.n_best if not candidate.text)
            result["no_answer_probability"] = rounded(empty.probability)
        return result


def _place(probability: float, start: int, end: int) -> Result:
    return {"probability": rounded(probability), "start": start, "end": end}


class QuestionAnswerer(TrainedModel):
    """Answers questions about paragraphs. Several models can be used at the same time."""

    task = "question-answering"
    keys = QUESTION_KEYS
    splits_tabs = True
    num_texts = (2,)
    repeated = ("question",)
    hidden = "context"  # the paragraph is not repeated in every answer

    def __init__(self, opened: OpenedModel, *, reader: ReaderSettings | None = None, **settings: Any) -> None:
        super().__init__(opened, **settings)
        path, most = opened.path / READER_FILE, min(384, opened.most_positions)
        if reader is None:
            values = {
                "max_seq_length": most,
                "doc_stride": min(128, most // 3),
                "max_query_length": min(64, most // 2 - 2),
                **opened.tokens.normalization.settings(),
            }
            if path.is_file():
                values = read_reader_settings(path).model_dump()
            if settings.get("max_seq_length"):
                values["max_seq_length"] = self.max_seq_length
            reader = ReaderSettings(**values)
        self.reader, self.max_seq_length = reader, reader.max_seq_length

    def run(self, requests: Sequence[Request]) -> list[Result]:
        return [answered.to_result(self.top_k) for answered in self._answer(requests)]

    def columns(self) -> dict[str, type]:
        columns: dict[str, type] = {"answer": str, "probability": float, "start": int, "end": int, "answers": str}
        return columns | ({"no_answer_probability": float} if self.reader.version_2_with_negative else {})

    def answer(self, question: str, paragraph: str) -> AnsweredQuestion:
        """Answer one question about a paragraph of any length."""
        return self._answer([self.request((question, paragraph))])[0]

    def _answer(self, requests: Sequence[Request]) -> list[AnsweredQuestion]:
        contexts = {context: number for number, context in enumerate(dict.fromkeys(context for _, context in requests))}
        questions = [Question(str(row), text, contexts[context]) for row, (text, context) in enumerate(requests)]
        examples = SquadExamples("the requests", tuple(contexts), tuple(questions))
        features, _ = build_features(examples, self.vocabulary, self.reader, training=False)
        starts, ends = np.zeros((2, len(features.input_ids)), "float32")
        for row, row_starts, row_ends in self.outputs(self.task, features):
            first, last = features.offsets[row : row + 2]
            starts[first:last], ends[first:last] = row_starts[: last - first], row_ends[: last - first]
        check_finite({"start_logits": starts, "end_logits": ends})
        predictions = predict(examples, features, starts, ends, self.reader)
        answered = []
        for question in examples.questions:
            n_best, text = tuple(predictions.n_best[question.id]), predictions.answers[question.id]
            best = next(candidate for candidate in n_best if candidate.text == text)
            null_odds = predictions.null_odds.get(question.id)
            answered.append(AnsweredQuestion(text, best.probability, best.start, best.end, n_best, null_odds))
        return answered


class Tagger(TrainedModel):
    """Finds the entities of a text, with their places in the text."""

    task = "token-classification"

    def __init__(self, opened: OpenedModel, **settings: Any) -> None:
        super().__init__(opened, **settings)
        try:
            read_spans(self.labels)
        except ValueError as error:
            raise ValueError(
                f"{opened.path} is not a tagger of spans: class {error}; put its classes into labels.json there"
            ) from None

    def tokenize(self, texts: Request) -> None:
        self.tokenizer.encode_words([text[start:end] for text in texts for start, end in self._words(text)])

    def run(self, requests: Sequence[Request]) -> list[Result]:
        texts = [text for (text,) in requests]
        places = [self._words(text) for text in texts]
        words = [text[start:end] for text, spans in zip(texts, places, strict=True) for start, end in spans]
        offsets = offsets_of([len(spans) for spans in places])
        likely = self._of_words(words, offsets)
        return [
            {"entities": self._entities(text, spans, likely[first : first + len(spans)])}
            for text, spans, first in zip(texts, places, offsets[:-1].tolist(), strict=True)
        ]

    def columns(self) -> dict[str, type]:
        return {"entities": str}

    def _words(self, text: str) -> list[tuple[int, int]]:
        opened = self.opened
        return split_words(text, opened.usage.word_rules, opened.tokens.normalization.word_segmenter)

    def _of_words(self, words: list[str], offsets: np.ndarray) -> np.ndarray:
        """Compute the probability of each class for each word, float64 [words, classes]."""
        numbers = np.arange(len(offsets) - 1, dtype=np.int64)
        text = TaggedText([], np.zeros(0, np.int64), words, offsets, numbers, None, "iob2")
        table, _ = token_features(self.tokenizer, text, self.max_seq_length)
        likely = np.zeros((len(words), len(self.labels)))
        for row, logits in self.outputs(self.task, table):
            word = table.word_indices[table.offsets[row] : table.offsets[row + 1]]  # word of each token
            likely[word[word != NO_WORD]] = probabilities(logits[: len(word)][word != NO_WORD])
        return likely

    def _entities(self, text: str, spans: list[tuple[int, int]], likely: np.ndarray) -> list[dict[str, Any]]:
        entities = []
        for entity in read_spans([self.labels[index] for index in likely.argmax(-1).tolist()]):
            start, end = spans[entity.start][0], spans[entity.stop - 1][1]
            place = _place(likely[entity.start : entity.stop].max(-1).mean(), start, end)  # mean of its words' classes
            entities.append({"text": text[start:end], "type": entity.type, **place})
        return entities


_HEADS: dict[str, type[TrainedModel]] = {
    head.task: head for head in (MaskFiller, SentenceEncoder, Classifier, Tagger, QuestionAnswerer)
}


def load_model(
    source: str | Path,
    task: str | None = None,
    *,
    max_seq_length: int | None = None,
    batch_size: int = 32,
    top_k: int = 5,
    pooling: str | None = None,
    **settings: Any,
) -> TrainedModel:
    """Load a model, with the methods of its head: predict, encode, fill_mask, answer or rank_scores.

    Args:
        source: a checkpoint, the output folder of a run, an export, a kept baseline, another library's model or a
            published name.
        task: one of PREDICTIONS; None: the task of the model's head. "encoder" makes vectors with any checkpoint.
        pooling: how token states become a vector, see `TrainedModel`; None: as in the training, otherwise mean.
    """
    _refuse_unknown(source, task, settings)
    refuse_address(source)
    if is_linear(source):
        return load_linear(source, task, max_seq_length, batch_size)
    opened = open_model(source, task, pooling=pooling, **settings)
    model = _HEADS[opened.task](opened, max_seq_length=max_seq_length, batch_size=batch_size, top_k=top_k)
    model.pooling = pooling or "mean"
    return model


def _refuse_unknown(source: Any, task: Any, settings: Mapping[str, Any]) -> None:
    """Raise ValueError if the source has a wrong type, or if the task or the name of a setting is unknown."""
    if not isinstance(source, (str, Path)):
        raise ValueError(f"model={source!r} must be a folder or the name of a published model; pass text or a Path")
    if task is not None and task not in PREDICTIONS:
        raise ValueError(
            f"task={task} must be one of {', '.join(PREDICTIONS)}, or None for what the model's head is for"
        )
    known = [*_NAMES_OF_LOADING, *inspect.signature(open_model).parameters]
    for name in settings:
        if name not in known:
            remedy = f"they are {', '.join(name for name in known if name not in ('source', 'task'))}"
            raise ValueError(f"{name} is not a setting of load_model; {suggest(name, known, remedy)}")


_NAMES_OF_LOADING = ("max_seq_length", "batch_size", "top_k")


def load_from_settings(settings: ModelSettings, batch_size: int = 32, **others: Any) -> TrainedModel:
    """Load the model that a command line names, with the requested number of CPU threads."""
    own = settings.model_dump(include=set(ModelSettings.model_fields))
    threads = use_cores(own.pop("cpu_threads"), False, 0, 1)
    return load_model(own.pop("model"), batch_size=batch_size, cpu_threads=threads, **own, **others)
