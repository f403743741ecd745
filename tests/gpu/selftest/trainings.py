"""Runs trainings for the checks, each once: a run that is finished with the same settings is read again."""

import contextlib
import dataclasses
import io
import json
import math
import shutil
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path

from bert.config.command_line import dump_yaml
from bert.config.training_settings import derive
from bert.launching.ranks import Ranks
from bert.launching.start_training import training_command
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.preparation import prepare_quickstart
from bert.pretraining.recipes import RECIPES
from tests.gpu.selftest.checks import Bench, Check, Failed, Verdict, tail
from tests.gpu.selftest.machine import Machine

SCRIPT = Path(__file__).with_name("measured_training.py")
ALL_REDUCE = Path(__file__).with_name("all_reduce.py")
NUM_STEPS = 20
HELD_OUT = "eval_masked_lm_loss"
TIMEOUT_SECONDS, ALL_REDUCE_SECONDS = 600.0, 120.0
PLAIN = dict(fuse_linear="off", fuse_dropout_add="off", fuse_attention="off")
FUSED = dict(fuse_linear="on", fuse_dropout_add="on", fuse_attention="on")


@dataclasses.dataclass(frozen=True)
class Training:
    """A finished training in its folder."""

    folder: Path
    log_dir: Path

    @cached_property
    def rows(self) -> list[dict]:
        return [json.loads(line) for line in (self.log_dir / "metrics.jsonl").read_text().splitlines()]

    @cached_property
    def summary(self) -> dict:
        return json.loads((self.log_dir / "summary.json").read_text())

    def of_updates(self, name: str) -> list[float]:
        """A metric of each update, in order; after a resumption the later row counts."""
        found = {row["step"]: row[name] for row in self.rows if name in row}
        return [found[step] for step in sorted(found)]

    def held_out(self, step: int) -> float:
        """Masked-LM loss in nats."""
        return next(row[HELD_OUT] for row in self.rows if row["step"] == step and HELD_OUT in row)

    def messages(self) -> str:
        """What the ranks printed in all legs."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("log*/workerlog.0")))

    def peak_bytes(self) -> dict[str, int]:
        """The largest of the ranks."""
        ranks = [json.loads(path.read_text()) for path in self.folder.glob("peak_memory.*.json")]
        return {kind: max(rank[kind] for rank in ranks) for kind in ranks[0]}


def quickstart(bench: Bench, name: str, **changes) -> PretrainingConfig:
    """The first updates of the quickstart, with plain operators."""
    data = bench.folder / "data"
    settings = dict(
        input_dir=data / "phase1/train",
        eval_dir=data / "phase1/held_out",
        vocab_file=data / "vocab.txt",
        output_dir=run_folder(bench, name),
        report_file=run_folder(bench, name) / "report.json",
        max_steps=NUM_STEPS,
        log_freq=1,
        eval_freq=0,
        eval_samples=256,
        num_steps_per_checkpoint=1000,
        device=bench.machine.device,
        visualdl=False,
        peak_tflops=1.0,
        watchdog_seconds=300.0,
    )
    return derive(RECIPES["quickstart_phase1"](), **{**settings, **PLAIN, **changes})


def run_folder(bench: Bench, name: str) -> Path:
    return bench.folder / "runs" / name


def make_data(bench: Bench) -> None:
    """The quickstart's text, vocabulary and shards of phase 1; what is there is kept."""

    def run(command: Sequence[str]) -> int:
        bench.run(command, TIMEOUT_SECONDS)
        return 0

    with contextlib.redirect_stdout(io.StringIO()):  # its titles; the screen shows a line for each check
        prepare_quickstart(quickstart(bench, "data"), run)


