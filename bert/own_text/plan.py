"""The recorded plan of a training on the user's text: its settings and its expected results."""

import dataclasses
from typing import Any

from bert.config.architecture import BertConfig
from bert.config.optimizer_settings import PrecisionSettings
from bert.own_text import constants
from bert.own_text.candidates import NetworkSize, Placement
from bert.own_text.decisions import Decisions
from bert.own_text.request import TextRequest
from bert.tokenization.normalization import UNCASED, Normalization


@dataclasses.dataclass(frozen=True)
class PlanRow:
    """One row of the plan's table: a value, the reason, and the flag that sets it."""

    name: str
    value: str
    reason: str
    flag: str


@dataclasses.dataclass(frozen=True)
class TextPlan:
    """The plan for one text and one machine.

    Attributes:
        model: a name of `constants.MODELS`, or the name of the weights.
        settings: of the training by their flat names, with the requested ones, without paths and length.
        updates: that are expected.
        seconds: that the whole command is expected to take.
        epochs: passes over the text that are expected.
        data_seconds: that import, vocabulary and shards are expected to take.
        extent: of the text, for a reader.
    """

    model: str
    settings: dict[str, Any]
    ranks: int
    held_out_fraction: float
    duplicate_factor: int
    language: str
    segmenter: str | None
    bin_size: int | None
    updates: int
    seconds: float
    epochs: float
    extent: str
    num_bytes: int
    normalization: Normalization = UNCASED
    data_seconds: float = 0.0
    choices: tuple[PlanRow, ...] = ()
    warnings: tuple[str, ...] = ()

    def is_timed(self) -> bool:
        """Whether a time limit can end the training: the schedule can decay at any time."""
        return bool(self.settings["lr_schedule"] == "wsd")

    def word_segmenter(self) -> str | None:
        """Name of the segmenter that cuts the text, or finds words for masking."""
        return self.normalization.word_segmenter or self.segmenter

    def whole_words(self) -> bool:
        """Whether whole words are masked, as found by a segmenter."""
        return bool(self.segmenter and self.settings.get("whole_word_masking", True))

    def network(self) -> NetworkSize:
        sizes = {name: self.settings[name] for name in BertConfig.model_fields if name in self.settings}
        precision = PrecisionSettings(amp=self.settings["amp"])
        return NetworkSize(self.model, BertConfig(**sizes), self.settings["max_seq_length"], precision)

    def placed(self, placement: Placement, request: TextRequest) -> "TextPlan":
        """The plan with the settings of other devices, which do not affect what is learned."""
        share = max(1, self.settings["global_batch_size"] // placement.ranks)
        fits = max(1, min(placement.most_sequences, share))
        usual = next(size for size in range(fits, 0, -1) if share % size == 0)
        settings = {
            "batch_size": request.setting("batch_size", usual),
            "device": placement.device,
            "cpu_threads": placement.threads,
            "num_workers": request.setting("num_workers", 0 if placement.device == "cpu" else 4),
        }
        return dataclasses.replace(self, ranks=placement.ranks, settings=self.settings | settings)


def plan_of(decisions: Decisions) -> TextPlan:
    """Make the plan without its table."""
    request, text, data = decisions.request, decisions.text, decisions.data
    plan = TextPlan(
        model=decisions.candidate.name,
        settings=_settings(decisions),
        ranks=decisions.candidate.placement.ranks,
        held_out_fraction=data.held_out.value,
        duplicate_factor=data.duplicate_factor,
        language=request.lang or ("zh" if text.is_chinese else text.language),  # whose rules end its sentences
        segmenter=data.segmenter,
        bin_size=decisions.batch.bin_size,
        updates=decisions.training.updates,
        seconds=decisions.seconds(),
        epochs=decisions.training.epochs,
        extent=text.extent(),
        num_bytes=text.all_bytes(),
        normalization=data.normalization,
        data_seconds=decisions.overhead.data,
    )
    return plan.placed(decisions.candidate.placement, request)


def _settings(decisions: Decisions) -> dict[str, Any]:
    """Flat settings of the training. Requested settings override the rules."""
    request, data, rates, evaluations = decisions.request, decisions.data, decisions.rates, decisions.evaluations
    settings = {
        **decisions.candidate.settings(),
        **decisions.training.dropouts.value,
        "global_batch_size": decisions.batch.size.value,
        "masking": "dynamic",
        "learning_rate": rates.learning_rate.value,
        "warmup_proportion": rates.warmup.value,
        "lr_schedule": rates.schedule.value,
        "num_steps_per_checkpoint": evaluations.interval or max(1, decisions.training.updates // 4),
        "early_stopping": evaluations.early_stopping.value,
        "early_stopping_from": constants.EARLY_STOPPING_FROM,
        "eval_samples": evaluations.most_samples,
    }
    if data.segmenter and request.setting("masking", "dynamic") == "dynamic":
        settings["whole_word_masking"] = True
    if rates.head_rate_factor != 1:
        settings["head_rate_factor"] = rates.head_rate_factor
    if rates.schedule.value == "wsd":
        settings["lr_decay_share"] = rates.decay_share
    if evaluations.interval:
        settings["eval_freq"] = evaluations.interval
    return settings | {name: value for name, value in request.settings.items() if name != "steps_this_run"}
