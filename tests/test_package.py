"""`bert_on_paddle`, installed as a user installs it: beside modules of the user's own that are called as ours."""

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

README = (REPOSITORY / "bert/package/README.md").read_text(encoding="utf-8")
USERS_MODULES = {"bert", "data.py", "program.py"}
PADDLE_3 = importlib.metadata.version("paddlepaddle").startswith("3.")
EXAMPLES = REPOSITORY / "data/examples"


def user_folder(folder: Path) -> Path:
    """A folder whose modules have our generic names."""
    (folder / "bert").mkdir(parents=True)
    for name in ("data.py", "program.py", "bert/__init__.py"):
        (folder / name).write_text("OWNER = 'user'\n")
    return folder


def run(command: list, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "BERT_PYTHON")}
    pipes = {"capture_output": True, "text": True, "timeout": 600, "check": False}
    return subprocess.run([str(word) for word in command], cwd=cwd, env={**kept, **environment}, **pipes)


def output(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


IMPORTS = """
import sys
import bert_on_paddle
assert not sys.modules.keys() & {"bert", "data", "program", "paddle", "numpy"}, "the import is not lazy"
assert bert_on_paddle.__version__ == "VERSION" and "train" in dir(bert_on_paddle)
assert bert_on_paddle.train.__module__ == "bert_on_paddle.bert.api"
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


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(tmp_path_factory, request):
    """A new environment that sees our packages and has `bert_on_paddle` from pip."""
    folder = tmp_path_factory.mktemp(request.param)
    output(run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], folder))
    site = folder / f"env/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (site / "seen.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    before = ignored_files()
    pip = [sys.executable, "-m", "pip", "--python", folder / "env/bin/python", "install", "--no-deps", "--quiet"]
    words = [*pip, "--no-build-isolation", *(["-e"] if request.param == "editable" else []), REPOSITORY]
    output(run(words, folder, **({"BERT_PADDLE": "3.1"} if PADDLE_3 else {})))
    assert ignored_files() == before, "pip left files in the checkout"
    return folder


def ignored_files() -> set[str]:
    listed = run(["git", "status", "--short", "--ignored", "--untracked-files=normal"], REPOSITORY).stdout.splitlines()
    return {line for line in listed if re.search(r"egg-info|build|dist/", line)}


@pytest.fixture
def user(tmp_path, installed):
    """The current folder of a program; beside an editable install it has no modules that are called as ours."""
    if is_wheel(installed):
        return user_folder(tmp_path / "user")
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


def is_wheel(installed: Path) -> bool:
    return installed.name.startswith("wheel")


def command(installed: Path, *words) -> list:
    return [installed / "env/bin/bert-on-paddle", *words]


@pytest.mark.long
def test_the_installed_package_takes_no_generic_name(installed, user):
    if is_wheel(installed):  # an editable install imports the checkout's modules
        code = IMPORTS.replace("VERSION", __version__)
        done = run([installed / "env/bin/python", "-c", code], user)
        assert output(done) == "module 'bert_on_paddle' has no attribute 'nothing'\n"
    listed = set(os.listdir(next((installed / "env/lib").iterdir()) / "site-packages"))
    assert not listed & {"bert", "data", "program.py", "run_squad.py", "tests", "scripts"}


@pytest.mark.long
@pytest.mark.parametrize("installed", ["wheel", pytest.param("editable", marks=pytest.mark.long)], indirect=True)
def test_the_commands_run_in_any_folder(installed, user):
    assert output(run(command(installed, "--version"), user)) == f"bert-on-paddle {__version__}\n"
    listed = output(run(command(installed), user))
    names = re.findall(r"^  (\S+)", listed, re.M)
    of_each_kind = ("pretrain", "predict", "report", "data.inspect")  # a launcher, a script, modules
    assert {"squad", "doctor", "data.import_text", *of_each_kind} <= set(names)
    for name in of_each_kind:
        shown = output(run(command(installed, name, "--help"), user))
        start = f"{installed}/env/bin/bert-on-paddle {name}" if is_wheel(installed) else ""
        assert shown.startswith(f"usage: {start}"), shown[:200]
    assert set(os.listdir(user)) <= USERS_MODULES
    if is_wheel(installed):
        output(run([installed / "env/bin/python", "-c", EVERY_MODULE], user))


@pytest.mark.long
def test_errors_suggest_commands_that_work(installed, user):
    path = f"{installed / 'env/bin'}:{os.environ['PATH']}"
    (user / "raw").mkdir()
    (user / "raw/a.txt").write_text("One line of text. Another.\n\nA paragraph.\n" * 9)
    vocabulary = corpora.write_vocabulary(user / "vocab.txt")
    words = ["--text", "raw", "--sink", "shards", "--vocab-file", vocabulary, "--target-seq-length", "64"]
    wrong = run(["bert-on-paddle", "data.preprocess_bert_pretrain", *words, "--num-shards", "1"], user, PATH=path)
    assert wrong.returncode == 2
    start = "bert-on-paddle " if is_wheel(installed) else "PYTHONPATH=.* -P -m "
    (suggested,) = re.findall(rf"({start}data\.import_text .+?) \(if", wrong.stderr)
    output(run(["bash", "-c", suggested], user, PATH=path))
    assert (user / "raw-imported/source").is_dir()
    unknown = run(command(installed, "sqaud"), user)
    assert unknown.returncode == 2 and "sqaud is not a command" in unknown.stderr


@pytest.mark.long
def test_the_doctor_knows_the_requirements(installed, user):
    report = json.loads(output(run(command(installed, "doctor", "--json"), user)))
    (packages,) = [finding for finding in report["findings"] if finding["name"] == "packages"]
    wanted = "as the package requires" if is_wheel(installed) else "as the lock has them"
    assert packages["level"] == "ok" and packages["found"] == wanted, packages


@pytest.mark.long
def test_the_tested_versions_satisfy_the_package(installed):
    (site,) = (installed / "env/lib").glob("*/site-packages")
    (found,) = importlib.metadata.distributions(name="bert-on-paddle", path=[str(site)])
    every = map(Requirement, found.requires or [])  # some of other versions of Python
    here = [item for item in every if item.marker is None or item.marker.evaluate({"extra": ""})]
    wanted = {item.name.lower().replace("_", "-"): item for item in here}
    tested = pins(["train", "paddle3" if PADDLE_3 else "paddle"])
    assert wanted.keys() == tested.keys()
    for name, version in tested.items():
        assert wanted[name].specifier.contains(version, prereleases=True), wanted[name]
        major = int(version.split(".")[0])
        assert not wanted[name].specifier.contains(f"{major + 1}.0"), wanted[name]


SNIPPETS = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
READER = """
from bert_on_paddle import train

settings = {"max_steps": 2, "max_seq_length": 64, "doc_stride": 16, "max_query_length": 16}
settings |= {"train_file": "questions/train-answerable.json", "predict_file": "questions/held_out-answerable.json"}
print(train("squad", output_dir="reader", from_pretrained_params="model", **settings)["F1"])
"""


@pytest.mark.long
@pytest.mark.parametrize("installed", ["wheel", pytest.param("editable", marks=pytest.mark.long)], indirect=True)
def test_the_examples_of_the_readme_run_as_written(installed, user):
    (user / "model").mkdir()
    for name, content in tiny_model(positions=128).items():
        (user / "model" / name).write_bytes(content)
    for name, part in (("train.tsv", "train"), ("dev.tsv", "held_out")):
        lines = (EXAMPLES / f"sentiment/{part}.tsv").read_text(encoding="utf-8").splitlines()
        (user / name).write_text("\n".join(lines[:41]) + "\n", encoding="utf-8")
    (user / "articles").mkdir()
    for number, text in enumerate(documents(user.parent / "corpus", 0.3)):
        (user / f"articles/{number}.txt").write_text(text, encoding="utf-8")
    output(run(command(installed, "data.examples.sample_questions", "--output-dir", "questions"), user))
    cells = "".join(f"exec({cell!r}, {{'__name__': '__main__'}})\nprint('END')\n" for cell in [READER, *SNIPPETS])
    python = installed / "env/bin/python"
    shown = [text.splitlines()[-1] for text in output(run([python, "-c", cells], user)).split("END\n")[:-1]]
    assert 0 <= float(shown[0]) <= 100
    vocabulary = (user / "model/vocab.txt").read_text(encoding="utf-8").splitlines()
    is_right = {
        "train": lambda shown: 0 <= float(shown) <= 1,
        "evaluate": lambda shown: 0 <= float(shown) <= 1,
        "predict": lambda shown: abs(eval(shown)["negative"] + eval(shown)["positive"] - 1) < 1e-5,
        "encode": lambda shown: shown == f"(2, {foreign.CONFIG['hidden_size']})",
        "fill_mask": lambda shown: shown in vocabulary,
        "answer": lambda shown: shown in "Anna Lindqvist opened her bakery in 1987.",
        "load, predict": lambda shown: len(eval(shown)) == 2,
        "pretrain": lambda shown: 0 < float(shown) < 20,
        "classify, predict": lambda shown: re.match(
            r"\['sentence', 'label', 'predicted_label', .*\] \d+ [01]\.", shown
        ),
        "predict, serve": lambda shown: re.match(r"http://127\.0\.0\.1:\d+ (negative|positive)$", shown),
    }
    for snippet, printed in zip(SNIPPETS, shown[1:], strict=True):
        (names,) = re.findall(r"from bert_on_paddle import (.+)", snippet)
        assert is_right.pop(names)(printed), printed
    assert not is_right
    expected = {"model", "train.tsv", "dev.tsv", "questions", "reader", "sentiment", "articles", "mine", "classes"}
    assert set(os.listdir(user)) - {"__pycache__", *USERS_MODULES} == expected


WRONG_CALLS = """
from bert_on_paddle import evaluate, predict, serve, train

for call in (
    lambda: train("sqaud", output_dir="x"),
    lambda: train("squad", output_dir="x", epocks=2),
    lambda: evaluate("nowhere", "x"),
    lambda: predict("nowhere", ["x"]),
    lambda: predict("x", "text"),
    lambda: serve("nowhere"),
    lambda: serve("x", prt=8000),
):
    try:
        call()
    except ValueError as error:
        print(error)
"""


@pytest.mark.long
def test_wrong_calls_are_value_errors_with_the_commands_text(installed, user):
    task, flag, evaluated, predicted, text, served, port = output(
        run([installed / "env/bin/python", "-c", WRONG_CALLS], user)
    ).splitlines()
    assert task == "task=sqaud must be one of pretraining, squad, glue, classify, ner; pass one"
    assert flag == "--epocks is not a flag; did you mean --epochs?"
    assert evaluated.startswith("nowhere does not exist") and "nowhere" in predicted
    assert text == "texts='text' must be a list of texts; put it into brackets"
    assert served.startswith("nowhere does not exist") and "--prt" in port


TYPED = """
import pandas as pd
from bert_on_paddle import classify, predict, serve

summary: dict = classify("a.csv", output_dir="x", on_log=lambda record: print(record["step"]))
results: list = predict("x", ["a text"])
address: str = serve("x").url
predict(3, ["a text"])
serve()
"""


@pytest.mark.long
@pytest.mark.parametrize("installed", ["wheel"], indirect=True)
def test_the_functions_are_typed(installed, user):
    (user / "mine.py").write_text(TYPED)
    words = ["--python-executable", installed / "env/bin/python", "--ignore-missing-imports", "mine.py"]
    found = run([sys.executable, "-m", "mypy", "--cache-dir", user.parent / "cache", *words], user).stdout
    assert re.findall(r"^mine.py:(\d+): error: .*\[(.*)\]$", found, re.M) == [("8", "call-overload"), ("9", "call-arg")]
