"""Checks without a training: the doctor, a sum over the ranks, a kernel for every operator, fused kernels."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.config.architecture import BUILT_IN_MODELS
from bert.pretraining.recipes import RECIPES
from tests.gpu.cases import all_cases, distinct
from tests.gpu.recipe_records import COMBINATIONS, record_of
from tests.gpu.selftest.bench import json_in
from tests.gpu.selftest.training_runs import launch, needs_two_ranks, run_folder

pytestmark = pytest.mark.gpu
TIMEOUT_SECONDS, ALL_REDUCE_SECONDS = 600.0, 120.0
FUSED_KERNELS = ("linear", "dropout_add", "attention")
ALL_REDUCE = Path(__file__).with_name("all_reduce.py")


def test_doctor(bench):
    """The machine is fit to train."""
    command = [sys.executable, "-m", "bert.doctor", "--json", "--output-dir", str(bench.folder)]
    report = json_in(bench.run(command, TIMEOUT_SECONDS, allowed_codes=(0, 1)))
    bench.figures |= {**report["facts"], "findings": report["findings"]}

    def text(level: str) -> str:
        findings = [finding for finding in report["findings"] if finding["level"] == level]
        return "; ".join(f"{finding['name']}: {finding['found']} ({finding['advice']})" for finding in findings)

    assert report["fit"], text("failure")
    bench.text = f"fit; warnings: {text('warning')}" if text("warning") else "fit"


def test_nccl(bench):
    """All ranks sum a tensor, with NCCL on GPUs and Gloo on a CPU; the speed is measured."""
    needs_two_ranks(bench.machine)
    folder = run_folder(bench, "all-reduce")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "log").mkdir(parents=True)
    request = folder / "request.json"
    request.write_text(json.dumps({"device": bench.machine.device}))
    launch(
        bench,
        [ALL_REDUCE, "--config", request],
        folder / "log",
        "all-reduce",
        bench.machine.num_ranks,
        ALL_REDUCE_SECONDS,
    )
    figures = json.loads((folder / "result.json").read_text())
    bench.figures |= figures
    bench.text = f"{figures['ranks']} ranks sum {figures['bytes'] / figures['seconds'] / 1e9:,.1f} GB/s"
    least, largest, expected = (figures[name] for name in ("least", "largest", "expected"))
    is_mean = all(abs(found - expected) <= 1e-4 for found in (least, largest))
    assert is_mean, f"{bench.text}, wrongly: {least} to {largest}, not {expected}"


def test_kernels(bench):
    """Every operator has a kernel: of the recipes' programs on a GPU, of the quickstart's on a CPU."""
    missing: dict[str, dict[str, list[str]]] = {}  # program -> kind -> operators without a kernel
    different = []  # reported, as another wheel may differ
    names = [*dict.fromkeys(distinct(all_cases()).values()), COMBINATIONS]
    if bench.machine.device == "cpu":
        output = bench.run([sys.executable, "-m", "tests.gpu.selftest.test_kernels"], TIMEOUT_SECONDS)
        names, missing["quickstart"] = [], json_in(output)
    for name in names:
        command = [sys.executable, str(REPOSITORY / "tests/gpu/recipe_records.py"), "--build", name]
        facts = json_in(bench.run(command, TIMEOUT_SECONDS, CUDA_VISIBLE_DEVICES=""))  # built as without a GPU
        missing[name] = facts["operators without a kernel"]
        if facts != json.loads(record_of(name).read_text()):
            different.append(name)
    bench.figures |= {"programs": list(missing), "different from their records": different}
    listed = [(f"{name}, {kind}", operators) for name, kinds in missing.items() for kind, operators in kinds.items()]
    lacking = [f"{program}: {'; '.join(operators)}" for program, operators in listed if operators]
    assert not lacking, "; ".join(lacking)
    bench.text = f"none is missing in {len(missing)} program{'s' if len(missing) > 1 else ''}"
    bench.text += f"; not as recorded: {', '.join(different)}" if different else ""


KINDS = {f"{dtype}{'-packed' * unpad}": (dtype, unpad) for dtype in ("float16", "bfloat16") for unpad in (False, True)}


@pytest.mark.parametrize(("dtype", "unpad"), KINDS.values(), ids=KINDS)
def test_fused_kernels(bench, dtype, unpad):
    """Fused kernels compute the values of plain operators, as fast, at the model and length of phase 2."""
    if dtype == "bfloat16" and (reason := bench.machine.lacks_bfloat16()):
        pytest.skip(reason)
    request = {
        "model": BUILT_IN_MODELS["bert-large-uncased"].model_dump(),
        "amp_dtype": dtype,
        "compare": list(FUSED_KERNELS),
        "unpad": unpad,
        "batch_size": 8,
        "length": 512,
    }
    command = [sys.executable, "-m", "tests.gpu.selftest.kernel_comparison", json.dumps(request)]
    answer = json_in(bench.run(command, TIMEOUT_SECONDS))
    bench.figures |= answer
    reasons, times, machine = answer["reasons"], answer["times"], bench.machine
    if machine.device == "cpu":  # it must be told why it has none
        usable = [name for name in FUSED_KERNELS if not reasons.get(name)]
        assert not usable, f"without a GPU, and yet usable: {', '.join(usable)}"
        bench.text = "there is no GPU, so plain operators are used"
        return
    allowed = () if machine.has_flash_attention() else ("attention",)
    wrong = [name for name in FUSED_KERNELS if reasons[name] and name not in (*times, *allowed)]
    assert not wrong, "; ".join(f"{name}: {reasons[name]}; set {flag_of(name)} off" for name in wrong)
    flags = [f"{flag_of(name)} {'off' if reasons[name] else 'on'}" for name in times]  # a reason: it is slower
    bench.text = f"agree: {', '.join(f'{name} ({text})' for name, text in times.items())}; set {' '.join(flags)}"


def flag_of(kernel: str) -> str:
    return f"--fuse-{kernel.replace('_', '-')}"


def missing_in_quickstart() -> dict[str, list[str]]:
    """Return the operators of the quickstart's programs for which this processor has no kernel."""
    from bert.model.objectives import PretrainingObjective
    from bert.runtime.distributed import Group, initialize
    from program import build_evaluation_program, build_training_program
    from tests.gpu.kernel_coverage import PRECISIONS, missing_kernels

    config, group = RECIPES["quickstart_phase1"](), Group(0, 1, "cpu")
    initialize(group)
    objective, missing = PretrainingObjective(config.model, fuse_mha=True), {}
    for name in ("float32", "float16", "bfloat16"):
        precision = PRECISIONS[name]
        program = build_training_program(
            objective, config.optimizer, precision, group, gradient_accumulation_steps=2, num_scheduled_steps=20
        )
        missing[f"training in {name}"] = missing_kernels(program.main, "cpu")
        missing[f"start-up in {name}"] = missing_kernels(program.startup, "cpu")
        missing[f"evaluation in {name}"] = missing_kernels(build_evaluation_program(objective, precision).main, "cpu")
    return missing


if __name__ == "__main__":
    print(json.dumps(missing_in_quickstart()))
