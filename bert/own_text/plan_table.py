"""The wording of a plan for own text: its table, which has a row for each choice, and its warnings."""

import dataclasses
import math
from collections.abc import Iterator
from itertools import zip_longest
from textwrap import wrap

from bert.config.architecture import BertConfig
from bert.config.flags import flag_name
from bert.interpreter import install_command
from bert.own_text import constants
from bert.own_text.candidates import Placement, has_enough_text, layer_parameters
from bert.own_text.facts import MachineFacts
from bert.own_text.length import Length
from bert.own_text.plan import Row, TextPlan, plan_by
from bert.own_text.request import TextRequest
from bert.own_text.rules import GIVEN, Rules, short_number
from bert.own_text.sources import REPLAY
from bert.pretraining.expectation import ERROR, is_measured, nats_below_frequency
from bert.reporting.progress import duration
from bert.samples.masking import MASKED_SHARE

_EARLY_STOPPING, _DEVICE, _RANKS, _MICRO_BATCH = "early stopping", "device", "ranks", "micro-batch"
_WIDTHS = (14, 25, 25, 30)  # of the table's columns; a line of it has at most 100 characters
_LENGTH_ROWS = _UPDATES, _EPOCHS, _TIME, _EXPECTED = "updates", "epochs", "time", "expected"


def table(plan: TextPlan, request: TextRequest, has_begun: bool = False) -> str:
    """Aligned columns: what, value, why, flag.

    Args:
        has_begun: the run exists: show its recorded choices, overridden by the flags of this command.
    """
    rows = {row.name: row for row in plan.choices}
    if has_begun:
        rows = {name: row for name, row in rows.items() if name.partition(":")[0] not in _LENGTH_ROWS}
        rows |= {row.name: row for row in _rows_of_this_command(request)}
    shown = " ".join(row.flag for row in rows.values())
    for name, value in request.settings.items():
        if (flag := flag_name(name)) not in shown and name not in BertConfig.model_fields:
            rows[flag] = Row(flag[2:], str(value), GIVEN, flag)
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


def make_plan(rules: Rules) -> TextPlan:
    """The plan with its rows and warnings."""
    plan, placement = plan_by(rules), rules.candidate.placement
    of_devices = device_rows(plan, placement, rules.machine, rules.request)
    rows = (
        *_text_rows(rules),
        *_model_rows(rules),
        of_devices[_MICRO_BATCH],
        *_training_rows(rules),
        of_devices[_DEVICE],
        of_devices[_RANKS],
        *_rows_of_the_length(rules, plan),
    )
    return dataclasses.replace(plan, choices=rows, warnings=tuple(_warnings(rules, plan)))


def on_devices(plan: TextPlan, placement: Placement, machine: MachineFacts, request: TextRequest) -> TextPlan:
    """The plan of a run that has begun, perhaps elsewhere, with the settings and rows of these devices."""
    plan = plan.placed(placement, request)
    rows = {row.name: row for row in plan.choices} | device_rows(plan, placement, machine, request)
    return dataclasses.replace(plan, choices=tuple(rows.values()))


def device_rows(plan: TextPlan, placement: Placement, machine: MachineFacts, request: TextRequest) -> dict[str, Row]:
    """By their names. They do not decide what is learned."""
    ranks, network = placement.ranks, plan.network()
    where = f"{machine.gpus} here" if placement.device == "gpu" else f"no GPU here{machine.note}"
    where += "; mixed precision" if network.precision.amp else "; float32"
    device, processes, each = f"{ranks} x {machine.gpu_name}", f"{ranks}", "one a GPU"
    if placement.device == "cpu":
        device, processes = "CPU", f"{ranks}, {placement.threads} thread{'s' if placement.threads > 1 else ''} each"
        each = f"{machine.cores} cores; most operators use one"
    micro = plan.settings["batch_size"]
    need = f"about {network.rank_bytes(placement.device, micro) / 1e9:.1f} GB"
    rows = (
        Row(_DEVICE, device, _why(request.setting("device"), where), "--device"),
        Row(_RANKS, processes, _why(request.num_processes, each), "--num-processes, --cpu-threads"),
        Row(_MICRO_BATCH, f"{micro:,} a rank", _why(request.setting("batch_size"), need), "--batch-size"),
    )
    return {row.name: row for row in rows}


