"""What one buffer of accumulated gradients saves, against an operator for each parameter, as in Paddle's own program.

    .venv/bin/python -m tests.benchmarks.accumulation

Two ranks over Gloo train bert-mini with the one program and the other in turns, from the same weights on the same data.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median_low

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import bert  # noqa: F401 - before Paddle
from tests.benchmarks.processes import markdown
from tests.support.launching import launch

MICRO_STEPS, ROUNDS, WARMUP = 4, 12, 2
_FORMS = ("one buffer", "one per parameter")
_TIMES = ("update", "last micro-step", "elapsed")


def train(results: Path) -> None:
    """Measure both programs in turns; rank 0 writes the figures."""
    from bert.runtime.distributed import finalize, group_from_environment
    from tests.support import tiny

    group = group_from_environment("cpu")
    tiny.join(group)
    sessions = {form: session_of(form, group) for form in _FORMS}
    seconds: dict[str, list] = {form: [] for form in _FORMS}
    for number in range(WARMUP + ROUNDS):
        for form, session in sessions.items():
            seconds[form].append(update(session, number))
    figures: dict = {form: {"operators": len(s.program.main.blocks[1].ops)} for form, s in sessions.items()}
    for form, session in sessions.items():
        operators = session.program.main.blocks[1].ops
        figures[form]["all-reduces"] = sum(operator.type == "c_allreduce_sum" for operator in operators)
        figures[form] |= zip(_TIMES, map(median_low, zip(*seconds[form][WARMUP:], strict=True)), strict=True)
    figures["difference"] = tiny.relative_difference(*(session.parameters() for session in sessions.values()))
    if group.is_main:
        results.write_text(json.dumps(figures))
    finalize(group)


def session_of(form: str, group):
    """A program of one form in a scope of its own."""
    from unittest import mock

    from bert.config.architecture import BUILT_IN_MODELS
    from bert.config.training_settings import OptimizerSettings
    from tests.model.test_gradient_accumulation import OnePerParameter
    from tests.support import tiny

    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    settings = {"model": BUILT_IN_MODELS["bert-mini"].model_copy(update=no_dropout), "micro_steps": MICRO_STEPS}
    settings["optimizer"] = OptimizerSettings(optimizer="Lamb", learning_rate=1e-3, epsilon=1e-4)
    if form == _FORMS[0]:
        return tiny.Session(**settings, group=group, num_steps=100, warmup_steps=0)
    tiny.build.cache_clear()
    with mock.patch("program.AccumulatedGradients", OnePerParameter):
        return tiny.Session(**settings, group=group, num_steps=100, warmup_steps=0)


def update(session, index: int) -> tuple[float, float, float]:
    """CPU seconds of an update and of its last micro-step, and those elapsed."""
    from tests.support.tiny import feeds, random_batch

    group = session.group
    batch = random_batch(index, 4 * MICRO_STEPS * group.world_size, length=16)
    mine = feeds(batch, MICRO_STEPS * group.world_size)[group.rank :: group.world_size]
    start, times = time.perf_counter(), [time.process_time()]
    for feed in mine:
        session.executor.run(session.program.main, feed=feed, scope=session.scope)
        times.append(time.process_time())
    return times[-1] - times[0], times[-1] - times[-2], time.perf_counter() - start


def table(figures: dict) -> str:
    head = (
        "accumulated gradients",
        "operators",
        "all-reduces",
        "CPU s per update",
        "in its last micro-step",
        "seconds",
    )
    rows = [
        (form, found["operators"], found["all-reduces"], *(f"{found[name]:.3f}" for name in _TIMES))
        for form, found in ((form, figures[form]) for form in _FORMS)
    ]
    end = f"parameters after {WARMUP + ROUNDS} updates differ by {figures['difference']:.1e} (relative)"
    return f"{markdown(head, rows)}\n{end}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)  # of a rank
    if file := parser.parse_args().results:
        train(file)
    else:
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.json"
            launch(Path(__file__), "--results", str(results), log_dir=Path(folder))
            print(table(json.loads(results.read_text())))