def train(
    bench: Bench, name: str, *legs: PretrainingConfig, num_ranks: int = 1, timeout_seconds: float = TIMEOUT_SECONDS
) -> Training:
    """Run the settings one after the other, in processes of their own.

    Raises:
        Failed: with the end of the ranks' output.
    """
    folder = run_folder(bench, name)
    texts = [dump_yaml(leg) for leg in legs]
    done = Training(folder, legs[-1].log_dir())
    record = folder / "finished.json"
    if not bench.again and record.exists() and json.loads(record.read_text()) == [num_ranks, *texts]:
        return done
    shutil.rmtree(folder, ignore_errors=True)
    for number, text in enumerate(texts):
        log_dir, settings = folder / f"log{number}", folder / f"settings{number}.yaml"
        log_dir.mkdir(parents=True)
        settings.write_text(text)
        _launch(bench, SCRIPT, settings, log_dir, f"training {name}", num_ranks, timeout_seconds)
    record.write_text(json.dumps([num_ranks, *texts]))
    return done


def _launch(
    bench: Bench, script: Path, settings: Path, log_dir: Path, title: str, num_ranks: int, timeout_seconds: float
) -> None:
    """Run `script --config settings` on ranks of this machine.

    Raises:
        Failed: with the end of the ranks' output.
    """
    ranks, device = Ranks(num_processes=num_ranks), bench.machine.device
    command = training_command(script, settings, ranks, ranks.devices(device), log_dir, log_dir.parent.name)
    try:
        bench.run(command, timeout_seconds, **ranks.environment(device))
    except Failed as error:
        said = _said(log_dir) or error.output
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        raise Failed(f"{title}: {errors[0] if errors else error}", output=said) from None


def _said(log_dir: Path) -> str:
    """The end of each rank's output."""
    return "\n".join(
        f"{path.name}:\n{tail(path.read_text(errors='replace'))}" for path in sorted(log_dir.glob("workerlog.*"))
    )


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
KINDS: dict[str, tuple[str, dict]] = {
    "fp32": ("float32", dict(unpad="off")),
    "packed": ("float32, packed tokens", dict(unpad="on")),
    "amp": ("mixed precision, float16", FLOAT16),
    "bfloat16": ("mixed precision, bfloat16", BFLOAT16),
    "fused": ("float16 with all fused kernels and dropout", {**FLOAT16, **FUSED, **DROPOUT}),
    "packed-fused": (
        "float16, packed tokens with all fused kernels and dropout",
        {**FLOAT16, **FUSED, **DROPOUT, "unpad": "on"},
    ),
    "fused-bfloat16": ("bfloat16 with all fused kernels and dropout", {**BFLOAT16, **FUSED, **DROPOUT}),
}


def training_checks() -> list[Check]:
    found = [Check("data", "text, vocabulary and shards of the quickstart", data, {"gpu": 60, "cpu": 60})]
    for kind, (title, settings) in KINDS.items():
        title = f"{NUM_STEPS} updates of the quickstart: {title}"
        run, unable = partial(train_kind, kind), partial(_unable, settings)
        found.append(Check(f"train-{kind}", title, run, {"gpu": 45, "cpu": 15}, unable))
    for name, title, settings, tolerance in (
        ("resume-fp32", "float32", {}, RESUMED),
        ("resume-amp", "float16", FLOAT16, RESUMED_IN_HALF_PRECISION),
        ("resume-fused", "float16 with all fused kernels", {**FLOAT16, **FUSED}, RESUMED_IN_HALF_PRECISION),
    ):
        run = partial(resume, name, settings, tolerance)
        found.append(Check(name, f"stopped after 10 updates and resumed: {title}", run, {"gpu": 100, "cpu": 30}))
    for name, title, ranks_of in (
        ("ranks-accumulated", "2 ranks with accumulation equal one", lambda machine: 2),
        ("ranks-all", "all ranks without accumulation equal one", lambda machine: machine.num_ranks),
    ):
        run = partial(equal_ranks, name, ranks_of)
        found.append(Check(name, title, run, {"gpu": 100, "cpu": 30}, _one_gpu))
    title = "held-out loss of the same weights with fused kernels"
    found.append(Check("evaluation-fused", title, evaluate_fused, {"gpu": 60, "cpu": 15}))
    return found


def all_reduce_check() -> Check:
    title = "all ranks sum a tensor, and how fast"
    return Check("nccl", title, all_reduce, {"gpu": 45, "cpu": 15}, _one_gpu)


