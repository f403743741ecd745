"""Commands are written as they work for the reader, and a Python without our packages is refused in one line."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY, interpreter
from bert.interpreter import COMMANDS, INSTALLED_COMMAND, runnable
from bert.launching.pretraining_plan import parse_launch_arguments

TEXT = (
    "try `python run_squad.py --help`, or python -m data.inspect D; bash scripts/run_ner.sh, "
    "pip install -r requirements-dask.txt"
)


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A copied link to this interpreter in tmp_path/env/bin, as sys.executable; not on the PATH."""
    own = tmp_path / "env" / "bin"
    own.mkdir(parents=True)
    (own / "python").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv(INSTALLED_COMMAND, raising=False)
    return own


def test_an_interpreter_on_the_path_is_called_by_its_name(environment, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv("PATH", str(environment))
    assert runnable(TEXT) == TEXT.replace("pip install", "python -m pip install")


def test_another_one_by_its_path_which_is_short_in_the_checkout(environment, monkeypatch, tmp_path):
    monkeypatch.chdir(REPOSITORY)
    shown = runnable(TEXT)
    assert f"`{environment}/python run_squad.py --help`" in shown and "bash scripts/run_ner.sh" in shown
    monkeypatch.setattr(interpreter, "CODE", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert "`env/bin/python run_squad.py --help`, or env/bin/python -m data.inspect D" in runnable(TEXT)


def test_the_same_binary_in_another_environment_is_another_interpreter(environment, monkeypatch, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "python").symlink_to(environment / "python")
    monkeypatch.setenv("PATH", str(other))
    assert interpreter.python() == f"{environment}/python"


def test_outside_of_the_checkout_the_commands_name_it(environment, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shown = runnable(TEXT)
    assert f"env/bin/python {REPOSITORY}/run_squad.py --help" in shown
    assert f"PYTHONPATH={REPOSITORY} env/bin/python -m data.inspect D" in shown
    assert f"bash {REPOSITORY}/scripts/run_ner.sh" in shown
    assert f"env/bin/python -m pip install -r {REPOSITORY}/requirements-dask.txt" in shown


def test_a_text_may_pass_twice(environment, monkeypatch, tmp_path):
    for folder in (REPOSITORY, tmp_path):
        monkeypatch.chdir(folder)
        for path in ("/nowhere", str(environment)):
            monkeypatch.setenv("PATH", path)
            assert runnable(runnable(TEXT)) == runnable(TEXT)


def test_what_only_looks_like_a_command_stays(environment):
    text = "Python run_x, see run_squad.py and bert.doctor; /usr/bin/python run_squad.py; visualdl is slow"
    assert runnable(text) == text


def test_tools_are_those_beside_the_interpreter(environment, monkeypatch, tmp_path):
    (environment / "visualdl").write_text("")
    (environment / "visualdl").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert runnable("visualdl --logdir x") == "env/bin/visualdl --logdir x"
    monkeypatch.setenv("PATH", str(environment))
    assert runnable("visualdl --logdir x") == "visualdl --logdir x"


def test_the_console_command_is_named_where_it_runs(environment, monkeypatch):
    monkeypatch.setenv(INSTALLED_COMMAND, "bert-on-paddle")
    assert runnable(TEXT).startswith(
        "try `bert-on-paddle run_squad --help`, or bert-on-paddle data.inspect D; bert-on-paddle ner, "
    )
    for command in COMMANDS:
        assert runnable(command.documented) == f"bert-on-paddle {command.name}"


def test_every_command_exists():
    for command in COMMANDS:
        first = command.words[0]
        assert (REPOSITORY / first).is_file() if first.endswith(".py") else importlib.util.find_spec(command.words[1])
        kind, _, name = command.documented.partition(" ")
        assert kind == "python" or (REPOSITORY / name).is_file()


def test_the_packages_are_those_of_the_requirements():
    lines = (REPOSITORY / "requirements-base.txt").read_text().splitlines()
    names = dict.fromkeys(line.split("==")[0] for line in lines if re.match(r"\w", line))  # two Pythons, two lines
    assert list(interpreter.PACKAGES.values()) == list(names)
    assert interpreter._missing() == []
    without = (REPOSITORY / "requirements-inference.txt").read_text().splitlines()
    pins = [line.split("==")[0] for line in without if re.match(r"\w", line)]
    kept = [package for module, package in interpreter.PACKAGES.items() if module not in interpreter.TRAINING_ONLY]
    assert set(pins) == {"paddlepaddle", *kept}
    assert all(importlib.metadata.version(package) for package in interpreter.PACKAGES.values())


def without_packages(*words: str, cwd: Path = REPOSITORY, **environment: str) -> subprocess.CompletedProcess:
    """A command of an interpreter that has the standard library only."""
    return subprocess.run(
        [sys.executable, "-S", *words],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


FIT = "env/bin/python"  # an interpreter that BERT_PYTHON names; it is only looked at


@pytest.fixture
def fit(tmp_path):
    path = tmp_path / FIT
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


@pytest.mark.parametrize(
    "words",
    [
        *([path.name, "--seed", "a b"] for path in sorted(REPOSITORY.glob("run_*.py"))),
        ["-m", "data.inspect", "shards"],
        ["-m", "bert.launching", "squad"],
        ["-m", "bert.doctor"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_python_without_the_packages_is_refused_in_a_line_that_names_the_right_one(words, fit):
    refused = without_packages(*words, BERT_PYTHON=str(fit))
    again = " ".join(f"'{word}'" if " " in word else word for word in words)
    assert refused.returncode == 2 and refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"error: {sys.executable} lacks numpy, numba, protobuf and ")
    assert line.endswith(f" more packages; run `{fit} {again}`")


def test_every_command_of_data_is_refused_so(fit):
    for path in sorted((REPOSITORY / "data").glob("[a-z]*.py")):
        refused = without_packages("-m", f"data.{path.stem}", "--help", BERT_PYTHON=str(fit))
        assert refused.returncode == 2 and refused.stderr.endswith(f"run `{fit} -m data.{path.stem} --help`\n")


def test_from_another_folder_the_script_is_named_by_its_path(fit, tmp_path):
    refused = without_packages(str(REPOSITORY / "run_squad.py"), cwd=tmp_path, BERT_PYTHON=str(fit))
    assert refused.stderr.endswith(f"run `{FIT} {REPOSITORY}/run_squad.py`\n")


def test_without_an_environment_it_says_how_to_make_one(tmp_path):
    refused = without_packages("run_ner.py", BERT_VENV=str(tmp_path))
    assert refused.stderr.endswith("; run `bash scripts/setup.sh` once, then `.venv/bin/python run_ner.py`\n")


def test_the_check_of_the_requirements_runs_in_any_python_and_a_program_gets_an_import_error():
    checked = without_packages("-m", "bert.doctor.requirements", "requirements.txt")
    assert checked.returncode == 1 and "numpy is missing, wanted" in checked.stderr
    imported = without_packages("-c", "import bert, data, numpy")
    assert imported.returncode == 1 and imported.stderr.endswith("ModuleNotFoundError: No module named 'numpy'\n")


def test_a_package_that_is_missing_later_is_one_line_too():
    code = (
        "import sys; sys.orig_argv = ['python', 'run_squad.py', '--do-eval']\n"
        "from bert.command_errors import command\n"
        "with command():\n    import paddel.static\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {sys.executable} lacks the package paddel; run `")


def test_the_scripts_import_nothing_from_the_current_folder(tmp_path):
    for name in ("data.py", "program.py", "bert.py"):
        (tmp_path / name).write_text("raise SystemExit('not ours')\n")
    done = subprocess.run(
        [shutil.which("bash") or "bash", str(REPOSITORY / "scripts/run_ner.sh"), "--help"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "BERT_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.startswith(f"usage: bash {REPOSITORY}/scripts/run_ner.sh"), done.stderr


def test_results_of_an_installed_package_go_to_the_current_folder(environment, monkeypatch):
    words = ["256", "6e-3", "amp", "1"]
    inside = [config.run.output_dir for config in parse_launch_arguments(words).phases]
    monkeypatch.setenv(INSTALLED_COMMAND, "bert-on-paddle")
    assert [config.run.output_dir for config in parse_launch_arguments(words).phases] == [Path("results")] * 2
    assert inside == [REPOSITORY / "results"] * 2


def test_ctrl_c_while_packages_load_is_one_line(tmp_path):
    """An interrupt in the import of pydantic, which every entry point loads first."""
    (tmp_path / "pydantic.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    line = [sys.executable, "run_pretraining.py", "--help"]
    done = subprocess.run(line, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (-signal.SIGINT, "interrupted\n", "")
