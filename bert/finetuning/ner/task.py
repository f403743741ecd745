"""Named-entity recognition as a fine-tuning task: tagged words -> features, outputs -> spans, scores and files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert.conversion.model_usage import Usage, usage_texts
from bert.finetuning import sequences, text_files
from bert.finetuning.feature_cache import Arrays, FeatureCache, Notes, fingerprint, readable
from bert.finetuning.loader import UNLABELLED, FeatureTable
from bert.finetuning.model_files import labels_of_the_weights
from bert.finetuning.ner import conll, tags
from bert.finetuning.ner import features as ner_features
from bert.finetuning.ner.config import TaggingConfig
from bert.finetuning.ner.conll import (
    ConllFormat,
    TaggedText,
    predicted_lines,
    read_tagged_text,
    tagged_windows,
    write_predicted,
)
from bert.finetuning.ner.features import NO_WORD, token_features
from bert.finetuning.ner.tags import OUTSIDE, Span, encode_tags, label_set, read_spans, score_spans
from bert.finetuning.resumable_files import WINDOW_CHARACTERS, WINDOW_EXAMPLES
from bert.finetuning.streamed_prediction import StreamedSet, Window
from bert.finetuning.task import FineTuning, FineTuningData, Outputs, PredictedSet
from bert.model.objectives import TokenClassificationObjective
from bert.runtime.distributed import Group
from bert.tokenization import fast_tokenizer
from bert.tokenization.fast_tokenizer import FastTokenizer
from bert.tokenization.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedText:
    """A file and its windows; word_indices int32 [T] is the word predicted at each token, or NO_WORD."""

    text: TaggedText
    table: FeatureTable
    word_indices: np.ndarray
    fingerprint: str


def open_task(config: TaggingConfig, group: Group) -> FineTuning:
    return FineTuning(config, group, read_data(config))


def read_data(config: TaggingConfig) -> FineTuningData:
    """Read, check and tokenise every file that the settings need.

    Raises:
        ValueError: a file that cannot be used, or classes that no file names.
    """
    data, run = config.data, config.run
    train_text = None
    if run.do_train:
        assert data.train_file is not None
        train_text = _read(data.train_file, data.layout(), None)
        labels = label_set(train_text.types())
        if len(labels) == 1:
            raise ValueError(f"{data.train_file} has no entity, every tag is {OUTSIDE}; is --tag-column the right one?")
    else:
        labels = labels_of_the_weights(config.initialization, None)
        _check_labels(labels)
    reader = _Reader(config)
    train = reader.prepare(train_text, labels) if train_text else None  # the others' tags are compared as spans
    evaluation, prediction = [], []
    if run.do_eval:
        assert data.eval_file is not None
        part = reader.prepare(_read(data.eval_file, data.layout(), _types(labels)))
        evaluation.append(PredictedSet("dev", part.table, _scorer(part, labels), _writer(part, labels)))
    if run.do_predict:
        assert data.predict_file is not None
        prediction.append(reader.stream(data.predict_file, labels))
    return FineTuningData(
        TokenClassificationObjective(config.model, config.hardware.fuse_mha, num_labels=len(labels)),
        fingerprint=train.fingerprint if train else "",
        best_metric="eval_f1",
        train=train.table if train else None,
        evaluation=evaluation,
        prediction=prediction,
        texts=usage_texts(
            Usage("ner", data.max_seq_length, document_context=data.document_context), data.do_lower_case, labels
        ),
    )


def _read(path: Path, layout: ConllFormat, types: Sequence[str] | None) -> TaggedText:
    text = read_tagged_text(path, layout, types)
    for warning in text.warnings:
        logger.info(warning)
    spans = "" if text.spans is None else f", {len(text.spans):,} entities tagged in {text.scheme}"
    logger.info(
        f"{path}: {len(text.words):,} words in {len(text.sentence_offsets) - 1:,} sentences and "
        f"{int(text.document_of_sentence[-1]) + 1:,} documents{spans}"
    )
    return text


class _Reader:
    """Builds windows of texts, or reads them from the cache."""

    def __init__(self, config: TaggingConfig) -> None:
        self._config = config
        self._vocabulary = Vocabulary.from_file(config.data.vocab_file)
        self._tokenizer = FastTokenizer(self._vocabulary, config.data.do_lower_case)
        self._cache = FeatureCache(config.data.cache_dir)

    def prepare(self, text: TaggedText, labels: Sequence[str] | None = None) -> PreparedText:
        """`labels`: the classes, for a text to train on."""
        data = self._config.data
        key = self._cache.key(
            f"ner-{readable(text.source.stem)}",
            files=[text.source],
            vocabulary=self._vocabulary,
            settings={
                "word_column": data.word_column,
                "lower": data.do_lower_case,
                "context": data.document_context,
                "max_seq_length": data.max_seq_length,
                "overlap": data.window_overlap,
            },
            code=[conll, ner_features, tags, sequences, text_files, fast_tokenizer],
        )
        arrays, counts = self._cache.get_or_build(key, lambda: self._build(text))
        for line in _count_lines(text.source, counts, data.max_seq_length):
            logger.info(line)
        words = arrays["word_indices"]
        token_labels = None
        if labels is not None:
            token_labels = np.where(words == NO_WORD, UNLABELLED, encode_tags(text.tags(), labels)[words])
            arrays = {**arrays, "labels": token_labels}
        table = self._table(arrays, token_labels)
        return PreparedText(text, table, words, fingerprint(arrays))

    def stream(self, path: Path, labels: Sequence[str]) -> StreamedSet:
        """A file to predict, which is checked now and read again while it is predicted."""
        data = self._config.data

        def texts() -> Iterator[TaggedText]:
            layout = data.layout(tagged=False)
            return tagged_windows(path, layout, WINDOW_EXAMPLES, WINDOW_CHARACTERS, data.document_context)

        def windows(start: int) -> Iterator[Window]:
            done = 0
            for text in texts():
                done += (count := len(text.sentence_offsets) - 1)
                if done > start:
                    arrays, counts = self._build(text)
                    part = PreparedText(text, self._table(arrays), arrays["word_indices"], "")
                    yield Window(part.table, count, _renderer(part, labels), counts)

        sizes = [(len(text.words), len(text.sentence_offsets) - 1) for text in texts()]
        words, sentences = (sum(column) for column in zip(*sizes, strict=True))
        logger.info(f"{path}: {words:,} words in {sentences:,} sentences")
        return StreamedSet(
            "predict",
            path,
            sentences,
            "sentences",
            windows,
            {f"{path.stem}_predictions.conll": (b"", b"")},
            lambda counts: _count_lines(path, counts, data.max_seq_length),
            labels,
        )

    def _table(self, arrays: Arrays, token_labels: np.ndarray | None = None) -> FeatureTable:
        ids, offsets, pad_id = arrays["input_ids"], arrays["offsets"], self._config.model.pad_token_id
        return FeatureTable(ids, offsets, np.diff(offsets), {}, token_labels, pad_id=pad_id)

    def _build(self, text: TaggedText) -> tuple[Arrays, Notes]:
        data = self._config.data
        return token_features(self._tokenizer, text, data.max_seq_length, data.document_context, data.window_overlap)


def _count_lines(path: Path, counts: Mapping[str, int], max_seq_length: int) -> list[str]:
    """Lines for the log: what did not fit."""
    found = {
        "split_sentences": f"sentences longer than --max-seq-length {max_seq_length} are predicted in several windows",
        "cut_words": "words longer than a window are cut",
        "empty_words": "words have no piece and are [UNK]",
    }
    return [f"{path}: {counts[name]:,} {what}" for name, what in found.items() if counts.get(name)]


def predicted_spans(part: PreparedText, labels: Sequence[str], outputs: Outputs) -> list[Span]:
    """The entities of the most likely class of every word.

    Args:
        outputs: logits float32 [windows, longest, classes].
    Raises:
        ValueError: the model's outputs are not finite.
    """
    logits = outputs["logits"]
    if not np.isfinite(logits).all():
        raise ValueError("the model's outputs are NaN or infinite; its weights are damaged, or its training diverged")
    inside = np.arange(logits.shape[1])[None] < part.table.lengths()[:, None]
    predicted = logits.argmax(-1)[inside]  # [T], the tokens of all windows, one after the other
    classes = np.zeros(len(part.text.words), np.int64)
    is_word = part.word_indices != NO_WORD
    classes[part.word_indices[is_word]] = predicted[is_word]
    return read_spans([labels[index] for index in classes.tolist()], part.text.sentence_offsets[:-1].tolist())


def _scorer(part: PreparedText, labels: Sequence[str]) -> Callable[[Outputs], dict[str, float]]:
    def score(outputs: Outputs) -> dict[str, float]:
        assert part.text.spans is not None
        found = score_spans(part.text.spans, predicted_spans(part, labels, outputs))
        each = {f"eval_{kind}_f1": scores.f1 for kind, scores in found.by_type.items()}
        return {"eval_precision": found.precision, "eval_recall": found.recall, "eval_f1": found.f1, **each}

    return score


def _writer(part: PreparedText, labels: Sequence[str]) -> Callable[[Outputs, Path], None]:
    def write(outputs: Outputs, directory: Path) -> None:
        source = part.text.source
        write_predicted(
            directory / f"{source.stem}_predictions.conll", part.text, predicted_spans(part, labels, outputs)
        )

    return write


def _renderer(part: PreparedText, labels: Sequence[str]) -> Callable[[Outputs], list[bytes]]:
    return lambda outputs: [predicted_lines(part.text, predicted_spans(part, labels, outputs))]


def _types(labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({label[2:] for label in labels if label != OUTSIDE}))


def _check_labels(labels: Sequence[str]) -> None:
    try:
        read_spans(labels)
    except ValueError as error:
        raise ValueError(
            f"the weights are not of a tagger: class {error}; train with --do-train, or pass others"
        ) from None