def all_reduce(bench: Bench) -> Verdict:
    """The sum over all ranks is right; NCCL on GPUs, Gloo on a CPU."""
    folder = run_folder(bench, "all-reduce")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "log").mkdir(parents=True)
    request = folder / "request.json"
    request.write_text(json.dumps({"device": bench.machine.device}))
    _launch(bench, ALL_REDUCE, request, folder / "log", "all-reduce", bench.machine.num_ranks, ALL_REDUCE_SECONDS)
    return judge_all_reduce(json.loads((folder / "result.json").read_text()))


def judge_all_reduce(figures: dict) -> Verdict:
    """Raises Failed if a number is not the mean of the ranks' numbers."""
    gigabytes = figures["bytes"] / figures["seconds"] / 1e9
    text = f"{figures['ranks']} ranks sum {gigabytes:,.1f} GB/s"
    if not all(abs(figures[name] - figures["expected"]) <= 1e-4 for name in ("least", "largest")):
        raise Failed(f"{text}, wrongly: {figures['least']} to {figures['largest']}, not {figures['expected']}", figures)
    return Verdict(text, figures)


def _unable(settings: dict, machine: Machine) -> str:
    return machine.lacks_bfloat16() if settings.get("amp_dtype") == "bfloat16" else ""


def _one_gpu(machine: Machine) -> str:
    return "there is one GPU" if machine.num_ranks < 2 else ""


def data(bench: Bench) -> Verdict:
    make_data(bench)
    return Verdict("made")


def train_kind(kind: str, bench: Bench) -> Verdict:
    """The losses fall, and are near those of float32."""
    make_data(bench)
    settings = KINDS[kind][1]
    reference = _of_kind(bench, "fp32") if kind != "fp32" else None
    training = _of_kind(bench, kind)
    figures = _figures(training)
    _refuse(loss_problem(training.of_updates("loss"), reference.of_updates("loss") if reference else None), figures)
    if training.summary["skipped_steps"] > SKIPPED:
        raise Failed(f"{training.summary['skipped_steps']} of {NUM_STEPS} updates were skipped", figures)
    if settings.get("fuse_linear") == "on":
        _refuse(fusion_problem(training.messages(), bench.machine), figures)
    return Verdict(f"loss {figures['losses'][0]:.3f} to {figures['losses'][-1]:.3f}", figures)


def _of_kind(bench: Bench, kind: str) -> Training:
    if kind == "fp32" and bench.log_file.stem != "train-fp32":
        bench = Bench(bench.machine, bench.folder, bench.log_file)  # the reference of others: made once
    return train(bench, f"train-{kind}", quickstart(bench, f"train-{kind}", **KINDS[kind][1]))


def _figures(training: Training) -> dict:
    summary = training.summary
    return {
        "losses": [round(loss, 5) for loss in training.of_updates("loss")],
        "skipped updates": summary["skipped_steps"],
        "held-out masked-LM loss": summary.get(HELD_OUT),
        "sequences per second": summary["training_sequences_per_second"],
        "peak bytes": training.peak_bytes(),
    }


