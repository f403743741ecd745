"""Imports point down only. Read from the source, so nothing needs to be importable, and lazy imports count too."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

PADDLE_FREE = 0
LAYER = {
    # Paddle and its wrapper
    "bert.framework": 1,
    # pieces
    "bert.modeling": 2, "bert.losses": 2, "bert.optimization": 2, "bert.objectives": 2, "bert.distributed": 2,
    "bert.machine.hardware": 2,
    "bert.program_memory": 2, "bert.program_record": 2,
    # whole programs, the loop, state
    "program": 3, "bert.guards": 3, "bert.training": 3, "bert.inference": 3, "bert.checkpoint": 3,
    # runs put together
    "bert.runs": 4, "bert.initialization": 4, "bert.pretraining": 4, "bert.finetuning": 4,
    "bert.exporting": 4, "bert.serving": 4,
    "bert.squad.task": 4, "bert.question_answering": 4, "bert.glue.task": 4, "bert.token_classification.task": 4,
}
ENTRY_POINT = 5
MUST_BE_PADDLE_FREE = (
    "bert.architecture", "bert.checkpoint_files", "bert.checkpoint_sources", "bert.checkpoint_writer", "bert.cli",
    "bert.config", "bert.conversion.converting", "bert.conversion.onnx_graph", "bert.doctor", "bert.estimates",
    "bert.feature_cache", "bert.finetuning_config", "bert.finetuning_data", "bert.flags", "bert.glue.config",
    "bert.glue.features", "bert.glue.metrics", "bert.glue.reading", "bert.glue.submission", "bert.glue.tasks",
    "bert.interruption", "bert.launching.environment", "bert.launching.finetuning_launcher",
    "bert.launching.finetuning_quickstart",
    "bert.launching.launch_plan", "bert.launching.launch_report", "bert.launching.launcher",
    "bert.launching.preparation", "bert.launching.quickstart", "bert.launching.rendezvous", "bert.launching.slurm",
    "bert.logs", "bert.machine.machine_facts", "bert.machine.topology", "bert.planning.planner",
    "bert.planning.planner_check", "bert.planning.planner_flags", "bert.planning.planner_hardware",
    "bert.planning.planner_operators", "bert.pretraining_config", "bert.pretraining_data", "bert.randomness",
    "bert.recipes", "bert.report", "bert.reporting.curves", "bert.reporting.report_document",
    "bert.reporting.report_reading", "bert.samples.masking", "bert.samples.shards", "bert.samples.table",
    "bert.squad.config", "bert.squad.examples", "bert.squad.features", "bert.squad.launch", "bert.squad.metrics",
    "bert.squad.predictions", "bert.text.token_offsets", "bert.token_classification.config",
    "bert.token_classification.data", "bert.token_classification.features", "bert.token_classification.tags",
    "bert.tokenization", "bert.watchdog")


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
    assert not upward, (f"{module} (layer {layer(module)}) imports {upward} from above; a new module that needs Paddle "
                        "must be given its layer in tests/test_layers.py")


@pytest.mark.parametrize("module", MODULES)
def test_only_the_framework_module_imports_paddle(module):
    direct = [name for name in imported_names(MODULES[module]) if name.split(".")[0] == "paddle"]
    assert not direct or module == "bert.framework", f"{module} must take {direct} from bert.framework"


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
    names = imported_names(MODULES["bert.framework"]) if "bert.framework" in MODULES else []
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
