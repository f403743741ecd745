"""Facts of a text, a machine and its measured speed -> the plan of a pre-training on it.

A choice is what the user gave, or what a rule says together with its reason. The run uses, prints and records these
choices; nothing is explained afterwards. Pure: nothing is read or measured here. `constants` has the figures.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from bert.config.architecture import BertConfig
from bert.config.training_settings import PrecisionSettings
from bert.interpreter import install_command
from bert.own_text import constants
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.model_choice import (
    Candidate,
    Placement,
    has_enough_text,
    layer_parameters,
    place,
    rank_bytes,
    text_tokens,
)
from bert.own_text.request import TextRequest
from bert.own_text.sources import REPLAY
from bert.planning.estimates import checkpoint_bytes
from bert.pretraining.expectation import ERROR, is_measured, nats_below_frequency
from bert.reporting.progress import duration
from bert.samples.masking import MASKED_SHARE

Speeds = Mapping[str, float]  # name of the candidate -> sequences per second of all ranks
Value = TypeVar("Value")
GIVEN = "as given"
_LEAST_SAMPLES_IN_A_BIN = 50  # times the global batch: with fewer, a bin's last batches are too rare
_BINS = 4
_OF_A_START = ("max_steps", "finish_in", "steps_this_run")  # settings that are not the plan's
_LENGTHS = ("updates", "epochs", "time", "expected")  # rows of which a start of a run that has begun has its own
_ORDER = (
    "text|held out|vocabulary|learns|masks|model|lengths|batch|micro-batch|optimizer|warm-up|schedule|dropout|probe|"
    "early stopping|device|ranks|updates|epochs|time|expected|disk".split("|")
)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One line of the plan: a value, why, and the flag that sets it."""

    name: str
    value: str
    reason: str
    flag: str


