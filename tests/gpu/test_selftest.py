"""The self-test of a machine with GPUs: the command on this CPU, how its checks judge, and its page."""

import contextlib
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert import REPOSITORY
from bert.config.training_settings import derive
from bert.doctor.facts import Gpu
from bert.planning.hardware import Hardware, load_parts
from bert.planning.planner import make_plan
from bert.pretraining.recipes import RECIPES
from tests.gpu.selftest import test_recipes
from tests.gpu.selftest.bench import Bench, Failed
from tests.gpu.selftest.machine import Machine
from tests.gpu.selftest.report import Result, answers, page
from tests.gpu.selftest.test_inference import judge_inference
from tests.gpu.selftest.test_kernels import judge_all_reduce, judge_doctor, judge_fused_kernels, judge_kernels
from tests.gpu.selftest.test_trainings import compare, fusion_problem, loss_problem

CPU = Machine("cpu", 2)
EIGHT_A100 = Machine("gpu", 8, (Gpu("NVIDIA A100-SXM4-80GB", "8.0", 81920, "535.104"),) * 8)
V100 = Machine("gpu", 1, (Gpu("Tesla V100-SXM2-16GB", "7.0", 16160, "470.1"),))


def bench_of(machine, folder):
    return Bench(machine, folder, folder / "logs/check.log")


@pytest.fixture
def bench(tmp_path):
    return bench_of(CPU, tmp_path)


# ---- the command -----------------------------------------------------------------------------------------------------


def selftest(*words, **environment):
    command = ["bash", "scripts/run_gpu_selftest.sh", *words]
    return subprocess.run(command, cwd=REPOSITORY, env=os.environ | environment, capture_output=True, text=True)


@pytest.mark.long
def test_one_check_of_each_kind_passes_on_this_cpu(tmp_path):
    """On a CPU fused kernels are plain operators, and the small models of all recipes are alike."""
    chosen = ("doctor", "nccl", "kernels", "fused-kernels-float16", "train-packed-fused", "resume-amp", "ranks-all")
    chosen += ("evaluation", "throughput-phase1_large-plain", "inference-paddle")
    only = [word for name in chosen for word in ("--only", name)]
    done = selftest("--device", "cpu", "--output-dir", str(tmp_path), *only)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert f"Send back {tmp_path}/report.md and results.json beside it" in done.stdout
    rows = json.loads((tmp_path / "results.json").read_text())["results"]
    assert {row["status"] for row in rows} == {"passed"}
    assert [row["name"] for row in rows[:3]] == ["doctor", "nccl", "fused-kernels-float16"]
    assert len(rows) == len(chosen) and all(row["text"] and row["title"] for row in rows)
    assert (tmp_path / "report.md").read_text().startswith("# Self-test of BERT on Paddle: ")


@pytest.mark.long
def test_checks_are_listed_and_wrong_flags_say_what_to_type(tmp_path):
    folder = ("--output-dir", str(tmp_path))
    for words, expected in (
        (("--again", "failed"), "--again: every start runs its checks again; --only NAME runs some"),
        (("--device", "cpu", "--only", "trian"), "only=trian must begin the name of a check: "),
        (("--device", "cpu", "--gpus", "2"), "gpus=2 is for GPUs; drop --gpus, or --device cpu"),
    ):
        done = selftest(*words, *folder)
        assert done.returncode != 0 and expected in done.stderr, done.stdout + done.stderr
    listed = selftest("--list", "--device", "cpu").stdout.splitlines()
    assert "tests/gpu/selftest/test_recipes.py::test_throughput[phase1_base]" in listed


