"""Docstrings and comments name files, modules and tests that exist."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bert import REPOSITORY

# Files of the users, of other projects and of results, which code names and this repository has not.
_OF_OTHERS = frozenset(
    """a.md bert.encoder bert.encoder.layer create_pretraining_data.py data.py glue_config.sh job.sh licences.md
    pip.py sitecustomize.py pydoc_data/topics.py table.md venv.py vulnerabilities.md""".split()
)
_ROOMS = "bert|data|scripts|tests"
_PATH = re.compile(
    rf"(?<![\w/.$@-])(?:(?:{_ROOMS})/[\w./-]*\w|[\w-]+(?:/[\w-]+)*\.(?:py|md|sh|sub|yaml))(?![\w*<-])(?!/[A-Z*])"
)
_MODULE = re.compile(rf"(?<![\w/.$@-])(?:{_ROOMS})(?:\.[a-z]\w*)+")
_TEST = re.compile(r"(?<![\w/.])test_[a-z]+_\w+(?![\w./(])")


@cache
def tracked() -> frozenset[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return frozenset(listed.splitlines())


def texts_of(file: str) -> Iterator[str]:
    """Return the docstrings and comments of a file."""
    content = (REPOSITORY / file).read_text(encoding="utf-8")
    if not file.endswith(".py"):
        yield from (line for line in content.splitlines() if line.lstrip().startswith("#"))
        return
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@cache
def places() -> frozenset[str]:
    """Return all paths of files and folders, and the ends of files' paths."""
    parts = [file.split("/") for file in tracked()]
    ends = {"/".join(words[start:]) for words in parts for start in range(len(words))}
    return frozenset(ends | {"/".join(words[:end]) for words in parts for end in range(1, len(words))})


def exists(path: str) -> bool:
    """Tell whether a file or folder has this path, or a file's path ends with it."""
    return path.rstrip("./") in places()


def is_module(name: str) -> bool:
    """Tell whether a module, or a member of one, has this name."""
    words = name.split(".")
    for end in range(len(words), 0, -1):
        place = "/".join(words[:end])
        if f"{place}.py" in tracked():
            rest = words[end:]
            return not rest or rest[0] in (REPOSITORY / f"{place}.py").read_text(encoding="utf-8")
        if f"{place}/__init__.py" in tracked() or (
            end < len(words) and any(f.startswith(f"{place}/") for f in tracked())
        ):
            return end == len(words) or words[end] in _names_in_package(place)
    return False


def _names_in_package(place: str) -> set[str]:
    init = REPOSITORY / place / "__init__.py"
    return set(re.findall(r"\w+", init.read_text(encoding="utf-8"))) if init.exists() else set()


@cache
def known_tests() -> frozenset[str]:
    files = [file for file in tracked() if file.startswith("tests/") and file.endswith(".py")]
    texts = ((REPOSITORY / file).read_text(encoding="utf-8") for file in files)
    return frozenset(
        {Path(file).stem for file in files} | {name for text in texts for name in re.findall(r"def (test_\w+)", text)}
    )


def is_placeholder(path: str) -> bool:
    """Tell whether a path stands for names, as tests/golden/NAME does; README.md does not."""
    return "NAME" in path or any(part.isupper() and not part.endswith(".md") for part in re.split(r"[/.](?!md$)", path))


def missing_in(text: str) -> list[str]:
    """Return the names in a docstring or comment that the repository lacks."""
    wrong = [path for path in _PATH.findall(text) if not exists(path) and not is_placeholder(path)]
    wrong += [name for name in _MODULE.findall(text) if not is_module(name) and not exists(name)]
    return [name for name in wrong if name not in _OF_OTHERS] + [
        name for name in _TEST.findall(text) if name not in known_tests()
    ]


def test_what_is_missing_is_found():
    """Only the wrong names of this text are reported."""
    text = "see bert/runtime/cpu_kernels.py, bert.files.lock, tests/ranks and test_what_is_missing_is_found, not in "
    assert missing_in(text) == []
    assert missing_in(text + "bert/no_room/x.py") == ["bert/no_room/x.py"]
    assert missing_in(text + "cpu_cross.py, bert.files.unlocked, tests.nowhere") == [
        "cpu_cross.py",
        "bert.files.unlocked",
        "tests.nowhere",
    ]
    assert missing_in(text + "test_that_nobody_wrote") == ["test_that_nobody_wrote"]


def test_docstrings_and_comments_name_what_exists():
    kinds, others = (".py", ".sh", ".toml", ".yaml"), ("Dockerfile", "run.sub")
    own = Path(__file__).relative_to(REPOSITORY).as_posix()
    wrong = list[str]()
    for file in sorted(tracked() - {own}):
        if not file.endswith(kinds) and Path(file).name not in others:
            continue
        suspects = set(missing_in((REPOSITORY / file).read_text(encoding="utf-8")))  # also in strings of the code
        if suspects:
            wrong += [f"{file}: {name}" for text in texts_of(file) for name in missing_in(text)]
    assert not wrong, "\n".join(wrong)
