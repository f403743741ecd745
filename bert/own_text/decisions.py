"""The decisions of a plan for the user's text: frozen dataclasses whose values have reasons. `rules` fills them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from bert.config.architecture import BertConfig
from bert.own_text.candidates import ModelCandidate
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.request import TextRequest
from bert.planning.estimates import checkpoint_bytes
from bert.tokenization.normalization import Normalization
from data.preprocessing.estimates import own_text_bytes

_CHECKPOINTS = 6  # on the disk at once: three kept, the best, before the decay, being written
Value = TypeVar("Value")
GIVEN = "as given"


class Choice(NamedTuple, Generic[Value]):
    """A chosen value and the reason for it."""

    value: Value
    reason: str


def choose(requested: Value | None, value: Value, reason: str) -> Choice[Value]:
    """The requested value; if it is None, the value and reason of the rule."""
    return Choice(value, reason) if requested is None else Choice(requested, GIVEN)


@dataclass(frozen=True)
class Speeds:
    """Training speed of models on this machine.

    Attributes:
        of_models: sequences per second of all ranks, by the names of the models.
        is_measured: whether ranks were started to measure them; False: they are estimates.
    """

    of_models: Mapping[str, float]
    is_measured: bool = True


@dataclass(frozen=True)
class Overhead:
    """Seconds of the whole command without training.

    Attributes:
        data: import, vocabulary and shards.
        before_training: everything before the first update: earlier starts, data, and the start of the ranks.
        after_training: the report and what the model can do.
    """

    data: float
    before_training: float
    after_training: float

    def seconds(self) -> float:
        return self.before_training + self.after_training


@dataclass(frozen=True)
class Data:
    """How the text is divided into samples.

    Attributes:
        tokens: of the whole text, with the vocabulary of the chosen model.
        duplicate_factor: how often the text is in the shards, with other sentence pairs each time.
        held_out: share of the text that is not trained on.
        normalization: what is done to the text before it becomes tokens.
        segmenter: finds the words that masks cover whole; None: masks cover single tokens.
        samples: of one pass over the training text, with the samples of --replay, which are no part of the text.
    """

    tokens: float
    duplicate_factor: int
    held_out: Choice[float]
    normalization: Normalization
    segmenter: str | None
    samples: float

    def stored_samples(self) -> float:
        """Number of samples in the shards."""
        return self.samples * self.duplicate_factor


@dataclass(frozen=True)
class Batch:
    """The batch of an update.

    Attributes:
        size: sequences of an update, of all ranks.
        bin_size: width of the shards' bins in tokens; None: no bins.
    """

    size: Choice[int]
    bin_size: int | None


@dataclass(frozen=True)
class Training:
    """Expected number of updates, and their time.

    Attributes:
        dropouts: by the names of the settings.
        speed: sequences per second of all ranks, with this dropout.
        updates: the number of updates.
        epochs: passes over the text.
        seconds: the time that the updates take.
    """

    dropouts: Choice[dict[str, float]]
    speed: float
    updates: int
    epochs: float
    seconds: float


@dataclass(frozen=True)
class Rates:
    """Learning rates over the training.

    Attributes:
        learning_rate: the peak.
        head_rate_factor: learning rate of the masked-LM head, as a multiple of the encoder's.
        warmup: share of the updates.
        schedule: as --lr-schedule.
        decay_share: share of the updates in which the schedule wsd decays.
    """

    learning_rate: Choice[float]
    head_rate_factor: float
    warmup: Choice[float]
    schedule: Choice[str]
    decay_share: float

    def warmup_updates(self, updates: int) -> int:
        return int(self.warmup.value * updates)


@dataclass(frozen=True)
class Evaluations:
    """What is evaluated during the training, and how often.

    Attributes:
        most_samples: as --eval-samples.
        samples: held-out sequences of one evaluation; 0: nothing is held out.
        interval: updates from one evaluation to the next; None: there are none.
        early_stopping: evaluations without a lower loss that end the training; 0: they do not.
    """

    most_samples: int
    samples: int
    interval: int | None
    early_stopping: Choice[int]


@dataclass(frozen=True)
class Decisions:
    """All choices for a text and a machine, with the facts and the request behind them.

    Attributes:
        candidate: the chosen model, with the devices that it trains on.
        speed_is_measured: False: the speed is an estimate.
        disk_bytes: of text, shards and checkpoints.
    """

    text: TextFacts
    machine: MachineFacts
    request: TextRequest
    candidate: ModelCandidate
    overhead: Overhead
    data: Data
    batch: Batch
    training: Training
    rates: Rates
    evaluations: Evaluations
    speed_is_measured: bool
    disk_bytes: float

    def seconds(self) -> float:
        """Expected time of the whole command, in seconds."""
        return self.overhead.seconds() + self.training.seconds


def short_number(number: float) -> str:
    """Format a large number, such as 1.23 million."""
    for size, unit in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"


def disk_bytes(num_bytes: int, copies: int, model: BertConfig) -> float:
    """Disk space in bytes for the imported text, its shards and the checkpoints.

    Args:
        num_bytes: of the text.
        copies: of it in the shards.
    """
    return own_text_bytes(num_bytes, copies) + _CHECKPOINTS * checkpoint_bytes(model)
