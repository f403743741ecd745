"""The plan for own text, explained: a line for each choice with its reason and its flag, and warnings with remedies."""

import math
from typing import Any

from bert.interpreter import install_command
from bert.own_text import rules
from bert.own_text.candidates import has_enough_text, layer_parameters, rank_bytes
from bert.own_text.facts import Choice
from bert.own_text.plan import TextPlan
from bert.planning.estimates import checkpoint_bytes
from bert.reporting.progress import duration

_GIVEN = "as given"


def choices(plan: TextPlan) -> list[Choice]:
    """All choices, from the text to the steps; the settings of `PhasePlan.settings` are what they say."""
    return [*_text_choices(plan), *_machine_choices(plan), *_training_choices(plan), *_step_choices(plan)]


def as_table(rows: list[Choice]) -> str:
    """Aligned columns: what, value, why, flag."""
    columns = [("", "choice", "why", "flag"), *((row.name, row.value, row.reason, row.flag) for row in rows)]
    widths = [max(len(row[column]) for row in columns) for column in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]).rstrip()
        for row in columns
    )


def _text_choices(plan: TextPlan) -> list[Choice]:
    text, wishes, model = plan.text, plan.wishes, plan.candidate.model
    about = "about " if text.is_estimate else ""
    counts = f"{about}{text.extent()}, {text.num_bytes / 1e6:,.1f} MB, {text.documents:,} documents"
    found = [
        Choice("text", counts, f"{text.files:,} files; about {_short(plan.tokens)} tokens", "--text"),
        Choice("held out", *_held_out(plan), "--held-out-fraction"),
    ]
    tokens = f"{model.vocab_size:,} tokens"
    if wishes.weights is not None:
        case = "lower-cased" if wishes.weights.lowercase else "cased"
        found.append(Choice("vocabulary", tokens, f"of the weights, {case}", "--from-pretrained-params"))
    elif wishes.vocab_tokens is not None:
        found.append(Choice("vocabulary", tokens, "the lines of the file given", "--vocab-file"))
    else:
        why = _why(wishes.setting(1, "vocab_size"), f"for {_short(text.learnable_words())} words and this model")
        found.append(Choice("vocabulary", tokens, why, "--vocab-size"))
    if text.is_chinese or plan.segmenter():
        found.append(Choice("masks", *_masks(plan), "--word-segmenter, --whole-word-masking"))
    return found


def _held_out(plan: TextPlan) -> tuple[str, str]:
    if not plan.held_out_fraction:
        return "nothing", f"{_GIVEN}; so no evaluation"
    why = f"about {_short(plan.held_out_masked_tokens())} masked tokens to measure"
    return f"{plan.held_out_fraction:.1%} of the text", _why(plan.wishes.held_out_fraction, why)


def _masks(plan: TextPlan) -> tuple[str, str]:
    wishes, segmenter = plan.wishes, plan.segmenter()
    share = f"{plan.candidate.masked_shares[min(plan.phases)]:.0%} of the tokens"
    phases = [phase for phase in plan.phases if plan.wants_whole_words(phase)] if segmenter else []
    if not phases:
        why = "no words are known" if segmenter is None and wishes.segmenter is None else _GIVEN
        return f"{share}, single characters", why
    part = "" if len(phases) == len(plan.phases) else f" in phase {phases[0]}"
    why = _why(wishes.segmenter, "neighbours would give single characters away")
    return f"{share}, whole words{part} that {segmenter} finds", _GIVEN if part else why


def _machine_choices(plan: TextPlan) -> list[Choice]:
    candidate, machine, wishes = plan.candidate, plan.machine, plan.wishes
    gpus = candidate.device == "gpu"
    device = f"{candidate.ranks} x {machine.gpu_name}" if gpus else "CPU"
    kind = "mixed precision" if candidate.precision.amp else "float32"
    why = f"{machine.gpus} here; {kind}" if gpus else f"no GPU here{machine.note}; {kind}"
    found = [Choice("device", device, _why(wishes.setting(1, "device"), why), "--device")]
    if gpus:
        found.append(Choice("ranks", f"{candidate.ranks}", _why(wishes.num_processes, "one a GPU"), "--num-processes"))
    else:
        value = f"{candidate.ranks}, {candidate.threads} thread{'s' if candidate.threads > 1 else ''} each"
        why = f"{machine.cores} cores; most operators use one"
        found.append(Choice("ranks", value, _why(wishes.num_processes, why), "--num-processes, --cpu-threads"))
    return found


