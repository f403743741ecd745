"""The shell scripts only launch, and agree with the Python side. Requirements agree with their lock."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bert import REPOSITORY
from bert.commands.pretrain import POSITIONAL, parse_launch_arguments
from bert.doctor.requirements import differences, pins
from bert.pretraining.recipes import PRESETS, RECIPES
from tests.support.locked import PROJECT, TABLES, declared, locked


def bash(command, **environment):
    environment = {"PATH": "/usr/bin:/bin", "BERT_PYTHON": sys.executable, **environment}
    pipes = {"capture_output": True, "text": True, "timeout": 120, "check": False}
    return subprocess.run([shutil.which("bash"), "-c", command], cwd=REPOSITORY, env=environment, **pipes)


def test_run_pretraining_hands_its_arguments_on_and_imports_nothing_of_the_folder_it_is_started_in(tmp_path):
    for name in ("data.py", "program.py", "bert.py"):
        (tmp_path / name).write_text("raise SystemExit('not ours')\n")
    done = bash(f"cd {tmp_path} && bash {REPOSITORY}/scripts/run_pretraining.sh --config large --dry-run")
    assert done.returncode == 0 and "65,536 sequences" in done.stdout, done.stderr
    wrong = bash("bash scripts/run_pretraining.sh --config larg")
    assert wrong.returncode == 2 and wrong.stderr.splitlines()[-1].startswith("error: config=larg must be a preset")


@pytest.mark.parametrize("name", ["dgxa100-80g_8gpu_amp", "dgxa100-80g_8gpu_tf32"])
def test_shell_presets_are_the_presets(name):
    words = shlex.split(bash(f"source scripts/configs/pretrain_config.sh && {name}").stdout)
    assert len(words) == len(POSITIONAL) == 32
    plan, preset = parse_launch_arguments(words), PRESETS[name]
    assert plan.world_size() == preset.world_size()
    for config, recipe in zip(plan.phases, (RECIPES[preset.phase1](), RECIPES[preset.phase2]()), strict=True):
        size = preset.world_size()
        assert config.batch.gradient_accumulation_steps(size) == recipe.batch.gradient_accumulation_steps(size)
        assert config.batch.batch_size == recipe.batch.batch_size
        for section in ("model", "data", "optimizer", "precision", "hardware"):
            assert getattr(config, section) == getattr(recipe, section)
        for name in ("max_steps", "seed", "num_steps_per_checkpoint"):
            assert getattr(config.run, name) == getattr(recipe.run, name)


# ---- the environment: a uv that writes down what it is asked, and installs nothing -----------------------------------

UV = """#!/bin/sh
if [ "$1" = --version ]; then echo uv 0.13.9; exit; fi
echo "$*" >>"$LOG"
case "$1" in
  venv) for folder; do :; done; mkdir -p "$folder/bin"; printf '#!/bin/sh\\necho used $*\\n' >"$folder/bin/python"
        chmod +x "$folder/bin/python" ;;
  pip) env | grep -E '^(UV_|SSL|ALL_PROXY)' | sort >>"$LOG"; exit "${FAILS:-0}" ;;
