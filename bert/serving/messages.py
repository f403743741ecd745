"""What the server and the model process send each other through their pipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bert.conversion.usage import VectorForm

PREDICT, ENCODE = "predict", "encode"  # kinds of inputs
SEARCH, ADD, DELETE, STATE = "search", "index/add", "index/delete", "index"  # kinds of inputs to a served index
INDEX_KINDS = (SEARCH, ADD, DELETE, STATE)
# What became of an input, as the status of HTTP, and what comes with it: JSON, but for the last two nothing.
DONE = 200  # the result
REFUSED = 422  # this model cannot take it: the reason, a string
FAILED = 500  # an error of ours: its text
LOST = 503  # the model process ended; set by the server
LATE = 504  # the deadline passed


class Outcome(NamedTuple):
    status: int  # DONE, REFUSED ...
    json: bytes = b""
    truncated: bool = False  # the end of the input was not read


class Batch(NamedTuple):
    kind: str  # PREDICT, ENCODE, or one of INDEX_KINDS
    deadline: float  # of time.monotonic()
    rows: int  # sequences that the network may run at a time
    inputs: list[tuple[tuple[str, ...], Any]]  # the texts of each, and its top_k or other options


class SearchOptions(NamedTuple):
    """The options of an input of SEARCH, whose text is the query."""

    top_k: int
    filters: Mapping[str, Any]
    ranking: str
    rerank: bool | int | None = None


class RowOptions(NamedTuple):
    """The options of an input of ADD, whose texts are those of the rows, in order."""

    ids: tuple[str | None, ...]
    columns: tuple[Mapping[str, Any], ...]


class Figures(NamedTuple):
    """The cost of a batch. `padded_tokens` counts `tokens` and the padding."""

    tokens: int
    padded_tokens: int
    seconds: float
    truncated: int = 0  # inputs whose ends were not read


@dataclass(frozen=True)
class Description:
    name: str
    task: str
    summary: str
    labels: tuple[str, ...] | None
    is_regression: bool
    num_texts: tuple[int, ...]  # that an input can have: (1,), (2,) or (1, 2)
    max_seq_length: int
    top_k: int
    can_encode: bool  # whether any text can be made a vector
    version: str
    fingerprint: str  # of all that its results depend on: weights, vocabulary, labels, settings, version
    columns: tuple[str, ...] = ()  # of the texts in the training data
    gives_labels: bool = False  # a text may have several
    hidden_size: int = 0  # of its vectors
    vectors: VectorForm | None = None  # as it was trained to make them
    index: str = ""  # the folder of the index that is served; "": none
    reranks: bool = False  # whether a reranker sorts the first hits of a search
