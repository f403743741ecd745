"""The fine-tuning task of a reranker: trains on passages among mined negatives, and measures reranked candidates."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.conversion.usage import RerankingForm, Usage
from bert.files import json_of
from bert.finetuning.loader import FeatureTable, FineTuningLoader
from bert.finetuning.model_files import usage_of_the_weights
from bert.finetuning.run import RunnableTask
from bert.finetuning.task import Features, Outputs, Part
from bert.labels.features import pair_lengths, sentence_features
from bert.model.reranking import RerankingObjective
from bert.reporting.comparison import Metrics, gap_and_margin, verdict
from bert.samples.collation import MicroBatch, padded_width
from bert.samples.sample_table import Slices, join_pairs
from bert.search.fusion import cross_fitted, fitted_weight
from bert.search.ranking import found
from bert.tokenization.library import text_tokenizer
from bert.vectors.reranker_settings import RerankerConfig

_REMEDY = "More --hours, more pairs or a better --model may help"


@dataclass(frozen=True)
class MinedPairs:
    """Pairs of a query and a passage, each with mined negatives: passages that do not answer the query."""

    queries: tuple[str, ...]
    passages: tuple[str, ...]
    negatives: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True)
class CandidateLists:
    """Held-out queries with their candidates of the first stage.

    Attributes:
        relevant: bool [queries, depth]: whether a candidate answers the query; False for padding.
        scores: float32 [queries, depth]: first-stage scores; 0 for padding, if a query has fewer candidates.
        is_candidate: bool [queries, depth]: False for padding.
        answers: int [queries], the number of all relevant passages, candidates or not.
    """

    queries: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    relevant: np.ndarray
    scores: np.ndarray
    is_candidate: np.ndarray
    answers: np.ndarray

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True)
class GroupTable(FeatureTable):
    """The texts of n pairs, tokenised once; each batch joins them to sequences of a query and a passage.

    Attributes:
        queries, passages: int64 [n], text numbers of each pair's query and passage.
        negatives: int64, text numbers of all negatives, pair by pair.
        negative_offsets: int64 [n + 1]: pair i has negatives[negative_offsets[i]:negative_offsets[i + 1]].
        group_size: number of sequences of a group: one passage and its negatives.
    """

    queries: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    passages: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    negatives: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    negative_offsets: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    group_size: int = 2
    max_seq_length: int = 512
    special_ids: tuple[int, int, int] = (0, 0, 1)

    def __len__(self) -> int:
        return len(self.queries)

    def labelled_tokens(self) -> None:
        return None

    def groups(self, pairs: np.ndarray, epochs: np.ndarray) -> FeatureTable:
        """The sequences of some pairs, group by group. Each epoch takes the next negatives of a pair, in turn."""
        number = self.group_size - 1
        counts = np.diff(self.negative_offsets)[pairs][:, None]
        places = (epochs[:, None] * number + np.arange(number)) % counts + self.negative_offsets[pairs][:, None]
        seconds = np.concatenate([self.passages[pairs][:, None], self.negatives[places]], axis=1).reshape(-1)
        firsts = np.repeat(self.queries[pairs], self.group_size)
        cls_id, sep_id, separators = self.special_ids
        lengths = self.lengths()
        kept = pair_lengths(lengths[firsts], lengths[seconds], self.max_seq_length - 2 - separators)
        first = Slices(self.input_ids, self.offsets[firsts], kept[0])
        second = Slices(self.input_ids, self.offsets[seconds], kept[1])
        input_ids, offsets = join_pairs(first, second, cls_id, sep_id, separators=separators)
        return FeatureTable(
            input_ids, offsets, kept[0] + 1 + separators, pad_id=self.pad_id, second_type=self.second_type
        )


class GroupLoader(FineTuningLoader):
    """Loads micro-batches that consist of whole groups."""

    _table: GroupTable

    def micro_batch(self, index: int, micro_step: int) -> MicroBatch:
        own = self._own_samples(micro_step)
        places = index * self.global_batch_size + np.arange(own.start, own.stop)
        table = self._table.groups(self.sample_ids(index)[own], places // len(self._table))
        lengths = table.lengths()
        width = padded_width(lengths, *self._widths)
        feed = table.feed(np.arange(len(table)), width, with_labels=False)
        return MicroBatch(feed, len(table), int(lengths.sum()), len(table) * width, 0)


class RerankingTask(RunnableTask):
    """Trains a reranker, and measures how well it reorders candidates of the first stage."""

    unit = "pairs"
    best_metric = "eval_mrr_at_10"
    baseline_is_trained = False
    loader = GroupLoader

    def __init__(self, config: RerankerConfig) -> None:
        super().__init__(config)
        self._config, data, run = config, config.data, config.run
        self._tokenizer = text_tokenizer(self.vocabulary, data.normalization())
        self.notes: list[str] = []
        self._form = RerankingForm(1.0, data.depth)
        if run.do_train:
            self.training_file = Path(str(data.train_file))
            self.training = read_mined_pairs(self.training_file, self.notes)
        elif (form := usage_of_the_weights(config.initialization).reranking) is not None:
            self._form = form
        if run.do_eval:
            self.evaluated = [Part("held_out", Path(str(data.eval_file)))]

    def objective(self) -> RerankingObjective:
        config = self._config
        own = RerankingObjective(config.model, config.hardware.fuse_mha)
        return replace(own, group_size=1 + config.data.num_negatives)

    def usage(self) -> Usage:
        columns = ("query", "passage")
        return Usage("reranker", self._config.data.max_seq_length, columns, regression=True, reranking=self._form)

    def read(self, part: Part) -> CandidateLists:
        return read_candidates(part.path, self._config.data.depth, self._config.data.most_queries)

    def windows(self, part: Part) -> Iterator[CandidateLists]:
        return iter(())

    def features(self, examples: Any, training: bool = False) -> tuple[FeatureTable, dict[str, int]]:
        """Tokenise the texts of training pairs, or for an evaluation each query with its candidates."""
        most = self._config.data.max_seq_length
        if not training:
            lists = zip(examples.queries, examples.candidates, strict=True)
            pairs = [(query, text) for query, texts in lists for text in texts]
            table, counts = sentence_features(self._tokenizer, list(zip(*pairs, strict=True)), most)
            return table, {**counts, "pairs": len(pairs)}
        texts = [*examples.queries, *examples.passages, *(text for texts in examples.negatives for text in texts)]
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
        input_ids, offsets = self._tokenizer.encode_texts([*numbers])
        number, vocabulary = len(examples), self.vocabulary
        table = GroupTable(
            input_ids,
            offsets,
            pad_id=vocabulary.id_of("[PAD]"),
            second_type=vocabulary.second_type(),
            queries=codes[:number],
            passages=codes[number : 2 * number],
            negatives=codes[2 * number :],
            negative_offsets=offsets_of([len(texts) for texts in examples.negatives]),
            group_size=1 + self._config.data.num_negatives,
            max_seq_length=most,
            special_ids=(vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]"), vocabulary.pair_separators()),
        )
        return table, {"pairs": number, "texts": len(numbers), "negatives": len(table.negatives)}

    def describe(self, path: Path, counts: Mapping[str, int]) -> list[str]:
        if "negatives" not in counts:
            cut = f"{counts['truncated']:,} cut to --max-seq-length {self._config.data.max_seq_length}"
            return [f"{path}: {counts['pairs']:,} candidates, {counts['tokens'] / counts['pairs']:.1f} tokens, {cut}"]
        return [f"{path}: {counts['pairs']:,} pairs, {counts['negatives'] / counts['pairs']:.1f} negatives each"]

    def decode(self, features: Features, outputs: Outputs) -> np.ndarray:
        """The reranker's scores of all candidates, float32 [queries, depth]; 0 for padding."""
        examples = features.examples
        scores = np.zeros(examples.scores.shape, np.float32)
        scores[examples.is_candidate] = outputs["logits"][:, 0]
        return scores

    def learn_to_decode(self, features: Features, outputs: Outputs) -> None:
        """Fit the reranker's weight; it is 0 unless cross-fitted weights improve the order by more than the margin."""
        examples, scores = features.examples, self.decode(features, outputs)
        first, weighted = _metrics(examples.scores, examples), _weighted(scores, examples)
        gain, margin = gap_and_margin(weighted, first, len(examples))
        weight = fitted_weight(examples.scores, scores, examples.relevant, ~examples.is_candidate)
        self._form = replace(self._form, weight=weight if gain > margin else 0.0)

    def score(self, part: Part, features: Features, predictions: np.ndarray) -> dict[str, float]:
        """Metrics of the reranked order; each query has the weight that was fitted on the other half of the queries."""
        examples = features.examples
        return _figures("eval", _weighted(predictions, examples), len(examples))

    def baseline(self, features: Features, predictions: np.ndarray) -> dict[str, Any]:
        """Metrics of the first stage and of the reranker alone, and a verdict that names the order to use."""
        examples, number = features.examples, len(features.examples)
        first, weighted = _metrics(examples.scores, examples), _weighted(predictions, examples)
        name, model = "the order of the first stage", "The reranked order"
        sentence = verdict(name, weighted, first, number, unit="queries", remedy=_REMEDY, model=model)
        if self._form.weight > 0:
            depth = self._form.depth
            use = f"The first {depth} hits are sorted with a weight of {self._form.weight:g} for the reranker."
        else:
            use = "Do not use the reranker: its weight is 0, so the order of the first stage is kept."
        figures = _figures("eval_first_stage", first, number)
        figures |= _figures("eval_reranker_alone", _metrics(predictions, examples), number)
        return {**figures, "eval_reranker_weight": self._form.weight, "verdict": f"{sentence} {use}"}

    def render(self, part: Part, features: Features, predictions: np.ndarray) -> Sequence[bytes]:
        return ()


