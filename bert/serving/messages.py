"""Messages between the server and the model process, which they send through a pipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bert.conversion.usage import VectorForm

PREDICT, ENCODE = "predict", "encode"  # kinds of inputs
SEARCH, ADD, DELETE, STATE = "search", "index/add", "index/delete", "index"  # kinds of inputs to a served index
INDEX_KINDS = (SEARCH, ADD, DELETE, STATE)
# The outcome of an input as an HTTP status. The first three come with JSON: a result, or a string.
DONE = 200  # with the result
REFUSED = 422  # the model cannot take the input; with the reason
FAILED = 500  # the model failed at the input; with the error
LOST = 503  # the model process ended; set by the server
LATE = 504  # the deadline passed


class Outcome(NamedTuple):
    status: int  # DONE, REFUSED ...
    json: bytes = b""
    truncated: bool = False  # whether the end of the input was not read


class Batch(NamedTuple):
    kind: str  # PREDICT, ENCODE, or one of INDEX_KINDS
    deadline: float  # in seconds of time.monotonic()
    rows: int  # most sequences that the network may run at a time
    inputs: list[tuple[tuple[str, ...], Any]]  # (texts, top_k or other options) of each input


class SearchOptions(NamedTuple):
    """The options of a SEARCH input, whose text is the query."""

    top_k: int
    filters: Mapping[str, Any]
    ranking: str
    rerank: bool | int | None = None


class RowOptions(NamedTuple):
    """The options of an ADD input, whose texts are the texts of the rows, in order."""

    ids: tuple[str | None, ...]
    columns: tuple[Mapping[str, Any], ...]


class Figures(NamedTuple):
    """The cost of a batch; `padded_tokens` includes `tokens` and the padding."""

    tokens: int
    padded_tokens: int
    seconds: float
    truncated: int = 0  # number of inputs whose ends were not read


@dataclass(frozen=True)
class Description:
    name: str
    task: str
    summary: str
    labels: tuple[str, ...] | None
    is_regression: bool
    num_texts: tuple[int, ...]  # numbers of texts that an input can have: (1,), (2,) or (1, 2)
    max_seq_length: int
    top_k: int
    can_encode: bool  # whether the model makes vectors of texts
    version: str
    fingerprint: str  # checksum of all that decides results: weights, vocabulary, labels, settings, version
    columns: tuple[str, ...] = ()  # columns of the texts in the training data
    gives_labels: bool = False  # whether a text may have several labels
    hidden_size: int = 0  # dimensions of its vectors
    vectors: VectorForm | None = None  # how the model was trained to make vectors; None: it was not
    index: str = ""  # folder of the served index; "" without an index
    reranks: bool = False  # whether a reranker sorts the first hits of a search
