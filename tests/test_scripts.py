"""The shell scripts only launch, and agree with the Python side. Requirements agree with their lock."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bert import REPOSITORY
from bert.commands.pretrain import POSITIONAL, parse_launch_arguments
from bert.doctor import requirements
from bert.doctor.requirements import declared, differences, packages, pins
from bert.pretraining.recipes import PRESETS, RECIPES

SCRIPTS = sorted([*(REPOSITORY / "scripts").rglob("*.sh"), REPOSITORY / ".ci/run"])


def bash(command, **environment):
    environment = {"PATH": "/usr/bin:/bin", "BERT_PYTHON": sys.executable, **environment}
    pipes = {"capture_output": True, "text": True, "timeout": 120, "check": False}
    return subprocess.run([shutil.which("bash"), "-c", command], cwd=REPOSITORY, env=environment, **pipes)


@pytest.mark.parametrize(
    "script",
    [script for script in SCRIPTS if "configs" not in script.parts and script.name != "setup.sh"],
    ids=lambda path: path.name,
)
def test_scripts_stop_at_the_first_failure(script):
    assert "set -euo pipefail" in script.read_text()


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


def test_a_missing_python_is_an_error_with_a_remedy(tmp_path):
    for tool in ("dirname", "cat", "sha256sum", "mkdir"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    done = bash(". scripts/run_pretraining.sh", PATH=str(tmp_path), BERT_PYTHON="", BERT_VENV=str(tmp_path / "venv"))
    assert done.returncode == 2
    assert "error: no Python 3.11 or 3.12 found; install one and put it on the PATH" in done.stderr


def test_an_environment_with_the_right_stamp_is_used_as_it_is(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text("#!/bin/sh\necho used $*\n")
    (tmp_path / "bin/python").chmod(0o755)
    stamp = bash("cat lock-*.txt | sha256sum").stdout
    (tmp_path / "installed-train-paddle.sha256").write_text(stamp)
    done = bash("bash scripts/run_pretraining.sh --seed 3", BERT_PYTHON="", BERT_VENV=str(tmp_path))
    assert done.stdout == "used -m bert.commands pretraining --seed 3\n", done.stderr


@pytest.mark.parametrize("is_read_only", [False, True])
def test_an_environment_that_has_the_packages_is_not_installed_again(tmp_path, is_read_only):
    """As one of `setup.sh serve`, whose stamp is that of other extras."""
    stamp = tmp_path / "installed-train-paddle.sha256"
    if is_read_only:
        stamp.mkdir()  # so that nobody can write it
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text("#!/bin/sh\necho used $*\n")  # its check of the packages finds them
    (tmp_path / "bin/python").chmod(0o755)
    done = bash("bash scripts/run_pretraining.sh --seed 3", BERT_PYTHON="", BERT_VENV=str(tmp_path))
    assert done.stdout.endswith("used -m bert.commands pretraining --seed 3\n"), done.stderr
    assert "requirements.py --locked train paddle\n" in done.stdout and done.stderr == ""
    assert is_read_only or stamp.read_text() == bash("cat lock-*.txt | sha256sum").stdout


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
    for command in ("source scripts/setup.sh; set -e; launch squad", "bash scripts/run_tests.sh --paddle 3.2"):
        done = bash(command, BERT_PADDLE="3.2")
        assert done.returncode == 2 and "3.2 must be 2.6 or 3.1" in done.stderr


ENVIRONMENTS = ["train paddle", "train gpu", "train paddle3", "inference paddle serve", "train paddle3 onnx test"]
TESTS = "train paddle serve onnx chinese dask test check"


def project():
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("extras", [*ENVIRONMENTS, TESTS])
def test_the_lock_has_what_the_extras_name_in_their_ranges_with_hashes(extras):
    chosen = packages(extras.split())
    for name, requirement in declared(extras.split()).items():
        assert Requirement(requirement).specifier.contains(chosen[name].version, prereleases=True), requirement
    assert all("--hash=sha256:" in package.text for package in chosen.values())


def test_the_lock_is_complete_for_this_environment():
    """Whatever an installed package requires is in the list that is installed."""
    chosen = packages(TESTS.split())
    for name in chosen:
        for requirement in map(Requirement, importlib.metadata.requires(name) or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert re.sub(r"[-_.]+", "-", requirement.name).lower() in chosen, f"{name} needs {requirement}"


def test_every_requirement_says_why():
    text = (REPOSITORY / "pyproject.toml").read_text()
    for extra in ("inference", "train", "serve", "onnx"):
        for line in re.search(rf"^{extra} = \[.*?\n(.*?)^\]", text, re.M | re.S)[1].splitlines():
            assert "bert-on-paddle" in line or re.fullmatch(r' +"\S.*",  # .+', line), line


def test_pins_and_differences():
    wanted = pins(["chinese", "paddle3-gpu"])
    assert wanted["paddlepaddle-gpu"] == "3.1.1" and wanted["jieba"] == "0.42.1"
    assert [line.split(" is ")[0] for line in differences({"PyYAML": "0.0.1", "no-such-package": "1"})] == [
        "PyYAML",
        "no-such-package",
    ]


def test_what_the_packages_need_is_compared_where_the_lock_has_changed(monkeypatch, capsys):
    versions = {name: package.version for name, package in packages(["train", "paddle"]).items()}
    (needed, *_) = versions.keys() - pins(["train", "paddle"]).keys() - {"setuptools"}
    monkeypatch.setattr(requirements, "installed_version", (versions | {needed: "0.0.1"}).get)
    assert requirements.main(["train", "paddle"]) == 0 and requirements.main(["--locked", "train", "paddle"]) == 1
    assert capsys.readouterr().err == f"{needed} is 0.0.1, wanted {versions[needed]}\n"


@pytest.mark.long
def test_the_bill_of_software_has_the_packages_of_the_lock_and_their_licences(tmp_path):
    environment = {**os.environ, "BERT_PYTHON": sys.executable}
    subprocess.run(["bash", "scripts/sbom.sh", tmp_path], cwd=REPOSITORY, env=environment, check=True, timeout=900)
    components = json.loads((tmp_path / "sbom.json").read_text())["components"]
    listed = {re.sub("[-_.]+", "-", component["name"]).lower() for component in components}
    assert packages(["train", "paddle"]).keys() <= listed
    rows = [line.split("|") for line in (tmp_path / "licences.md").read_text().splitlines()[2:]]
    unknown = [row[1].strip() for row in rows if row[3].strip() == "UNKNOWN"]
    assert len(rows) > 50 and len(unknown) < 10, unknown


def test_an_unknown_extra_is_refused_with_the_known_ones():
    done = bash("bash scripts/setup.sh servers")
    assert done.returncode == 2 and "servers must be one of paddle, gpu" in done.stderr


def test_packages_that_cannot_be_installed_leave_no_stamp(tmp_path):
    """pip fails; a pipeline in a condition does not end a script by itself."""
    (tmp_path / "bin").mkdir()
    fake = '#!/bin/sh\ncase "$*" in *--print*) ;; *"-m pip"* | *requirements.py*) exit 1 ;; esac\n'
    (tmp_path / "bin/python").write_text(fake)
    (tmp_path / "bin/python").chmod(0o755)
    done = bash("bash scripts/setup.sh dask", BERT_PYTHON="", BERT_VENV=str(tmp_path))
    assert done.returncode == 2 and "error: pip could not install train paddle dask" in done.stderr
    assert not list(tmp_path.glob("installed-*"))
