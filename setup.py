"""Builds the package `bert_on_paddle`: bert/package, with bert/, data/ and the entry points inside it.

`pip install .` requires Paddle's GPU wheel where nvidia-smi lists a GPU, otherwise the CPU wheel. BERT_PADDLE=cpu, gpu
or none chooses; none is for machines with a Paddle of their own. BERT_PADDLE=3.1 takes Paddle 3.1, whose GPU wheel is
in Paddle's own index (see [tool.bert-on-paddle] in pyproject.toml). BERT_PADDLE=lock leaves all to the extras.
"""

import atexit
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = "bert_on_paddle"
OWN_FOLDER = ROOT / "bert/package"  # becomes the package itself
SUFFIXES = (".py", ".yaml", ".json", ".txt", ".tsv", ".conll", ".html", ".css", ".js")
PADDLES = {"cpu": "paddle", "gpu": "gpu", "3.1": "paddle3", "3.1-gpu": "paddle3-gpu", "none": None}  # extras


class BuildPackage(build_py):
    """Adds the files that are not in bert/package, and renames imports. An editable install has the checkout itself."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        for source in checkout_files():
            target = Path(self.build_lib) / PACKAGE / source.relative_to(ROOT)
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))
        for file in (Path(self.build_lib) / PACKAGE).rglob("*.py"):
            file.write_text(below_package(file.read_text(encoding="utf-8")), encoding="utf-8")


def below_package(code):
    """Source code of the checkout as it is below `bert_on_paddle`: a program may have a `bert` or `data` of its own.

    Renames imports and the strings that name a module, which others are started by (`-m`). Usages in docstrings get
    the console command.
    """
    code = re.sub(r"^( *)from (bert|data|program)\b", rf"\1from {PACKAGE}.\2", code, flags=re.M)
    code = re.sub(r"^( *)import (bert|data|program)\b(?!\.)", rf"\1from {PACKAGE} import \2", code, flags=re.M)
    for name in set(re.findall(r"[\"']((?:bert|data)\.\w+)", code)):
        if is_module(name):
            code = re.sub(rf"([\"']){name}\b", rf"\1{PACKAGE}.{name}", code)
    return re.sub(r"\bpython -m (data\.\w)", r"bert-on-paddle \1", code)


def is_module(name):
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def checkout_files():
    """Files of Python packages and of their folders of data, and those of the root that the commands read."""
    names = ("program.py", "run_*.py", "pyproject.toml", "uv.lock")
    found = [path for name in names for path in ROOT.glob(name)]
    for room in ("bert", "data"):
        found += [path for path in (ROOT / room).rglob("*") if path.suffix in SUFFIXES and is_ours(path)]
    return sorted(found)


def is_ours(path):
    """Whether a file is of a package or of a folder in one; not of bert/package or of a user's corpus in data/."""
    folder = path.parent
    near = (folder, folder.parent)
    return path.is_file() and OWN_FOLDER not in near and any((place / "__init__.py").is_file() for place in near)


def dependencies():
    """What training needs, and a Paddle: the extras of pyproject.toml."""
    if os.environ.get("BERT_PADDLE") == "lock":
        return []
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = table["project"]["optional-dependencies"]
    extras["paddle3-gpu"] = [table["tool"]["bert-on-paddle"]["paddle3-gpu"]]
    # pip is for the environments that scripts/setup.sh makes; a package does not replace the user's.
    further = [line for line in extras["train"] if not line.startswith(("bert-on-paddle[", "pip>"))]
    return [*extras.get(PADDLES[paddle()], []), *extras["inference"], *further]


def paddle():
    chosen = os.environ.get("BERT_PADDLE") or ("gpu" if has_gpu() else "cpu")
    if chosen == "3.1" and has_gpu():
        chosen = "3.1-gpu"
    if chosen not in PADDLES:
        raise SystemExit(f"error: BERT_PADDLE={chosen} must be one of {', '.join(PADDLES)}")
    return chosen


def has_gpu():
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    listed = subprocess.run([command, "--list-gpus"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and listed.stdout.strip() != ""


def temporary_folder():
    folder = tempfile.mkdtemp(prefix="bert-on-paddle-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


setup(
    packages=[PACKAGE],
    package_dir={PACKAGE: "bert/package"},
    package_data={PACKAGE: ["py.typed"]},
    cmdclass={"build_py": BuildPackage},
    install_requires=dependencies(),
    options={
        "build": {"build_base": temporary_folder()},
        "egg_info": {"egg_base": temporary_folder()},
    },  # not in the checkout
)