def _metrics(scores: np.ndarray, examples: CandidateLists) -> Metrics:
    """Function of query rows: mean recall@10 and MRR@10 of their candidates, sorted by `scores` [queries, depth]."""
    values = found(scores, examples.relevant, ~examples.is_candidate, examples.answers)
    return lambda rows: {name: float(values[name][rows].mean()) for name in ("recall_at_10", "mrr_at_10")}


def _weighted(scores: np.ndarray, examples: CandidateLists) -> Metrics:
    """As `_metrics`, but sorted by the weighted sum of reranker and first stage, with cross-fitted weights."""
    return _metrics(cross_fitted(examples.scores, scores, examples.relevant, ~examples.is_candidate), examples)


def _figures(prefix: str, metrics: Metrics, number: int) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in metrics(np.arange(number)).items()}


def read_mined_pairs(path: Path, notes: list[str]) -> MinedPairs:
    """Read negatives.jsonl of a mining. Pairs without a negative are left out, and `notes` gets their number."""
    rows = [_checked(path, number, line, _PAIR) for number, line in enumerate(_lines(path), 1)]
    kept = [row for row in rows if row["negatives"]]
    if len(kept) < len(rows):
        notes.append(f"left out: pairs without a negative: {len(rows) - len(kept):,}")
    if not kept:
        raise ValueError(f"{path} has no pair with a negative; mine again, with more passages")
    queries, passages = (tuple(row[name] for row in kept) for name in ("query", "passage"))
    return MinedPairs(queries, passages, tuple(tuple(row["negatives"]) for row in kept))


