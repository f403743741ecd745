"""The package `bert_on_paddle`, installed as a user would, beside user modules with the names of ours."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bert import REPOSITORY, __version__
from bert.doctor.requirements import pins
from tests.newcomer.folders import documents
from tests.support import corpora, foreign
from tests.support.fake_hub import tiny_model

README = (REPOSITORY / "docs/howto/python.md").read_text(encoding="utf-8")
USERS_MODULES = {"bert", "data.py", "program.py"}
PADDLE_3 = importlib.metadata.version("paddlepaddle").startswith("3.")
EXAMPLES = REPOSITORY / "data/examples"


def user_folder(folder: Path) -> Path:
    """Make a folder whose modules have our generic names."""
    (folder / "bert").mkdir(parents=True)
    for name in ("data.py", "program.py", "bert/__init__.py"):
        (folder / name).write_text("OWNER = 'user'\n")
    return folder


def run(command: list, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "BERT_PYTHON")}
    pipes = {"capture_output": True, "text": True, "timeout": 600, "check": False}
    kept |= {"PYTHONDONTWRITEBYTECODE": "1"}  # Python leaves nothing beside the user's modules: what is there is ours
    return subprocess.run([str(word) for word in command], cwd=cwd, env={**kept, **environment}, **pipes)


def output(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


IMPORTS = """
import sys
import bert_on_paddle
assert not sys.modules.keys() & {"bert", "data", "program", "paddle", "numpy"}, "the import is not lazy"
assert bert_on_paddle.__version__ == "VERSION" and "classify" in dir(bert_on_paddle)
assert bert_on_paddle.classify.__module__ == "bert_on_paddle.bert.api"
import bert_on_paddle.data.text.sentences
from bert_on_paddle.bert.arrays import compiled, ragged
assert not sys.modules.keys() & {"bert", "data", "program"}
import bert, data, program
assert bert.OWNER == data.OWNER == program.OWNER == "user"
from bert_on_paddle.bert.tokenization import wordpiece
assert wordpiece.Vocabulary.__module__.startswith("bert_on_paddle.bert.")
assert not [name for name in sys.modules if name.startswith(("bert.", "data."))]
try:
    bert_on_paddle.nothing
except AttributeError as error:
    print(error)
