"""Parses names of published models, and knows the pinned commits and checksums.

    bert-base-uncased, bert-large-cased ...   Google's models, on the Hugging Face hub as google-bert/NAME
    OWNER/NAME, OWNER/NAME@REVISION           any other model of that hub
    macbert-base-chinese, paddlenlp/NAME      PaddleNLP's models

pinned_models.json holds the revision of well-known models and the sha256 and size of their files, as far as they are
known for certain.
"""

import json
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

PINS_FILE = Path(__file__).with_name("pinned_models.json")
# Files of weights and their containers, in the order of preference: formats that cannot hold code first.
WEIGHT_FILES = {
    "model.safetensors.index.json": "safetensors",
    "model.safetensors": "safetensors",
    "model_state.pdparams": "paddle",
    "pytorch_model.bin.index.json": "torch",
    "pytorch_model.bin": "torch",
}
GOOGLE = "google-bert"
_OF_GOOGLE = tuple(
    "bert-base-uncased bert-base-cased bert-large-uncased bert-large-cased bert-base-multilingual-uncased "
    "bert-base-multilingual-cased bert-base-chinese bert-base-german-cased bert-large-uncased-whole-word-masking "
    "bert-large-cased-whole-word-masking bert-large-uncased-whole-word-masking-finetuned-squad "
    "bert-large-cased-whole-word-masking-finetuned-squad bert-base-cased-finetuned-mrpc".split()
)
_NAME = re.compile(r"(?:(?P<owner>[\w-][\w.-]*)/)?(?P<name>[\w-][\w.-]*)(?:@(?P<revision>[\w-][\w./-]*))?", re.ASCII)
_MAIN = "main"


@dataclass(frozen=True)
class ModelName:
    owner: str  # on the Hugging Face hub; "paddlenlp" for PaddleNLP's server
    name: str
    revision: str | None = None  # a branch, tag or commit; None: the pinned commit, or the newest

    def __str__(self) -> str:
        return self.repository + (f"@{self.revision}" if self.revision else "")

    @property
    def repository(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def is_paddlenlp(self) -> bool:
        return self.owner == "paddlenlp"


@dataclass(frozen=True)
class Pin:
    """Pinned facts about a model: its commit, and (sha256, bytes) of some files."""

    revision: str
    files: dict[str, tuple[str, int]]


_PINS = TypeAdapter(dict[str, Pin])


def parse_name(text: str) -> ModelName | None:
    """The model that a name stands for; None if it cannot be one. Only known names may lack an owner."""
    if (name := text.removeprefix("paddlenlp/")) in PADDLENLP and (name != text or text not in _OF_GOOGLE):
        return ModelName("paddlenlp", name)
    match = _NAME.fullmatch(text)
    if match is None or ".." in text or match["owner"] == "paddlenlp":
        return None
    owner = match["owner"] or (GOOGLE if match["name"] in _OF_GOOGLE else None)
    return ModelName(owner, match["name"], match["revision"]) if owner else None


def known_names() -> list[str]:
    """Sorted names that are known without asking a hub."""
    pinned = (name.removeprefix(f"{GOOGLE}/") for name in _pins())
    return sorted({*_OF_GOOGLE, *PADDLENLP, *pinned})


def pin_of(name: ModelName) -> Pin | None:
    """Pinned facts about a model; None without a pin, or if the name asks for another revision."""
    pin = _pins().get(name.repository)
    return pin if pin and name.revision in (None, _MAIN, pin.revision) else None


def revision_of(name: ModelName) -> str:
    """The revision to request: as named, otherwise the pinned one, otherwise the newest."""
    pin = pin_of(name)
    return pin.revision if pin else name.revision or _MAIN


@lru_cache(maxsize=1)
def _pins() -> dict[str, Pin]:
    return _PINS.validate_json(PINS_FILE.read_bytes())


_ENDPOINT = "https://bj.bcebos.com/paddlenlp"


@dataclass(frozen=True)
class PaddleNlpModel:
    """A model in paddlenlp_models.json: paths of its files on the server, and sizes."""

    weights: str
    vocabulary: str
    sizes: tuple[int, int, int, int, int]  # vocabulary, hidden size, layers, heads, intermediate size
    do_lower_case: bool

    def addresses(self) -> dict[str, str]:
        """URLs of the files, by name."""
        endpoint = os.environ.get("PPNLP_ENDPOINT", _ENDPOINT).rstrip("/").removesuffix("/paddlenlp")
        return {"model_state.pdparams": f"{endpoint}/{self.weights}", "vocab.txt": f"{endpoint}/{self.vocabulary}"}

    def texts(self) -> dict[str, str]:
        """Content of files that the server lacks, by name."""
        names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        config: dict[str, Any] = {"model_type": "bert", "architectures": ["BertForPretraining"]}
        config |= dict(zip(names, self.sizes, strict=True))
        config |= {"hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2}
        return {
            "config.json": json.dumps(config, indent=1) + "\n",
            "tokenizer_config.json": json.dumps({"do_lower_case": self.do_lower_case}) + "\n",
        }


PADDLENLP = TypeAdapter(dict[str, PaddleNlpModel]).validate_json(
    Path(__file__).with_name("paddlenlp_models.json").read_bytes()
)
