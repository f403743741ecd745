"""The graph of packages: imports point up a stated order, and there is no circle; Paddle has one door.

Read from the source, so nothing needs to be importable.
"""

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Mapping, Set
from functools import lru_cache
from pathlib import Path

import pytest

from bert import REPOSITORY
from tests.support.locked import locked

# Each may import from those above it only. A new package is added where its reader would look for it.
ORDER = (
    "bert.exit_codes",
    "bert.interpreter",
    "bert.printable",
    "bert.rank_environment",
    "bert",
    "bert.randomness",
    "bert.help_parser",
    "bert.parent_death",
    "bert.files",
    "bert.command_errors",
    "bert.arrays",
    "bert.config",
    "bert.reporting",
    "bert.tokenization",
    "bert.samples",
    "bert.planning",
    "data.text",
    "data.fetching",
    "data.examples",
    "data.preprocessing",
    "data.wikipedia",
    "data",  # the commands
    "bert.runtime",
    "bert.model",
    "program",
    "bert.checkpoints",
    "bert.conversion",
    "bert.training",
    "bert.launching",
    "bert.pretraining",
    "bert.finetuning",
    "bert.labels",
    "bert.glue",
    "bert.inference",
    "bert.vectors",
    "bert.serving",
    "bert.doctor",
    "bert.own_text",
    "bert.commands",
    "bert.api",
    "bert.package",
    "entry points",
)
# These packages never load Paddle; modules of the others that must not are listed one by one.
PADDLE_FREE = (
    *("bert.arrays", "bert.config", "bert.reporting", "bert.tokenization", "bert.samples", "bert.planning"),
    *("bert.conversion", "bert.doctor", "bert.launching", "bert.commands", "bert.interpreter", "data"),
)
_PADDLE_FREE_PARTS = {  # package -> its modules
    "bert.checkpoints": "directories progress writer",
    "bert": "exit_codes",
    "bert.finetuning": (
        "config loader model_files ner.config ner.conll ner.features "
        "prediction_files squad.config squad.examples squad.features squad.metrics squad.predictions "
        "squad.answer_settings text_files"
    ),
    "bert.glue": "config files task_table",
    "bert.labels": "baseline columns decision examples metrics schema scores settings split table",
    "bert.model": "head_specs",
    "bert.inference": "output records rows settings",
    "bert.own_text": (
        "candidates constants corpus facts flags given_files length plan plan_table record report request rules run "
        "sources speed start"
    ),
    "bert.pretraining": "entry epochs labelled_lines launch_settings phases preparation",
    "bert.runtime": "topology",
    "bert.serving": "batching connections messages request_handling routes running schemas settings worker",
    "bert.training": "interruption loss_guards",
    "": "run_convert run_export run_glue run_ner run_predict run_pretraining run_squad run_vectors",
}
PADDLE_FREE_MODULES = {
    f"{package}.{name}".lstrip(".") for package, names in _PADDLE_FREE_PARTS.items() for name in names.split()
}


