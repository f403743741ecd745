"""Warnings of a plan for the user's text, each with a remedy."""

import math
from collections.abc import Iterator

from bert.interpreter import install_command
from bert.own_text import constants
from bert.own_text.candidates import has_enough_text, layer_parameters
from bert.own_text.decisions import Decisions, short_number
from bert.own_text.facts import MachineFacts
from bert.own_text.plan import TextPlan
from bert.samples.settings import MASKED_SHARE

_FREE = "are free"


def warnings_of(decisions: Decisions, plan: TextPlan) -> Iterator[str]:
    """Warnings about the plan, each with a remedy."""
    request, machine = decisions.request, decisions.machine
    if request.weights is not None:
        yield from request.weights.warnings
    yield from _warnings_of_little_text(decisions, plan)
    if decisions.text.unknown:
        yield f"{decisions.text.unknown}; does the vocabulary belong to this text?"
    wants_words = request.word_segmenter == "auto" and request.setting("whole_word_masking", True)
    if decisions.text.is_chinese and not machine.segmenter and wants_words:
        yield (
            "the text is Chinese, and jieba, which finds its words, is not installed, so masks cover single "
            f"characters, which their neighbours give away: {install_command('chinese')}, and start again"
        )
    masked = (
        decisions.evaluations.samples
        * decisions.candidate.text_tokens_of_sample()
        * request.setting("eval_masked_lm_ratio", MASKED_SHARE)
    )
    if plan.held_out_fraction and masked < constants.LEAST_MASKED_TOKENS:
        share = min(0.3, plan.held_out_fraction * constants.LEAST_MASKED_TOKENS / max(masked, 1))
        error = constants.NATS_OF_ONE_TOKEN / math.sqrt(max(masked, 1))
        yield (
            f"the held-out loss rests on about {masked:,.0f} masked tokens and is uncertain by {error:.2f} nats: pass "
            f"--held-out-fraction {math.ceil(share * 100) / 100:g}, or add text"
        )
    yield from disk_warning(decisions.disk_bytes, machine)


def disk_warning(need: float, machine: MachineFacts) -> list[str]:
    """Warning if there is too little disk space; otherwise empty.

    Args:
        need: bytes that are still to be written.
    """
    if machine.is_planned or need <= 0.9 * machine.disk_bytes:
        return []
    return [
        f"about {need / 1e9:,.1f} GB are needed and {machine.disk_bytes / 1e9:,.1f} GB {_FREE}: free space, or pass "
        "--output-dir on another disk"
    ]


def is_disk_warning(warning: str) -> bool:
    return _FREE in warning


def _warnings_of_little_text(decisions: Decisions, plan: TextPlan) -> Iterator[str]:
    request, rule = decisions.request, decisions.candidate.rule
    if plan.epochs > 1.1 * constants.EPOCHS:
        instead = "" if request.length.hours is None else " instead of --hours"
        yield (
            f"the text is read {plan.epochs:,.0f} times, and little is learned after {constants.EPOCHS:g}: add "
            f"text, or pass --epochs {constants.EPOCHS:g}{instead}"
        )
    if rule is None:
        return
    tokens = f"{short_number(decisions.data.tokens)} tokens"
    if rule is not constants.MODELS[0] and not has_enough_text(rule, decisions.text, request):
        yield (
            f"{tokens} of text are few for {layer_parameters(decisions.candidate.model) / 1e6:,.0f} M "
            "parameters in the layers: pass a smaller --config, or continue a published model "
            "(--from-pretrained-params)"
        )
    if decisions.data.tokens < constants.LITTLE_TEXT:
        yield (
            f"about {tokens} are little text to learn a language from: add text, or continue a "
            "published model (--from-pretrained-params)"
        )
