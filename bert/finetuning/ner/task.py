"""Named-entity recognition as a fine-tuning task: tagged words -> features, outputs -> spans, scores and files."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.usage import Usage
from bert.finetuning.loader import UNLABELLED
from bert.finetuning.model_files import labels_of_the_weights, usage_of_the_weights
from bert.finetuning.ner.config import TaggingConfig
from bert.finetuning.ner.conll import TaggedText, predicted_lines, read_tagged_text, tagged_windows
from bert.finetuning.ner.features import NO_WORD, TaggedFeatures, token_features
from bert.finetuning.ner.plain_words import as_plain_text, cut_at_spaces, in_characters, learn_rules
from bert.finetuning.ner.tags import OUTSIDE, Span, read_spans, score_spans
from bert.finetuning.prediction_files import WINDOW_CHARACTERS, WINDOW_EXAMPLES
from bert.finetuning.run import RunnableTask
from bert.finetuning.task import Features, Outputs, Part, ResultsFile
from bert.model.objectives import TokenClassificationObjective
from bert.reporting.comparison import Metrics, verdict
from bert.tokenization.library import text_tokenizer

logger = logging.getLogger(__name__)
_PLAIN = "plain text"  # the sentences that are evaluated, cut as run_predict.py cuts text


class TaggingTask(RunnableTask):
    unit = "sentences"
    _evaluated: TaggedText

    def __init__(self, config: TaggingConfig) -> None:
        super().__init__(config)
        self._config, data, run = config, config.data, config.run
        self._tokenizer = text_tokenizer(self.vocabulary, data.normalization())
        if run.do_train:
            assert data.train_file is not None
            self.training, self.training_file = cut_at_spaces(self._read(data.train_file, None)), data.train_file
            kinds = sorted({span.type for span in self.training.spans or ()})
            if not kinds:
                rule = f"every tag is {OUTSIDE}; is --tag-column the right one?"
                raise ValueError(f"{data.train_file} has no entity, {rule}")
            # Models use IOB2 whatever the scheme of the files.
            self.labels = (OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))
            self._word_rules: Mapping[str, bool] | None = learn_rules(self.training.sentences())
        else:
            self.labels = labels_of_the_weights(config.initialization, None)
            self._word_rules = usage_of_the_weights(config.initialization).word_rules
            try:
                read_spans(self.labels)
            except ValueError as error:
                remedy = "train with --do-train, or pass others"
                raise ValueError(f"the weights are not of a tagger: class {error}; {remedy}") from None
        if run.do_eval:
            self.evaluated = [_part("dev", data.eval_file), Part(_PLAIN, Path(f"{data.eval_file} as plain text"))]
        if run.do_predict:
            self.predicted = [_part("predict", data.predict_file)]

    def objective(self) -> TokenClassificationObjective:
        assert self.labels is not None
        config = self._config
        return TokenClassificationObjective(config.model, config.hardware.fuse_mha, num_labels=len(self.labels))

    def usage(self) -> Usage:
        data = self._config.data
        return Usage("ner", data.max_seq_length, (), False, data.document_context, word_rules=self._word_rules)

    def read(self, part: Part) -> TaggedText:
        assert self.labels is not None
        if part.name == _PLAIN:
            segmenter = self._config.data.word_segmenter
            text, self._places, self._entities = as_plain_text(self._evaluated, self._word_rules, segmenter)
            return text
        self._evaluated = self._read(part.path, tuple(sorted({label[2:] for label in self.labels if label != OUTSIDE})))
        return self._evaluated

    def _read(self, path: Path, types: tuple[str, ...] | None) -> TaggedText:
        """Read a tagged file; `types` are the valid entity types, None: any."""
        text = read_tagged_text(path, self._config.data.layout(), types)
        self.notes = [*self.notes, *text.warnings]
        logger.info(
            f"{path}: {len(text.words):,} words in {len(text):,} sentences and "
            f"{int(text.document_of_sentence[-1]) + 1:,} documents, {len(text.spans or ()):,} entities tagged in "
            f"{text.scheme}" + (f", {text.comments:,} comment lines" if text.comments else "")
        )
        return text

    def windows(self, part: Part) -> Iterator[TaggedText]:
        data = self._config.data
        layout = data.layout(tagged=False)
        for text in tagged_windows(part.path, layout, WINDOW_EXAMPLES, WINDOW_CHARACTERS, data.document_context):
            self.notes = [*dict.fromkeys([*self.notes, *text.warnings])]
            yield text

    def features(self, examples: TaggedText, training: bool = False) -> tuple[TaggedFeatures, dict[str, int]]:
        data = self._config.data
        table, counts = token_features(
            self._tokenizer, examples, data.max_seq_length, data.document_context, data.window_overlap
        )
        if training:  # otherwise tags are compared as spans
            assert self.labels is not None and examples.spans is not None
            class_of = {label: index for index, label in enumerate(self.labels)}
            classes = np.array([class_of[tag] for tag in examples.tags(examples.spans, "iob2")])
            labels = np.where(table.word_indices == NO_WORD, UNLABELLED, classes[table.word_indices])
            table = replace(table, labels={"labels": labels})
        return table, counts

    def describe(self, path: Path, counts: Mapping[str, int]) -> list[str]:
        """Describe truncated and divided sentences."""
        length = self._config.data.max_seq_length
        problems = {
            "split_sentences": f"sentences longer than --max-seq-length {length} are predicted in several windows",
            "cut_words": "words longer than a window are cut",
            "empty_words": "words have no piece and are [UNK]",
        }
        return [f"{path}: {counts[name]:,} {what}" for name, what in problems.items() if counts.get(name)]

    def decode(self, features: Features, outputs: Outputs) -> list[Span]:
        """The entities of the most likely class of every word, from logits float32 [T, classes]."""
        text, words, labels = features.examples, features.table.word_indices, self.labels
        assert labels is not None
        classes = np.zeros(len(text.words), np.int64)
        classes[words[words != NO_WORD]] = outputs["logits"].argmax(-1)[words != NO_WORD]
        return read_spans([labels[index] for index in classes.tolist()], text.sentence_offsets[:-1].tolist())

    def score(self, part: Part, features: Features, spans: list[Span]) -> dict[str, float]:
        if part.name == _PLAIN:
            scores = score_spans(self._entities, in_characters(spans, self._places))
            return {"eval_plain_text_f1": scores["f1"]}
        return {f"eval_{name}": value for name, value in score_spans(features.examples.spans, spans).items()}

    def baseline(self, features: Features, spans: list[Span]) -> dict[str, Any]:
        """Scores of a baseline: each word's most frequent training tag, `O` for unknown words."""
        import pandas as pd

        text, training, gold = features.examples, self.training, set(features.examples.spans)
        tags = pd.Series(training.tags(training.spans, "iob2"))
        frequent = pd.crosstab(pd.Series(training.words), tags).idxmax(axis=1).to_dict()
        guessed = [frequent.get(word, OUTSIDE) for word in text.words]

        def f1(spans: list[Span]) -> Metrics:  # of sentences
            span_sets = (gold & {*spans}, gold, spans)
            counts = [np.histogram([span.start for span in some], text.sentence_offsets)[0] for some in span_sets]
            return lambda rows: {"f1": 2 * counts[0][rows].sum() / max(1, (counts[1] + counts[2])[rows].sum())}

        plain = f1(read_spans(guessed, text.sentence_offsets[:-1].tolist()))
        groups = text.document_of_sentence if text.document_of_sentence[-1] else None
        words = verdict("the most frequent tag of each word", f1(spans), plain, len(text), groups, "sentences")
        return {"eval_most_frequent_tag_f1": float(plain(np.arange(len(text)))["f1"]), "verdict": words}

    def num_rows(self, examples: TaggedText) -> int:
        return len(examples.lines)

    def render(self, part: Part, features: Features, spans: list[Span]) -> list[bytes]:
        return [predicted_lines(features.examples, spans)] if part.results else []


def _part(name: str, path: Path | None) -> Part:
    assert path is not None, "the settings have checked it"
    return Part(name, path, {f"{path.stem}_predictions.conll": ResultsFile()})
