"""Imports point down only. Read from the source, so nothing needs to be importable, and lazy imports count too."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY

PADDLE_FREE = 0
LAYER = {
    # Paddle and its wrapper
    "bert.runtime.paddle_api": 1,
    # pieces
    "bert.model.modeling": 2,
    "bert.model.losses": 2,
    "bert.model.optimization": 2,
    "bert.model.objectives": 2,
    "bert.runtime.distributed": 2,
    "bert.runtime.hardware": 2,
    "tests.gpu.program_memory": 2,
    "tests.gpu.program_record": 2,
    # whole programs, the loop, state
    "program": 3,
    "bert.training.divergence": 3,
    "bert.training.trainer": 3,
    "bert.training.evaluation": 3,
    "bert.checkpoints.state": 3,
    # runs put together
    "bert.training.run": 4,
    "bert.training.initialization": 4,
    "bert.pretraining.task": 4,
    "bert.finetuning.run": 4,
    "bert.inference.exporting": 4,
    "bert.inference.predictor": 4,
    "bert.finetuning.squad.task": 4,
    "bert.inference.question_answering": 4,
    "bert.finetuning.glue.task": 4,
    "bert.finetuning.ner.task": 4,
}
ENTRY_POINT = 5
MUST_BE_PADDLE_FREE = (
    "bert.config.architecture",
    "bert.checkpoints.files",
    "bert.conversion.reading",
    "bert.checkpoints.writer",
    "bert.config.command_line",
    "bert.config.base",
    "bert.conversion.converting",
    "bert.conversion.onnx_graph",
    "bert.doctor.checks",
    "bert.planning.estimates",
    "bert.finetuning.feature_cache",
    "bert.finetuning.config",
    "bert.finetuning.loader",
    "bert.config.flags",
    "bert.finetuning.glue.config",
    "bert.finetuning.glue.features",
    "bert.finetuning.glue.metrics",
    "bert.finetuning.glue.reading",
    "bert.finetuning.glue.submission",
    "bert.finetuning.glue.tasks",
    "bert.training.interruption",
    "bert.doctor.requirements",
    "bert.launching.finetuning",
    "bert.launching.finetuning_quickstart",
    "bert.launching.plan",
    "bert.launching.report",
    "bert.launching.launcher",
    "bert.launching.preparation",
    "bert.launching.quickstart",
    "bert.launching.rendezvous",
    "bert.launching.slurm",
    "bert.reporting.logs",
    "bert.doctor.facts",
    "bert.runtime.topology",
    "bert.planning.planner",
    "tests.benchmarks.planner_check",
    "bert.planning.flags",
    "bert.planning.hardware",
    "bert.planning.operators",
    "bert.pretraining.config",
    "bert.samples.loader",
    "bert.randomness",
    "bert.pretraining.recipes",
    "bert.reporting.report",
    "bert.reporting.curves",
    "bert.reporting.report_document",
    "bert.reporting.report_reading",
    "bert.samples.masking",
    "bert.samples.shards",
    "bert.samples.table",
    "bert.finetuning.squad.config",
    "bert.finetuning.squad.examples",
    "bert.finetuning.squad.features",
    "bert.launching.squad",
    "bert.finetuning.squad.metrics",
    "bert.finetuning.squad.predictions",
    "bert.tokenization.offsets",
    "bert.finetuning.ner.config",
    "bert.finetuning.ner.conll",
    "bert.finetuning.ner.features",
    "bert.finetuning.ner.tags",
    "bert.tokenization.wordpiece",
    "bert.training.watchdog",
)


def module_name(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_files() -> list[Path]:
    roots = [REPOSITORY / "bert", REPOSITORY / "data"]
    return sorted(REPOSITORY.glob("*.py")) + sorted(path for root in roots for path in root.rglob("*.py"))


MODULES = {module_name(path): path for path in source_files()}


def imported_names(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer; write the whole name"
            names += [node.module or ""] + [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def imports(module: str) -> set[str]:
    return {name for name in imported_names(MODULES[module]) if name in MODULES}


def layer(module: str) -> int:
    if module.startswith("run_"):
        return ENTRY_POINT
    return LAYER.get(module, PADDLE_FREE)


def reachable(module: str) -> set[str]:
    found, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += imports(name)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    upward = sorted(name for name in imports(module) if layer(name) > layer(module))
    assert not upward, (
        f"{module} (layer {layer(module)}) imports {upward} from above; a new module that needs Paddle "
        "must be given its layer in tests/test_layers.py"
    )


@pytest.mark.parametrize("module", MODULES)
def test_only_the_framework_module_imports_paddle(module):
    direct = [name for name in imported_names(MODULES[module]) if name.split(".")[0] == "paddle"]
    assert not direct or module == "bert.runtime.paddle_api", (
        f"{module} must take {direct} from bert.runtime.paddle_api"
    )


@pytest.mark.parametrize("module", [*MUST_BE_PADDLE_FREE, *(name for name in MODULES if name.startswith("data."))])
def test_paddle_free_modules_reach_no_paddle(module):
    if module not in MODULES:
        pytest.skip("not written yet")
    assert not [name for name in reachable(module) if layer(name) > PADDLE_FREE]


@pytest.mark.parametrize("module", MODULES)
def test_nobody_imports_an_entry_point(module):
    assert not [name for name in imports(module) if layer(name) == ENTRY_POINT]


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("data.")])
def test_data_imports_only_itself_and_the_paddle_free_layer(module):
    assert not [name for name in imports(module) if not name.startswith(("bert", "data"))]


def test_the_framework_module_loads_zlib_before_paddle():
    names = imported_names(MODULES["bert.runtime.paddle_api"]) if "bert.runtime.paddle_api" in MODULES else []
    package = imported_names(MODULES["bert"])
    first_paddle = min(index for index, name in enumerate(names) if name.startswith("paddle"))
    assert "zlib" in package or "zlib" in names[:first_paddle]


def test_paddle_is_not_loaded_by_the_paddle_free_modules():
    """The source cannot show what third-party packages import; a process can."""
    names = [name for name in MUST_BE_PADDLE_FREE if name in MODULES]
    code = f"import sys, {', '.join(names)}; assert 'paddle' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def test_the_root_holds_only_what_was_agreed():
    entry_points = {path.name for path in REPOSITORY.glob("*.py")}
    assert all(name == "program.py" or name.startswith("run_") for name in entry_points), entry_points