def read_candidates(path: Path, depth: int, most_queries: int) -> CandidateLists:
    """Read candidates.jsonl of a mining: at most `most_queries` queries with at most `depth` candidates each."""
    rows = [_checked(path, number, line, _CANDIDATES) for number, line in enumerate(_lines(path), 1)][:most_queries]
    candidates = tuple(tuple(row["candidates"][:depth]) for row in rows)
    is_candidate = np.arange(depth) < np.array([len(texts) for texts in candidates])[:, None]
    relevant, scores = np.zeros(is_candidate.shape, bool), np.zeros(is_candidate.shape, np.float32)
    relevant[is_candidate] = [value for row in rows for value in row["relevant"][:depth]]
    scores[is_candidate] = [value for row in rows for value in row["scores"][:depth]]
    answers = np.array([row.get("answers", sum(row["relevant"])) for row in rows], np.int64)
    return CandidateLists(tuple(row["query"] for row in rows), candidates, relevant, scores, is_candidate, answers)


_PAIR: dict[str, type] = {"query": str, "passage": str, "negatives": list}
_CANDIDATES: dict[str, type] = {"query": str, "candidates": list, "relevant": list, "scores": list}


def _lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        yield from file


def _checked(path: Path, number: int, line: str, form: Mapping[str, type]) -> dict[str, Any]:
    """Parse one JSON line. ValueError if it lacks a key of `form`, or a value has another type."""
    try:
        row = json_of(line)
        is_right = all(isinstance(row[name], kind) for name, kind in form.items())
    except (ValueError, LookupError, TypeError):
        is_right = False
    if not is_right:
        raise ValueError(f"{path}, line {number}: must be an object with {', '.join(form)}; mine again")
    return dict(row)
