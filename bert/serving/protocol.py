"""What the server and the model process send each other: lines of JSON over the process's input and output.

A batch is one line: {"kind", "deadline", "rows", "inputs": [{"texts", "top_k"}]}. Its answer is a line of figures
({"tokens", "padded_tokens", "seconds"}) and a line for each input: one of the marks below, then JSON.
"""

from dataclasses import dataclass
from typing import Any

PREDICT, ENCODE = "predict", "encode"  # kinds of inputs
DONE = b"+"  # a result
REFUSED = b"-"  # an input that this model cannot take: the reason, a string
FAILED = b"!"  # an error of ours: its text
LATE = b"~"  # the deadline passed
LOST = b"?"  # set by the server: the model process ended

Outcome = tuple[bytes, bytes]  # mark, JSON


@dataclass(frozen=True)
class Description:
    """The model that is served, as its process describes it.

    Attributes:
        num_texts: numbers of texts that an input can have: (1,), (2,) or (1, 2).
        can_encode: whether any text can be made a vector.
    """

    name: str
    task: str
    summary: str
    labels: tuple[str, ...] | None
    is_regression: bool
    num_texts: tuple[int, ...]
    max_seq_length: int
    top_k: int
    can_encode: bool
    version: str

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Description":
        labels = values["labels"]
        return cls(**{**values, "labels": labels and tuple(labels), "num_texts": tuple(values["num_texts"])})
