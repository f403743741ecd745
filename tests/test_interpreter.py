"""Printed commands can be pasted, and a Python without our packages is refused in one line."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY, interpreter
from bert.commands.pretrain import parse_launch_arguments
from bert.interpreter import COMMANDS, shell_command


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Make a copied link to this interpreter in tmp_path/env/bin, as sys.executable; not on the PATH."""
    own = tmp_path / "env" / "bin"
    own.mkdir(parents=True)
    (own / "python").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    return own


def test_commands_are_shown_as_they_run_in_the_root_of_the_checkout(environment, monkeypatch):
    shown = {
        ("run_squad.py", "--help"): "{python} run_squad.py --help",
        ("data.inspect", Path("my shards")): "{python} -m data.inspect 'my shards'",
        ("scripts/run_ner.sh",): "bash scripts/run_ner.sh",
    }
    for words, form in shown.items():
        assert shell_command(*words) == form.format(python=f"{environment}/python")
    assert shell_command("visualdl", "--logdir", "x") == f"{environment}/visualdl --logdir x"
    monkeypatch.setenv("PATH", str(environment))
    for words, form in shown.items():
        assert shell_command(*words) == form.format(python="python")
    assert shell_command("visualdl", "--logdir", "x") == "visualdl --logdir x"
    monkeypatch.setattr(interpreter, "CODE", environment.parent.parent)
    monkeypatch.setenv("PATH", "/nowhere")
    assert shell_command("run_squad.py") == "env/bin/python run_squad.py"


def test_the_same_binary_in_another_environment_is_another_interpreter(environment, monkeypatch, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "python").symlink_to(environment / "python")
    monkeypatch.setenv("PATH", str(other))
    assert interpreter.python() == f"{environment}/python"


READERLESS = ("run_export.py --help", "-m bert.commands.slurm --help", "-m data.download_vocabulary --help")


@pytest.mark.parametrize("line", [*READERLESS, "-m bert.commands pretraining --help plan"])
def test_a_reader_that_left_ends_a_command_without_a_traceback(line):
    """`| head -1` is such a reader; a text over a buffer's size is cut in the middle, another at the process's end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    process = subprocess.Popen([sys.executable, *line.split()], cwd=REPOSITORY, env=environment, **pipes)
    process.stdout.close()
    assert (process.wait(timeout=60), process.stderr.read()) == (0, "")


def test_the_installed_package_names_its_console_command(environment, monkeypatch):
    monkeypatch.setenv("PATH", str(environment))
    monkeypatch.setattr(interpreter, "__name__", "bert_on_paddle.bert.interpreter")
    assert shell_command("data.inspect", "D") == "bert-on-paddle data.inspect D"
    for command in COMMANDS:
        assert shell_command(command.start) == f"bert-on-paddle {command.name}"
    assert interpreter.install_command("serve") == "python -m pip install 'bert-on-paddle[serve]'"


def test_packages_are_installed_into_the_environment_of_this_interpreter(monkeypatch, tmp_path):
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(sys, "prefix", str(REPOSITORY / ".venv"))
    assert interpreter.install_command() == "bash scripts/setup.sh"
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert interpreter.install_command("serve").startswith(f"BERT_VENV={tmp_path} bash scripts/setup.sh ")
    monkeypatch.setattr(sys, "prefix", str(REPOSITORY / ".venv-paddle3.1"))
    assert interpreter.install_command("serve") == "BERT_PADDLE=3.1 bash scripts/setup.sh serve"


def test_every_command_exists():
    for command in COMMANDS:
        is_module = command.words() == ["-m", command.start]
        assert importlib.util.find_spec(command.start) if is_module else (REPOSITORY / command.start).is_file()


def without_packages(*words: str, cwd: Path = REPOSITORY, **environment: str) -> subprocess.CompletedProcess:
    """Return a command of an interpreter that has the standard library only."""
    variables = {"PATH": os.environ["PATH"], **environment}
    line = [sys.executable, "-S", *words]
    return subprocess.run(line, cwd=cwd, env=variables, capture_output=True, text=True, check=False)


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
        ["-m", "bert.commands", "squad"],
        ["-m", "bert.doctor"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_python_without_the_packages_is_refused_in_a_line_that_names_the_right_one(words, fit):
    refused = without_packages(*words, BERT_PYTHON=str(fit))
    again = " ".join(f"'{word}'" if " " in word else word for word in words)
    assert refused.returncode == 2 and refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert re.match(rf"error: {sys.executable} lacks the package \w+; run `{fit} {again}`$", line)


def test_without_an_environment_it_says_how_to_make_one(tmp_path):
    refused = without_packages("run_ner.py", BERT_VENV=str(tmp_path))
    assert refused.stderr.endswith("; run `bash scripts/setup.sh` once, then `.venv/bin/python run_ner.py`\n")


def test_the_check_of_the_requirements_runs_in_any_python_and_a_program_gets_an_import_error():
    checked = without_packages("bert/doctor/requirements.py", "train")
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


def test_results_of_an_installed_package_go_to_the_current_folder(environment, monkeypatch):
    words = ["256", "6e-3", "amp", "1"]
    inside = [config.run.output_dir for config in parse_launch_arguments(words).phases]
    monkeypatch.setattr("bert.commands.pretrain.is_installed", lambda: True)
    assert [config.run.output_dir for config in parse_launch_arguments(words).phases] == [Path("results")] * 2
    assert inside == [REPOSITORY / "results"] * 2


def test_ctrl_c_while_packages_load_is_one_line(tmp_path):
    """The interrupt comes in the import of pydantic, which every entry point loads first."""
    (tmp_path / "pydantic.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    line = [sys.executable, "run_pretraining.py", "--help"]
    done = subprocess.run(line, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (-signal.SIGINT, "interrupted\n", "")


@pytest.mark.parametrize(
    ("before", "variables", "problem"),
    [
        (
            "",
            {"PYTHONOPTIMIZE": "2"},
            "PYTHONOPTIMIZE=2 (-OO) removes docstrings, without which Paddle cannot be loaded",
        ),
        (
            "ulimit -v 400000; ",
            {},
            "the limit of addresses (ulimit -v) is 409 MB, below the 1,500 MB that Paddle needs",
        ),
    ],
)
def test_a_shell_in_which_paddle_cannot_be_loaded_is_refused_in_one_line(before, variables, problem):
    command = ["bash", "-c", f"{before}exec {sys.executable} run_predict.py --help"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: {problem}; ") and done.stderr.count("\n") == 1


def test_warnings_of_packages_end_no_command():
    """Paddle warns of its own functions."""
    script = "import sys; sys.orig_argv = ['python', 'run_predict.py']; import bert, warnings; warnings.warn('old')"
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "UserWarning: old" in done.stderr
