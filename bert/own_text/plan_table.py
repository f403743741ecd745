"""The table of a plan for the user's text, with a row for each choice."""

import dataclasses
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap

from bert.config.architecture import BertConfig
from bert.config.flags import flag_name
from bert.own_text import constants
from bert.own_text.candidates import Placement, layer_parameters
from bert.own_text.decisions import GIVEN, Decisions, disk_bytes, short_number
from bert.own_text.facts import MachineFacts
from bert.own_text.length import Length
from bert.own_text.plan import PlanRow, TextPlan, plan_of
from bert.own_text.plan_warnings import disk_warning, is_disk_warning, warnings_of
from bert.own_text.request import TextRequest
from bert.own_text.sources import REPLAY
from bert.pretraining.expectation import ERROR, is_measured, nats_below_frequency
from bert.reporting.progress import duration
from bert.samples.settings import MASKED_SHARE

_EARLY_STOPPING, _DEVICE, _RANKS, _MICRO_BATCH = "early stopping", "device", "ranks", "micro-batch"
_DISK = "disk"
_WIDTHS = (14, 25, 25, 30)  # of the table's columns; a line of it has at most 100 characters
_LEAST_MEASURED = f"the loss was measured from {constants.LITTLE_TEXT:,} tokens on"
_LENGTH_ROWS = _UPDATES, _EPOCHS, _TIME, _EXPECTED = "updates", "epochs", "time", "expected"


def table(plan: TextPlan, request: TextRequest, has_begun: bool = False) -> str:
    """Format the rows in aligned columns: name, value, reason, flag.

    Args:
        has_begun: the run exists: show its recorded choices, overridden by the flags of this command.
    """
    rows = {row.name: row for row in plan.choices}
    if has_begun:
        rows = {name: row for name, row in rows.items() if name.partition(":")[0] not in _LENGTH_ROWS}
        rows |= {row.name: row for row in _rows_of_this_command(request)}
    flags = " ".join(row.flag for row in rows.values())
    for name, value in request.settings.items():
        if (flag := flag_name(name)) not in flags and name not in BertConfig.model_fields:
            rows[flag] = PlanRow(flag[2:], str(value), GIVEN, flag)
    lines = list[str]()
    for row in [("", "choice", "why", "flag"), *map(dataclasses.astuple, rows.values())]:
        cells = (
            wrap(cell, width, break_long_words=False, break_on_hyphens=not column)
            for column, (cell, width) in enumerate(zip(row, _WIDTHS, strict=True))
        )
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (part.ljust(width) for part, width in zip(parts, _WIDTHS, strict=True))
            lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def make_plan(decisions: Decisions) -> TextPlan:
    """Make the plan with its rows and warnings."""
    plan, placement = plan_of(decisions), decisions.candidate.placement
    of_devices = device_rows(plan, placement, decisions.machine, decisions.request)
    rows = (
        *_text_rows(decisions),
        *_model_rows(decisions),
        of_devices[_MICRO_BATCH],
        *_training_rows(decisions),
        of_devices[_DEVICE],
        of_devices[_RANKS],
        *_rows_of_the_length(decisions, plan),
    )
    return dataclasses.replace(plan, choices=rows, warnings=tuple(warnings_of(decisions, plan)))


def on_devices(plan: TextPlan, placement: Placement, machine: MachineFacts, request: TextRequest) -> TextPlan:
    """The plan of a run that has begun, perhaps on another machine, for these devices."""
    plan = plan.placed(placement, request)
    rows = {row.name: row for row in plan.choices} | device_rows(plan, placement, machine, request)
    need = disk_bytes(plan.num_bytes, plan.duplicate_factor, plan.network().model)
    rows[_DISK] = _disk_row(need, machine)
    warnings = [warning for warning in plan.warnings if not is_disk_warning(warning)]
    warnings += disk_warning(need - _size_of(request.output_dir), machine)
    return dataclasses.replace(plan, choices=tuple(rows.values()), warnings=tuple(warnings))


