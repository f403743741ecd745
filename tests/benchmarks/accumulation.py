"""What one buffer of accumulated gradients saves, against an operator for each parameter, as in Paddle's own program.

    .venv/bin/python -m tests.benchmarks.accumulation

Two ranks over Gloo train bert-mini with the one program and the other in turns, from the same weights on the same data.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

import bert  # noqa: E402, F401 - before Paddle

MICRO_STEPS, ROUNDS, WARMUP = 4, 12, 2
_FORMS = ("one buffer", "one per parameter")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", help=argparse.SUPPRESS)  # of a rank
    options = parser.parse_args()
    if options.results:
        train(Path(options.results))
        return
    with tempfile.TemporaryDirectory() as folder:
        launcher = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", folder]
        results = Path(folder) / "results.json"
        done = subprocess.run([*launcher, __file__, "--results", str(results)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        print(table(json.loads(results.read_text())))


def train(results: Path) -> None:
    """Measure both programs in turns; rank 0 writes the figures."""
    from bert.runtime.distributed import finalize, group_from_environment, initialize

    group = group_from_environment("cpu")
    initialize(group)
    runs = {form: Run(form, group) for form in _FORMS}
    for round_number in range(WARMUP + ROUNDS):
        for run in runs.values():
            run.update(round_number)
    figures = {form: run.figures() for form, run in runs.items()}
    figures["difference"] = difference(*(run.parameters() for run in runs.values()))
    if group.is_main:
        results.write_text(json.dumps(figures))
    finalize(group)


class Run:
    """A program of one form in a scope of its own, and what its updates took."""

    def __init__(self, form: str, group) -> None:
        from bert.model.optimization import Schedule, load_schedule
        from bert.runtime.paddle_api import place_of, static

        self.group, self.program = group, build(form, group)
        self.scope, self.executor = static.Scope(), static.Executor(place_of("cpu"))
        self.executor.run(self.program.startup, scope=self.scope)
        load_schedule(self.scope, Schedule(1e-3, 0, 100), place_of("cpu"))
        self.seconds: list[tuple[float, float, float]] = []  # (CPU of the update, CPU of its last micro-step, elapsed)

    def update(self, index: int) -> None:
        from tests.support.tiny import feeds, random_batch

        batch = random_batch(index, 4 * MICRO_STEPS * self.group.world_size, length=16)
        mine = feeds(batch, MICRO_STEPS * self.group.world_size)[self.group.rank :: self.group.world_size]
        start, times = time.perf_counter(), [time.process_time()]
        for feed in mine:
            self.executor.run(self.program.main, feed=feed, scope=self.scope)
            times.append(time.process_time())
        self.seconds.append((times[-1] - times[0], times[-1] - times[-2], time.perf_counter() - start))

    def parameters(self) -> dict:
        from bert.runtime.paddle_api import read_variable

        return {name: read_variable(self.scope, name) for name in self.program.parameters}

    def figures(self) -> dict[str, float]:
        columns = list(zip(*self.seconds[WARMUP:], strict=True))
        whole, last, elapsed = (sorted(column)[len(column) // 2] for column in columns)
        update = self.program.main.blocks[1].ops
        reduced = sum(operator.type == "c_allreduce_sum" for operator in update)
        return {
            "operators": len(update),
            "all-reduces": reduced,
            "update": whole,
            "last micro-step": last,
            "elapsed": elapsed,
        }


def build(form: str, group):
    import program
    from bert.config.architecture import BUILT_IN_MODELS
    from bert.config.training_settings import OptimizerSettings, PrecisionSettings
    from bert.model.objectives import PretrainingObjective
    from tests.model.test_gradient_accumulation import OnePerParameter

    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BUILT_IN_MODELS["bert-mini"].model_copy(update=no_dropout)
    merged = program.AccumulatedGradients
    if form != _FORMS[0]:
        program.AccumulatedGradients = OnePerParameter
    try:
        return program.build_training_program(
            PretrainingObjective(model),
            OptimizerSettings(optimizer="Lamb", learning_rate=1e-3, epsilon=1e-4),
            PrecisionSettings(),
            group,
            gradient_accumulation_steps=MICRO_STEPS,
            num_scheduled_steps=100,
        )
    finally:
        program.AccumulatedGradients = merged


def difference(left: dict, right: dict) -> float:
    """The largest relative difference of a parameter, as the tests of equality define it."""
    from tests.support.tiny import relative_difference

    return relative_difference(left, right)


def table(figures: dict) -> str:
    rows = [
        "| accumulated gradients | operators | all-reduces | CPU s per update | in its last micro-step | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for form in _FORMS:
        found = figures[form]
        times = " | ".join(f"{found[name]:.3f}" for name in ("update", "last micro-step", "elapsed"))
        rows.append(f"| {form} | {found['operators']} | {found['all-reduces']} | {times} |")
    return "\n".join(
        [*rows, f"parameters after {WARMUP + ROUNDS} updates differ by {figures['difference']:.1e} (relative)"]
    )


if __name__ == "__main__":
    main()