"""

EVERY_MODULE = """
import bert_on_paddle.bert.runtime.paddle_api
import importlib, pkgutil
names = [module.name for module in pkgutil.walk_packages(bert_on_paddle.__path__, "bert_on_paddle.")]
assert len(names) > 200
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
"""


# ---- installed -------------------------------------------------------------------------------------------------------


def install(folder: Path, *options: str) -> Path:
    """Make an environment that sees our packages and has `bert_on_paddle` from pip; return its folder."""
    output(run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], folder))
    site = folder / f"env/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (site / "seen.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    before = ignored_files()
    pip = [sys.executable, "-m", "pip", "--python", folder / "env/bin/python", "install", "--no-deps", "--quiet"]
    words = [*pip, "--no-build-isolation", *options, REPOSITORY]
    output(run(words, folder, **({"BERT_PADDLE": "3.1"} if PADDLE_3 else {})))
    assert ignored_files() == before, "pip left files in the checkout"
    return folder / "env"


def ignored_files() -> set[str]:
    listed = run(["git", "status", "--short", "--ignored", "--untracked-files=normal"], REPOSITORY).stdout.splitlines()
    return {line for line in listed if re.search(r"egg-info|build|dist/", line)}


@pytest.mark.nightly
@pytest.mark.long
def test_a_wheel_runs_commands_and_functions_in_any_folder(tmp_path):
    env, user = install(tmp_path), user_folder(tmp_path / "user")
    check_imports(env, user)
    check_requirements(env, user)
    check_commands(env, user)
    check_suggestion(env, user)
    check_examples(env, user)
    check_wrong_calls(env, user)
    check_types(env, user)


@pytest.mark.nightly
@pytest.mark.long
def test_an_editable_install_runs_the_checkout(tmp_path):
    env, user = install(tmp_path, "-e"), tmp_path
    for name in ("pretrain", "data.inspect"):
        assert output(run([env / "bin/bert-on-paddle", name, "--help"], user)).count("Examples:\n") == 1
    assert output(run([env / "bin/python", "-c", "import bert_on_paddle; print(bert_on_paddle.predict)"], user))
    packages = doctors_packages(env, user)
    assert packages["level"] == "ok" and packages["found"] == "as the lock has them", packages


def check_imports(env: Path, user: Path) -> None:
    """Check that the package takes no generic name, and that every module of it can be imported."""
    done = run([env / "bin/python", "-c", IMPORTS.replace("VERSION", __version__)], user)
    assert output(done) == "module 'bert_on_paddle' has no attribute 'nothing'\n"
    listed = set(os.listdir(next((env / "lib").iterdir()) / "site-packages"))
    assert not listed & {"bert", "data", "program.py", "run_squad.py", "tests", "scripts"}
    output(run([env / "bin/python", "-c", EVERY_MODULE], user))


def doctors_packages(env: Path, user: Path) -> dict[str, str]:
    report = json.loads(output(run([env / "bin/bert-on-paddle", "doctor", "--json"], user)))
    (packages,) = [finding for finding in report["findings"] if finding["name"] == "packages"]
    return packages


def check_requirements(env: Path, user: Path) -> None:
    """Check that the tested versions satisfy the package and newer major versions do not; the doctor says so."""
    packages = doctors_packages(env, user)
    assert packages["level"] == "ok" and packages["found"] == "as the package requires", packages
    (site,) = (env / "lib").glob("*/site-packages")
    (found,) = importlib.metadata.distributions(name="bert-on-paddle", path=[str(site)])
    every = map(Requirement, found.requires or [])  # some of other versions of Python
    here = [item for item in every if item.marker is None or item.marker.evaluate({"extra": ""})]
    wanted = {item.name.lower().replace("_", "-"): item for item in here}
    tested = dict(pins(["train", "paddle3" if PADDLE_3 else "paddle"]))
    del tested["pip"]  # the user's stays as it is
    assert wanted.keys() == tested.keys()
    for name, version in tested.items():
        assert wanted[name].specifier.contains(version, prereleases=True), wanted[name]
        major = int(version.split(".")[0])
        assert not wanted[name].specifier.contains(f"{major + 1}.0"), wanted[name]


def check_commands(env: Path, user: Path) -> None:
    command = env / "bin/bert-on-paddle"
    assert output(run([command, "--version"], user)) == f"bert-on-paddle {__version__}\n"
    names = re.findall(r"^  (\S+)", output(run([command], user)), re.M)
    of_each_kind = ("pretrain", "predict", "report", "data.inspect")  # a launcher, a script, modules
    assert {"squad", "doctor", "data.import_text", *of_each_kind} <= set(names)
    for name in of_each_kind:
        shown = output(run([command, name, "--help"], user))
        assert f"Examples:\n  bert-on-paddle {name} " in shown, shown[:200]
    assert set(os.listdir(user)) <= USERS_MODULES
    unknown = run([command, "sqaud"], user)
    assert unknown.returncode == 2 and "sqaud is not a command" in unknown.stderr


def check_suggestion(env: Path, user: Path) -> None:
    """Check that a command that an error suggests works as printed."""
    path = f"{env}/bin:{os.environ['PATH']}"
    (user / "raw").mkdir()
    (user / "raw/a.txt").write_text("One line of text. Another.\n\nA paragraph.\n" * 9)
    vocabulary = corpora.write_vocabulary(user / "vocab.txt")
    words = ["--text", "raw", "--sink", "shards", "--vocab-file", vocabulary, "--target-seq-length", "64"]
    wrong = run(["bert-on-paddle", "data.preprocess_bert_pretrain", *words, "--num-shards", "1"], user, PATH=path)
    assert wrong.returncode == 2
    (suggested,) = re.findall(r"(bert-on-paddle data\.import_text .+?) \(if", wrong.stderr)
    output(run(["bash", "-c", suggested], user, PATH=path))
    assert (user / "raw-imported/source").is_dir()


SNIPPETS = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)


def check_examples(env: Path, user: Path) -> None:
    """Run the examples of the README as written."""
    before = set(os.listdir(user))
    (user / "model").mkdir()
    for name, content in tiny_model(positions=128).items():
        (user / "model" / name).write_bytes(content)
    lines = (EXAMPLES / "sentiment/train.tsv").read_text(encoding="utf-8").splitlines()
    (user / "train.tsv").write_text("\n".join(lines[:41]) + "\n", encoding="utf-8")
    (user / "articles").mkdir()
    for number, text in enumerate(documents(user.parent / "corpus", 0.3)):
        (user / f"articles/{number}.txt").write_text(text, encoding="utf-8")
    cells = "".join(f"exec({cell!r}, {{'__name__': '__main__'}})\nprint('END')\n" for cell in SNIPPETS)
    printed = output(run([env / "bin/python", "-c", cells], user)).split("END\n")[:-1]
    vocabulary = (user / "model/vocab.txt").read_text(encoding="utf-8").splitlines()
    is_right = {
        "pretrain": lambda shown: 0 < float(shown) < 20,
        "classify, predict": lambda shown: re.match(r"\['sentence', 'label', 'predicted_label', .*\] [01]\.", shown),
        "predict": lambda shown: abs(eval(shown)["negative"] + eval(shown)["positive"] - 1) < 1e-5,
        "encode": lambda shown: shown == f"(2, {foreign.CONFIG['hidden_size']})",
        "fill_mask": lambda shown: shown in vocabulary,
        "load_model, predict": lambda shown: len(eval(shown)) == 2,
        "serve": lambda shown: shown in ("negative", "positive"),
    }
    for snippet, text in zip(SNIPPETS, printed, strict=True):
        (names,) = re.findall(r"from bert_on_paddle import (.+)", snippet)
        lines = [line for line in text.splitlines() if "server" not in line or names != "serve"]
        assert is_right.pop(names)(lines[-1]), text[-2000:]
    assert not is_right
    expected = {"model", "train.tsv", "articles", "mine", "classes"}
    assert set(os.listdir(user)) - {"__pycache__"} - before == expected


WRONG_CALLS = """
from bert_on_paddle import classify, predict, serve