def _disk_row(num_bytes: float, machine: MachineFacts) -> PlanRow:
    free = "on that machine" if machine.is_planned else f"{machine.disk_bytes / 1e9:,.0f} GB free"
    return PlanRow(_DISK, f"about {num_bytes / 1e9:,.2f} GB", free, "--output-dir")


def _size_of(folder: Path) -> int:
    """Total size in bytes of the files that exist."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def device_rows(
    plan: TextPlan, placement: Placement, machine: MachineFacts, request: TextRequest
) -> dict[str, PlanRow]:
    """Rows about the devices, by name. The devices do not affect what is learned."""
    ranks, network = placement.ranks, plan.network()
    where = f"{machine.gpus} here" if placement.device == "gpu" else f"no GPU here{machine.note}"
    if machine.is_planned:
        where = "as --hardware says"
    where += "; mixed precision" if network.precision.amp else "; float32"
    device, processes, each = f"{ranks} x {machine.gpu_name}", f"{ranks}", "one rank per GPU"
    if placement.device == "cpu":
        device, processes = "CPU", f"{ranks}, {placement.threads} thread{'s' if placement.threads > 1 else ''} each"
        each = f"{machine.cores} cores; most operators use one"
    micro = plan.settings["batch_size"]
    need = f"about {network.rank_bytes(placement.device, micro) / 1e9:.1f} GB"
    rows = (
        PlanRow(_DEVICE, device, _why(request.setting("device"), where), "--device"),
        PlanRow(_RANKS, processes, _why(request.num_processes, each), "--num-gpus, --cpu-threads"),
        PlanRow(_MICRO_BATCH, f"{micro:,} a rank", _why(request.setting("batch_size"), need), "--batch-size"),
    )
    return {row.name: row for row in rows}


def _why(given: object, reason: str) -> str:
    return reason if given is None else GIVEN


# ---- rows ------------------------------------------------------------------------------------------------------------


def _text_rows(decisions: Decisions) -> Iterator[PlanRow]:
    text, request = decisions.text, decisions.request
    about = "about " if text.is_estimate else ""
    counts = f"{about}{text.extent()}, {text.num_bytes / 1e6:,.1f} MB, {text.documents:,} documents"
    tokens, assumed = f"about {short_number(decisions.data.tokens)} tokens", request.assumed_words is not None
    why = f"assumed English; {tokens}" if assumed else f"{text.files:,} files; {tokens}"
    yield PlanRow("text", counts, why, "--words" if assumed else "--text")
    share, why = decisions.data.held_out
    held_out = f"{share:.1%} of the text" if share else "nothing, so no evaluation"
    yield PlanRow("held out", held_out, why, "--held-out-fraction")
    flag, why = "--vocab-size", f"for {short_number(text.learnable_words())} words and this model"
    if request.weights is not None:
        flag = "--from-pretrained-params"
        why = f"of the weights, {request.weights.normalization}"
        if request.add_words:
            flag, why = "--add-words", f"{why}, and up to {request.add_words:,} words of the text"
    elif request.tokens is not None:
        flag, why = "--vocab-file", "the lines of the file"
    elif request.setting("vocab_size") is not None:
        why = GIVEN
    yield _case_row(decisions)
    yield PlanRow("vocabulary", f"{decisions.candidate.model.vocab_size:,} tokens", why, flag)


def _case_row(decisions: Decisions) -> PlanRow:
    request, normalization = decisions.request, decisions.data.normalization
    case = normalization if normalization.lowercase or normalization.strips() else "kept"
    cut = f", cut into words by {normalization.word_segmenter}" if normalization.word_segmenter else ""
    why, flag = decisions.text.why_case, "--lowercase" if not normalization.lowercase else "--no-lowercase"
    if request.tokens is not None:
        why = "as the vocabulary is"
    if (request.lowercase, request.strip_accents) != (None, None):
        why = GIVEN
    return PlanRow("case", f"{case}{cut}", why, f"{flag}, --no-strip-accents")


def _model_rows(decisions: Decisions) -> Iterator[PlanRow]:
    """Rows about the model, the sequences and the batches."""
    request, candidate, model = decisions.request, decisions.candidate, decisions.candidate.model
    named = "masked words" if candidate.objective == "mlm" else "masked words and next sentences"
    is_given = request.setting("objective") or request.setting("masked_lm_ratio") is not None
    why = GIVEN if is_given else "measured" if candidate.rule else "as the weights were trained"
    yield PlanRow("learns", f"{named}, {candidate.masked_share:.0%} masked", why, "--objective, --masked-lm-ratio")
    if decisions.text.is_chinese or decisions.data.segmenter:
        covers = bool(decisions.data.segmenter) and request.setting("whole_word_masking", True)
        value = f"whole words that {decisions.data.segmenter} finds" if covers else "single characters"
        why = "neighbours would give single characters away" if covers else "no words are known"
        if request.word_segmenter != "auto" or (decisions.data.segmenter and not covers):
            why = GIVEN
        yield PlanRow("masks", value, why, "--word-segmenter, --whole-word-masking")
    layers = f"{model.num_hidden_layers} layers of {model.hidden_size}{', ModernBERT' if model.is_modern() else ''}"
    read = decisions.training.epochs * decisions.data.tokens / layer_parameters(model)
    why, flag = (
        f"reads {read:,.0f} tokens per layer parameter; {constants.TOKENS_PER_PARAMETER:g} are enough",
        "--config, --model-type",
    )
    if candidate.rule is None:
        why, flag = "of the weights", "--from-pretrained-params"
    size = f"{candidate.name}: {layers}, {model.num_parameters() / 1e6:,.1f} M parameters"
    yield PlanRow("model", size, GIVEN if request.model else why, flag)
    if (attention := candidate.settings().get("initial_attention")) is not None:
        requested = request.setting("initial_attention")
        yield PlanRow(
            "attention", f"begins with {requested or attention}", _why(requested, "measured"), "--initial-attention"
        )
    why = _why(request.setting("max_seq_length"), "short and long sequences from the first update on")
    yield PlanRow("lengths", f"up to {candidate.length} tokens, mixed", why, "--max-seq-length")
    batch, why = decisions.batch.size
    yield PlanRow("batch", f"{batch:,} sequences an update", why, "--global-batch-size")


def _training_rows(decisions: Decisions) -> Iterator[PlanRow]:
    """Rows about optimizer, learning rates, dropout and evaluations."""
    rates, updates, evaluations = decisions.rates, decisions.training.updates, decisions.evaluations
    rate, why = rates.learning_rate
    value = f"{decisions.candidate.optimizer}, rate {rate:g}"
    yield PlanRow("optimizer", value, why, "--optimizer, --learning-rate")
    value = f"{rates.warmup_updates(updates):,} of the {updates:,} updates that are expected"
    why = f"{rates.warmup.value:.1%}; {rates.warmup.reason}"
    yield PlanRow("warm-up", value, why, "--warmup-proportion")
    value, why = rates.schedule
    if value == "wsd":
        value += f", a decay of about {round(rates.decay_share * updates):,} updates"
    yield PlanRow("schedule", value, why, "--lr-schedule, --lr-decay-share")
    dropouts, why = decisions.training.dropouts
    value = " and in attention ".join(f"{dropout:g}" for dropout in dict.fromkeys(dropouts.values()))
    yield PlanRow("dropout", value, why, ", ".join(map(flag_name, dropouts)))
    patience, why = evaluations.early_stopping
    flag = "--early-stopping" if evaluations.samples else "--held-out-fraction"
    yield PlanRow(_EARLY_STOPPING, _patience(patience), why, flag)


def _patience(evaluations: int) -> str:
    return f"{evaluations} evaluations without a lower held-out loss" if evaluations else "off"


def _rows_of_the_length(decisions: Decisions, plan: TextPlan) -> Iterator[PlanRow]:
    """Rows about updates, passes over the text and hours, and which of them decides."""
    length, training, overhead = decisions.request.length, decisions.training, decisions.overhead
    decides = "the time decides; " if length.hours is not None else ""
    known = "measured" if decisions.speed_is_measured else "estimated"
    why = f"{decides}speed {training.speed:,.0f} sequences/s ({known})"
    about = "" if length.max_steps else "about "
    yield PlanRow(_UPDATES, f"{about}{training.updates:,}", _why(length.max_steps, why), "--max-steps")
    copies = decisions.data.duplicate_factor
    why = f"the text is {'once' if copies == 1 else f'{copies} times'} in the shards (files of samples)"
    if length.epochs is not None:
        why = f"{length.epochs:g} as given, in whole updates"
    yield PlanRow(_EPOCHS, f"about {training.epochs:,.3g} over the text", why, "--epochs, --duplicate-factor")
    yield from _source_rows(decisions)
    why = f"{constants.EPOCHS:g} epochs, but at most {constants.MOST_HOURS:g} hours"
    if length.hours is not None:
        why = GIVEN
    elif not length.is_by_time():
        why = "what the updates take"
    why += f"; {duration(overhead.before_training)} before the first update"
    seconds = plan.seconds if length.hours is None else length.seconds()
    yield PlanRow(_TIME, duration(seconds), why, "--hours")
    if expected := _expected_loss_row(decisions):
        is_known = decisions.data.tokens >= constants.LITTLE_TEXT
        why = f"+-{ERROR}; measured on other texts" if is_known else _LEAST_MEASURED
        yield PlanRow(_EXPECTED, expected, why, "--hours")
    yield _disk_row(decisions.disk_bytes, decisions.machine)


def _source_rows(decisions: Decisions) -> Iterator[PlanRow]:
    """Rows with the passes over each named source."""
    text, sources = decisions.text, decisions.request.sources
    share_of_text = sum(source.share for source in sources if source.name != REPLAY)
    for source in sources:
        if source.name:
            times_larger = text.characters / text.parts[source.name].characters
            passes = decisions.training.epochs * source.share / share_of_text * times_larger
            flag = "--replay-share" if source.name == REPLAY else "--text"
            why = f"{source.share:.1%} of the samples"
            yield PlanRow(f"{_EPOCHS}: {source.name}", f"{passes:,.3g} over it", why, flag)


def _expected_loss_row(decisions: Decisions) -> str | None:
    """Row with the expected held-out loss, if comparable trainings were measured."""
    candidate, request, rates = decisions.candidate, decisions.request, decisions.rates
    share = request.setting("eval_masked_lm_ratio", MASKED_SHARE)
    settings = candidate.settings() | request.settings
    ways = (candidate.optimizer, candidate.objective, share, settings.get("initial_attention", "random"))
    is_known = is_measured(candidate.model, *ways)
    if not decisions.evaluations.samples or candidate.rule is None or not is_known:
        return None
    if decisions.data.tokens < constants.LITTLE_TEXT:
        return "not known for so little text"
    training, most_epochs = decisions.training, 1.1 * constants.EPOCHS  # more passes bring little
    updates = round(training.updates * min(1.0, most_epochs / training.epochs))
    below = nats_below_frequency(rates.learning_rate.value, updates, rates.warmup_updates(updates))
    if below is None:
        return "hardly more than how frequent words are"
    return f"{'more than' if below[1] else 'about'} {below[0]:.1f} nats below guessing by frequency alone"


def _rows_of_this_command(request: TextRequest) -> Iterator[PlanRow]:
    """Rows about what this command changes in an existing run."""
    length: Length = request.length
    if (patience := request.setting("early_stopping")) is not None:
        yield PlanRow(_EARLY_STOPPING, _patience(patience), GIVEN, "--early-stopping")
    if length.max_steps is not None:
        yield PlanRow(_UPDATES, f"{length.max_steps:,}", GIVEN, "--max-steps")
    elif length.epochs is not None:
        yield PlanRow(_EPOCHS, f"{length.epochs:g} over the text", GIVEN, "--epochs")
    else:
        why = f"at most, and {constants.EPOCHS:g} epochs" if length.hours is None else GIVEN
        yield PlanRow(_TIME, duration(length.seconds()), why, "--hours")
    if length.finish_in is not None:
        yield PlanRow("end", f"in {duration(length.finish_in)}", GIVEN, "--finish-in")
