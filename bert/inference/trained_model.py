"""The base of all heads: what a trained model takes, how it runs over many texts, vectors of texts.

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
# A vector of a text, of the states of its tokens [tokens, hidden].
POOLING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda states: states.mean(0),
    "max": lambda states: states.max(0),
    "cls": lambda states: states[0],
}
_NUMBERS = {(1,): "one text", (2,): "two texts", (1, 2): "one text or two"}


class TrainedModel:
    """A model with its vocabulary, loaded once.

    Args:
        top_k: fills of a mask, or answers to a question, that a result lists.
    Attributes:
        num_read, num_truncated: texts (or pairs) that were made sequences so far, and those of them that were longer
            than `max_seq_length`: their ends were not read. Questions, masks and entities are read in windows.
        cut_requests: gets the texts whose ends were not read, where a caller put a set.
    """

    task: str
    keys: Keys = SINGLE_KEYS  # of a JSON request, the first that fit
    splits_tabs: bool = False  # whether a tab in a line separates two texts
    repeated: tuple[str, ...] = ("text", "text_pair")  # keys of the texts of a plain line that its result repeats
    hidden: str = ""  # the key of a JSON line that its result does not repeat
    num_texts: tuple[int, ...] = (1,)  # numbers of texts that a request can have
    pooling: str = "mean"  # how the tokens' states become a vector: a key of POOLING, or none: they are given

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
        self.labels = opened.labels or ()  # of a classifier
        self.batch_size, self.top_k = batch_size, top_k
        self.num_read = self.num_truncated = 0
        self.cut_requests: set[Request] | None = None
        self.vocabulary = opened.tokens.vocabulary
        self.tokenizer = text_tokenizer(self.vocabulary, opened.tokens.normalization)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.opened.describe()}>"

    def predict(self, requests: Sequence[RawRequest]) -> list[Result]:
        """The results for texts (pairs of texts; questions and contexts), in their order."""
        requests, checked = list_of_texts(requests), list[Request]()
        refuse_nothing(requests)
        for request in requests:
            try:
                checked.append(self.request(request))
            except ValueError as error:
                raise ValueError(f"text {len(checked)}, counted from 0: {error}") from None
        return self.run(checked)

    def request(self, raw: RawRequest) -> Request:
        """A text, a sequence of texts or a JSON object, checked."""
        texts = (raw,) if isinstance(raw, bytes) else texts_of(raw, self.text_keys())
        for text in texts:
            checked_text(text)
        self.check(texts)
        if isinstance(self.tokenizer, LibraryTokenizer):  # whose rules may fail at a text
            self.tokenize(texts)
        return texts

    def text_keys(self) -> Keys:
        """The names that the texts of a request can have. The names of the training data come first.

        A part of what the training joined is not its text, also if the part has a usual name.
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
        """Split texts as this head does; UnreadableTextError if the tokenizer cannot."""
        self.tokenizer.encode_texts(texts)

    def row_form(self, kind: str = "auto", keys: Keys = (), decoding: Decoding | None = None) -> RowForm:
        """Where the texts are in rows of a kind of input. `keys` and `decoding` replace the model's own."""
        form = (kind, self.splits_tabs, self.repeated, self.hidden, decoding or Decoding.of(self.opened.usage))
        return RowForm(keys or self.text_keys(), self.request, *form)

    def run(self, requests: Sequence[Request]) -> list[Result]:
        """Compute the results of checked requests."""
        raise NotImplementedError

    def columns(self) -> dict[str, type]:
        """The columns of a table that the results become (`records.flat`), and their types."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str], input_type: str = "passage") -> np.ndarray:
        """Vectors of texts, float32 [n, hidden]: as the model was trained for, else means (`pooling`) of the last
        hidden states over all tokens. Long texts are cut.

        Args:
            input_type: "query" or "passage", whose prefix the texts get; "": none.
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
        """Texts with the prefix of their kind, as `encode` reads them."""
        prefix = getattr(self.opened.usage.vectors, f"{input_type}_prefix", "")
        return self.table([(prefix + text,) for text in texts])

    def vectors(self, table: FeatureTable) -> np.ndarray:
        """The vectors of sequences, as `encode` makes them."""
        lengths, vectors = table.lengths(), dict[int, np.ndarray]()
        for row, states, *_ in self.outputs("encoder", table):  # or the vector, of a model that was trained for it
            vectors[row] = states if states.ndim == 1 else POOLING[self.pooling](states[: lengths[row]])
        return np.stack([vectors[row] for row in range(len(vectors))])

    def fill_mask(self, text: str, top_k: int = 5) -> list[list[dict[str, Any]]]:
        """The `top_k` most likely tokens at each [MASK] of a text: [{"token": ..., "probability": ...}, ...]."""
        raise self._lacks("fill_mask", "masked-lm")

    def answer(self, question: str, paragraph: str) -> Any:
        """The answer to a question about a paragraph, an `AnsweredQuestion`."""
        raise self._lacks("answer", "question-answering")

    def rank_scores(self, query: str, passages: Sequence[str]) -> np.ndarray:
        """Score passages by a reranker, float32 [n]: `bert.inference.classifier.Classifier.rank_scores`."""
        raise self.lacks_scores()

    def is_reranker(self) -> bool:
        """Whether the model gives one number for a query and a passage, `rank_scores`."""
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
        """How much of a text is read, such as "128 tokens"."""
        return f"{self.max_seq_length} tokens"

    def cut_texts(self, read: int = 0, truncated: int = 0) -> str:
        """A line that says how many texts were longer; "" if none was.

        Args:
            read, truncated: `num_read` and `num_truncated` from which on texts count.
        """
        cut = self.num_truncated - truncated
        texts = f"{cut:,} of {self.num_read - read:,} texts were longer than {self.longest_text()}"
        return f"{texts}: their ends were not read" if cut else ""

    # -- for the heads

    def table(self, requests: Sequence[Request]) -> FeatureTable:
        """Texts, or pairs of texts (not both), as sequences."""
        table, cut = cut_features(self.tokenizer, list(zip(*requests, strict=True)), self.max_seq_length)
        self.num_read += len(requests)
        self.num_truncated += int(cut.sum())
        if self.cut_requests is not None:
            self.cut_requests |= {requests[row] for row in np.flatnonzero(cut).tolist()}
        return table

    def batches(self, table: FeatureTable) -> Iterator[PredictionBatch]:
        """The rows of a batch and its feed, by length."""
        return prediction_batches(table, self.batch_size, max_seq_length=self.max_seq_length)

    def outputs(self, task: str, table: FeatureTable) -> Iterator[tuple[Any, ...]]:
        """Each sequence's row, and its outputs in the order of `outputs_of`. Outputs of tokens include padding."""
        for rows, feed in self.batches(table):
            yield from zip(rows.tolist(), *self.forward(task, feed).values(), strict=True)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, float64."""
    check_finite({"logits": logits})
    return softmax(logits.astype(np.float64), axis=-1)
