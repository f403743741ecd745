"""The fine-tuning task of vectors for search: trains on pairs of texts, and compares recall with BM25."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.arrays.ragged import offsets_of, ragged_indices
from bert.config.training_settings import derive
from bert.conversion.usage import Usage
from bert.finetuning.loader import FeatureTable, FineTuningLoader
from bert.finetuning.model_files import usage_of_the_weights
from bert.finetuning.run import FineTuning
from bert.finetuning.task import Features, FineTuningTask, Outputs, Part
from bert.inference.heads import load_model
from bert.labels.features import sentence_features
from bert.model.contrastive import ContrastiveObjective
from bert.reporting.comparison import verdict
from bert.runtime.distributed import Group
from bert.samples.collation import MicroBatch
from bert.search.ranking import cosines
from bert.search.words import WordIndex
from bert.tokenization.library import text_tokenizer
from bert.training.interruption import beat
from bert.vectors.hybrid import HeldOutSearch
from bert.vectors.measures import figures_of, scored, searched
from bert.vectors.pairs import (
    NEIGHBOURS,
    SAME_TEXT,
    SCORED,
    are_relevant,
    asked_for,
    cleaned,
    divided,
    relevant_keys,
    table_pairs,
    text_pairs,
    without,
    without_repeated_parts,
)
from bert.vectors.settings import VectorConfig
from data.text.encodings import Decoding

if TYPE_CHECKING:
    import pandas as pd

_REMEDY = "More --hours, more pairs or a better --model may help"
_ENOUGH_NEIGHBOURS = 5_000
_TEXTS_AT_ONCE = 256  # texts that the model of --compare encodes between two signals to the watchdog


@dataclass(frozen=True)
class PairTable(FeatureTable):
    """The texts of n pairs: n queries, their n passages, then the negatives of all pairs.

    Attributes:
        queries: int64 [n], number of each query; equal queries have one number.
        passages: int64 [texts - n], number of each passage and negative; nearly equal passages have one number, and a
            negative that is no query's passage has -1.
        num_passages: larger than each number in `passages`.
        relevant: int64, the `relevant_keys` of the pairs.
        numbers: int64 [texts], number of each text; equal texts have one number, as a paragraph can be a passage and
            the query of the next pair.
        negatives: int64 [n + 1], where each pair's negatives begin among all negatives.
    """

    queries: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    passages: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    num_passages: int = 1
    relevant: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    negatives: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.negatives) - 1

    def not_negatives(self, ids: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Mask of texts that are no negatives of a query: 1 if a text answers the query or equals it; float32 [b, m].

        A pair's own passage has 0. m is the number of texts without the queries, len(texts) - b.

        Args:
            ids: int64 [b], numbers of the pairs.
            texts: int64, text numbers of the pairs' queries, then of their passages, then of their negatives.
        """
        number, others = len(ids), texts[len(ids) :]
        passages = self.passages[others - len(self)]
        found = are_relevant(self.relevant, self.queries[ids], passages, self.num_passages)
        found |= self.numbers[ids][:, None] == self.numbers[others]
        found[np.arange(number), np.arange(number)] = False
        return found.astype(np.float32)


class PairLoader(FineTuningLoader):
    """Loads micro-batches of pairs with labels for the global batch, whose other passages are negatives."""

    _table: PairTable

    def micro_batch(self, index: int, micro_step: int) -> MicroBatch:
        table, ids, own = self._table, self.sample_ids(index), self._own_samples(micro_step)
        counts, numbers = np.diff(table.negatives)[ids], np.arange(len(ids))
        negatives = 2 * len(table) + ragged_indices(table.negatives[ids], counts)
        texts = np.concatenate([ids, len(table) + ids, negatives])
        owners = np.concatenate([numbers, numbers, np.repeat(numbers, counts)])
        places = np.flatnonzero((owners >= own.start) & (owners < own.stop))
        labels = {"text_places": places, "not_negatives": table.not_negatives(ids, texts), "pair_numbers": numbers}
        number = np.array([len(ids) / self._micro_batch_size], np.float32)
        return self._padded(texts[places], {**labels, "num_micro_batches": number})