def _training_choices(plan: TextPlan) -> list[Choice]:
    candidate, wishes = plan.candidate, plan.wishes
    first = next(iter(plan.phases.values()))
    settings = {phase: {**made.settings, **_given(plan, phase)} for phase, made in plan.phases.items()}
    mine, rule = settings[first.phase], candidate.rule
    source = rule.source if rule is not None else "continued pre-training (Gururangan et al., 2020)"
    batch_why = f"{rules.BATCH_ANCHOR} for {rules.SEQUENCES_ANCHOR:,} sequences, growing with their root"
    rate_why = f"{source}, by the root of the batch"
    if mine["optimizer"] == "AdamW" and rule is not None:
        rate_why = "Devlin et al. (2019), by the root of the batch"
    if wishes.weights is not None and "masked-LM head" not in wishes.weights.heads:
        rate_why = "higher first, for a masked-LM head made anew; measured with MiniLM-L6"
    dropout = mine["hidden_dropout_prob"]
    few = f"{plan.epochs:.3g} epochs; {rules.DROPOUT:g} from {rules.DROPOUT_FROM_EPOCHS:g} on"
    dropout_why = few if rule is not None and rule.dropout is None else "as published"
    return [
        Choice("model", *_model(plan), "--config" if rule is not None else "--from-pretrained-params"),
        Choice(
            "lengths",
            _by_phase(settings, "max_seq_length") + " tokens",
            _why(wishes.settings.get("max_seq_length"), "short sequences first, then long ones"),
            "--phase1-max-seq-length, ...",
        ),
        Choice(
            "batch",
            _by_phase(settings, "global_batch_size") + " sequences an update",
            _why(mine.get("global_batch_size") if "global_batch_size" in wishes.settings else None, batch_why),
            "--global-batch-size",
        ),
        Choice("micro-batch", *_micro_batch(plan, settings), "--batch-size"),
        Choice(
            "optimizer",
            f"{mine['optimizer']}, rate {_by_phase(settings, 'learning_rate')}",
            _why(wishes.settings.get("learning_rate"), rate_why),
            "--optimizer, --learning-rate",
        ),
        Choice(
            "warm-up",
            f"{mine['warmup_proportion']:.1%} of the updates",
            _why(wishes.settings.get("warmup_proportion"), "the quickstart's recipe"),
            "--warmup-proportion",
        ),
        Choice(
            "dropout",
            f"{dropout:g}",
            _why(wishes.settings.get("hidden_dropout_prob"), dropout_why),
            "--hidden-dropout-prob",
        ),
        Choice("early stopping", *_early_stopping(plan, settings), "--early-stopping"),
    ]


def _early_stopping(plan: TextPlan, settings: dict[int, dict[str, Any]]) -> tuple[str, str]:
    evaluations = _by_phase(settings, "early_stopping")
    value = "off" if evaluations == "0" else f"{evaluations} evaluations without a lower held-out loss"
    why = "the best is the result" if plan.held_out_fraction else "nothing is held out"
    return value, _why(plan.wishes.settings.get("early_stopping"), why)


def _model(plan: TextPlan) -> tuple[str, str]:
    candidate, model = plan.candidate, plan.candidate.model
    value = f"{candidate.name}: {model.num_hidden_layers} layers of {model.hidden_size}"
    value += f", {model.num_parameters() / 1e6:,.1f} M parameters"
    if candidate.rule is None:
        return value, "the weights given"
    if plan.wishes.model:
        return value, _GIVEN
    ratio = plan.epochs * plan.tokens / layer_parameters(model)
    return value, f"reads {ratio:,.0f} tokens a layer parameter, {rules.TOKENS_PER_PARAMETER:g} balance"


def _micro_batch(plan: TextPlan, settings: dict[int, dict[str, Any]]) -> tuple[str, str]:
    candidate = plan.candidate
    need = max(rank_bytes(candidate, phase, made["batch_size"]) for phase, made in settings.items())
    given = plan.wishes.settings.get("batch_size")
    return f"{_by_phase(settings, 'batch_size')} a rank", _why(given, f"about {need / 1e9:.1f} GB a rank")


