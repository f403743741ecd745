"""Names of published models: what a name means, and what of it is pinned.

    bert-base-uncased, bert-large-cased ...   Google's models, on the Hugging Face hub as google-bert/NAME
    OWNER/NAME, OWNER/NAME@REVISION           any other model of that hub
    macbert-base-chinese, paddlenlp/NAME      PaddleNLP's models, in `paddlenlp_models`

pinned_models.json holds the revision of well-known models and the sha256 of their files, as far as they are known for
certain. `python -m data.download_model NAME --pin` adds to it.
"""

import json
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from bert.files import write_atomically
from data.fetching.paddlenlp_models import MODELS as PADDLENLP

PINS_FILE = Path(__file__).with_name("pinned_models.json")
GOOGLE = "google-bert"
_OF_GOOGLE = (
    "bert-base-uncased",
    "bert-base-cased",
    "bert-large-uncased",
    "bert-large-cased",
    "bert-base-multilingual-uncased",
    "bert-base-multilingual-cased",
    "bert-base-chinese",
    "bert-base-german-cased",
    "bert-large-uncased-whole-word-masking",
    "bert-large-cased-whole-word-masking",
    "bert-large-uncased-whole-word-masking-finetuned-squad",
    "bert-large-cased-whole-word-masking-finetuned-squad",
    "bert-base-cased-finetuned-mrpc",
)
_NAME = re.compile(r"(?:(?P<owner>[\w-][\w.-]*)/)?(?P<name>[\w-][\w.-]*)(?:@(?P<revision>[\w-][\w./-]*))?", re.ASCII)
_MAIN = "main"


@dataclass(frozen=True)
class ModelName:
    """A model on a hub.

    Attributes:
        owner: on the Hugging Face hub; "paddlenlp" for a model of PaddleNLP.
        revision: a branch, tag or commit; None: the pinned commit, or the newest.
    """

    owner: str
    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}" + (f"@{self.revision}" if self.revision else "")

    @property
    def repository(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def is_paddlenlp(self) -> bool:
        return self.owner == "paddlenlp"


@dataclass(frozen=True)
class Pin:
    """What is known of a model for certain: its commit, and (sha256, bytes) of some of its files."""

    revision: str
    files: dict[str, tuple[str, int]]


def parse_name(text: str) -> ModelName | None:
    """The model that a name means; None if it cannot be one. A name without an owner must be a known one."""
    if text in PADDLENLP and text not in _OF_GOOGLE:
        return ModelName("paddlenlp", text)
    if text.removeprefix("paddlenlp/") in PADDLENLP and text.startswith("paddlenlp/"):
        return ModelName("paddlenlp", text.removeprefix("paddlenlp/"))
    match = _NAME.fullmatch(text)
    if match is None or ".." in text or match["owner"] == "paddlenlp":
        return None
    owner = match["owner"] or (GOOGLE if match["name"] in _OF_GOOGLE else None)
    return ModelName(owner, match["name"], match["revision"]) if owner else None


def known_names() -> list[str]:
    """The names that are known without asking a hub, sorted."""
    pinned = (name.removeprefix(f"{GOOGLE}/") for name in _pins())
    return sorted({*_OF_GOOGLE, *PADDLENLP, *pinned})


def pin_of(name: ModelName) -> Pin | None:
    """The pin of a model; None without one, or if the name has another revision."""
    pin = _pins().get(name.repository)
    return pin if pin and name.revision in (None, _MAIN, pin.revision) else None


def revision_of(name: ModelName) -> str:
    """The revision to ask for: as named, else the pinned one, else the newest."""
    pin = pin_of(name)
    return pin.revision if pin else name.revision or _MAIN


def write_pin(name: ModelName, pin: Pin) -> None:
    """Add a model to pinned_models.json, or replace its pin.

    Raises:
        OSError: the file cannot be written.
    """
    pins = {repository: asdict(entry) for repository, entry in sorted({**_pins(), name.repository: pin}.items())}
    write_atomically(PINS_FILE, (json.dumps(pins, indent=1) + "\n").encode())
    _pins.cache_clear()


@lru_cache(maxsize=1)
def _pins() -> dict[str, Pin]:
    return {
        repository: Pin(
            values["revision"], {file: (sha256, num_bytes) for file, (sha256, num_bytes) in values["files"].items()}
        )
        for repository, values in json.loads(PINS_FILE.read_bytes()).items()
    }
