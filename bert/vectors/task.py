"""Vectors of texts as a fine-tuning task: pairs -> batches of texts, vectors -> recall beside that of BM25."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bert.arrays.ragged import offsets_of, ragged_indices
from bert.config.training_settings import derive
from bert.conversion.model_description import Usage
from bert.finetuning.loader import FeatureTable, FineTuningLoader
from bert.finetuning.run import FineTuning
from bert.finetuning.task import Features, FineTuningTask, Outputs, Part
from bert.inference.heads import load_model
from bert.labels.features import sentence_features
from bert.labels.metrics import METRICS
from bert.launching.previous_run import newest_loop_state
from bert.model.contrastive import ContrastiveObjective
from bert.reporting.comparison import Metrics, verdict
from bert.runtime.distributed import Group
from bert.samples.collation import MicroBatch
from bert.tokenization.library import text_tokenizer
from bert.training.interruption import beat
from bert.vectors.pairs import LATER, NEIGHBOURS, SAME_TEXT, SCORED, cleaned, divided, table_pairs, text_pairs, without
from bert.vectors.retrieval import bm25, cosines, found
from bert.vectors.settings import VectorConfig
from data.text.encodings import Decoding

_REMEDY = "More --hours, more pairs or a better --model may help"
_ENOUGH_NEIGHBOURS = 5_000
_LEAST_SCORED, _MOST_SCORED = 20, 1_000  # queries
_TEXTS_AT_ONCE = 256  # that the model of --compare encodes, after which the watchdog is told


@dataclass(frozen=True)
class PairTable(FeatureTable):
    """The texts of n pairs: n queries, their n passages, then the negatives of all pairs.

    Attributes:
        groups: int64 [texts].
        numbers: int64 [texts], equal for equal texts: a paragraph is a passage, and the query of the next pair.
        negatives: int64 [n + 1], offsets of each pair's negatives among them.
    """

    groups: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    negatives: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.negatives) - 1


class PairLoader(FineTuningLoader):
    """Micro-batches of the texts of some pairs, with what the loss reads of the whole batch."""

    _table: PairTable

    def micro_batch(self, index: int, micro_step: int) -> MicroBatch:
        table, ids, own = self._table, self.sample_ids(index), self._own_samples(micro_step)
        counts, numbers = np.diff(table.negatives)[ids], np.arange(len(ids))
        negatives = 2 * len(table) + ragged_indices(table.negatives[ids], counts)
        texts = np.concatenate([ids, len(table) + ids, negatives])
        owners = np.concatenate([numbers, numbers, np.repeat(numbers, counts)])
        places = np.flatnonzero((owners >= own.start) & (owners < own.stop))
        labels = {"text_places": places, "text_groups": table.groups[texts], "text_numbers": table.numbers[texts]}
        labels["pair_numbers"] = numbers
        number = np.array([len(ids) / self._micro_batch_size], np.float32)
        return self._padded(texts[places], {**labels, "num_micro_batches": number})


class VectorTask(FineTuningTask):
    """Contrastive training of an encoder, measured as a search for the passages of held-out queries."""

    unit = "pairs"
    best_metric = "eval_ndcg_at_10"
    baseline_is_trained = False
    evaluates_first = True
    loader = PairLoader

    @classmethod
    def open(cls, config: VectorConfig, group: Group) -> FineTuning:
        """The run of the task, which ends with its hours."""
        if (hours := config.data.hours) is not None:
            used = (newest_loop_state(config).get("totals") or {}).get("total_seconds", 0.0)
            config = derive(config, finish_in=max(1.0, hours * 3600 - used))
        alone = config if group.is_main else derive(config, compare=None)  # the first rank measures
        return FineTuning(config, group, cls(alone))

    def __init__(self, config: VectorConfig) -> None:
        super().__init__(config)
        self._config, self._form, data, run = config, config.form(), config.data, config.run
        self._tokenizer = text_tokenizer(self.vocabulary, data.normalization())
        self.notes: list[str] = []
        self._held_out: pd.DataFrame | None = None
        if run.do_eval and data.eval_file is not None:
            self._held_out = self.read(Part("held_out", data.eval_file))
            if (self._held_out.kind == SCORED).all():
                self.best_metric = "eval_spearman"
        if run.do_train:
            self.training_file = data.text or data.train_file
            pairs = self.read(Part("train", Path(str(self.training_file))))
            if config.model.hidden_dropout_prob == 0 and (alone := pairs.kind == SAME_TEXT).any():
                how = "the model has none, --hidden-dropout-prob 0.1 gives it some"
                self.notes.append(f"left out: {SAME_TEXT}, as {how}: {alone.sum():,}")
                pairs = pairs[~alone]
            if run.do_eval and data.eval_file is None:
                pairs, self._held_out = divided(pairs, data.held_out_fraction, run.seed, self.notes)
            elif self._held_out is not None:
                if "held_out_fraction" in data.model_dump(exclude_defaults=True):
                    self.notes.append("not used: held_out_fraction, as nothing is held out beside --eval")
                pairs = without(pairs, self._held_out, self.notes)
            self.training = self._with_fewer_neighbours(pairs)
        self._compared = load_model(data.compare, "encoder") if data.compare else None  # refused now
        if run.do_eval:
            self.evaluated = [Part("held_out", Path(str(data.eval_file or self.training_file)))]

    def _with_fewer_neighbours(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """At most as many pairs of neighbouring paragraphs as others, which are what is searched for."""
        are_neighbours = pairs.kind == NEIGHBOURS
        most = max(_ENOUGH_NEIGHBOURS, len(pairs) - are_neighbours.sum())
        kept = pairs[are_neighbours].sample(min(most, are_neighbours.sum()), random_state=self._config.run.seed)
        if fewer := are_neighbours.sum() - len(kept):
            self.notes.append(f"left out: {NEIGHBOURS}, beyond as many as other pairs: {fewer:,}")
        return pairs.drop(pairs[are_neighbours].index.difference(kept.index))

    def objective(self) -> ContrastiveObjective:
        form, config = self._form, self._config
        own = replace(ContrastiveObjective(config.model, config.hardware.fuse_mha), pooling=form.pooling)
        return replace(own, temperature=config.data.temperature, dimensions=form.dimensions)

    def usage(self) -> Usage:
        return Usage("vectors", self._config.data.max_seq_length, vectors=self._form)

    def read(self, part: Part) -> pd.DataFrame:
        if part.name == "held_out" and self._held_out is not None:
            return self._held_out
        data, decoding = self._config.data, Decoding.of(self._config.data)
        if part.path == data.text:
            pairs = text_pairs(part.path, decoding, self.notes, data.text_field)
        else:
            columns, to_measure = (data.query_column, data.passage_column), part.name == "held_out"
            pairs = table_pairs(part.path, *columns, decoding, self.notes, to_measure=to_measure)
        return cleaned(pairs, part.path, self.notes)

    def windows(self, part: Part) -> Iterator[pd.DataFrame]:
        return iter(())

    def features(self, examples: pd.DataFrame, training: bool = False) -> tuple[FeatureTable, dict[str, int]]:
        """The texts of pairs; to measure those of the scored queries, then of all passages."""
        further = [text for texts in examples.negatives for text in texts] if training else []
        queries = examples["query"] if training else scored(examples)["query"]
        texts = [f"{self._form.query_prefix}{text}" for text in queries]
        texts += [f"{self._form.passage_prefix}{text}" for text in (*examples.passage, *further)]
        table, counts = sentence_features(self._tokenizer, [texts], self._config.data.max_seq_length)
        counts |= {"pairs": len(examples), "texts": len(texts)}
        if not training:
            return table, counts
        known = dict(zip(examples.passage, examples.group, strict=True))  # a negative may be another query's passage
        others = np.array([known.get(text, -1 - number) for number, text in enumerate(further)], np.int64)
        groups = np.concatenate([examples.group, examples.group, others])
        numbers = pd.factorize(pd.Series([*queries, *examples.passage, *further]))[0]
        negatives = offsets_of(examples.negatives.map(len).to_numpy())
        return PairTable(**vars(table), groups=groups, numbers=numbers, negatives=negatives), counts

    def describe(self, path: Path, counts: Mapping[str, int]) -> list[str]:
        line = f"{path}: {counts['pairs']:,} pairs, {counts['tokens'] / counts['texts']:.1f} tokens in a text"
        return [f"{line}, {counts['truncated']:,} cut to --max-seq-length {self._config.data.max_seq_length}"]

    def decode(self, features: Features, outputs: Outputs) -> np.ndarray:
        return outputs["vectors"]

    def score(self, part: Part, features: Features, predictions: np.ndarray) -> dict[str, float]:
        passages, queries = features.examples, scored(features.examples)
        metrics = dict[str, float]()
        for size, name in [(None, ""), *((size, f"_of_{size}") for size in self._form.dimensions)]:
            figures = figures_of(cosines(predictions, len(queries), size), queries, passages)
            metrics |= {f"eval_{metric}{name}": value for metric, value in figures(np.arange(len(queries))).items()}
        return metrics

    def baseline(self, features: Features, predictions: np.ndarray) -> dict[str, Any]:
        """What BM25 finds, and the model of --compare, of the same queries; the verdict on this model beside each."""
        passages, queries = features.examples, scored(features.examples)
        texts, number = (queries["query"].tolist(), passages.passage.tolist()), len(queries)
        beat("evaluating BM25")
        others = {"bm25": bm25(*texts)}
        if self._compared is not None:
            vectors = list[np.ndarray]()
            for kind, each in zip(("query", "passage"), texts, strict=True):
                for first in range(0, len(each), _TEXTS_AT_ONCE):
                    beat("evaluating the model of --compare")
                    vectors.append(self._compared.encode(each[first : first + _TEXTS_AT_ONCE], kind))
            others["compared"] = cosines(np.concatenate(vectors), number)
        ours, *theirs = (
            figures_of(scores, queries, passages) for scores in (cosines(predictions, number), *others.values())
        )
        figures, sentences = dict[str, Any](), list[str]()
        unit = "pairs" if self.best_metric == "eval_spearman" else "queries"
        for name, each in zip(others, theirs, strict=True):
            figures |= {f"eval_{name}_{metric}": value for metric, value in each(np.arange(number)).items()}
            title = "BM25, words alone," if name == "bm25" else str(self._config.data.compare)
            sentences.append(verdict(title, ours, each, number, unit=unit, remedy=_REMEDY))
        return figures | {"verdict": " ".join(sentences)}

    def render(self, part: Part, features: Features, predictions: np.ndarray) -> Sequence[bytes]:
        return ()


def figures_of(scores: np.ndarray, queries: pd.DataFrame, passages: pd.DataFrame) -> Metrics:
    """The metrics of some queries, whose order is that of the pairs: a search's, or the correlation with the scores.

    A query that is a passage, of the pair before it or as a text of a class, does not find itself.
    """
    if (queries.kind == SCORED).all():
        pairs, wanted = np.nan_to_num(np.diagonal(scores), neginf=0.0), pd.to_numeric(queries.value).to_numpy()
        return lambda rows: {"spearman": np.nan_to_num(METRICS["spearman"](pairs[rows], wanted[rows]))}
    itself = queries.plain_query.to_numpy()[:, None] == passages.plain_passage.to_numpy()
    values = found(scores, queries.group.to_numpy(), passages.group.to_numpy(), itself)
    return lambda rows: {name: float(each[rows].mean()) for name, each in values.items()}


def scored(pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs whose queries are searched for: at most 1,000 rows, titles and questions, if there are enough."""
    answers = pairs[~pairs.kind.isin([LATER, NEIGHBOURS, SAME_TEXT])]
    return (answers if len(answers) >= _LEAST_SCORED else pairs[pairs.kind != SAME_TEXT]).head(_MOST_SCORED)