class VectorTask(FineTuningTask):
    """Trains an encoder contrastively, and measures a search for the passages of held-out queries."""

    unit = "pairs"
    best_metric = "eval_ndcg_at_10"
    baseline_is_trained = False
    evaluates_first = True
    loader = PairLoader

    @classmethod
    def open(cls, config: VectorConfig, group: Group) -> FineTuning:
        """Open the run of the task on one rank; only the main rank loads the model of --compare."""
        alone = config if group.is_main else derive(config, compare=None)  # the first rank measures
        return FineTuning(config, group, cls(alone))

    def __init__(self, config: VectorConfig) -> None:
        super().__init__(config)
        self._config, self._form, data, run = config, config.form(), config.data, config.run
        self._tokenizer = text_tokenizer(self.vocabulary, data.normalization())
        self.notes: list[str] = []
        self._held_out: "pd.DataFrame | None" = None
        self._search: HeldOutSearch | None = None
        self._hybrid_weight: float | None = None  # a training fits it at its end
        if not run.do_train and (form := usage_of_the_weights(config.initialization).vectors):
            self._hybrid_weight = form.hybrid_weight
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

    @property
    def held_out(self) -> "pd.DataFrame | None":
        """The pairs to measure on; None if nothing is measured."""
        return self._held_out

    def _with_fewer_neighbours(self, pairs: "pd.DataFrame") -> "pd.DataFrame":
        """Drop neighbouring paragraphs beyond the number of other pairs, because the other kinds are measured."""
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
        form = replace(self._form, hybrid_weight=self._hybrid_weight)
        return Usage("vectors", self._config.data.max_seq_length, vectors=form)

    def read(self, part: Part) -> "pd.DataFrame":
        if part.name == "held_out" and self._held_out is not None:
            return self._held_out
        data, decoding = self._config.data, Decoding.of(self._config.data)
        if part.path == data.text:
            pairs = text_pairs(part.path, decoding, self.notes, data.text_field, data.repeated_share)
        else:
            columns, to_measure = (data.query_column, data.passage_column), part.name == "held_out"
            pairs = table_pairs(part.path, *columns, decoding, self.notes, to_measure=to_measure)
            if not to_measure:
                pairs = iter(without_repeated_parts(pairs, data.repeated_share, self.notes))
        return cleaned(pairs, part.path, self.notes)

    def windows(self, part: Part) -> "Iterator[pd.DataFrame]":
        return iter(())

    def features(self, examples: "pd.DataFrame", training: bool = False) -> tuple[FeatureTable, dict[str, int]]:
        """Tokenise the texts of pairs; for an evaluation, the measured queries and then all passages."""
        import pandas as pd  # here and below: nothing but frames of pairs needs it

        further = [text for texts in examples.negatives for text in texts] if training else []
        queries = examples["query"] if training else scored(examples)["query"]
        texts = [f"{self._form.query_prefix}{text}" for text in queries]
        passages = examples.passage if training else searched(examples).passage
        texts += [f"{self._form.passage_prefix}{text}" for text in (*passages, *further)]
        table, counts = sentence_features(self._tokenizer, [texts], self._config.data.max_seq_length)
        counts |= {"pairs": len(examples), "texts": len(texts)}
        if not training:
            return table, counts
        known = dict(zip(examples.passage, examples.alike, strict=True))  # a negative may be another query's passage
        given, codes = examples.alike.to_numpy(), pd.factorize(asked_for(examples))[0]
        passages = np.concatenate([given, np.array([known.get(text, -1) for text in further], np.int64)])
        relation = {"queries": codes, "passages": passages, "num_passages": int(given.max()) + 1}
        relation["relevant"] = relevant_keys(codes, given, relation["num_passages"])
        numbers = pd.factorize(pd.Series([*queries, *examples.passage, *further]))[0]
        negatives = offsets_of(examples.negatives.map(len).to_numpy())
        return PairTable(**vars(table), **relation, numbers=numbers, negatives=negatives), counts

    def describe(self, path: Path, counts: Mapping[str, int]) -> list[str]:
        line = f"{path}: {counts['pairs']:,} pairs, {counts['tokens'] / counts['texts']:.1f} tokens in a text"
        return [f"{line}, {counts['truncated']:,} cut to --max-seq-length {self._config.data.max_seq_length}"]

    def decode(self, features: Features, outputs: Outputs) -> np.ndarray:
        return outputs["vectors"]

    def score(self, part: Part, features: Features, predictions: np.ndarray) -> dict[str, float]:
        pairs, queries = features.examples, scored(features.examples)
        metrics = dict[str, float]()
        for size, name in [(None, ""), *((size, f"_of_{size}") for size in self._form.dimensions)]:
            figures = figures_of(cosines(predictions, len(queries), size), queries, pairs)
            metrics |= {f"eval_{metric}{name}": value for metric, value in figures(np.arange(len(queries))).items()}
        return metrics

    def details(self, part: Part, features: Features, predictions: np.ndarray, *, fits: bool) -> None:
        """Fit the weight of the hybrid ranking on the held-out queries; the model keeps it in task.json."""
        search = self._held_out_search(features.examples)
        if fits and search is not None:
            self._hybrid_weight = search.fitted_weight(predictions)

    def baseline(self, features: Features, predictions: np.ndarray) -> dict[str, Any]:
        """Metrics of BM25, the model of --compare and the hybrid ranking on the same queries, with verdicts."""
        pairs, queries = features.examples, scored(features.examples)
        number, search = len(queries), self._held_out_search(pairs)
        words = WordIndex(searched(pairs).passage).score_matrix(queries["query"]) if search is None else search.words
        others = {"bm25": np.where(words > 0, words, -np.inf)}
        if self._compared is not None:
            others["compared"] = self._cosines_of_compared(queries["query"].tolist(), searched(pairs).passage.tolist())
        ours, *theirs = (
            figures_of(scores, queries, pairs) for scores in (cosines(predictions, number), *others.values())
        )
        figures, sentences = dict[str, Any](), list[str]()
        unit = "pairs" if self.best_metric == "eval_spearman" else "queries"
        for name, each in zip(others, theirs, strict=True):
            figures |= {f"eval_{name}_{metric}": value for metric, value in each(np.arange(number)).items()}
            title = "BM25" if name == "bm25" else str(self._config.data.compare)
            sentences.append(verdict(title, ours, each, number, unit=unit, remedy=_REMEDY))
        if search is not None:
            beat("evaluating the hybrid ranking")
            metrics, sentence = search.compare(predictions, self._hybrid_weight, self._config.run.do_train)
            figures, sentences = figures | metrics, [*sentences, sentence]
        return figures | {"verdict": " ".join(sentences)}

    def _held_out_search(self, pairs: "pd.DataFrame") -> HeldOutSearch | None:
        """The search with the held-out queries; it is built once, as BM25 scores do not depend on the model."""
        if self._search is None:
            beat("evaluating BM25")
            self._search = HeldOutSearch.of(pairs)
        return self._search

    def _cosines_of_compared(self, *texts: list[str]) -> np.ndarray:
        """Cosines [q, p] of queries and passages by the model of --compare."""
        assert self._compared is not None
        vectors = list[np.ndarray]()
        for kind, each in zip(("query", "passage"), texts, strict=True):
            for first in range(0, len(each), _TEXTS_AT_ONCE):
                beat("evaluating the model of --compare")
                vectors.append(self._compared.encode(each[first : first + _TEXTS_AT_ONCE], kind))
        return cosines(np.concatenate(vectors), len(texts[0]))

    def render(self, part: Part, features: Features, predictions: np.ndarray) -> Sequence[bytes]:
        return ()