esac
"""
START = "bash scripts/run_pretraining.sh --seed 3"
USED = "used -m bert.commands pretraining --seed 3\n"


@pytest.fixture
def machine(tmp_path):
    """Start a command where the PATH has that uv, a Python 3.11 and no packages; BERT_VENV is `venv` below."""
    for name, text in (("uv", UV), ("python3.11", f'#!/bin/sh\nexec {sys.executable} "$@"\n')):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def start(command=START, path=f"{tmp_path}/bin:/usr/bin:/bin", **environment):
        (tmp_path / "log").write_text("")
        given = {"BERT_VENV": f"{tmp_path}/venv", "LOG": f"{tmp_path}/log", "HOME": f"{tmp_path}", "BERT_PYTHON": ""}
        return bash(command, PATH=path, **{**given, **environment}), (tmp_path / "log").read_text()

    return start


def test_an_interpreter_that_does_not_exist_is_named():
    done = bash("source scripts/setup.sh; find_python train", BERT_PYTHON="/none/python")
    assert (done.returncode, done.stderr) == (
        2,
        "error: BERT_PYTHON=/none/python is no program; correct it, or unset it\n",
    )


def test_an_environment_is_made_once_from_the_lock(machine, tmp_path):
    done, log = machine()
    assert (done.stdout, done.returncode) == (USED, 0), done.stderr
    assert "--frozen" in log and "--extra train --extra paddle" in log and "--require-hashes" in log
    assert done.stderr == f"Installing the packages of train paddle into {tmp_path}/venv (once)\n"
    done, log = machine()
    assert (done.stdout, done.stderr, log) == (USED, "", "")


def test_an_installation_with_more_extras_is_one_of_fewer(machine):
    machine("bash scripts/setup.sh serve")
    done, log = machine()
    assert (done.stdout, done.stderr, log) == (USED, "", "")
    done, log = machine("bash scripts/run_pretraining.sh --help")
    assert done.stdout == "used -m bert.commands pretraining --help\n" and "not installed" not in done.stderr


@pytest.mark.parametrize(
    ("extras", "code"),
    [("train gpu", 1), ("paddle3", 1), ("paddle3-gpu", 0), ("serve train", 0), ("train paddle3-gpu office", 1)],
)
def test_an_extra_is_no_part_of_another_ones_name(tmp_path, extras, code):
    (tmp_path / "installed-train-paddle3-gpu-serve.sha256").write_text("new\n")
    (tmp_path / "installed-train-gpu-office.sha256").write_text("old\n")
    assert bash(f"source scripts/setup.sh; has_installed {tmp_path} new {extras}").returncode == code


@pytest.mark.parametrize(
    "name", ["run_pretraining_lamb", "run_pretraining_adam", "run_squad_inference", "data_download"]
)
def test_a_script_of_nvidias_tensorflow_trainer_names_ours(name):
    done = bash(f"bash scripts/{name}.sh 64 8 7.5e-4 fp16")
    assert done.returncode == 2 and done.stderr.startswith(f"error: {name}.sh is a script of NVIDIA's TensorFlow BERT")
    named = re.search(r"run '(?:bash )?(\S+?)(?:/bin/python (\S+))?[ ']", done.stderr)
    assert named and (REPOSITORY / (named[2] or named[1])).is_file(), done.stderr


def test_the_doctor_answers_without_an_environment(machine, tmp_path):
    """The interpreter has no packages: the answer names the command that installs them, and nothing is installed."""
    (tmp_path / "bin/python3.11").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    done, log = machine("bash scripts/doctor.sh")
    assert done.returncode == 2 and "run `bash scripts/setup.sh` once" in done.stderr and log == ""
    done, _ = machine("bash scripts/doctor.sh --help")
    assert done.returncode == 0 and done.stdout.startswith("Check whether this machine is fit to train")


@pytest.mark.parametrize(
    ("given", "compiles"),
    [
        ({}, ""),
        ({"PYTHONDONTWRITEBYTECODE": "1"}, "1"),  # no start keeps what it compiles
        ({"UV_COMPILE_BYTECODE": "1"}, "1"),  # as the Dockerfile says
        ({"PYTHONDONTWRITEBYTECODE": "1", "UV_COMPILE_BYTECODE": "0"}, "0"),
    ],
)
def test_packages_are_compiled_where_no_start_can_keep_what_it_compiles(machine, given, compiles):
    neither = {"PYTHONDONTWRITEBYTECODE": "", "UV_COMPILE_BYTECODE": ""}
    _, log = machine(**{**neither, **given})
    assert re.findall("^UV_COMPILE_BYTECODE=(.*)$", log, re.M) == ([compiles] if compiles else [])
    assert "--compile-bytecode" not in log


def test_what_was_cut_off_is_installed_anew(machine, tmp_path):
    done, _ = machine(FAILS="1")
    assert done.returncode == 2 and not list((tmp_path / "venv").glob("installed-*"))
    assert "error: could not install the packages of train paddle (see above); check the network" in done.stderr
    done, log = machine()
    assert done.stdout == USED and "/bin/python --reinstall --no-deps" in log
    done, log = machine("bash scripts/setup.sh serve")
    assert "--reinstall" not in log and "--extra serve" in log


def test_a_machine_without_a_fitting_python_gets_one_of_uvs(machine, tmp_path):
    (tmp_path / "bin/python3.11").unlink()
    for name in ("python3", "python"):  # 3.14
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    tools = "sh bash env grep sort sed paste xargs dirname sha256sum mkdir touch rm awk chmod"
    for tool in tools.split():
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    done, log = machine(path=f"{tmp_path}/bin")
    assert done.stdout == USED and "--python 3.12" in log, done.stderr
    assert (
        "No Python 3.11 or 3.12 on the PATH: uv takes one of its own, fetched once (30 MB) from github.com"
        in done.stderr
    )
    for name in ("python3", "python", "uv"):
        (tmp_path / "bin" / name).unlink()
    shutil.rmtree(tmp_path / "venv")
    done, _ = machine(path=f"{tmp_path}/bin")
    assert done.returncode == 2 and "error: no Python found; install Python 3.11 or 3.12, or uv" in done.stderr


def test_pips_settings_are_uvs_and_its_variables_come_first(machine, tmp_path):
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://global/simple\nextra-index-url = https://one/simple\n  https://two/simple\n"
        "[install]\nindex-url = https://mirror/simple\nfind-links = /wheels /more\ntrusted-host = mirror\n"
        "no-index = true\ncert = /ca.pem\nproxy = http://proxy:1\n"
    )
    pip = {
        "PIP_CONFIG_FILE": f"{tmp_path}/pip.conf",
        "PATH": f"{Path(sys.executable).parent}:{tmp_path}/bin:/usr/bin:/bin",
    }
    pip["path"] = pip.pop("PATH")
    words = "source scripts/setup.sh; make_environment $BERT_VENV x uv_install $BERT_VENV/bin/python x"
    _, log = machine(words, PIP_CERT="/other.pem", **pip)
    assert "pip install --python" in log and " --no-index x\n" in log
    given = dict(line.split("=", 1) for line in log.splitlines() if re.match("[A-Z_]+=", line))
    assert given["UV_DEFAULT_INDEX"] == "https://mirror/simple"
    assert given["UV_INDEX"].split() == ["https://one/simple", "https://two/simple"]
    assert given["UV_FIND_LINKS"] == "/wheels,/more" and given["UV_INSECURE_HOST"] == "mirror"
    assert given["SSL_CERT_FILE"] == "/other.pem" and given["ALL_PROXY"] == "http://proxy:1"
    _, log = machine(words, UV_DEFAULT_INDEX="https://mine/simple", **pip)
    assert "UV_DEFAULT_INDEX=https://mine/simple\n" in log


def test_empty_variables_of_uv_count_as_unset(machine):
    """uv refuses an empty UV_CACHE_DIR like a folder without a name."""
    _, log = machine(UV_CACHE_DIR="", UV_INDEX_STRATEGY="", UV_OFFLINE="1")
    assert "UV_CACHE_DIR" not in log and "UV_INDEX_STRATEGY=unsafe-best-match\n" in log and "UV_OFFLINE=1\n" in log


@pytest.fixture
def foreign_folder(tmp_path):
    """Write modules that write a file, `ran`, at import, named as venv, pip and modules that these import."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    for name in ("venv", "pip", "logging", "json", "email", "ensurepip", "tempfile", "argparse"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('{name} ')\n")
    return folder


