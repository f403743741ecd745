"""Which files of a published model are needed, where they are, and what verifies them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from data.fetching.transfer import DownloadError

# The first group of which a file is there is taken: formats that cannot hold code first.
_WEIGHTS = (
    ("model.safetensors",),
    ("model.safetensors.index.json",),
    ("model_state.pdparams",),
    ("pytorch_model.bin",),
    ("pytorch_model.bin.index.json",),
)
CONFIGS = ("config.json", "bert_config.json")
_BESIDE = ("tokenizer_config.json", "labels.json", "task.json", "question_answering.json")  # where they are
_LARGEST_TEXT = 64 << 20  # of a file that is not weights


@dataclass(frozen=True)
class ListedFile:
    """A file of a published model.

    Attributes:
        url: its address; hf://PATH on the Hugging Face hub; of a file in another program's cache, its path.
        checksum: as `Remote.checksum`; None: the hub states none.
    """

    url: str
    checksum: str | None = None
    num_bytes: int | None = None


@dataclass(frozen=True)
class Listing:
    """A model as a hub describes it, at one revision.

    Attributes:
        source: where the files are from, for people.
        revision: the commit; "" on a server that has none.
        licence: as the hub states it; None if it does not.
        gated: the owner gives access on request only.
        files: name -> file, those that are used.
        texts: files that are written instead of fetched: name -> content.
    """

    name: str
    source: str
    revision: str
    licence: str | None
    gated: bool
    files: dict[str, ListedFile]
    texts: dict[str, str] = field(default_factory=dict)

    def small_files(self) -> list[str]:
        return [name for name in self.files if not is_weights(name)]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Listing:
        files = {name: ListedFile(**facts) for name, facts in values["files"].items()}
        return Listing(**{**values, "files": files})


def is_weights(name: str) -> bool:
    return name.startswith(("model", "pytorch_model"))


def needed_files(available: Iterable[str], model: str) -> list[str]:
    """The files to fetch: description, vocabulary and settings of the tokenizer, weights in the best format.

    Raises:
        DownloadError: the model has no description, no WordPiece vocabulary, or no weights of a known format.
    """
    there = {name for name in available if "/" not in name}  # nothing of a hub leaves the model's folder
    config = [name for name in CONFIGS if name in there][:1]
    vocabulary = [name for name in ("vocab.txt", "tokenizer.json") if name in there][:1]
    weights = next((list(group) for group in _WEIGHTS if there.issuperset(group)), [])
    if weights and weights[0].endswith(".index.json"):
        stem, suffix = weights[0].removesuffix(".index.json").rsplit(".", 1)
        weights += sorted(name for name in there if name.startswith(f"{stem}-") and name.endswith(f".{suffix}"))
    for kind, found, wanted in (
        ("description", config, " or ".join(CONFIGS)),
        ("vocabulary", vocabulary, "vocab.txt or tokenizer.json"),
        ("weights", weights, ", ".join(group[0] for group in _WEIGHTS)),
    ):
        if not found:
            shown = ", ".join(sorted(there)[:12]) or "nothing"
            raise DownloadError(
                f"{model} has no {kind} that can be read ({wanted}); it has {shown}: choose another model"
            )
    return [*config, *vocabulary, *(name for name in _BESIDE if name in there), *weights]


def size_limit(name: str) -> int:
    """The most bytes that a file may have whose size is not stated."""
    return 1 << 40 if is_weights(name) else _LARGEST_TEXT
