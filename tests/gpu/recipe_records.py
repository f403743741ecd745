"""Build the program of every GPU recipe as rank 0 of eight GPUs would, with Paddle's GPU wheel and no GPU, and compare
it with its record in golden/. Call it through scripts/run_gpu_record.sh, which brings the wheel:

    bash scripts/run_gpu_record.sh                    # all
    bash scripts/run_gpu_record.sh phase1_large       # one
    bash scripts/run_gpu_record.sh --write            # replace the records: look at the difference in git
    bash scripts/run_gpu_record.sh --table            # the table of tests/README.md, from the records
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(REPOSITORY), str(HERE.parent)]
GOLDEN = HERE / "golden"
COMBINATIONS = "combinations"  # of settings, beside the cases
INFERENCE = "inference"  # how exports run
WITHOUT_KERNEL = "operators without a kernel"

from bert.help_parser import HelpParser  # noqa: E402
from tests.benchmarks.processes import markdown  # noqa: E402
from tests.gpu.cases import NUM_RANKS, all_cases, distinct  # noqa: E402


def pretend_to_be_rank_0(num_ranks: int) -> None:
    """Set the launcher's variables; call it before Paddle is imported."""
    endpoints = [f"127.0.0.1:{6170 + rank}" for rank in range(num_ranks)]
    os.environ.update(
        PADDLE_TRAINER_ID="0",
        PADDLE_TRAINERS_NUM=str(num_ranks),
        FLAGS_selected_gpus="0",
        PADDLE_TRAINER_ENDPOINTS=",".join(endpoints),
        PADDLE_CURRENT_ENDPOINT=endpoints[0],
    )


def build(name: str) -> str:
    """Return the record of a case, or of all combinations; once per process, as Fleet is told the number of ranks."""
    if name == INFERENCE:
        return json.dumps(inference(), indent=1) + "\n"
    case = all_cases().get(name)
    num_ranks = case.num_ranks if case else NUM_RANKS
    pretend_to_be_rank_0(num_ranks)
    from bert.runtime.distributed import Group, initialize
    from bert.runtime.paddle_api import paddle
    from program import build_training_program
    from tests.gpu.kernel_coverage import missing, missing_kernels
    from tests.gpu.program_record import dump, record, record_forward

    if not paddle.is_compiled_with_cuda():
        raise SystemExit(
            "this Paddle was not built for GPUs; run bash scripts/run_gpu_record.sh, which installs "
            "the extra `gpu` in an environment of its own"
        )
    group = Group(0, num_ranks, "gpu", 0, 8)
    initialize(group)
    if case is None:
        return dump({WITHOUT_KERNEL: missing(group, "gpu")})
    settings = (case.objective(), case.optimizer, case.precision, group)
    steps = {"gradient_accumulation_steps": case.micro_steps, "num_scheduled_steps": 1000}
    program = build_training_program(*settings, **steps)
    facts = record(program, case.inputs())
    programs = {"training": program.main, "start-up": program.startup}
    for kind, main, inputs in _without_backward(case):
        programs[kind] = main
        if inputs:
            facts[kind] = record_forward(main, inputs, program.parameters)
    facts[WITHOUT_KERNEL] = {kind: missing_kernels(main, "gpu") for kind, main in programs.items()}
    return dump(facts)


def inference() -> dict[str, Any]:
    """Return the settings of Paddle Inference for each device and precision of an export, as it states them itself."""
    from bert.inference.predictor import paddle_config
    from bert.runtime.paddle_api import paddle

    built_with = ".".join(map(str, paddle.inference.get_trt_compile_version()))
    found: dict[str, Any] = {"the wheel": {"built with TensorRT": built_with}}
    for device in ("cpu", "gpu", "tensorrt"):
        for precision in ("float32", "fp16", "bfloat16"):
            config = paddle_config(["model.pdmodel", "model.pdiparams"], {"precision": precision}, device, 2)
            facts = {"GPU": config.use_gpu(), "TensorRT": config.tensorrt_engine_enabled()}
            if device != "cpu":
                facts["pool in MB"] = config.memory_pool_init_size_mb()
            if device == "gpu":  # with TensorRT the summary needs its library
                rows = [row.split("|")[1:3] for row in config.summary().splitlines() if row.count("|") == 3]
                facts["precision"] = {name.strip(): value.strip() for name, value in rows}["mixed_precision_mode"]
            if device == "tensorrt":
                facts["precision"] = str(config.tensorrt_precision_mode()).split(".")[-1]
                facts["sizes as they come"] = config.trt_allow_build_at_runtime()
            found[f"{device}, {precision}"] = facts
    return found