def test_pip_of_the_current_folder_is_not_run(machine, tmp_path, foreign_folder):
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror/simple\n")
    path = f"{Path(sys.executable).parent}:{tmp_path}/bin:/usr/bin:/bin"
    words = "make_environment $BERT_VENV x uv_install $BERT_VENV/bin/python x"
    start = f"cd {foreign_folder}; source {REPOSITORY}/scripts/setup.sh; {words}"
    done, log = machine(start, path=path, PIP_CONFIG_FILE=f"{tmp_path}/pip.conf")
    assert done.returncode == 0 and "UV_DEFAULT_INDEX=https://mirror/simple\n" in log, done.stderr
    assert not (foreign_folder / "ran").exists()


def test_venv_of_the_current_folder_is_not_run(machine, tmp_path, foreign_folder):
    """Without uv on the PATH it gets its own environment; here without pip, so that nothing is installed."""
    (tmp_path / "bin/uv").unlink()
    (tmp_path / "bin/python3.11").write_text(f'#!/bin/sh\nexec {sys.executable} "$@" --without-pip\n')
    start = f"cd {foreign_folder}; source {REPOSITORY}/scripts/setup.sh; find_uv"
    done, _ = machine(start)
    assert done.returncode == 2 and "could not install uv" in done.stderr
    assert (tmp_path / "venv-uv/pyvenv.cfg").is_file() and not (foreign_folder / "ran").exists()


def test_an_environment_that_cannot_be_written_is_used(machine, tmp_path):
    (tmp_path / "venv/installed-train-paddle.sha256").mkdir(parents=True)
    assert machine()[0].stdout == USED


CARD = '#!/bin/sh\ncase "$*" in *compute_cap*) echo "$CARD" ;; esac\n'


@pytest.mark.parametrize(
    ("card", "chosen", "extras"),
    [
        ("", "", "train paddle"),
        ("", "3.1", "train paddle3"),
        ("8.6", "", "train gpu"),
        ("8.6", "3.1", "train paddle3-gpu"),
        ("9.0", "", "train paddle3-gpu"),
        ("12.0", "", "train paddle3-gpu"),
        ("9.0", "2.6", "train gpu"),
    ],
)
def test_paddle_is_2_6_but_for_cards_that_its_wheel_has_no_code_for(tmp_path, card, chosen, extras):
    (tmp_path / "nvidia-smi").write_text(CARD)
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = f"{tmp_path if card else ''}:{Path(sys.executable).parent}:/usr/bin:/bin"
    done = bash("source scripts/setup.sh; runtime_extras", PATH=path, CARD=card, BERT_PADDLE=chosen)
    assert done.stdout == f"{extras}\n", done.stderr


