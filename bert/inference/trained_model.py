"""The base class of all heads: checks requests, runs a model over many texts, and makes vectors of texts.

The result for a text is a dictionary of values for JSON.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from bert.finetuning.loader import FeatureTable, PredictionBatch, check_finite, prediction_batches
from bert.inference.given_texts import checked_text, checked_texts, list_of_texts, refuse_nothing, whole_number
from bert.inference.model_folder import OpenedModel
from bert.inference.rows import SINGLE_KEYS, Keys, RawRequest, Request, RowForm, texts_of
from bert.labels.features import cut_features
from bert.model.head_specs import HEADS
from bert.tokenization.library import LibraryTokenizer, text_tokenizer
from data.text.columns import joined_parts
from data.text.encodings import Decoding

Result = dict[str, Any]
Run = Callable[[Sequence[Request]], list[Result]]
MASK = "[MASK]"
# Functions from the states of a text's tokens, [tokens, hidden], to a vector of the text.
POOLING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda states: states.mean(0),
    "max": lambda states: states.max(0),
    "cls": lambda states: states[0],
}
_NUMBERS = {(1,): "one text", (2,): "two texts", (1, 2): "one text or two"}


class TrainedModel:
    """A loaded model with its tokenizer; subclasses add the methods of a head.

    Args:
        top_k: number of fills of a mask, or of answers to a question, in a result.
    Attributes:
        num_read: number of texts (or pairs) that were tokenised so far.
        num_truncated: how many of these were longer than `max_seq_length`, so that their ends were not read. Questions,
            masks and entities are read in windows.
        cut_requests: collects the texts whose ends were not read, if a caller has put a set here.
    """

    task: str
    keys: Keys = SINGLE_KEYS  # keys of the texts in a JSON request; the first that fit
    splits_tabs: bool = False  # whether a tab in a line separates two texts
    repeated: tuple[str, ...] = ("text", "text_pair")  # names under which the texts of a plain line stand in its result
    hidden: str = ""  # the key of a JSON line that its result does not repeat
    num_texts: tuple[int, ...] = (1,)  # numbers of texts that a request can have
    pooling: str = "mean"  # how token states become a vector: a key of POOLING, or none: no pooling

    def __init__(
        self, opened: OpenedModel, *, max_seq_length: int | None = None, batch_size: int = 32, top_k: int = 5
    ) -> None:
        whole_number("batch_size", batch_size)
        whole_number("top_k", top_k)
        if max_seq_length is not None:
            whole_number("max_seq_length", max_seq_length)
        most = opened.most_positions
        length = max_seq_length or min(opened.usage.max_seq_length or most, most)
        if not 8 <= length <= most:
            raise ValueError(f"max_seq_length={length} must be from 8 to the model's {most} positions")
        self.opened, self.forward, self.max_seq_length = opened, opened.forward, length
        self.labels = opened.labels or ()  # the classes of a classifier or tagger
        self.batch_size, self.top_k = batch_size, top_k
        self.num_read = self.num_truncated = 0
        self.cut_requests: set[Request] | None = None
        self.vocabulary = opened.tokens.vocabulary
        self.tokenizer = text_tokenizer(self.vocabulary, opened.tokens.normalization)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.opened.describe()}>"

    def predict(self, requests: Sequence[RawRequest]) -> list[Result]:
        """Predict results for texts, pairs of texts, or questions with contexts, in the order of the requests."""
        requests, checked = list_of_texts(requests), list[Request]()
        refuse_nothing(requests)
        for request in requests:
            try:
                checked.append(self.request(request))
            except ValueError as error:
                raise ValueError(f"text {len(checked)}, counted from 0: {error}") from None
        return self.run(checked)

    def request(self, raw: RawRequest) -> Request:
        """Check a request, which is a text, a sequence of texts or a JSON object; returns its texts."""
        texts = (raw,) if isinstance(raw, bytes) else texts_of(raw, self.text_keys())
        for text in texts:
            checked_text(text)
        self.check(texts)
        if isinstance(self.tokenizer, LibraryTokenizer):  # its rules may fail on a text
            self.tokenize(texts)
        return texts

    def text_keys(self) -> Keys:
        """The keys that the texts of a request can have; the column names of the training come first.

        If the training joined several columns to one text, a single one of them is not accepted as the text.
        """
        trained_on = tuple(self.opened.usage.text_columns)
        parts = {part.lower() for name in trained_on for part in joined_parts(name)}
        return [*([trained_on] if trained_on else []), *(names for names in self.keys if parts.isdisjoint(names))]

    def check(self, texts: Request) -> None:
        """Raise ValueError if this head cannot take the texts."""
        if len(texts) not in self.num_texts:
            form = json.dumps(dict.fromkeys(self.keys[0], "..."))
            pair = f" (two: separated by a tab, or {form})" if 2 in self.num_texts else ""
            raise ValueError(f"{len(texts)} text(s) in a request; this model takes {_NUMBERS[self.num_texts]}{pair}")

    def tokenize(self, texts: Request) -> None:
        """Tokenise texts as this head does. UnreadableTextError if the tokenizer cannot read a text."""
        self.tokenizer.encode_texts(texts)

    def row_form(self, kind: str = "auto", keys: Keys = (), decoding: Decoding | None = None) -> RowForm:
        """Describe where the texts are in input rows of a kind; `keys` and `decoding` replace the model's values."""
        form = (kind, self.splits_tabs, self.repeated, self.hidden, decoding or Decoding.of(self.opened.usage))
        return RowForm(keys or self.text_keys(), self.request, *form)

    def run(self, requests: Sequence[Request]) -> list[Result]:
        """Compute the results of checked requests."""
        raise NotImplementedError

    def columns(self) -> dict[str, type]:
        """Names and types of the columns that results have in a table (see `records.flat`)."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str], input_type: str = "passage") -> np.ndarray:
        """Make vectors of texts, float32 [n, hidden]. Long texts are cut.

        Vectors are made as in the model's training, otherwise as means (or `pooling`) of the last hidden states.

        Args:
            input_type: "query" or "passage": the prefix that is put before each text; "": no prefix.
        """
        checked = checked_texts(list_of_texts(texts))
        if not self.opened.can_encode():
            raise ValueError(
                f"{self.opened.path} is an export of {HEADS[self.task].noun} without the outputs of encoder; use a "
                "checkpoint, or export it with --task encoder"
            )
        if not checked:
            return np.zeros((0, self.opened.hidden_size), "float32")
        return self.vectors(self.sequences(checked, input_type))

    def sequences(self, texts: Sequence[str], input_type: str = "passage") -> FeatureTable:
        """Tokenise texts with the prefix of their kind, as `encode` does."""
        prefix = getattr(self.opened.usage.vectors, f"{input_type}_prefix", "")
        return self.table([(prefix + text,) for text in texts])

    def vectors(self, table: FeatureTable) -> np.ndarray:
        """Make vectors of tokenised texts, as `encode` does."""
        lengths, vectors = table.lengths(), dict[int, np.ndarray]()
        for row, states, *_ in self.outputs("encoder", table):  # a model that was trained for vectors gives a vector
            vectors[row] = states if states.ndim == 1 else POOLING[self.pooling](states[: lengths[row]])
        return np.stack([vectors[row] for row in range(len(vectors))])

    def fill_mask(self, text: str, top_k: int = 5) -> list[list[dict[str, Any]]]:
        """Predict the `top_k` most likely tokens at each [MASK]: [{"token": ..., "probability": ...}, ...] for each."""
        raise self._lacks("fill_mask", "masked-lm")

    def answer(self, question: str, paragraph: str) -> Any:
        """Answer a question about a paragraph; returns an `AnsweredQuestion`."""
        raise self._lacks("answer", "question-answering")

    def rank_scores(self, query: str, passages: Sequence[str]) -> np.ndarray:
        """Score passages for a query by a reranker, float32 [n]; see `Classifier.rank_scores`."""
        raise self.lacks_scores()

    def is_reranker(self) -> bool:
        """Whether the model gives one score for a query and a passage, so that `rank_scores` works."""
        return False

    def lacks_scores(self) -> ValueError:
        return ValueError(
            f"{self.opened.describe()} is no reranker, which gives one number for a query and a passage; train one "
            "with run_vectors.sh --reranker"
        )

    def _lacks(self, method: str, task: str) -> ValueError:
        return ValueError(
            f"this model has {HEADS[self.opened.task].noun}; {method} needs {HEADS[task].noun} ({self.opened.path})"
        )

    def longest_text(self) -> str:
        """The length up to which a text is read, such as "128 tokens"."""
        return f"{self.max_seq_length} tokens"

    def cut_texts(self, read: int = 0, truncated: int = 0) -> str:
        """A line with the number of truncated texts; "" if no text was truncated.

        Args:
            read, truncated: earlier values of `num_read` and `num_truncated`; only later texts are counted.
        """
        cut = self.num_truncated - truncated
        texts = f"{cut:,} of {self.num_read - read:,} texts were longer than {self.longest_text()}"
        return f"{texts}: their ends were not read" if cut else ""

    # -- for the heads

    def table(self, requests: Sequence[Request]) -> FeatureTable:
        """Tokenise requests, which are all single texts or all pairs, to sequences."""
        table, cut = cut_features(self.tokenizer, list(zip(*requests, strict=True)), self.max_seq_length)
        self.num_read += len(requests)
        self.num_truncated += int(cut.sum())
        if self.cut_requests is not None:
            self.cut_requests |= {requests[row] for row in np.flatnonzero(cut).tolist()}
        return table

    def batches(self, table: FeatureTable) -> Iterator[PredictionBatch]:
        """Batches of sequences sorted by length, each with its rows and its feed."""
        return prediction_batches(table, self.batch_size, max_seq_length=self.max_seq_length)

    def outputs(self, task: str, table: FeatureTable) -> Iterator[tuple[Any, ...]]:
        """Run the model; yields (row, outputs in the order of `outputs_of`). Outputs of tokens include padding."""
        for rows, feed in self.batches(table):
            yield from zip(rows.tolist(), *self.forward(task, feed).values(), strict=True)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, float64. Raises an error if logits are not finite."""
    check_finite({"logits": logits})
    return softmax(logits.astype(np.float64), axis=-1)