@dataclasses.dataclass(frozen=True)
class TextPlan:
    """The choices for one text on one machine.

    Attributes:
        model: a name of `constants.MODELS`, or that of the weights.
        settings: of the training by their flat names, without paths and length; what was given is in them.
        updates, seconds: that are expected, of the training and of everything.
        epochs: passes over the text that are expected.
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
    choices: tuple[Choice, ...] = ()
    warnings: tuple[str, ...] = ()

    def table(self, request: TextRequest, has_begun: bool = False) -> str:
        """Aligned columns: what, value, why, flag.

        Args:
            has_begun: the choices were recorded, and the flags of now that win over them are shown.
        """
        rows = {row.name: row for row in self.choices}
        if has_begun:
            rows = {name: row for name, row in rows.items() if name.partition(":")[0] not in _LENGTHS}
            rows |= {row.name: row for row in _given_now(rows, request)}
        shown = " ".join(row.flag for row in rows.values())
        for name, value in request.settings.items():
            flag = "--" + name.replace("_", "-")
            if flag not in shown and name not in BertConfig.model_fields:
                rows[flag] = Choice(flag[2:], str(value), GIVEN, flag)
        columns = [("", "choice", "why", "flag"), *map(dataclasses.astuple, rows.values())]
        widths = [max(len(row[column]) for row in columns) for column in range(3)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]).rstrip()
            for row in columns
        )

    def is_timed(self) -> bool:
        """Whether the time decides when the training ends: its schedule can decay at any time."""
        return bool(self.settings["lr_schedule"] == "wsd")

    def whole_words(self) -> bool:
        """Whether masks cover whole words, which a segmenter finds."""
        return bool(self.segmenter and self.settings.get("whole_word_masking", True))


class _Choices:
    """Makes the choices of a plan, one after the other, and keeps what the table says of them."""

    def __init__(self, text: TextFacts, machine: MachineFacts, request: TextRequest) -> None:
        self.text, self.machine, self.request = text, machine, request
        self.rows: list[Choice] = []

    def add(self, name: str, value: str, reason: str, flag: str) -> None:
        self.rows.append(Choice(name, value, reason, flag))

    def make(
        self, name: str, flag: str, given: Value | None, rule: tuple[Value, str], show: Callable[[Value], str] = str
    ) -> Value:
        """What was given, otherwise what the rule says: the value, and why."""
        value, reason = (given, GIVEN) if given is not None else rule
        self.add(name, show(value), reason, flag)
        return value


def make_plan(
    text: TextFacts, machine: MachineFacts, request: TextRequest, found: tuple[Candidate, ...], speeds: Speeds
) -> TextPlan:
    """The plan of the best of the candidates.

    Args:
        found: `model_choice.candidates`.
        speeds: of every candidate.
    """
    choices = _Choices(text, machine, request)
    usual = constants.DUPLICATE_FACTOR if text.num_bytes <= constants.LARGEST_DUPLICATED_TEXT else 1
    duplicates = request.duplicate_factor or usual
    preparation = preparation_seconds(text.all_bytes(), machine, duplicates)
    candidate = _choose_model(choices, found, speeds, preparation)
    model, rule, speed = candidate.model, candidate.rule, speeds[candidate.name]
    tokens, sample = text_tokens(text, model.vocab_size), candidate.text_tokens_of_sample()
    held_out = _text_and_vocabulary(choices, model, tokens)
    segmenter = _segmenter(choices)
    replayed = sum(source.share for source in request.sources if source.name == REPLAY)  # a pass has them in addition
    samples, given_steps = tokens * (1 - held_out) / sample / (1 - replayed), request.setting("max_steps")
    seconds = _training_seconds(request, samples / speed, preparation)
    batch = _global_batch(choices, candidate, seconds * speed, samples * duplicates)
    updates = given_steps or max(1, round(seconds * speed / batch))
    dropouts = _dropouts(choices, candidate, updates * batch / samples)
    is_cheaper_without = rule is not None and rule.dropout is None and candidate.placement.device == "cpu"
    if any(dropouts.values()) and is_cheaper_without and not given_steps:
        speed /= constants.DROPOUT_COST
        updates = max(1, round(_training_seconds(request, samples / speed, preparation) * speed / batch))
    epochs, at_most = updates * batch / samples, constants.EVALUATED_SEQUENCES[candidate.placement.device]
    at_most = request.setting("eval_samples", at_most)
    evaluated = min(at_most, max(1, int(tokens * held_out / sample))) if held_out else 0
    _describe_model(choices, candidate, epochs * tokens)
    settings = {
        **candidate.settings(),
        **dropouts,
        "global_batch_size": batch,
        "masking": "dynamic",
        **({"whole_word_masking": True} if segmenter and request.setting("masking", "dynamic") == "dynamic" else {}),
        **_optimization(choices, candidate, batch, updates),
        **_evaluations(choices, evaluated, constants.EVALUATION_COST / speed, updates, updates * batch / speed),
        "eval_samples": at_most,
    }
    if evaluated:
        _describe_expectation(choices, candidate, settings, updates)
    plan = TextPlan(
        model=candidate.name,
        settings={**settings, **{name: value for name, value in request.settings.items() if name not in _OF_A_START}},
        ranks=candidate.placement.ranks,
        held_out_fraction=held_out,
        duplicate_factor=duplicates,
        language=request.lang or ("zh" if text.is_chinese else "en"),  # whose rules end its sentences
        segmenter=segmenter,
        bin_size=candidate.length // _BINS if samples * duplicates >= _BINS * _LEAST_SAMPLES_IN_A_BIN * batch else None,
        updates=updates,
        seconds=preparation + constants.START_SECONDS + updates * batch / speed + constants.END_SECONDS,
        epochs=epochs,
        extent=text.extent(),
        num_bytes=text.all_bytes(),
    )
    _describe_length(choices, plan, speed, preparation)
    need = disk_bytes(plan, model)
    choices.add("disk", f"about {need / 1e9:,.2f} GB", f"{machine.disk_bytes / 1e9:,.0f} GB free", "--output-dir")
    masked = evaluated * sample * request.setting("eval_masked_lm_ratio", MASKED_SHARE)
    warnings = tuple(_warnings(plan, candidate, choices, tokens, masked, need))
    plan = dataclasses.replace(plan, choices=tuple(choices.rows), warnings=warnings)
    return _placed(plan, candidate.placement, machine, request)


def on_devices(plan: TextPlan, request: TextRequest, machine: MachineFacts) -> TextPlan:
    """The plan of a run that has begun, perhaps elsewhere, on the devices that it has now.

    What decides the result stays: model, batch, rate. Without --num-processes the ranks are so many as divide the
    batch.
    """
    settings, (model, precision) = plan.settings, _model_of(plan)
    batch = settings["global_batch_size"]
    placement = place(plan.model, model, settings["max_seq_length"], precision, machine, request, batch)
    return _placed(plan, placement, machine, request)


def _model_of(plan: TextPlan) -> tuple[BertConfig, PrecisionSettings]:
    sizes = {name: plan.settings[name] for name in BertConfig.model_fields if name in plan.settings}
    return BertConfig(**sizes), PrecisionSettings(amp=plan.settings["amp"])


def _placed(plan: TextPlan, placement: Placement, machine: MachineFacts, request: TextRequest) -> TextPlan:
    """The plan with the settings and choices that depend on devices, and do not decide what is learned."""
    rows, (model, precision) = {row.name: row for row in plan.choices}, _model_of(plan)
    device, ranks = placement.device, placement.ranks
    why = f"{machine.gpus} here" if device == "gpu" else f"no GPU here{machine.note}"
    why += "; mixed precision" if precision.amp else "; float32"
    shown, each = (f"{ranks} x {machine.gpu_name}", f"{ranks}"), "one a GPU"
    if device == "cpu":
        shown = ("CPU", f"{ranks}, {placement.threads} thread{'s' if placement.threads > 1 else ''} each")
        each = f"{machine.cores} cores; most operators use one"
    share = max(1, plan.settings["global_batch_size"] // ranks)
    fits = max(1, min(placement.most_sequences, share))
    given = request.setting("batch_size")
    micro = given or next(size for size in range(fits, 0, -1) if share % size == 0)
    need = rank_bytes(model, plan.settings["max_seq_length"], precision, device, micro)
    for name, value, reason, asked, flag in (
        ("device", shown[0], why, request.setting("device"), "--device"),
        ("ranks", shown[1], each, request.num_processes, "--num-processes, --cpu-threads"),
        ("micro-batch", f"{micro:,} a rank", f"about {need / 1e9:.1f} GB", given, "--batch-size"),
    ):
        rows[name] = Choice(name, value, reason if asked is None else GIVEN, flag)
    workers = request.setting("num_workers", 0 if device == "cpu" else 4)
    of_devices = {"batch_size": micro, "device": device, "cpu_threads": placement.threads, "num_workers": workers}
    ordered = tuple(sorted(rows.values(), key=lambda row: _ORDER.index(row.name.partition(":")[0])))
    return dataclasses.replace(plan, ranks=ranks, settings=plan.settings | of_devices, choices=ordered)


def _given_now(rows: Mapping[str, Choice], request: TextRequest) -> Iterator[Choice]:
    """The choices of this start of a run that has begun."""
    if (patience := request.setting("early_stopping")) is not None:
        value = _patience(patience, request)
        yield dataclasses.replace(rows["early stopping"], value=value, reason=GIVEN)
    if (steps := request.setting("max_steps")) is not None:
        yield Choice("updates", f"{steps:,}", GIVEN, "--max-steps")
    elif request.epochs is not None:
        yield Choice("epochs", f"{request.epochs:g} over the text", GIVEN, "--epochs")
    else:
        why = f"at most, and {constants.EPOCHS:g} epochs" if request.hours is None else GIVEN
        yield Choice("time", duration((request.hours or constants.MOST_HOURS) * 3600), why, "--hours")
    if (seconds := request.setting("finish_in")) is not None:
        yield Choice("end", f"in {duration(seconds)}", GIVEN, "--finish-in")


# ---- rules -----------------------------------------------------------------------------------------------------------


def _text_and_vocabulary(choices: _Choices, model: BertConfig, tokens: float) -> float:
    """The share that is held out."""
    text, request = choices.text, choices.request
    about = "about " if text.is_estimate else ""
    counts = f"{about}{text.extent()}, {text.num_bytes / 1e6:,.1f} MB, {text.documents:,} documents"
    choices.add("text", counts, f"{text.files:,} files; about {_short(tokens)} tokens", "--text")
    share = constants.HELD_OUT_BYTES / max(text.num_bytes, 1)
    share = round(min(constants.LARGEST_HELD_OUT, max(constants.SMALLEST_HELD_OUT, share)), 3)
    rule = (share, f"about {_short(share * tokens)} tokens to measure on")
    given, flag = request.held_out_fraction, "--held-out-fraction"
    held_out = choices.make(
        "held out", flag, given, rule, lambda x: f"{x:.1%} of the text" if x else "nothing, so no evaluation"
    )
    flag, why = "--vocab-size", f"for {_short(text.learnable_words())} words and this model"
    if request.weights is not None:
        flag = "--from-pretrained-params"
        why = f"of the weights, {'lower-cased' if request.weights.lowercase else 'cased'}"
        if request.add_words:
            flag, why = "--add-words", f"{why}, and up to {request.add_words:,} words of the text"
    elif request.tokens is not None:
        flag, why = "--vocab-file", "the lines of the file given"
    elif request.setting("vocab_size") is not None:
        why = GIVEN
    choices.add("vocabulary", f"{model.vocab_size:,} tokens", why, flag)
    return held_out


def preparation_seconds(num_bytes: int, machine: MachineFacts, duplicates: int) -> float:
    """Estimated time of import, vocabulary and shards."""
    processes = min(machine.cores, 1 + num_bytes // (4 << 20))
    seconds_of_a_byte = 1 / constants.IMPORT_BYTES_PER_SECOND + 1 / constants.VOCABULARY_BYTES_PER_SECOND
    seconds_of_a_byte += duplicates / (constants.SHARD_BYTES_PER_SECOND * processes)
    return 15.0 + num_bytes * seconds_of_a_byte


def _describe_model(choices: _Choices, candidate: Candidate, tokens: float) -> None:
    """The model, what it learns, and from what lengths; tokens: that it reads."""
    request, model, rule = choices.request, candidate.model, candidate.rule
    layers = f"{model.num_hidden_layers} layers of {model.hidden_size}{', ModernBERT' if model.is_modern() else ''}"
    size = f"{layers}, {model.num_parameters() / 1e6:,.1f} M parameters"
    balance = f"reads {tokens / layer_parameters(model):,.0f} tokens a layer parameter"
    why, flag = f"{balance}, {constants.TOKENS_PER_PARAMETER:g} balance", "--config, --model-type"
    if rule is None:
        why, flag = "the weights given", "--from-pretrained-params"
    choices.add("model", f"{candidate.name}: {size}", GIVEN if request.model else why, flag)
    named = "masked words" if candidate.objective == "mlm" else "masked words and next sentences"
    is_given = request.setting("objective") or request.setting("masked_lm_ratio") is not None
    why = GIVEN if is_given else "measured" if rule else "as the weights were trained"
    choices.add("learns", f"{named}, {candidate.masked_share:.0%} masked", why, "--objective, --masked-lm-ratio")
    reason = (candidate.length, "short and long sequences from the first update on")
    given = request.setting("max_seq_length")
    choices.make("lengths", "--max-seq-length", given, reason, lambda x: f"up to {x} tokens, mixed")


def _choose_model(choices: _Choices, found: tuple[Candidate, ...], speeds: Speeds, preparation: float) -> Candidate:
    """The largest candidate that reads enough tokens for its parameters in the time; the smallest if none does."""
    request, fitting = choices.request, [found[0]]
    seconds = (request.hours or constants.MOST_HOURS) * 3600 - preparation
    for candidate in found[1:]:
        read = candidate.text_tokens_of_sample() * seconds * speeds[candidate.name]
        if request.epochs is not None:
            read = min(read, request.epochs * text_tokens(choices.text, candidate.model.vocab_size))
        if read >= constants.TOKENS_PER_PARAMETER * layer_parameters(candidate.model):
            fitting.append(candidate)
    return fitting[-1]


def _segmenter(choices: _Choices) -> str | None:
    """What finds the words that masks cover whole; None: masks cover single tokens."""
    text, request = choices.text, choices.request
    # The tokens of other vocabularies than a WordPiece may span the words that are found.
    is_wordpiece = request.tokens is None or request.tokens.vocabulary.is_wordpiece()
    usual = choices.machine.segmenter if text.is_chinese and is_wordpiece else ""
    chosen = usual if request.word_segmenter == "auto" else request.word_segmenter
    segmenter = chosen if chosen not in ("", "none") else None
    if text.is_chinese or segmenter:
        covers = bool(segmenter) and request.setting("whole_word_masking", True)
        value = f"whole words that {segmenter} finds" if covers else "single characters"
        reason = "neighbours would give single characters away" if covers else "no words are known"
        if request.word_segmenter != "auto" or (segmenter and not covers):
            reason = GIVEN
        choices.add("masks", value, reason, "--word-segmenter, --whole-word-masking")
    return segmenter


def _training_seconds(request: TextRequest, seconds_of_an_epoch: float, preparation: float) -> float:
    """Seconds of the updates: of the hours given, otherwise of the epochs given, otherwise of `constants.EPOCHS`."""
    other = preparation + constants.START_SECONDS + constants.END_SECONDS
    if request.epochs is not None:
        return request.epochs * seconds_of_an_epoch
    if request.hours is None:
        return max(5.0, min(constants.EPOCHS * seconds_of_an_epoch, constants.MOST_HOURS * 3600 - other))
    seconds = request.hours * 3600 - other
    if seconds < 5 and not request.setting("max_steps"):
        raise ValueError(
            f"hours={request.hours:g} leave no time for training: import, vocabulary, shards and start take about "
            f"{duration(other)}; pass at least --hours {math.ceil(other * 2 / 36) / 100:g}"
        )
    return max(seconds, 5.0)


def _global_batch(choices: _Choices, candidate: Candidate, sequences: float, samples: float) -> int:
    """Sequences of an update, by the tokens that the whole training reads.

    Not so many that the training makes fewer than 200 updates, or that the samples are fewer than 8 batches.
    """
    request, placement, length = choices.request, candidate.placement, candidate.mean_length()
    micro, given, steps = request.setting("batch_size") or 1, request.setting("global_batch_size"), None
    if given and (steps := request.setting("max_steps")):
        sequences = steps * given
    wanted = constants.BATCH_ANCHOR * math.sqrt(sequences * length / constants.TOKENS_ANCHOR) / length
    least = 8 if placement.device == "cpu" else constants.LEAST_MICRO_BATCH["gpu"] * placement.ranks
    wanted = max(wanted, constants.SHORT_TRAINING_BATCH / length, least)
    wanted = min(wanted, max(min(sequences / 200, samples / 8), constants.LEAST_BATCH), constants.LARGEST_BATCH)
    share = max(1, 1 << round(math.log2(max(wanted / placement.ranks, 1))))
    batch = placement.ranks * max(share, micro if share % micro == 0 else -(-share // micro) * micro)
    rule = (batch, f"about {_short(batch * length)} tokens; grows with the root of the tokens that are read")
    return choices.make("batch", "--global-batch-size", given, rule, lambda x: f"{x:,} sequences an update")


def _dropouts(choices: _Choices, candidate: Candidate, epochs: float) -> dict[str, float]:
    """Those of the layers and of the attention."""
    names, rule = ("hidden_dropout_prob", "attention_probs_dropout_prob"), candidate.rule
    if rule is None:
        rates, why = [getattr(candidate.model, name) for name in names], "that of the weights"
    elif rule.dropout is not None:
        rates, why = 2 * [rule.dropout], "as published"
    else:
        rates = 2 * [constants.DROPOUT if epochs >= constants.DROPOUT_FROM_EPOCHS else 0.0]
        why = f"{constants.DROPOUT:g} from {constants.DROPOUT_FROM_EPOCHS:g} epochs on; without it {epochs:.3g}"
    given = {name: value for name in names if (value := choices.request.setting(name)) is not None}
    dropouts = dict(zip(names, rates, strict=True)) | given
    value = " and in attention ".join(f"{rate:g}" for rate in dict.fromkeys(dropouts.values()))
    choices.add("dropout", value, GIVEN if given else why, ", ".join(f"--{name.replace('_', '-')}" for name in names))
    return dropouts


def _optimization(choices: _Choices, candidate: Candidate, batch: int, updates: int) -> dict[str, Any]:
    """Optimizer, rate and schedule. The shares of the schedule are those of the updates that are expected."""
    request = choices.request
    optimizer = request.setting("optimizer") or ("Lamb" if candidate.rule is not None else "AdamW")
    rate = choices.make(
        "optimizer",
        "--optimizer, --learning-rate",
        request.setting("learning_rate"),
        _learning_rate(candidate, optimizer, batch * candidate.mean_length(), request),
        lambda x: f"{optimizer}, rate {x:g}",
    )
    rule = (constants.WARMUP, "the quickstart's recipe")
    if batch >= constants.WARMUP_LARGE_BATCH:
        rule = (constants.WARMUP_OF_LARGE_BATCHES, "the published recipe")
    expected = f"of the {updates:,} updates that are expected"
    given = request.setting("warmup_proportion")
    warmup = choices.make("warm-up", "--warmup-proportion", given, rule, lambda x: f"{x:.1%} {expected}")
    decay = request.setting("lr_decay_share", constants.DECAY_SHARE)
    schedule = choices.make(
        "schedule",
        "--lr-schedule, --lr-decay-share",
        request.setting("lr_schedule"),
        ("wsd", f"a stable rate, and a decay in the last {decay:.0%}, so that time can decide"),
    )
    refuse_hours(request.hours, schedule)
    settings = {"optimizer": optimizer, "learning_rate": rate, "warmup_proportion": warmup, "lr_schedule": schedule}
    return settings | ({"lr_decay_share": decay} if schedule == "wsd" else {})


def refuse_hours(hours: float | None, schedule: str) -> None:
    """Raises ValueError for hours with a schedule that needs the number of updates."""
    if schedule != "wsd" and hours is not None:
        raise ValueError(
            f"lr_schedule={schedule} needs the number of updates, which --hours={hours:g} leaves open; pass "
            "--max-steps or --epochs, or drop --lr-schedule"
        )


def _learning_rate(
    candidate: Candidate, optimizer: str, batch_tokens: float, request: TextRequest
) -> tuple[float, str]:
    """Peak rate: that of the rule's anchor, scaled by the square root of the batch."""
    rule, weights = candidate.rule, request.weights
    if rule is not None and optimizer != "AdamW":
        rate, anchor, why = rule.rate, rule.batch_tokens, rule.source
    else:
        rate, anchor, why = constants.CONTINUED_RATE, constants.CONTINUED_BATCH_TOKENS, "Gururangan et al. (2020)"
        if rule is not None:  # random weights; Devlin et al. (2019) at width 768, more for narrower models
            rate, why = rate * max(1.0, 768 / candidate.model.hidden_size), "Devlin et al. (2019)"
    rate, why = min(rate * math.sqrt(batch_tokens / anchor), constants.MOST_RATE), f"{why}, by the root of the batch"
    if weights is not None and "masked-LM head" not in weights.heads and rate < constants.NEW_HEAD_RATE:
        rate, why = constants.NEW_HEAD_RATE, "for a masked-LM head made anew; measured with MiniLM-L6"
    return float(f"{rate:.2g}"), why