def test_another_version_of_paddle_is_refused():
    for command in ("source scripts/setup.sh; set -e; find_runtime", "bash scripts/run_tests.sh --paddle 3.2"):
        done = bash(command, BERT_PADDLE="3.2")
        assert done.returncode == 2 and "3.2 must be 2.6 or 3.1" in done.stderr


ENVIRONMENTS = [
    "train paddle",
    "train gpu",
    "train paddle3",
    "inference paddle serve",
    "train paddle3 onnx segmentation test",
]
TESTS = re.search(r'^TESTS="(.*)"', (REPOSITORY / "scripts/setup.sh").read_text(), re.M)[1]


@pytest.mark.parametrize("extras", [*ENVIRONMENTS, TESTS])
def test_the_lock_has_what_the_extras_name_in_their_ranges_with_hashes(extras):
    chosen, names = pins(extras.split()), locked(extras.split())
    wanted = declared(extras.split())
    assert chosen.keys() == wanted.keys() and names > wanted.keys()
    for name, requirement in wanted.items():
        assert requirement.specifier.contains(chosen[name], prereleases=True), requirement
    files = [
        file for table in TABLES if table["name"] in names for file in [*table.get("wheels", ()), table.get("sdist")]
    ]
    assert all(file["hash"].startswith("sha256:") for file in files if file is not None)


def test_the_lock_is_complete_for_this_environment():
    """The list has every requirement of an installed package, except exceptions of pyproject.toml."""
    chosen = locked(TESTS.split())
    excepted = {table["name"] for table in PROJECT["tool"]["uv"]["dependency-metadata"]}
    for name in chosen - excepted:
        for requirement in map(Requirement, importlib.metadata.requires(name) or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert re.sub(r"[-_.]+", "-", requirement.name).lower() in chosen, f"{name} needs {requirement}"


def test_pins_and_differences():
    wanted = pins(["chinese", "paddle3-gpu"])
    assert wanted["paddlepaddle-gpu"] == "3.1.1" and wanted["jieba"] == "0.42.1"
    assert [line.split(" is ")[0] for line in differences({"PyYAML": "0.0.1", "no-such-package": "1"})] == [
        "PyYAML",
        "no-such-package",
    ]


@pytest.mark.nightly
@pytest.mark.long
def test_the_bill_of_software_has_the_packages_of_the_lock_and_their_licences(tmp_path):
    environment = {**os.environ, "BERT_PYTHON": sys.executable}
    subprocess.run(["bash", "scripts/sbom.sh", tmp_path], cwd=REPOSITORY, env=environment, check=True, timeout=900)
    components = json.loads((tmp_path / "sbom.json").read_text())["components"]
    listed = {re.sub("[-_.]+", "-", component["name"]).lower() for component in components}
    assert locked(["train", "paddle"]) <= listed
    assert len((tmp_path / "licences.md").read_text().splitlines()) > 50 and (tmp_path / "vulnerabilities.md").exists()


def test_versions_that_are_held_are_those_of_the_lock():
    """sbom.sh prints this table."""
    text = (REPOSITORY / "scripts/sbom.sh").read_text()
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("| ")][1:]
    versions = {(table["name"], table.get("version")) for table in TABLES}
    assert len(rows) >= 7 and {(name, row[2]) for row in rows for name in row[1].split(", ")} <= versions


def test_a_job_without_a_number_is_refused_before_it_is_computed_with(tmp_path):
    done = bash("bash run.sub", SLURM_JOB_ID=f"a[$(touch {tmp_path}/x)]", CODE_DIR=str(REPOSITORY))
    assert done.returncode == 2 and "must be a job's number; submit this script" in done.stderr
    assert not (tmp_path / "x").exists()


def test_an_unknown_extra_is_refused_with_the_known_ones():
    done = bash("bash scripts/setup.sh servers")
    assert done.returncode == 2 and "servers must be one of paddle gpu" in done.stderr


def test_the_package_does_not_replace_the_users_pip():
    show = "lambda **settings: print(*settings['install_requires'], sep='\\n')"
    code = f"import runpy, setuptools; setuptools.setup = {show}; runpy.run_path('setup.py')"
    environment = {**os.environ, "BERT_PADDLE": "none"}
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    names = {Requirement(line).name for line in shown.stdout.splitlines()}
    assert {"numpy", "scikit-learn", "visualdl"} <= names and not names & {"pip", "uv", "paddlepaddle"}
