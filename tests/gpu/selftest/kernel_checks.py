"""Checks without a training: the doctor, kernels for every operator, fused kernels against plain operators."""

import json
import sys
from functools import partial
from typing import Any

from bert import REPOSITORY
from bert.config.architecture import BUILT_IN_MODELS
from bert.pretraining.recipes import RECIPES
from tests.gpu.cases import all_cases, distinct
from tests.gpu.recipe_records import COMBINATIONS, record_of
from tests.gpu.selftest.checks import Bench, Check, Failed, Verdict, json_in
from tests.gpu.selftest.machine import Machine

TIMEOUT_SECONDS = 600.0
FUSED_KERNELS = ("linear", "dropout_add", "attention")


def kernel_checks() -> list[Check]:
    found = [
        Check("doctor", "is the machine fit to train", doctor, {"gpu": 30, "cpu": 15}),
        Check("kernels", "a kernel for every operator of the programs", kernels, {"gpu": 520, "cpu": 15}),
    ]
    for dtype in ("float16", "bfloat16"):
        for unpad in (False, True):
            name = f"fused-kernels-{dtype}" + ("-packed" if unpad else "")
            title = f"fused kernels against plain operators, {dtype}" + (", packed tokens" if unpad else "")
            run = partial(fused_kernels, dtype, unpad)
            found.append(Check(name, title, run, {"gpu": 30, "cpu": 10}, partial(_unable, dtype)))
    return found


def _unable(dtype: str, machine: Machine) -> str:
    return machine.lacks_bfloat16() if dtype == "bfloat16" else ""


def doctor(bench: Bench) -> Verdict:
    command = [sys.executable, "-m", "bert.doctor", "--json", "--output-dir", str(bench.folder)]
    return judge_doctor(json_in(bench.run(command, TIMEOUT_SECONDS, allowed_codes=(0, 1))))


def judge_doctor(report: dict[str, Any]) -> Verdict:
    """Args:
        report: what `bert.doctor --json` prints.
    Raises:
        Failed: something would prevent or spoil a training.
    """
    figures = {**report["facts"], "findings": report["findings"]}

    def text(level: str) -> str:
        findings = [finding for finding in report["findings"] if finding["level"] == level]
        return "; ".join(f"{finding['name']}: {finding['found']} ({finding['advice']})" for finding in findings)

    if not report["fit"]:
        raise Failed(text("failure"), figures)
    return Verdict(f"fit; warnings: {text('warning')}" if text("warning") else "fit", figures)


def kernels(bench: Bench) -> Verdict:
    """Of the recipes' programs on a GPU, which are built as without one; of the quickstart's on a CPU."""
    if bench.machine.device == "cpu":
        output = bench.run([sys.executable, "-m", "tests.gpu.selftest.kernel_checks"], TIMEOUT_SECONDS)
        return judge_kernels({"quickstart": json_in(output)}, [])
    missing: dict[str, Any] = {}
    different = []
    for name in (*dict.fromkeys(distinct(all_cases()).values()), COMBINATIONS):
        command = [sys.executable, str(REPOSITORY / "tests/gpu/recipe_records.py"), "--build", name]
        output = bench.run(command, TIMEOUT_SECONDS, CUDA_VISIBLE_DEVICES="")
        facts = json_in(output)
        missing[name] = facts["operators without a kernel"]
        if facts != json.loads(record_of(name).read_text()):
            different.append(name)
    return judge_kernels(missing, different)


def judge_kernels(missing: dict[str, dict[str, list[str]]], different: list[str]) -> Verdict:
    """Args:
        missing: program -> kind -> operators without a kernel.
        different: programs that are not as in tests/gpu/golden; they are reported, as another wheel may differ.
    Raises:
        Failed: an operator has none.
    """
    listed = [(f"{name}, {kind}", operators) for name, kinds in missing.items() for kind, operators in kinds.items()]
    lacking = [f"{program}: {'; '.join(operators)}" for program, operators in listed if operators]
    figures = {"programs": list(missing), "different from their records": different}
    if lacking:
        raise Failed("; ".join(lacking), figures)
    text = f"none is missing in {len(missing)} program{'s' if len(missing) > 1 else ''}"
    return Verdict(text + (f"; not as recorded: {', '.join(different)}" if different else ""), figures)


def fused_kernels(dtype: str, unpad: bool, bench: Bench) -> Verdict:
    """Fused kernels beside plain operators, at the model and length of phase 2."""
    request = {
        "model": BUILT_IN_MODELS["bert-large-uncased"].model_dump(),
        "amp_dtype": dtype,
        "compare": list(FUSED_KERNELS),
        "unpad": unpad,
        "batch_size": 8,
        "length": 512,
    }
    output = bench.run(
        [sys.executable, "-m", "tests.gpu.selftest.kernel_comparison", json.dumps(request)], TIMEOUT_SECONDS
    )
    return judge_fused_kernels(json_in(output), bench.machine)


def judge_fused_kernels(answer: dict[str, dict[str, str]], machine: Machine) -> Verdict:
    """A GPU has all kernels, but for attention on older cards; a CPU must be told why it has none.

    Args:
        answer: what `tests.gpu.selftest.kernel_comparison` prints.
    Raises:
        Failed: a kernel differs from plain operators or fails, or is said to be on a CPU.
    """
    reasons, times = answer["reasons"], answer["times"]
    if machine.device == "cpu":
        wrong = [name for name in FUSED_KERNELS if not reasons.get(name)]
        if wrong:
            raise Failed(f"without a GPU, and yet usable: {', '.join(wrong)}", {"reasons": reasons})
        return Verdict("there is no GPU, so plain operators are used", {"reasons": reasons})
    allowed = () if machine.has_flash_attention() else ("attention",)
    wrong = [name for name in FUSED_KERNELS if reasons[name] and name not in (*times, *allowed)]
    if wrong:
        raise Failed("; ".join(f"{name}: {reasons[name]}" for name in wrong), answer)
    agreed = [f"{name} ({times[name]})" for name in FUSED_KERNELS if name in times]
    return Verdict(f"agree: {', '.join(agreed)}", answer)


def missing_in_quickstart() -> dict[str, list[str]]:
    """The operators of the quickstart's programs that this processor has no kernel for."""
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