def _describe_expectation(choices: _Choices, candidate: Candidate, settings: dict[str, Any], updates: int) -> None:
    """The held-out loss that the training is expected to end with, if such trainings were measured."""
    share = choices.request.setting("eval_masked_lm_ratio", MASKED_SHARE)
    if candidate.rule is None or not is_measured(candidate.model, settings["optimizer"], candidate.objective, share):
        return
    below = nats_below_frequency(settings["learning_rate"], updates, settings["warmup_proportion"] * updates)
    if below is None:
        value = "hardly more than how frequent words are"
    else:
        value = f"{'more than' if below[1] else 'about'} {below[0]:.1f} nats below guessing by frequency alone"
    choices.add("expected", value, f"+-{ERROR}; measured on other texts", "--hours")


def _evaluations(choices: _Choices, evaluated: int, cost: float, updates: int, seconds: float) -> dict[str, Any]:
    """Evaluations take a twentieth of the time.

    Args:
        evaluated: held-out sequences of one.
        cost: of a sequence or labelled line, in seconds.
        seconds: of the training.
    """
    request, every = choices.request, max(1, updates // 4)
    lines, by_probe = request.probe_lines, request.setting("best_by") == "probe"
    settings = dict[str, Any]()
    if evaluated + lines:
        number = max(2, int(0.05 * seconds / (cost * (evaluated + lines))))
        every = settings["eval_freq"] = -(-updates // min(constants.EVALUATIONS, number))
    if lines:
        why = f"about {lines * cost:.1f} s an evaluation; {'the best is the result' if by_probe else 'for the log'}"
        choices.add("probe", f"{lines:,} labelled lines", why, "--probe-file, --best-by")
    settings["num_steps_per_checkpoint"] = every
    if not (evaluated or by_probe):
        choices.add("early stopping", "off", "nothing is held out to measure", "--held-out-fraction")
        return {**settings, "early_stopping": 0}
    rule, given = (constants.EARLY_STOPPING, "the best is the result"), request.setting("early_stopping")
    settings["early_stopping"] = choices.make(
        "early stopping", "--early-stopping", given, rule, lambda x: _patience(x, request)
    )
    return {**settings, "early_stopping_from": constants.EARLY_STOPPING_FROM}


def _patience(evaluations: int, request: TextRequest) -> str:
    better = "a better probe" if request.setting("best_by") == "probe" else "a lower held-out loss"
    return f"{evaluations} evaluations without {better}" if evaluations else "off"


def _describe_length(choices: _Choices, plan: TextPlan, speed: float, preparation: float) -> None:
    """How many updates, passes over the text and hours there will be, and which of them decides."""
    request, steps = choices.request, choices.request.setting("max_steps")
    decides = "the time decides; " if request.hours is not None else ""
    rule = (plan.updates, f"{decides}{speed:,.0f} sequences/s measured; each changes the weights once")
    choices.make("updates", "--max-steps", steps, rule, lambda x: f"{'' if steps else 'about '}{x:,}")
    times = "once" if plan.duplicate_factor == 1 else f"{plan.duplicate_factor} times"
    why = f"the text is {times} in the shards (files of samples)"
    if request.epochs is not None:
        why = f"{request.epochs:g} as given, in whole updates"
    choices.add("epochs", f"{plan.epochs:,.3g} over the text", why, "--epochs, --duplicate-factor")
    own = sum(source.share for source in request.sources if source.name != REPLAY)
    for source in filter(lambda source: source.name, request.sources):
        passes = plan.epochs * source.share / own * choices.text.characters / choices.text.parts[source.name].characters
        flag = "--replay-share" if source.name == REPLAY else "--text"
        choices.add(f"epochs: {source.name}", f"{passes:,.3g} over it", f"{source.share:.1%} of the samples", flag)
    why = f"{constants.EPOCHS:g} epochs, but at most {constants.MOST_HOURS:g} hours"
    if request.hours is not None:
        why = GIVEN
    elif request.epochs is not None or steps:
        why = "what the updates take"
    seconds = plan.seconds if request.hours is None else request.hours * 3600
    choices.add("time", duration(seconds), f"{why}; {duration(preparation)} for the data", "--hours")


def disk_bytes(plan: TextPlan, model: BertConfig) -> float:
    """Estimated size of the imported text, the shards and the checkpoints: the three newest, the best, and the one
    before the decay."""
    return 1.1 * plan.num_bytes + 1.6 * plan.num_bytes * plan.duplicate_factor + 6 * checkpoint_bytes(model)


# ---- warnings --------------------------------------------------------------------------------------------------------


def _warnings(
    plan: TextPlan, candidate: Candidate, choices: _Choices, tokens: float, masked: float, need: float
) -> Iterator[str]:
    """What is wrong with the plan, each with a remedy.

    Args:
        tokens: of the text.
        masked: tokens that the held-out loss is a mean of.
        need: bytes on the disk.
    """
    text, machine, request, rule = choices.text, choices.machine, choices.request, candidate.rule
    if request.weights is not None:
        yield from request.weights.warnings
    if plan.epochs > 1.1 * constants.EPOCHS:
        instead = "" if request.hours is None else " instead of --hours"
        yield (
            f"the text is read {plan.epochs:,.0f} times, and little is learned after {constants.EPOCHS:g}: add "
            f"text, or pass --epochs {constants.EPOCHS:g}{instead}"
        )
    if rule is not None and rule is not constants.MODELS[0] and not has_enough_text(rule, text, request):
        yield (
            f"{_short(tokens)} tokens of text are few for {layer_parameters(candidate.model) / 1e6:,.0f} M "
            "parameters in the layers: pass a smaller --config, or continue a published model "
            "(--from-pretrained-params)"
        )
    if rule is not None and tokens < 100_000:
        yield (
            f"about {_short(tokens)} tokens are little text to learn a language from: add text, or continue a "
            "published model (--from-pretrained-params)"
        )
    wants_words = request.word_segmenter == "auto" and request.setting("whole_word_masking", True)
    if text.is_chinese and not machine.segmenter and wants_words:
        yield (
            "the text is Chinese, and jieba, which finds its words, is not installed, so masks cover single "
            f"characters, which their neighbours give away: {install_command('chinese')}, and start anew"
        )
    if plan.held_out_fraction and masked < constants.LEAST_MASKED_TOKENS:
        share = min(0.3, plan.held_out_fraction * constants.LEAST_MASKED_TOKENS / max(masked, 1))
        error = constants.NATS_OF_ONE_TOKEN / math.sqrt(max(masked, 1))
        yield (
            f"the held-out loss rests on about {masked:,.0f} masked tokens and is uncertain by {error:.2f} nats: pass "
            f"--held-out-fraction {math.ceil(share * 100) / 100:g}, or add text"
        )
    if need > 0.9 * machine.disk_bytes:
        yield (
            f"about {need / 1e9:,.1f} GB are needed and {machine.disk_bytes / 1e9:,.1f} GB are free: "
            "free space, or pass --output-dir on another disk"
        )


def _short(number: float) -> str:
    for size, unit in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"