def _why(given: object, reason: str) -> str:
    return reason if given is None else GIVEN


# ---- rows ------------------------------------------------------------------------------------------------------------


def _text_rows(rules: Rules) -> Iterator[Row]:
    text, request = rules.text, rules.request
    about = "about " if text.is_estimate else ""
    counts = f"{about}{text.extent()}, {text.num_bytes / 1e6:,.1f} MB, {text.documents:,} documents"
    yield Row("text", counts, f"{text.files:,} files; about {short_number(rules.tokens)} tokens", "--text")
    share, why = rules.held_out
    held_out = f"{share:.1%} of the text" if share else "nothing, so no evaluation"
    yield Row("held out", held_out, why, "--held-out-fraction")
    flag, why = "--vocab-size", f"for {short_number(text.learnable_words())} words and this model"
    if request.weights is not None:
        flag = "--from-pretrained-params"
        why = f"of the weights, {request.weights.normalization}"
        if request.add_words:
            flag, why = "--add-words", f"{why}, and up to {request.add_words:,} words of the text"
    elif request.tokens is not None:
        flag, why = "--vocab-file", "the lines of the file given"
    elif request.setting("vocab_size") is not None:
        why = GIVEN
    yield _case_row(rules)
    yield Row("vocabulary", f"{rules.candidate.model.vocab_size:,} tokens", why, flag)


def _case_row(rules: Rules) -> Row:
    request, normalization = rules.request, rules.normalization
    case = normalization if normalization.lowercase or normalization.strips() else "kept"
    cut = f", cut into words by {normalization.word_segmenter}" if normalization.word_segmenter else ""
    why, flag = rules.text.why_case, "--lowercase" if not normalization.lowercase else "--no-lowercase"
    if request.tokens is not None:
        why = "as the vocabulary is"
    if (request.lowercase, request.strip_accents) != (None, None):
        why = GIVEN
    return Row("case", f"{case}{cut}", why, f"{flag}, --no-strip-accents")


def _model_rows(rules: Rules) -> Iterator[Row]:
    """What is learned, by which model, from what lengths and batches."""
    request, candidate, model = rules.request, rules.candidate, rules.candidate.model
    named = "masked words" if candidate.objective == "mlm" else "masked words and next sentences"
    is_given = request.setting("objective") or request.setting("masked_lm_ratio") is not None
    why = GIVEN if is_given else "measured" if candidate.rule else "as the weights were trained"
    yield Row("learns", f"{named}, {candidate.masked_share:.0%} masked", why, "--objective, --masked-lm-ratio")
    if rules.text.is_chinese or rules.segmenter:
        covers = bool(rules.segmenter) and request.setting("whole_word_masking", True)
        value = f"whole words that {rules.segmenter} finds" if covers else "single characters"
        why = "neighbours would give single characters away" if covers else "no words are known"
        if request.word_segmenter != "auto" or (rules.segmenter and not covers):
            why = GIVEN
        yield Row("masks", value, why, "--word-segmenter, --whole-word-masking")
    layers = f"{model.num_hidden_layers} layers of {model.hidden_size}{', ModernBERT' if model.is_modern() else ''}"
    read = rules.epochs * rules.tokens / layer_parameters(model)
    why, flag = (
        f"reads {read:,.0f} tokens a layer parameter, {constants.TOKENS_PER_PARAMETER:g} pay for them",
        "--config, --model-type",
    )
    if candidate.rule is None:
        why, flag = "the weights given", "--from-pretrained-params"
    size = f"{candidate.name}: {layers}, {model.num_parameters() / 1e6:,.1f} M parameters"
    yield Row("model", size, GIVEN if request.model else why, flag)
    if (attention := candidate.settings().get("initial_attention")) is not None:
        given = request.setting("initial_attention")
        yield Row("attention", f"begins with {given or attention}", _why(given, "measured"), "--initial-attention")
    why = _why(request.setting("max_seq_length"), "short and long sequences from the first update on")
    yield Row("lengths", f"up to {candidate.length} tokens, mixed", why, "--max-seq-length")
    yield Row("batch", f"{rules.batch.value:,} sequences an update", rules.batch.reason, "--global-batch-size")


