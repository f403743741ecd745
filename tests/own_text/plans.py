"""Texts, machines and plans for tests of the rules, with speeds that are computed from operations."""

import dataclasses

from bert.own_text.candidates import list_candidates
from bert.own_text.decisions import Decisions, Speeds
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.length import Length
from bert.own_text.plan import TextPlan
from bert.own_text.plan_table import make_plan
from bert.own_text.request import TextRequest
from bert.own_text.rules import decide
from bert.planning.estimates import training_flops_per_sequence

LAPTOP = MachineFacts(cores=2, memory_bytes=16 * 10**9, disk_bytes=10**11)
SERVER = MachineFacts(cores=48, memory_bytes=200 * 10**9, disk_bytes=10**12)
ONE_GPU = MachineFacts(16, 60 * 10**9, 10**12, 1, "RTX 3090", 24 << 30)
EIGHT_GPUS = MachineFacts(128, 900 * 10**9, 10**13, 8, "A100", 80 << 30)
MACHINES = (LAPTOP, SERVER, ONE_GPU, EIGHT_GPUS)
TFLOPS = {"cpu": 0.04, "gpu": 40.0}  # that a rank reaches


def text(megabytes: float, **changes) -> TextFacts:
    """Return facts of an English text."""
    size = round(megabytes * 1e6)
    facts = TextFacts(10, max(1, size // 5000), size // 6, size, 90, size)
    return dataclasses.replace(facts, **changes)


def decisions_for(facts: TextFacts, machine: MachineFacts, **asked) -> Decisions:
    """Return the decisions for a request: hours, epochs or max_steps, and fields of `TextRequest`."""
    length = Length(**{name: asked.pop(name) for name in ("hours", "epochs", "max_steps") if name in asked})
    request = TextRequest(length=length, **asked)
    speeds = {}
    for candidate in list_candidates(facts, machine, request):
        rate = TFLOPS[candidate.placement.device] * 1e12 * candidate.placement.ranks
        tokens = round(0.59 * candidate.length)  # of mixed lengths, without padding
        speeds[candidate.name] = rate / training_flops_per_sequence(candidate.model, tokens, candidate.predictions())
    return decide(facts, machine, request, Speeds(speeds))


def plan_of(facts: TextFacts, machine: MachineFacts, **asked) -> TextPlan:
    return make_plan(decisions_for(facts, machine, **asked))
