"""The shell scripts only launch, and agree with the Python side. Requirements agree with their lock."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.doctor.requirements import differences, pins
from bert.launching.pretraining_plan import POSITIONAL, parse_launch_arguments
from bert.pretraining.recipes import PRESETS

SCRIPTS = sorted([*(REPOSITORY / "scripts").rglob("*.sh"), REPOSITORY / ".ci/run"])


def bash(command, **environment):
    environment = {"PATH": "/usr/bin:/bin", "BERT_PYTHON": sys.executable, **environment}
    return subprocess.run(
        [shutil.which("bash"), "-c", command],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "script",
    [script for script in SCRIPTS if "configs" not in script.parts and script.name != "setup.sh"],
    ids=lambda path: path.name,
)
def test_scripts_stop_at_the_first_failure(script):
    assert "set -euo pipefail" in script.read_text()


def test_run_pretraining_hands_its_arguments_on():
    done = bash("bash scripts/run_pretraining.sh --config large --dry-run")
    assert done.returncode == 0 and "65,536 sequences" in done.stdout, done.stderr
    wrong = bash("bash scripts/run_pretraining.sh --config larg")
    assert wrong.returncode == 2 and wrong.stderr.splitlines()[-1].startswith("error: config=larg must be a preset")


def test_run_pretraining_starts_from_any_folder(tmp_path):
    done = bash(f"cd {tmp_path} && bash {REPOSITORY}/scripts/run_pretraining.sh --dry-run")
    assert done.returncode == 0 and "bert-quickstart" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["dgxa100-80g_8gpu_amp", "dgxa100-80g_8gpu_tf32"])
def test_shell_presets_are_the_presets(name):
    words = shlex.split(bash(f"source scripts/configs/pretrain_config.sh && {name}").stdout)
    assert len(words) == len(POSITIONAL) == 32
    plan, preset = parse_launch_arguments(words), PRESETS[name]
    assert plan.world_size() == preset.world_size()
    for config, recipe in zip(plan.phases, (preset.phase1(), preset.phase2()), strict=True):
        size = preset.world_size()
        assert config.batch.gradient_accumulation_steps(size) == recipe.batch.gradient_accumulation_steps(size)
        assert config.batch.batch_size == recipe.batch.batch_size
        for section in ("model", "data", "optimizer", "precision", "hardware"):
            assert getattr(config, section) == getattr(recipe, section)
        assert (config.run.max_steps, config.run.seed, config.run.num_steps_per_checkpoint) == (
            recipe.run.max_steps,
            recipe.run.seed,
            recipe.run.num_steps_per_checkpoint,
        )


@pytest.mark.parametrize(("name", "precision"), [("dgxa100-80g_8gpu_amp", "amp"), ("dgxa100-80g_8gpu_tf32", "tf32")])
def test_squad_presets_have_all_18_arguments(name, precision):
    words = shlex.split(bash(f"source scripts/configs/squad_config.sh && {name}").stdout)
    assert len(words) == 18
    assert words[1:8] == ["2", "32", "4.6e-5", "0.2", precision, "8", "1"] and words[11] == "train_eval"


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
    stamp = bash("cat requirements*.txt constraints.txt | sha256sum").stdout
    (tmp_path / "requirements.txt.sha256").write_text(stamp)
    done = bash("bash scripts/run_pretraining.sh --seed 3", BERT_PYTHON="", BERT_VENV=str(tmp_path))
    assert done.stdout == "used -m bert.launching pretraining --seed 3\n", done.stderr


def lock():
    return {name.lower().replace("_", "-"): version for name, version in pins(REPOSITORY / "constraints.txt").items()}


CARD = '#!/bin/sh\ncase "$*" in *compute_cap*) echo "$CARD" ;; esac\n'


@pytest.mark.parametrize(
    ("card", "chosen", "requirements"),
    [
        ("", "", "requirements.txt"),
        ("", "3.1", "requirements-paddle3.txt"),
        ("8.6", "", "requirements-gpu.txt"),
        ("8.6", "3.1", "requirements-paddle3-gpu.txt"),
        ("9.0", "", "requirements-paddle3-gpu.txt"),
        ("12.0", "", "requirements-paddle3-gpu.txt"),
        ("9.0", "2.6", "requirements-gpu.txt"),
    ],
)
def test_paddle_is_2_6_but_for_cards_that_its_wheel_has_no_code_for(tmp_path, card, chosen, requirements):
    (tmp_path / "nvidia-smi").write_text(CARD)
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = f"{tmp_path if card else ''}:{Path(sys.executable).parent}:/usr/bin:/bin"
    done = bash("source scripts/setup.sh; runtime_requirements", PATH=path, CARD=card, BERT_PADDLE=chosen)
    assert done.stdout == f"{requirements}\n", done.stderr


def test_a_machine_that_has_python_3_13_alone_gets_paddle_3(tmp_path):
    for tool in ("awk", "dirname"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    (tmp_path / "python3").write_text('#!/bin/sh\ncase "$2" in *"(3, 12)"*) exit 1 ;; esac\n')
    (tmp_path / "python3").chmod(0o755)
    assert (
        bash("source scripts/setup.sh; runtime_requirements", PATH=str(tmp_path)).stdout == "requirements-paddle3.txt\n"
    )


def test_another_version_of_paddle_is_refused():
    for command in ("source scripts/setup.sh; set -e; launch squad", "bash scripts/run_tests.sh --paddle 3.2"):
        done = bash(command, BERT_PADDLE="3.2")
        assert done.returncode == 2 and "3.2 must be 2.6 or 3.1" in done.stderr


@pytest.mark.parametrize(
    "name",
    ["requirements.txt", "requirements-gpu.txt", "requirements-paddle3.txt", "requirements-paddle3-gpu.txt"]
    + ["requirements-test.txt", "requirements-test-paddle3.txt"],
)
def test_requirements_agree_with_the_lock(name):
    for package, version in pins(REPOSITORY / name).items():
        if not package.startswith("paddlepaddle"):
            assert lock()[package.lower().replace("_", "-")] == version


def test_every_requirement_says_why():
    for line in (REPOSITORY / "requirements-base.txt").read_text().splitlines():
        assert line.startswith(("#", "-")) or re.fullmatch(r"\S+==\S+ +# .+", line), line


def test_pins_and_differences(tmp_path):
    (tmp_path / "more.txt").write_text("PyYAML==0.0.1  # old\nunpinned\n")
    (tmp_path / "file.txt").write_text("-c constraints.txt\n-r more.txt\nno-such-package==1.0 ; python_version > '3'\n")
    wanted = pins(tmp_path / "file.txt")
    assert wanted == {"PyYAML": "0.0.1", "no-such-package": "1.0"}
    assert [line.split(" is ")[0] for line in differences(wanted)] == ["PyYAML", "no-such-package"]