def module_name(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_files() -> list[Path]:
    roots = [REPOSITORY / "bert", REPOSITORY / "data"]
    own = [path for path in REPOSITORY.glob("*.py") if path.name != "setup.py"]  # it only builds the package
    return sorted(own) + sorted(path for root in roots for path in root.rglob("*.py"))


MODULES = {module_name(path): path for path in source_files()}


@lru_cache(maxsize=None)
def imported_names(path: Path, lazy: bool = True) -> list[str]:
    """Names of modules, and of what is imported from them; with `lazy`, also of imports inside functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = []
    for node in ast.walk(tree) if lazy else tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the package; write the whole name"
            names += [node.module or ""] + [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def imports(module: str, lazy: bool = True) -> set[str]:
    return {name for name in imported_names(MODULES[module], lazy) if name in MODULES}


def package(module: str) -> str:
    """The entry of ORDER that a module belongs to."""
    if module.startswith("run_"):
        return "entry points"
    if module == "bert":
        return "bert"
    return max((name for name in ORDER if name != "bert" and f"{module}.".startswith(f"{name}.")), key=len)


def reachable(module: str) -> set[str]:
    found, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += imports(name, lazy=False)
    return found


def is_paddle_free(module: str) -> bool:
    return module in PADDLE_FREE_MODULES or any(f"{module}.".startswith(f"{name}.") for name in PADDLE_FREE)


def test_imports_point_up_the_list_of_packages():
    """Also those inside functions and for types. Nothing imports an entry point, and no room a command."""
    place = {module: ORDER.index(package(module)) for module in MODULES}
    wrong = [
        f"{module} imports {name}" for module in MODULES for name in imports(module) if place[name] > place[module]
    ]
    entry_points = {name for name in MODULES if package(name) == "entry points"}
    wrong += [f"{module} imports {name}" for module in MODULES for name in imports(module) & entry_points]
    assert not wrong, f"what is imported stands below in ORDER: {wrong}"


def circles(arrows: Mapping[str, Set[str]]) -> list[str]:
    """What is left when nodes that import no other, or that no other imports, are taken away again and again."""
    left = {node: set(targets) - {node} for node, targets in arrows.items()}
    while True:
        imported = set().union(*left.values())
        inner = {node: targets & left.keys() for node, targets in left.items() if node in imported}
        inner = {node: targets for node, targets in inner.items() if targets}
        if inner == left:
            return sorted(f"{node} -> {', '.join(sorted(targets))}" for node, targets in left.items())
        left = inner


def room(module: str) -> str:
    """A folder of bert/ or data/; a module directly in them or in the root is a room of its own."""
    folder = ".".join(module.split(".")[:2])
    return folder if folder in MODULES else module


def test_there_is_no_circle_between_files_or_rooms():
    files = {module: imports(module) for module in MODULES}
    rooms: dict[str, set[str]] = {}
    for module, targets in files.items():
        rooms.setdefault(room(module), set()).update(map(room, targets))
    assert (circles(files), circles(rooms)) == ([], [])


def test_one_module_of_ours_is_imported_by_its_name():
    """The registry of tasks. Its arrows cannot be seen here; two others take packages that may be missing."""
    by_name = []
    for module, path in MODULES.items():
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(("import_module", "__import__")):
                name = ast.literal_eval(call.args[0]) if isinstance(call.args[0], ast.Constant) else "any"
                by_name += [(module, name)] if name.split(".")[0] in ("any", "bert", "data", "program") else []
    others = [("bert.inference.predictor", "any"), ("data.preprocessing.workers", "any")]
    assert sorted(by_name) == sorted([("bert.config.entry_point", "any"), *others])


def test_no_package_is_missing_from_the_list_or_gone():
    assert {package(module) for module in MODULES} == set(ORDER)


def finetuning_task(module: str) -> str | None:
    """ner of bert.finetuning.ner.tags; None for a module that no single task owns."""
    match = re.match(r"bert\.finetuning\.(squad|ner)\b", module)
    return match[1] if match else None


def test_fine_tuning_tasks_do_not_import_each_other():
    """What SQuAD and NER share stands in bert.finetuning itself, whose modules import neither."""
    wrong = [
        f"{module} imports {name}"
        for module in MODULES
        if module.startswith("bert.finetuning.")
        for name in imports(module)
        if finetuning_task(name) not in (None, finetuning_task(module))
    ]
    assert not wrong, f"{wrong}: move what both need up into bert.finetuning"


def test_only_one_module_imports_paddle():
    direct = [
        module for module, path in MODULES.items() if any(n.split(".")[0] == "paddle" for n in imported_names(path))
    ]
    assert direct == ["bert.runtime.paddle_api"], "take what is needed from bert.runtime"


def test_paddle_free_modules_reach_no_paddle():
    assert [name for name in filter(is_paddle_free, MODULES) if "bert.runtime.paddle_api" in reachable(name)] == []


@pytest.mark.long
def test_paddle_is_not_loaded_by_the_paddle_free_modules():
    """The source cannot show what third-party packages import; a process can."""
    names = [name for name in MODULES if is_paddle_free(name) and not name.endswith("__main__")]
    code = f"import sys, {', '.join(names)}; assert 'paddle' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


@pytest.mark.parametrize(
    "modules, heavy",
    [
        ("run_convert, run_export, run_predict, bert.inference.trained_model", "scipy.stats sklearn huggingface_hub"),
        ("run_convert", "paddle torch tensorflow transformers"),
        ("run_pretraining, bert.pretraining.config, bert.conversion.locating", "huggingface_hub"),
        ("data.preprocess_bert_pretrain", "pydantic datasketch"),
    ],
)
def test_commands_start_without_packages_that_they_may_not_need(modules, heavy):
    """Each costs tenths of a second at every start."""
    code = f"import sys, {modules}; sys.exit(' '.join(set('{heavy}'.split()) & set(sys.modules)) or None)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def test_predictions_and_the_server_import_only_packages_of_their_extras():
    """The server's image has no others, nor has who installs the extra `inference`."""
    commands = (
        "bert.commands.predict",
        "bert.inference.terminal",
        "bert.serving.running",
        "bert.serving.model_process",
    )
    found = set().union(*map(reachable, commands))
    names = {name.partition(".")[0] for module in found for name in imported_names(MODULES[module], lazy=False)}
    owners = importlib.metadata.packages_distributions()  # several of a name such as google
    used = {name: {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners[name]} for name in names & owners.keys()}
    available = locked(["inference", "paddle", "serve"])
    assert not {name: packages for name, packages in used.items() if not packages & available}


def test_lists_name_modules_that_exist():
    assert PADDLE_FREE_MODULES <= MODULES.keys()


def test_commands_stand_alone_at_the_top_of_data():
    """A module directly in data/ is a command; the packages below do the work and import no command."""
    top = [path for name, path in MODULES.items() if name.startswith("data.") and path.parent.name == "data"]
    assert [path.name for path in top if '__name__ == "__main__"' not in path.read_text(encoding="utf-8")] == []


def test_zlib_is_loaded_before_paddle():
    assert "zlib" in imported_names(MODULES["bert"])


def test_the_root_holds_only_what_was_agreed():
    entry_points = {path.name for path in REPOSITORY.glob("*.py")}
    assert all(name in ("program.py", "setup.py") or name.startswith("run_") for name in entry_points), entry_points
    tracked = subprocess.run(["git", "ls-files", "*/*"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert {name.split("/")[0] for name in tracked.stdout.split()} == {".ci", "bert", "data", "scripts", "tests"}


def test_nothing_stands_behind_the_main_guard_of_a_program():
    """Run as a program, a module does not have what is defined there."""
    behind = []
    for path in [*REPOSITORY.glob("*.py"), *(REPOSITORY / "bert").rglob("*.py"), *(REPOSITORY / "data").rglob("*.py")]:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        guards = [node for node in body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)]
        behind += [str(path) for node in guards if node is not body[-1]]
    assert behind == []