def _without_backward(case) -> Iterator[tuple[str, Any, dict]]:
    """Return name, program and input shapes: pre-training evaluates; fine-tuning predicts, also without training."""
    from program import build_evaluation_program, build_prediction_program

    objective, inputs = case.objective(), case.inputs()
    if case.predictions:
        yield "evaluation", build_evaluation_program(objective, case.precision).main, inputs
        return
    without_labels = {name: shape for name, shape in inputs.items() if name in objective.encoder_inputs()}
    prediction = build_prediction_program(objective, case.precision)
    yield "prediction", prediction.main, without_labels
    yield "start-up of prediction", prediction.startup, {}


def record_of(name: str) -> Path:
    return GOLDEN / f"{name}.json"


def check(name: str, write: bool) -> str:
    """Build in a process of its own; return the difference from the record, empty when there is none."""
    from tests.gpu.program_record import differences

    command = [sys.executable, __file__, "--build", name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    if done.returncode:
        return f"{name} could not be built:\n{done.stderr[-2000:]}"
    path = record_of(name)
    if write:
        path.write_text(done.stdout)
        return ""
    if not path.exists():
        return f"{name} has no record; make it with bash scripts/run_gpu_record.sh --write {name}"
    return differences(json.loads(path.read_text()), json.loads(done.stdout), name)


def table() -> str:
    """Return an overview of the records, as Markdown."""
    header = ["recipe", "ranks x micro-batches", "parameters", "optimizer", "gradients", "activations kept"]
    header += ["peak, all", "all-reduces per update", "casts per micro-batch"]
    cases, rows = all_cases(), []
    holders = distinct(cases)
    for name in dict.fromkeys(holders.values()):
        names = ", ".join(f"`{other}`" for other, holder in holders.items() if holder == name)
        rows.append([names, *_row(cases[name], json.loads(record_of(name).read_text()))])
    return markdown(header, rows)


def _row(case, facts) -> list[str]:
    memory = facts["memory in MB"]
    kinds = ("optimizer moments", "accumulated gradients", "activations kept for the backward pass")
    parts = [memory["parameters"] + memory["half-precision copies of parameters"]]
    parts += [memory[kind] for kind in (*kinds, "total at the worst moment")]
    reduces = [(int(text.split(",")[0]), key) for key, text in facts["communication"].items() if "allreduce" in key]
    casts = [text.split(", ") for key, text in facts["casts"].items() if not key.startswith("update")]
    moved = sum(int(megabytes.split()[0]) for _, megabytes in casts) / 1000
    return [
        f"{case.num_ranks} x {case.micro_steps}",
        *(f"{part / 1000:.1f} GB" for part in parts),
        str(sum(count for count, _ in reduces)),
        f"{sum(int(count) for count, _ in casts)}, {moved:.1f} GB",
    ]


def main() -> int:
    parser = HelpParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases; all if none")
    parser.add_argument("--write", action="store_true", help="replace the records by what is built now")
    parser.add_argument("--table", action="store_true", help="print the table of the records; builds nothing")
    parser.add_argument("--build", metavar="NAME", help="print the record of one case; compares nothing")
    arguments = parser.parse_args()
    known = {**distinct(all_cases()), **{name: name for name in (COMBINATIONS, INFERENCE)}}
    if unknown := sorted({*arguments.names, *([arguments.build] if arguments.build else [])} - known.keys()):
        parser.error(f"no case is called {', '.join(unknown)}; there are {', '.join(known)}")
    if arguments.table or arguments.build:
        print(table() if arguments.table else build(arguments.build), end="\n" if arguments.table else "")
        return 0
    names = list(dict.fromkeys(known[name] for name in arguments.names or known))
    failures = 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        for name, difference in zip(names, pool.map(lambda name: check(name, arguments.write), names), strict=True):
            verdict = "differs" if difference else "written" if arguments.write else "as recorded"
            print(f"{name}: {verdict}", flush=True)
            failures += bool(difference)
            if difference:
                print(difference, flush=True)
    if failures:
        print(f"{failures} of {len(names)} differ. If that is what you wanted: bash scripts/run_gpu_record.sh --write")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