def _training_rows(rules: Rules) -> Iterator[Row]:
    """Optimizer, rates, dropout, and what is measured during the training."""
    rate, why = rules.learning_rate
    yield Row("optimizer", f"{rules.candidate.optimizer}, rate {rate:g}", why, "--optimizer, --learning-rate")
    value = f"{_warmup_updates(rules):,} of the {rules.updates:,} updates that are expected"
    yield Row("warm-up", value, f"{rules.warmup.value:.1%}; {rules.warmup.reason}", "--warmup-proportion")
    value, why = rules.schedule
    if value == "wsd":
        value += f", a decay of about {round(rules.decay_share * rules.updates):,} updates"
    yield Row("schedule", value, why, "--lr-schedule, --lr-decay-share")
    rates, why = rules.dropouts
    value = " and in attention ".join(f"{rate:g}" for rate in dict.fromkeys(rates.values()))
    yield Row("dropout", value, why, ", ".join(map(flag_name, rates)))
    patience, why = rules.early_stopping
    flag = "--early-stopping" if rules.evaluated else "--held-out-fraction"
    yield Row(_EARLY_STOPPING, _patience(patience), why, flag)


def _warmup_updates(rules: Rules) -> int:
    return int(rules.warmup.value * rules.updates)


def _patience(evaluations: int) -> str:
    return f"{evaluations} evaluations without a lower held-out loss" if evaluations else "off"


def _rows_of_the_length(rules: Rules, plan: TextPlan) -> Iterator[Row]:
    """How many updates, passes over the text and hours there will be, and which of them decides."""
    request, length = rules.request, rules.request.length
    decides = "the time decides; " if length.hours is not None else ""
    known = "measured" if rules.is_measured else "estimated, not measured"
    why = f"{decides}{rules.speed:,.0f} sequences/s {known}; each changes the weights once"
    about = "" if length.max_steps else "about "
    yield Row(_UPDATES, f"{about}{rules.updates:,}", _why(length.max_steps, why), "--max-steps")
    times = "once" if rules.duplicate_factor == 1 else f"{rules.duplicate_factor} times"
    why = f"the text is {times} in the shards (files of samples)"
    if length.epochs is not None:
        why = f"{length.epochs:g} as given, in whole updates"
    yield Row(_EPOCHS, f"about {rules.epochs:,.3g} over the text", why, "--epochs, --duplicate-factor")
    own = sum(source.share for source in request.sources if source.name != REPLAY)
    for source in filter(lambda source: source.name, request.sources):
        passes = rules.epochs * source.share / own * rules.text.characters / rules.text.parts[source.name].characters
        flag = "--replay-share" if source.name == REPLAY else "--text"
        yield Row(f"{_EPOCHS}: {source.name}", f"{passes:,.3g} over it", f"{source.share:.1%} of the samples", flag)
    why = f"{constants.EPOCHS:g} epochs, but at most {constants.MOST_HOURS:g} hours"
    if length.hours is not None:
        why = GIVEN
    elif not length.is_by_time():
        why = "what the updates take"
    seconds = plan.seconds if length.hours is None else length.seconds()
    yield Row(_TIME, duration(seconds), f"{why}; {duration(rules.first_seconds)} before the first update", "--hours")
    if expected := _expected(rules):
        yield Row(_EXPECTED, expected, f"+-{ERROR}; measured on other texts", "--hours")
    free = f"{rules.machine.disk_bytes / 1e9:,.0f} GB free"
    yield Row("disk", f"about {rules.disk_bytes / 1e9:,.2f} GB", free, "--output-dir")


def _expected(rules: Rules) -> str | None:
    """The held-out loss that the training is expected to end with, if such trainings were measured."""
    candidate, share = rules.candidate, rules.request.setting("eval_masked_lm_ratio", MASKED_SHARE)
    settings = candidate.settings() | rules.request.settings
    ways = (candidate.optimizer, candidate.objective, share, settings.get("initial_attention", "random"))
    is_known = is_measured(candidate.model, *ways)
    if not rules.evaluated or candidate.rule is None or not is_known:
        return None
    below = nats_below_frequency(rules.learning_rate.value, rules.updates, _warmup_updates(rules))
    if below is None:
        return "hardly more than how frequent words are"
    return f"{'more than' if below[1] else 'about'} {below[0]:.1f} nats below guessing by frequency alone"


