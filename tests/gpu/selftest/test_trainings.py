"""Checks that train: precisions and kernels against float32, a resumption, several ranks, an evaluation."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from bert.config.training_settings import derive
from tests.gpu.selftest.bench import Bench
from tests.gpu.selftest.machine import Machine
from tests.gpu.selftest.training_runs import (
    HELD_OUT,
    NUM_STEPS,
    Training,
    make_data,
    needs_two_ranks,
    quickstart,
    run_folder,
    train,
)

pytestmark = pytest.mark.gpu
# A training in half precision, or with dropout, against the one in float32: the first update has the same weights.
FIRST_LOSS, LAST_LOSSES = 0.005, 0.03
SKIPPED = 8  # of 20 updates: the loss scale of float16 begins at 2^20 and is halved until the gradients are finite
# Largest relative difference of a loss, by device; of a gradient norm ten times as much. On a GPU the order of sums
# is not fixed.
RESUMED = {"cpu": 0.0, "gpu": 1e-3}
RESUMED_IN_HALF_PRECISION = {"cpu": 0.0, "gpu": 2e-2}
RANKS = {"cpu": 1e-5, "gpu": 1e-3}
EVALUATED = 0.01
DROPOUT = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
FLOAT16, BFLOAT16 = dict(amp=True), dict(amp=True, amp_dtype="bfloat16")
FUSED = dict(fuse_linear="on", fuse_dropout_add="on", fuse_attention="on")
ALL_FUSED = {**FLOAT16, **FUSED, **DROPOUT}
KINDS: dict[str, dict] = {
    "fp32": dict(unpad="off"),
    "packed": dict(unpad="on"),
    "amp": FLOAT16,
    "bfloat16": BFLOAT16,
    "fused": ALL_FUSED,
    "packed-fused": {**ALL_FUSED, "unpad": "on"},
    "fused-bfloat16": {**ALL_FUSED, **BFLOAT16},
}


@pytest.fixture(scope="session")
def of_kind():
    """Return a function (bench, kind) -> the training of this kind, which is made once."""
    done: dict[str, Training] = {}

    def trained(bench: Bench, kind: str) -> Training:
        if kind not in done:
            make_data(bench)
            done[kind] = train(bench, f"train-{kind}", quickstart(bench, f"train-{kind}", **KINDS[kind]))
        return done[kind]

    return trained


@pytest.mark.parametrize("kind", KINDS)
def test_train(bench, of_kind, kind):
    """The losses of 20 updates of the quickstart fall, near the losses of float32."""
    settings = KINDS[kind]
    if settings.get("amp_dtype") == "bfloat16" and (reason := bench.machine.lacks_bfloat16()):
        pytest.skip(reason)
    reference = of_kind(bench, "fp32").of_updates("loss") if kind != "fp32" else None
    training = of_kind(bench, kind)
    losses, summary = training.of_updates("loss"), training.summary
    bench.figures |= {
        "losses": [round(loss, 5) for loss in losses],
        "skipped updates": summary["skipped_steps"],
        "held-out masked-LM loss": summary.get(HELD_OUT),
        "sequences per second": summary["training_sequences_per_second"],
        "peak bytes": training.peak_bytes(),
    }
    problem = loss_problem(losses, reference)
    assert not problem, problem
    assert summary["skipped_steps"] <= SKIPPED, f"{summary['skipped_steps']} of {NUM_STEPS} updates were skipped"
    problem = fusion_problem(training.messages(), bench.machine) if settings.get("fuse_linear") == "on" else ""
    assert not problem, problem
    bench.text = f"loss {losses[0]:.3f} to {losses[-1]:.3f}"


def loss_problem(losses: Sequence[float | None], reference: Sequence[float] | None) -> str:
    """Return why the losses do not show a working training; "" if they do.

    Args:
        reference: the same training in float32; None: only their fall is judged.
    """
    finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if len(finite) < len(losses) or len(losses) != NUM_STEPS:
        return f"{len(finite)} losses are finite, there must be {NUM_STEPS}"
    first, last = finite[0], sum(finite[-5:]) / 5
    if not last < first:
        return f"the loss does not fall: {first:.4f} at first, {last:.4f} in the last five updates"
    if reference is not None:
        for name, mine, theirs, tolerance in (
            ("first loss", first, reference[0], FIRST_LOSS),
            ("mean of the last five losses", last, sum(reference[-5:]) / 5, LAST_LOSSES),
        ):
            if abs(mine - theirs) > tolerance * theirs:
                return f"the {name} is {mine:.4f}, in float32 {theirs:.4f}; at most {tolerance:.0%} apart"
    return ""


def fusion_problem(messages: str, machine: Machine) -> str:
    """Return why a training did not use the kernels that it was told to use; "" if it did, or on a CPU."""
    if machine.device == "cpu":
        return ""
    wanted = ["linear", "dropout_add", *(["attention"] if machine.has_flash_attention() else [])]
    line = next((line for line in messages.splitlines() if line.startswith("fused kernels: ")), "no fused kernels")
    return "" if all(name in line for name in wanted) else f"{', '.join(wanted)} were to be used, the log has: {line}"


@pytest.mark.parametrize(
    ("name", "settings", "tolerance"),
    [
        ("fp32", {}, RESUMED),
        ("amp", FLOAT16, RESUMED_IN_HALF_PRECISION),
        ("fused", {**FLOAT16, **FUSED}, RESUMED_IN_HALF_PRECISION),
    ],
    ids=["fp32", "amp", "fused"],
)
def test_resume(bench, name, settings, tolerance):
    """The training stops after 10 updates and resumes, with dropout, whose masks must continue as well."""
    make_data(bench)
    name, settings = f"resume-{name}", {**settings, **DROPOUT}
    whole = train(bench, f"{name}-whole", quickstart(bench, f"{name}-whole", **settings))
    folder = f"{name}-stopped"
    settings |= {"from_checkpoint": run_folder(bench, folder), "last_step_of_checkpoint": "auto"}
    stopped = quickstart(bench, folder, **settings)
    resumed = train(bench, folder, derive(stopped, steps_this_run=NUM_STEPS // 2), stopped)
    assert f" at step {NUM_STEPS // 2}\n" in resumed.messages(), f"the second leg did not resume at {NUM_STEPS // 2}"
    compare(resumed, whole, tolerance[bench.machine.device], bench)


@pytest.mark.parametrize("kind", ["accumulated", "all"])
def test_ranks(bench, kind):
    """2 ranks with accumulation, or all ranks without, equal one rank: float32, no dropout."""
    needs_two_ranks(bench.machine)
    make_data(bench)
    world_size = 2 if kind == "accumulated" else bench.machine.num_ranks
    batch_size = 8 if kind == "accumulated" else 32 // world_size
    global_batch_size = 32 if kind == "accumulated" else batch_size * world_size
    # An epsilon that does not blow rounding noise up.
    settings = dict(max_steps=10, epsilon=1e-4, batch_size=batch_size, global_batch_size=global_batch_size)
    one, all_ranks = (
        train(bench, f"ranks-{kind}-{ranks}", quickstart(bench, f"ranks-{kind}-{ranks}", **settings), num_ranks=ranks)
        for ranks in (1, world_size)
    )
    compare(all_ranks, one, RANKS[bench.machine.device], bench)


def compare(training: Training, expected: Training, tolerance: float, bench: Bench) -> None:
    """Compare losses and gradient norms by update: LAMB's updates do not change with the scale of the gradients."""
    found = {}
    for name, allowed in (("loss", tolerance), ("gradient_norm", 10 * tolerance)):
        apart = largest_difference(training.of_updates(name), expected.of_updates(name), name == "gradient_norm")
        found[name] = {"largest difference": apart, "allowed": allowed}
    bench.figures |= {**found, "losses": training.of_updates("loss"), "expected": expected.of_updates("loss")}
    bench.text = ", ".join(
        f"{name.replace('_', ' ')} differs by {values['largest difference']:.1e}, at most {values['allowed']:.0e}"
        for name, values in found.items()
    )
    assert all(values["largest difference"] <= values["allowed"] for values in found.values()), bench.text