def _step_choices(plan: TextPlan) -> list[Choice]:
    found = []
    for phase, made in plan.phases.items():
        speed = f"{made.sequences_per_second:,.0f} sequences/s measured: {duration(made.seconds)}"
        why = _why(plan.wishes.setting(phase, "max_steps"), speed)
        found.append(Choice(f"phase {phase}", f"{made.steps:,} updates", why, f"--phase{phase}-max-steps"))
    times = "once" if plan.duplicate_factor == 1 else f"{plan.duplicate_factor} times"
    epochs = f"the text is {times} in each set of shards"
    if plan.wishes.epochs is not None:
        epochs = f"{plan.wishes.epochs:g} as given, in whole updates"
    found.append(Choice("epochs", f"{plan.epochs:,.3g} over the text", epochs, "--epochs, --duplicate-factor"))
    if plan.wishes.hours is not None:
        why = _GIVEN
    elif plan.wishes.epochs is not None:
        why = "what the epochs take"
    elif all(plan.wishes.setting(phase, "max_steps") for phase in plan.phases):
        why = "what the updates take"
    else:
        why = f"{rules.EPOCHS:g} epochs, but at most {rules.MOST_HOURS:g} hours"
    why += f"; {duration(plan.preparation_seconds)} for the data"
    found.append(Choice("time", duration(plan.seconds()), why, "--hours"))
    need, free = disk_bytes(plan), plan.machine.disk_bytes
    found.append(Choice("disk", f"about {need / 1e9:,.2f} GB", f"{free / 1e9:,.0f} GB free", "--output-dir"))
    return found


def disk_bytes(plan: TextPlan) -> float:
    """Estimated size of the imported text, the shards and the checkpoints (three of each phase, and the best)."""
    shards = 1.6 * plan.text.num_bytes * plan.duplicate_factor * len(plan.phases)
    checkpoints = 5 * len(plan.phases) * checkpoint_bytes(plan.candidate.model)
    return 1.1 * plan.text.num_bytes + shards + checkpoints


def warnings(plan: TextPlan) -> list[str]:
    """What is wrong with the plan, each with a remedy."""
    found = [] if plan.wishes.weights is None else list(plan.wishes.weights.warnings)
    if plan.epochs > 1.1 * rules.EPOCHS:
        instead = "" if plan.wishes.hours is None else " instead of --hours"
        found.append(
            f"the text is read {plan.epochs:,.0f} times, and little is learned after {rules.EPOCHS:g}: add "
            f"text, or pass --epochs {rules.EPOCHS:g}{instead}"
        )
    rule = plan.candidate.rule
    if rule is not None and rule is not rules.MODELS[0] and not has_enough_text(rule, plan.text, plan.wishes):
        found.append(
            f"{_short(plan.tokens)} tokens of text are few for {layer_parameters(plan.candidate.model) / 1e6:,.0f} M "
            f"parameters in the layers: pass a smaller --config, or continue a published model "
            "(--from-pretrained-params)"
        )
    if rule is not None and plan.tokens < 100_000:
        found.append(
            f"about {_short(plan.tokens)} tokens are little text to learn a language from: add text, or continue a "
            "published model (--from-pretrained-params)"
        )
    wants_words = plan.wishes.segmenter is None and any(map(plan.wants_whole_words, plan.phases))
    if plan.text.is_chinese and not plan.machine.segmenter and wants_words:
        found.append(
            "the text is Chinese, and jieba, which finds its words, is not installed, so masks cover single "
            f"characters, which their neighbours give away: {install_command('chinese')}, and start anew"
        )
    masked = plan.held_out_masked_tokens()
    if plan.held_out_fraction and masked < rules.LEAST_MASKED_TOKENS:
        share = min(0.3, plan.held_out_fraction * rules.LEAST_MASKED_TOKENS / max(masked, 1))
        error = rules.NATS_OF_ONE_TOKEN / math.sqrt(max(masked, 1))
        found.append(
            f"the held-out loss rests on about {masked:,.0f} masked tokens and is uncertain by {error:.2f} nats: pass "
            f"--held-out-fraction {math.ceil(share * 100) / 100:g}, or add text"
        )
    if disk_bytes(plan) > 0.9 * plan.machine.disk_bytes:
        found.append(
            f"about {disk_bytes(plan) / 1e9:,.1f} GB are needed and {plan.machine.disk_bytes / 1e9:,.1f} GB are free: "
            "free space, or pass --output-dir on another disk"
        )
    return found


def _given(plan: TextPlan, phase: int) -> dict[str, Any]:
    return {**plan.wishes.settings, **plan.wishes.phase_settings.get(phase, {})}


def _why(given: object, reason: str) -> str:
    return reason if given is None else _GIVEN


def _by_phase(settings: dict[int, dict[str, Any]], name: str) -> str:
    """`64` where the phases agree, otherwise `64, then 128`."""
    values = [made[name] for made in settings.values()]
    shown = [f"{value:,}" if isinstance(value, int) else f"{value:g}" for value in values]
    return shown[0] if len(set(shown)) == 1 else ", then ".join(shown)


def _short(number: float) -> str:
    for size, unit in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"
