"""The neighbours that a plan for own text is compared with, and the table of the comparison."""

from bert.own_text.candidates import candidates
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.plan import make_plan
from bert.own_text.request import TextRequest
from tests.benchmarks.own_text_neighbours import table, variants


def test_the_neighbours_of_a_plan_differ_from_it_in_one_thing():
    text = TextFacts(3, 900, 1_000_000, 6_000_000, 90, 6_000_000)
    machine, request = MachineFacts(1, 16 * 10**9, 10**11), TextRequest(hours=0.2)
    found = candidates(text, machine, request)
    plan = make_plan(text, machine, request, found, {one.name: 100.0 for one in found})
    assert plan.model == "quickstart"
    same = {"global_batch_size": 32, "max_seq_length": 128}
    assert {one.name: (one.model, one.settings) for one in variants(plan)} == {
        "chosen": ("quickstart", {}),
        "model up": ("mini", {}),
        "rate x 2": ("quickstart", {**same, "learning_rate": 2 * 7.4e-3}),
        "rate / 2": ("quickstart", {**same, "learning_rate": 7.4e-3 / 2}),
        "vocabulary x 2": ("quickstart", {**same, "learning_rate": 7.4e-3, "vocab_size": 8192}),
        "vocabulary / 2": ("quickstart", {**same, "learning_rate": 7.4e-3, "vocab_size": 2048}),
        "batch / 2": ("quickstart", {**same, "global_batch_size": 16, "learning_rate": 5.2e-3}),
        "beta2 0.98": ("quickstart", {**same, "learning_rate": 7.4e-3, "beta2": 0.98}),
    }


def test_losses_are_means_over_the_seeds_relative_to_the_plan():
    result = {"model": "mini", "vocab_size": 4096, "learning_rate": 6e-3, "steps": 4685}
    result |= {"loss": 4.25, "unigram_entropy": 6.11, "nats_per_character": 1.0}
    runs = [("chosen", 0.75), ("rate x 2", 1.5), ("chosen", 1.25), ("rate x 2", 1.0)]
    lines = table([{**result, "name": name, "nats_per_character": nats} for name, nats in runs])
    assert (
        lines.splitlines()[-1]
        == "| rate x 2 | mini | 4,096 | 0.006 | 4,685 | 4.25 / 6.11 | 1.250 (+25.0%): 1.500, 1.000 |"
    )