for call in (
    lambda: classify("train.tsv", output_dir="x", epocks=2),
    lambda: predict("nowhere", ["x"]),
    lambda: serve("nowhere"),
    lambda: serve("x", prt=8000),
):
    try:
        call()
    except ValueError as error:
        print(error)
"""


def check_wrong_calls(env: Path, user: Path) -> None:
    shown = output(run([env / "bin/python", "-c", WRONG_CALLS], user)).splitlines()
    assert "--epocks is not a flag; did you mean --epochs?" in shown  # beside the model and the file that are missing
    predicted, served, port = shown[-3:]
    assert "nowhere" in predicted and served.startswith("nowhere does not exist") and "--prt" in port


TYPED = """
import pandas as pd
from bert_on_paddle import classify, predict, serve

summary: dict = classify("a.csv", output_dir="x", epochs=2)
results: list = predict("x", ["a text"])
address: str = serve("x").url
predict(3, ["a text"])
serve()
"""


def check_types(env: Path, user: Path) -> None:
    (user / "mine.py").write_text(TYPED)
    words = ["--python-executable", env / "bin/python", "--ignore-missing-imports", "mine.py"]
    found = run([sys.executable, "-m", "mypy", "--cache-dir", user.parent / "cache", *words], user).stdout
    assert re.findall(r"^mine.py:(\d+): error: .*\[(.*)\]$", found, re.M) == [("8", "call-overload"), ("9", "call-arg")]