def loss_problem(losses: Sequence[float | None], reference: Sequence[float] | None) -> str:
    """Why losses are not those of a training that works; "" if they are.

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
    """Why a training did not use the kernels that it was told to use; "" if it did, or on a CPU."""
    if machine.device == "cpu":
        return ""
    wanted = ["linear", "dropout_add", *(["attention"] if machine.has_flash_attention() else [])]
    line = next((line for line in messages.splitlines() if line.startswith("fused kernels: ")), "no fused kernels")
    return "" if all(name in line for name in wanted) else f"{', '.join(wanted)} were to be used, the log has: {line}"


def resume(name: str, settings: dict, tolerance: dict[str, float], bench: Bench) -> Verdict:
    """Dropout is on: its masks must go on as well."""
    make_data(bench)
    settings = {**settings, **DROPOUT}
    whole = train(bench, f"{name}-whole", quickstart(bench, f"{name}-whole", **settings))
    folder = f"{name}-stopped"
    settings |= {"from_checkpoint": run_folder(bench, folder), "last_step_of_checkpoint": "auto"}
    stopped = quickstart(bench, folder, **settings)
    first_leg = derive(stopped, steps_this_run=NUM_STEPS // 2)
    resumed = train(bench, folder, first_leg, stopped)
    if f" at step {NUM_STEPS // 2}\n" not in resumed.messages():
        raise Failed(f"the second leg did not resume at step {NUM_STEPS // 2}", output=tail(resumed.messages()))
    return compared(resumed, whole, tolerance[bench.machine.device])


def equal_ranks(name: str, ranks_of: Callable[[Machine], int], bench: Bench) -> Verdict:
    """float32, no dropout; an epsilon that does not blow rounding noise up."""
    make_data(bench)
    world_size = ranks_of(bench.machine)
    batch_size = 8 if name == "ranks-accumulated" else 32 // world_size
    settings = dict(max_steps=10, epsilon=1e-4, batch_size=batch_size, global_batch_size=batch_size * world_size)
    if name == "ranks-accumulated":
        settings["global_batch_size"] = 32
    one, all_ranks = (
        train(bench, f"{name}-{ranks}", quickstart(bench, f"{name}-{ranks}", **settings), num_ranks=ranks)
        for ranks in (1, world_size)
    )
    return compared(all_ranks, one, RANKS[bench.machine.device], f"{world_size} ranks: ")


def compared(training: Training, expected: Training, tolerance: float, prefix: str = "") -> Verdict:
    """Losses and gradient norms, update by update: LAMB's updates do not change with the scale of the gradients.

    Raises:
        Failed: too far apart.
    """
    found = {}
    for name, allowed in (("loss", tolerance), ("gradient_norm", 10 * tolerance)):
        apart = largest_difference(training.of_updates(name), expected.of_updates(name), name == "gradient_norm")
        found[name] = {"largest difference": apart, "allowed": allowed}
    figures = {**found, "losses": training.of_updates("loss"), "expected": expected.of_updates("loss")}
    text = prefix + ", ".join(
        f"{name.replace('_', ' ')} differs by {values['largest difference']:.1e}, at most {values['allowed']:.0e}"
        for name, values in found.items()
    )
    if not all(values["largest difference"] <= values["allowed"] for values in found.values()):
        raise Failed(text, figures)
    return Verdict(text, figures)


def largest_difference(values: Sequence, expected: Sequence, skips: bool = False) -> float:
    """Relative to the expected ones; infinite for another number of them, or for null, which is not finite.

    Args:
        skips: whether null in both is no difference: updates that both skipped.
    """
    if len(values) != len(expected):
        return math.inf
    pairs = [pair for pair in zip(values, expected, strict=True) if not (skips and pair == (None, None))]
    if any(None in pair for pair in pairs):
        return math.inf
    return max((abs(mine - theirs) / abs(theirs) for mine, theirs in pairs), default=0.0)


def evaluate_fused(bench: Bench) -> Verdict:
    """The weights of the float32 training, evaluated before the first update of another."""
    make_data(bench)
    plain = _of_kind(bench, "fp32")
    weights: Path = quickstart(bench, "train-fp32").checkpoint_dir() / str(NUM_STEPS)
    settings = {**FLOAT16, **FUSED, "max_steps": 1, "from_pretrained_params": weights}
    fused = train(bench, "evaluation-fused", quickstart(bench, "evaluation-fused", **settings))
    expected, found = plain.held_out(NUM_STEPS), fused.held_out(0)
    figures = {"float32, plain": expected, "float16, fused": found}
    text = f"held-out masked-LM loss {found:.4f}, in float32 with plain operators {expected:.4f}"
    if not abs(found - expected) <= EVALUATED * expected:
        raise Failed(f"{text}; at most {EVALUATED:.0%} apart", figures)
    _refuse(fusion_problem(fused.messages(), bench.machine), figures)
    return Verdict(text, figures)


def _refuse(problem: str, figures: dict) -> None:
    if problem:
        raise Failed(problem, figures)