@pytest.mark.long
def test_without_a_card_the_report_says_so_and_earlier_results_of_the_machine_stay(tmp_path):
    row = {"name": "train-amp", "title": "", "status": "failed", "seconds": 1.0, "text": "no", "output": ""}
    record = {"machine": {"device": "gpu", "ranks": 0, "gpus": []}, "results": [{**row, "figures": {}}]}
    (tmp_path / "results.json").write_text(json.dumps(record))
    done = selftest("--output-dir", str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2 and "error: the self-test needs a GPU, and nvidia-smi lists none; " in done.stdout
    rows = json.loads((tmp_path / "results.json").read_text())["results"]
    assert [row["name"] for row in rows] == ["train-amp", "doctor"]
    text = (tmp_path / "report.md").read_text()
    assert "driver failed" in text.splitlines()[0] and "| FAILS | none" in text and "`nvidia-smi; " in text


def test_a_command_that_fails_or_hangs_is_ended_and_shown_by_its_last_lines(bench):
    """The child leads a group of its own, as the ranks of Paddle's launcher do."""
    with pytest.raises(Failed, match="exit code 3: ") as failed:
        bench.run(["bash", "-c", "seq 0 99; exit 3"], 60)
    assert failed.value.output.splitlines()[0] == "60" and failed.value.output.endswith("99")
    assert bench.run(["bash", "-c", "seq 0 99; exit 3"], 60, allowed_codes=(0, 3)).startswith("0\n")
    child = bench.folder / "child"
    with pytest.raises(Failed, match="not finished after 2 s"):
        bench.run(["bash", "-c", f"setsid sleep 77 & echo $! > {child}; wait"], 2)
    assert not Path("/proc", child.read_text().strip(), "fd/0").exists()  # a zombie has no open files


# ---- verdicts --------------------------------------------------------------------------------------------------------

FALLING = [9.0 - 0.04 * step for step in range(20)]


def test_losses_must_be_finite_fall_and_be_near_those_of_float32():
    assert loss_problem(FALLING, None) == loss_problem(FALLING, FALLING) == ""
    for losses, reference, problem in (
        ([*FALLING[:-1], None], None, "19 losses are finite, there must be 20"),
        ([*FALLING[:-1], float("nan")], None, "19 losses are finite"),
        (FALLING[:-1], None, "19 losses are finite"),
        ([9.0] * 20, None, "the loss does not fall"),
        ([loss + 0.1 for loss in FALLING], FALLING, "the first loss is 9.1000, in float32 9.0"),
        ([9.0 - 0.01 * step for step in range(20)], FALLING, "the mean of the last five losses is 8.8300"),
    ):
        assert loss_problem(losses, reference).startswith(problem)


def series(losses, norms):
    values = {"loss": losses, "gradient_norm": norms}
    return SimpleNamespace(of_updates=lambda name: values[name])


def test_losses_and_gradient_norms_are_compared_update_by_update(bench):
    one = series([9.0, 8.0], [2.0, 1.0])
    compare(series([9.0, 8.004], [2.0, 1.004]), one, 1e-3, bench)
    assert bench.text == "loss differs by 5.0e-04, at most 1e-03, gradient norm differs by 4.0e-03, at most 1e-02"
    skipped = series([9.0, 8.0], [None, 1.0])  # by both
    for same in (one, skipped):
        compare(same, same, 0.0, bench)
        assert bench.figures["gradient_norm"]["largest difference"] == 0
    for other in (
        series([9.0, 8.016], [2.0, 1.0]),
        series([9.0, 8.0], [4.0, 2.0]),
        series([9.0], [2.0]),
        series([9.0, None], [2.0, 1.0]),
        skipped,
    ):
        with pytest.raises(AssertionError, match="differs by"):
            compare(other, one, 1e-3, bench)


def test_kernels_are_judged_by_the_card(tmp_path):
    def judged(machine, **reasons):
        reasons = {"linear": "", "dropout_add": "", "attention": "", **reasons}
        usable = {name: "2 ms" for name, reason in reasons.items() if not reason or "slower" in reason}
        bench = bench_of(machine, tmp_path)
        judge_fused_kernels({"reasons": reasons, "times": usable}, bench)
        return bench.text

    old = "flash_attn needs compute capability 8.0, this card has 7.0"
    assert judged(EIGHT_A100) == (
        "agree: linear (2 ms), dropout_add (2 ms), attention (2 ms); set --fuse-linear on --fuse-dropout-add on "
        "--fuse-attention on"
    )
    assert "; set --fuse-linear on --fuse-dropout-add off " in judged(EIGHT_A100, dropout_add="it is slower: 2 ms")
    assert judged(V100, attention=old).endswith("; set --fuse-linear on --fuse-dropout-add on")
    for machine, reasons, problem in (
        (EIGHT_A100, {"attention": old}, "attention: flash_attn needs .*; set --fuse-attention off"),
        (V100, {"attention": old, "linear": "its self-test differs"}, "linear: its self-test differs"),
        (CPU, {}, "without a GPU, and yet usable: linear, dropout_add, attention"),
    ):
        with pytest.raises(AssertionError, match=problem):
            judged(machine, **reasons)
    used = "x\nfused kernels: linear, dropout_add, attention\n"
    assert fusion_problem(used, EIGHT_A100) == fusion_problem("", CPU) == ""
    assert fusion_problem("fused kernels: linear, dropout_add\n", V100) == ""
    assert fusion_problem("fused kernels: linear\n", EIGHT_A100).endswith("the log has: fused kernels: linear")


def test_what_fails_on_other_checks_is_named(bench):
    good, bad = {"training": [], "evaluation": []}, {"evaluation": ["flash_attn: no kernel on gpu for float32 x 24"]}
    judge_kernels({"a": good, "b": good}, ["b"], bench)
    assert bench.text == "none is missing in 2 programs; not as recorded: b"
    with pytest.raises(AssertionError, match="b, evaluation: flash_attn: no kernel on gpu for float32 x 24"):
        judge_kernels({"a": good, "b": bad}, [], bench)
    finding = {"level": "failure", "name": "NCCL", "found": "1 GiB", "advice": "get more"}
    facts = {"fit": True, "facts": {"python": "3.11.7"}, "findings": [{**finding, "level": "warning"}]}
    judge_doctor(facts, bench)
    assert bench.text == "fit; warnings: NCCL: 1 GiB (get more)"
    with pytest.raises(AssertionError, match=r"NCCL: 1 GiB \(get more\)"):
        judge_doctor({**facts, "fit": False, "findings": [finding]}, bench)
    sums = {"ranks": 8, "bytes": 2**28, "seconds": 0.002, "least": 4.5, "largest": 4.5, "expected": 4.5}
    judge_all_reduce(sums, bench)
    assert bench.text == "8 ranks sum 134.2 GB/s"
    for wrong in (0.0, float("nan")):
        with pytest.raises(AssertionError, match="wrongly"):
            judge_all_reduce({**sums, "least": wrong}, bench)


def test_half_precision_of_exports_is_judged_by_speed_and_outputs(tmp_path):
    def judged(half, machine=EIGHT_A100, device="gpu", **float32):
        row = {"sentences per second": {"1": 40.0, "8": 80.0}, "relative error": 0.0}
        bench = bench_of(machine, tmp_path)
        found = {"float32": float32 or row, "fp16": half, "bfloat16": {"refused": "needs Ampere"}}
        judge_inference({"model": "m", "tokens": 384, "device": device, "precisions": found}, bench)
        return bench.text

    fast = {"sentences per second": {"1": 90.0, "8": 300.0}, "relative error": 0.001}
    slow, text = (
        {**fast, "sentences per second": {"1": 9.0, "8": 30.0}},
        "1: 40.0 / 90.0; 8: 80.0 / 300.0 (float32 / fp16)",
    )
    assert judged(fast) == f"m, 384 tokens, sentences/s of batches of {text}"
    assert judged(slow, CPU)
    for half, problem in (
        (slow, "half precision is no faster"),
        ({**fast, "relative error": 0.5}, "too large: {'fp16'"),
    ):
        with pytest.raises(AssertionError, match=problem):
            judged(half)
    with pytest.raises(AssertionError, match="found none"):
        judged(fast, refused="found none")
    for device, refused in (("tensorrt", "without it"), ("gpu", "needs CUDAExecutionProvider of ONNX Runtime")):
        with pytest.raises(pytest.skip.Exception, match=refused):
            judged(fast, device=device, refused=refused)


@pytest.mark.parametrize(
    ("error", "half", "problem"),
    [(1e-6, 400.0, ""), (1e-3, 400.0, "too large: {'float32'"), (1e-6, 99.0, "half precision is no faster")],
)
def test_onnx_on_a_card_is_judged_beside_the_cpu(tmp_path, error, half, problem):
    """1e-3 is the error of TF32."""
    speeds = {"float32 on the CPU": (3.6, 0.0), "float32": (144.0, error), "fp16": (half, 1e-3)}
    found = {n: {"sentences per second": {"8": v}, "relative error": e} for n, (v, e) in speeds.items()}
    bench = bench_of(EIGHT_A100, tmp_path)
    with pytest.raises(AssertionError, match=problem) if problem else contextlib.nullcontext():
        judge_inference({"model": "m", "tokens": 384, "device": "gpu", "precisions": found}, bench)
    assert bench.text.startswith(f"m, 384 tokens, sentences/s of batches of 8: 3.6 / 144.0 / {half}")


# ---- machines and recipes --------------------------------------------------------------------------------------------


UNJUDGED = {"speed is judged": False}


def measured(speed, gigabytes, planned, **more):
    figures = {"sequences per second": speed, "planned sequences per second": planned, "speed is judged": True}
    return figures | {"peak bytes": {"allocated": gigabytes * 1e9}, "estimated bytes": {"total": 40e9}} | more


def test_much_slower_than_planned_or_much_more_memory_fails():
    config = derive(RECIPES["phase1_large"](), gradient_merge_steps=8, global_batch_size=None)
    plan = make_plan(config, EIGHT_A100.hardware(8))
    h100 = make_plan(config, Hardware("H100-80GB", load_parts()["H100-80GB"], 1, 8))
    assert [test_recipes.judges_speed(each) for each in (plan, h100, None)] == [True, False, False]
    planned = plan.sequences_per_second()

    def problems(speed, gigabytes, device="gpu", **more):
        return test_recipes.shortfalls(measured(speed, gigabytes, planned, **more), device)

    assert problems(0.8 * planned, 43) == problems(2 * planned, 10) == problems(1.0, 90, "cpu") == {}
    assert problems(1.0, 43, **UNJUDGED) == {} and list(problems(1.0, 90, **UNJUDGED)) == ["memory"]
    assert problems(0.7 * planned, 43) == {"speed": "below 75% of the planned speed"}
    assert problems(planned, 45) == {"memory": "more than 110% of the estimated memory"}
    assert problems(None, 43) == {"speed": "no update was measured"}


# ---- the page --------------------------------------------------------------------------------------------------------

SPEED_FIGURES = {"model": "bert-large-uncased", "ranks x micro-batches x sequences": [8, 8, 256]}
SPEED_FIGURES |= {"fused kernels": ["linear"]}
FACTS = {**EIGHT_A100.identity(), "packages": {}, **dict.fromkeys(("python", "system", "commit", "date"), "x")}
GPU_FINDING = {"level": "ok", "name": "GPU", "found": "8 x A100, driver 535.104", "advice": ""}
PADDLE_FINDING = {"level": "ok", "name": "Paddle", "found": "2.6.2, CUDA 11.8", "advice": ""}
GOOD = {
    "doctor": Result("doctor", "", "passed", 9.0, "fit", {"findings": [GPU_FINDING, PADDLE_FINDING]}),
    "nccl": Result("nccl", "", "passed", 9.0, "8 ranks sum 150.0 GB/s"),
    "fused-kernels-float16": Result("fused-kernels-float16", "", "passed", 9.0, "agree: linear (2 ms)"),
    "throughput-phase1_large": Result("throughput-phase1_large", "", "passed", 9.0, "", measured(4100.0, 39, 4000.0)),
}
TRAINING, OLD_DRIVER = "throughput-phase1_large", "Paddle sees 0 of them: is the driver new enough"


def failed(name, text, figures=None, output=""):
    return GOOD | {name: Result(name, "", "failed", 9.0, text, figures or {}, output)}


def test_each_of_the_likely_failures_has_a_row_with_what_to_type():
    old_driver = {"findings": [{**GPU_FINDING, "level": "warning", "advice": OLD_DRIVER}]}
    full = "ResourceExhaustedError: Out of memory error on GPU 0"
    much, slow = {"memory": "more than 110%"}, {"speed": "below 75%"}
    for topic, results, figure, command in (
        ("driver", failed("doctor", "", old_driver), f"8 x A100, driver 535.104: {OLD_DRIVER}", "nvidia-smi; "),
        ("NCCL", failed("nccl", "not finished after 120 s"), "not finished after 120 s", "NCCL_DEBUG=INFO NCCL_P2P"),
        (
            "kernels",
            failed("fused-kernels-float16", "it differs"),
            "it differs",
            "run_gpu_selftest.sh --only train-amp",
        ),
        ("memory", failed(TRAINING, "exit code 1", output=full), "exit code 1", "--config large --dry-run"),
        (
            "memory",
            failed(TRAINING, "", measured(4100.0, 45, 4000.0, shortfalls=much)),
            "peak 45.00 GB, estimated 40.00: more than 110%",
            "--config large --dry-run",
        ),
        (
            "speed",
            failed(TRAINING, "", measured(1000.0, 39, 4000.0, shortfalls=slow)),
            "1,000.0 sequences/s, planned 4,000.0: below 75%",
            "nvidia-smi -q -d PERFORMANCE",
        ),
    ):
        found = answers(results, "gpu")
        assert [answer.topic for answer in found] == ["driver", "NCCL", "kernels", "memory", "speed"]
        (failing,) = [answer for answer in found if answer.verdict == "FAILS"]
        assert failing.topic == topic and failing.figure == figure and command in failing.command
        text = page(FACTS, list(results.values()))
        assert text.startswith(f"# Self-test of BERT on Paddle: {topic} failed\n")
        assert f"| FAILS | {figure} | `{failing.command}` |" in text


def test_the_report_is_a_page_whatever_failed():
    long = "word " * 500
    rows = [Result(f"check-{number}", "its title", "failed", 1.0, long, {"much": long}, long) for number in range(40)]
    figures = measured(5000.0, 43.2, 4000.0, **SPEED_FIGURES)
    speeds = [Result(f"throughput-{number}", "", "failed", 1.0, long, figures) for number in range(16)]
    text = page(FACTS, [*failed("doctor", long).values(), *rows, *speeds])
    assert text.count("\n") <= 60 and max(map(len, text.splitlines())) < 700 and "more in results.json" in text
    row = "| 7 | bert-large-uncased | 8 x 8 x 256 | linear | 5,000.0 | 4,000.0 (+25%) | 43.20 | 40.00 |"
    assert row in text and "Machine: 8 x NVIDIA A100-SXM4-80GB, 81920 MiB, driver 535.104; gpu, 8 ranks" in text
    assert "57 failed" in text
