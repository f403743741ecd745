"""The graph of imports: they follow a stated order without circles, and only one package imports Paddle.

Read from the source, so nothing needs to be importable.
"""

import ast
import importlib.metadata
import json
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
    "bert.telemetry",
    "bert.standard_output",
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
    "bert.jobs",
    "bert.pretraining",
    "bert.finetuning",
    "bert.labels",
    "bert.glue",
    "bert.search",
    "bert.inference",
    "bert.indexing",
    "bert.vectors",
    "bert.serving",
    "bert.doctor",
    "bert.own_text",
    "bert.commands",
    "bert.api_settings",
    "bert.api",
    "bert.package",
    "entry points",
)
# Rooms below `bert.runtime` whose modules start without Paddle; those above it cannot reach it.
PADDLE_FREE = ("bert.conversion", "bert.launching", "bert.search", "bert.doctor", "bert.commands", "entry points")


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
    """Return names of modules and of their imported members; with `lazy`, also of imports inside functions."""
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
    """Return the entry of ORDER to which a module belongs."""
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


def circles(arrows: Mapping[str, Set[str]]) -> list[str]:
    """Return the nodes that remain when nodes without imports or importers are removed again and again."""
    left = {node: set(targets) - {node} for node, targets in arrows.items()}
    while True:
        imported = set().union(*left.values())
        inner = {node: targets & left.keys() for node, targets in left.items() if node in imported}
        inner = {node: targets for node, targets in inner.items() if targets}
        if inner == left:
            return sorted(f"{node} -> {', '.join(sorted(targets))}" for node, targets in left.items())
        left = inner


def room(module: str) -> str:
    """Return a folder of bert/ or data/; a module directly in them or in the root is a room of its own."""
    folder = ".".join(module.split(".")[:2])
    return folder if folder in MODULES else module


def is_wrong(module: str, target: str) -> bool:
    """Tell whether the import points down ORDER, at an entry point, or from SQuAD to NER or back."""
    tasks = {match[1] for name in (module, target) if (match := re.match(r"bert\.finetuning\.(squad|ner)\b", name))}
    of = package(target)
    return ORDER.index(of) > ORDER.index(package(module)) or of == "entry points" or len(tasks) == 2


def test_the_graph_of_imports():
    """Imports point up ORDER, also those inside functions and for types; there is no circle; Paddle has one door."""
    graph = {module: imports(module) for module in MODULES}
    assert {package(module) for module in graph} == set(ORDER), "a package is missing from ORDER, or gone"
    wrong = [f"{module} imports {name}" for module, names in graph.items() for name in names if is_wrong(module, name)]
    assert not wrong, f"what is imported stands below in ORDER: {wrong}"
    rooms: dict[str, set[str]] = {}
    for module, targets in graph.items():
        rooms.setdefault(room(module), set()).update(map(room, targets))
    assert (circles(graph), circles(rooms)) == ([], [])
    direct = [module for module, path in MODULES.items() if "paddle" in {n.split(".")[0] for n in imported_names(path)}]
    assert direct == ["bert.runtime.paddle_api"], "take what is needed from bert.runtime"
    free = [module for module in graph if package(module) in PADDLE_FREE and not module.endswith("__main__")]
    assert [module for module in free if direct[0] in reachable(module)] == []


# Packages that a command which trains or predicts nothing has no use for; each costs tenths of a second at every start.
HEAVY = (
    "paddle numba llvmlite sklearn pandas scipy scipy.stats requests urllib3 pyarrow h5py matplotlib visualdl "
    "huggingface_hub transformers torch tensorflow onnx datasketch charset_normalizer numpy yaml psutil tqdm"
).split()
_LAUNCHERS = [f"bert.commands {task}" for task in ("pretraining", "squad", "glue", "classify", "ner", "vectors")]
_OF_DATA = {  # packages whose settings or constants the help of a command of data/ takes from its work
    "inspect": ("pyarrow", "numpy", "tqdm"),
    "train_vocabulary": ("numpy",),
    "import_text": ("numpy",),
    "download_wikipedia": ("numpy", "yaml"),
}
_OF_DRY_RUN = ("numpy", "yaml", "psutil", "tqdm")
STARTS = {  # the words of a command -> the packages of HEAVY that it may load
    **dict.fromkeys((f"{task} --help" for task in _LAUNCHERS), ()),
    **dict.fromkeys((f"{path.name} --help" for path in REPOSITORY.glob("run_*.py")), ()),
    **dict.fromkeys(("bert.indexing --help", "bert.serving --help", "bert.reporting --help"), ()),
    "bert.doctor --help": ("psutil",),
    **{
        f"data.{path.stem} --help": _OF_DATA.get(path.stem, ())
        for path in (REPOSITORY / "data").glob("*.py")
        if path.stem != "__init__"
    },
    "bert.commands pretraining --config base --dry-run": _OF_DRY_RUN,
    "bert.commands pretraining --config quickstart --show-config": _OF_DRY_RUN,
}
# In a fork for each command, so that what most of them need is loaded once: it must be free of HEAVY too.
_STARTING = """
import json, os, runpy, sys
import bert.pretraining.entry, bert.commands.fine_tuning, bert.samples.manifest
result = {}
for words in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    if not (child := os.fork()):
        sys.argv = words.split()
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        try:
            start = runpy.run_path if sys.argv[0].endswith(".py") else runpy._run_module_as_main
            start(*([sys.argv[0], None, "__main__"] if start is runpy.run_path else [sys.argv[0]]))
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        os.write(writing, json.dumps([code, *(name for name in sys.argv_heavy if name in sys.modules)]).encode())
        os._exit(0)
    os.close(writing)
    result[words] = json.loads(os.read(reading, 65536))
    os.waitpid(child, 0)
print(json.dumps(result))
""".replace("sys.argv_heavy", repr(HEAVY))


def test_commands_start_without_packages_that_they_do_not_need():
    done = subprocess.run(
        [sys.executable, "-c", _STARTING, json.dumps([*STARTS])],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    found = json.loads(done.stdout)
    assert found.keys() == STARTS.keys()
    failed = {words: code for words, (code, *_) in found.items() if code}
    loaded = {words: {*names} - {*STARTS[words]} for words, (_, *names) in found.items()}
    assert (failed, {words: names for words, names in loaded.items() if names}) == ({}, {})


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("run_convert, run_export, run_predict, bert.inference.trained_model", "scipy.stats sklearn huggingface_hub"),
        ("run_pretraining, bert.pretraining.config, bert.conversion.locating", "huggingface_hub"),
        ("data.preprocess_bert_pretrain", "datasketch"),
        ("bert.labels.task, bert.training.training_run", "scipy.stats sklearn pandas numba"),  # of a rank
    ],
)
def test_what_only_some_runs_need_is_not_loaded_before(modules, heavy):
    code = f"import sys, {modules}; sys.exit(' '.join(set('{heavy}'.split()) & set(sys.modules)) or None)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def test_predictions_and_the_server_import_only_packages_of_their_extras():
    """The server's image has no other packages, nor has a user who installs the extra `inference`."""
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


def test_zlib_is_loaded_before_paddle():
    assert "zlib" in imported_names(MODULES["bert"])


def test_nothing_stands_behind_the_main_guard_of_a_program():
    """A module that runs as a program would lack names that are defined there."""
    behind = []
    for path in [*REPOSITORY.glob("*.py"), *(REPOSITORY / "bert").rglob("*.py"), *(REPOSITORY / "data").rglob("*.py")]:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        guards = [node for node in body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)]
        behind += [str(path) for node in guards if node is not body[-1]]
    assert behind == []