def _rows_of_this_command(request: TextRequest) -> Iterator[Row]:
    """The choices of this command for a run that exists."""
    length: Length = request.length
    if (patience := request.setting("early_stopping")) is not None:
        yield Row(_EARLY_STOPPING, _patience(patience), GIVEN, "--early-stopping")
    if length.max_steps is not None:
        yield Row(_UPDATES, f"{length.max_steps:,}", GIVEN, "--max-steps")
    elif length.epochs is not None:
        yield Row(_EPOCHS, f"{length.epochs:g} over the text", GIVEN, "--epochs")
    else:
        why = f"at most, and {constants.EPOCHS:g} epochs" if length.hours is None else GIVEN
        yield Row(_TIME, duration(length.seconds()), why, "--hours")
    if length.finish_in is not None:
        yield Row("end", f"in {duration(length.finish_in)}", GIVEN, "--finish-in")


# ---- warnings --------------------------------------------------------------------------------------------------------


def _warnings(rules: Rules, plan: TextPlan) -> Iterator[str]:
    """What is wrong with the plan, each with a remedy."""
    request, machine = rules.request, rules.machine
    if request.weights is not None:
        yield from request.weights.warnings
    yield from _warnings_of_little_text(rules, plan)
    if rules.text.unknown:
        yield f"{rules.text.unknown}; does the vocabulary belong to this text?"
    wants_words = request.word_segmenter == "auto" and request.setting("whole_word_masking", True)
    if rules.text.is_chinese and not machine.segmenter and wants_words:
        yield (
            "the text is Chinese, and jieba, which finds its words, is not installed, so masks cover single "
            f"characters, which their neighbours give away: {install_command('chinese')}, and start anew"
        )
    masked = (
        rules.evaluated
        * rules.candidate.text_tokens_of_sample()
        * request.setting("eval_masked_lm_ratio", MASKED_SHARE)
    )
    if plan.held_out_fraction and masked < constants.LEAST_MASKED_TOKENS:
        share = min(0.3, plan.held_out_fraction * constants.LEAST_MASKED_TOKENS / max(masked, 1))
        error = constants.NATS_OF_ONE_TOKEN / math.sqrt(max(masked, 1))
        yield (
            f"the held-out loss rests on about {masked:,.0f} masked tokens and is uncertain by {error:.2f} nats: pass "
            f"--held-out-fraction {math.ceil(share * 100) / 100:g}, or add text"
        )
    if (need := rules.disk_bytes) > 0.9 * machine.disk_bytes:
        yield (
            f"about {need / 1e9:,.1f} GB are needed and {machine.disk_bytes / 1e9:,.1f} GB are free: "
            "free space, or pass --output-dir on another disk"
        )


def _warnings_of_little_text(rules: Rules, plan: TextPlan) -> Iterator[str]:
    request, rule = rules.request, rules.candidate.rule
    if plan.epochs > 1.1 * constants.EPOCHS:
        instead = "" if request.length.hours is None else " instead of --hours"
        yield (
            f"the text is read {plan.epochs:,.0f} times, and little is learned after {constants.EPOCHS:g}: add "
            f"text, or pass --epochs {constants.EPOCHS:g}{instead}"
        )
    if rule is None:
        return
    tokens = f"{short_number(rules.tokens)} tokens"
    if rule is not constants.MODELS[0] and not has_enough_text(rule, rules.text, request):
        yield (
            f"{tokens} of text are few for {layer_parameters(rules.candidate.model) / 1e6:,.0f} M "
            "parameters in the layers: pass a smaller --config, or continue a published model "
            "(--from-pretrained-params)"
        )
    if rules.tokens < 100_000:
        yield (
            f"about {tokens} are little text to learn a language from: add text, or continue a "
            "published model (--from-pretrained-params)"
        )