def largest_difference(values: Sequence, expected: Sequence, skips: bool = False) -> float:
    """Return the difference relative to the expected values; infinite if lengths differ or a value is null.

    Args:
        skips: whether null in both is no difference: updates that both skipped.
    """
    if len(values) != len(expected):
        return math.inf
    pairs = [pair for pair in zip(values, expected, strict=True) if not (skips and pair == (None, None))]
    if any(None in pair for pair in pairs):
        return math.inf
    return max((abs(mine - theirs) / abs(theirs) for mine, theirs in pairs), default=0.0)


def test_evaluation_fused(bench, of_kind):
    """The weights of the float32 training have the same held-out loss with fused kernels."""
    plain = of_kind(bench, "fp32")
    weights: Path = quickstart(bench, "train-fp32").checkpoint_dir() / str(NUM_STEPS)
    settings = {**FLOAT16, **FUSED, "max_steps": 1, "from_pretrained_params": weights}
    fused = train(bench, "evaluation-fused", quickstart(bench, "evaluation-fused", **settings))
    expected, found = plain.held_out(NUM_STEPS), fused.held_out(0)
    bench.figures |= {"float32, plain": expected, "float16, fused": found}
    bench.text = f"held-out masked-LM loss {found:.4f}, in float32 with plain operators {expected:.4f}"
    assert abs(found - expected) <= EVALUATED * expected, f"{bench.text}; at most {EVALUATED:.0%} apart"
    problem = fusion_problem(fused.messages(), bench.machine)
    assert not problem, problem
