"""`--help` of every script and module: quick, at most 100 columns wide, and nothing is installed or written for it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.help_parser import wrapped

PARTS = ("packages.sh", "entrypoint.sh", "install_python.sh")  # of other scripts
FOUND = [*(REPOSITORY / "scripts").glob("*.sh"), *(REPOSITORY / "scripts/docker").glob("*.sh"), REPOSITORY / ".ci/run"]
FOUND += [REPOSITORY / "data/create_datasets_from_start.sh", REPOSITORY / "run.sub"]
SCRIPTS = sorted(str(path.relative_to(REPOSITORY)) for path in FOUND if path.name not in PARTS)
WARNED = ["scripts/run_gpu_record.sh"]  # wants another Paddle than the one that is named here
# Of another environment, or gone.
OTHERS = re.compile("tests/benchmarks/(.*_torch|inference_ours|train_.*).py|data/download_books.py")


def modules() -> list[list[str]]:
    """The words that start each module that runs."""
    found = []
    rooms = (path for room in ("bert", "data", "tests/benchmarks") for path in (REPOSITORY / room).rglob("*.py"))
    for path in sorted([*REPOSITORY.glob("run_*.py"), *rooms]):
        name = str(path.relative_to(REPOSITORY))
        if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8") and not OTHERS.fullmatch(name):
            module = name.removesuffix(".py").replace("/", ".").removesuffix(".__main__")
            found.append(["-m", module] if "/" in name else [name])
    return found


def asked(words: list, folder: Path, **environment: str) -> tuple[str, float]:
    """What the command prints, and its CPU seconds with all processes that it starts."""
    before = os.times()
    given = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "COLUMNS": "200", **environment}
    done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=600, check=False)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert (done.returncode, done.stderr) == (0, ""), f"{words}: {done.stderr}"
    wide = [line for line in done.stdout.splitlines() if len(line) > 100]
    assert done.stdout.strip() and not wide, f"{words}: {wide}"
    return done.stdout, used


def test_a_long_line_breaks_after_the_clause_of_a_path_that_fits():
    short, wide = "/a/short/path", f"/tmp/{'x' * 20}"
    assert wrapped(f"saved {short}; it goes on here", 30, "  ") == f"saved {short};\n  it goes on here"
    assert wrapped(f"a copy of {wide}; now", 34, "  ") == f"a copy of\n  {wide}; now"


@pytest.mark.long
@pytest.mark.parametrize("words", modules(), ids=lambda words: words[-1])
def test_a_module_says_how_it_is_used(words):
    assert asked([sys.executable, *words, "--help"], REPOSITORY)[1] < 5


@pytest.mark.long
@pytest.mark.parametrize("script", sorted(set(SCRIPTS) - set(WARNED)))
def test_a_script_says_how_it_is_used(script):
    assert asked(["bash", script, "--help"], REPOSITORY, BERT_PYTHON=sys.executable)[1] < 5


@pytest.mark.long
def test_in_a_fresh_clone_nothing_is_installed_for_it(tmp_path):
    """The only Python has no packages; a launcher says how to get them, and what it does."""
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith("tests/") and (REPOSITORY / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, clone / name)
    before = sorted(clone.rglob("*"))
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -B -S "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    launchers = []
    for script in SCRIPTS:
        text, _ = asked(["bash", script, "--help"], clone, HOME=str(home), PATH=f"{tmp_path}:/usr/bin:/bin")
        launchers += [script] if "run 'bash scripts/setup.sh' once" in text else []
    assert {"scripts/run_pretraining.sh", "scripts/run_ner.sh", "scripts/benchmark_serving.sh"} <= set(launchers)
    assert sorted(clone.rglob("*")) == before and list(home.iterdir()) == []
