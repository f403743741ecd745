"""A rank reads the settings that its launcher resolved, with one validation and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.config.run_file import given_run_file, read_run, run_file, run_file_content
from bert.config.setting_sources import resolve_config
from bert.config.training_settings import derive
from bert.glue.config import ENTRY as GLUE
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.recipes import RECIPES


@pytest.mark.parametrize("name", ["quickstart_phase1", "phase2_large", "phase1_modernbert_base"])
def test_a_run_file_is_read_back_as_it_was(name, tmp_path):
    config = derive(RECIPES[name](), finish_in=90.5, lr_schedule="wsd", report_to="wandb", output_dir=tmp_path)
    file = tmp_path / "run.json"
    file.write_bytes(run_file_content(config))
    assert read_run(file, PretrainingConfig) == config
    assert b"infinity" not in file.read_bytes().lower()


def test_a_benchmark_leaves_the_run_file_of_the_training(tmp_path):
    config = derive(RECIPES["quickstart_phase1"](), output_dir=tmp_path)
    assert run_file(config) == tmp_path / "phase1/run.json"
    assert run_file(derive(config, benchmark=True)) == tmp_path / "phase1/benchmark/run.json"


def test_fine_tuning_settings_are_read_back_too(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    config = resolve_config({"config": "quickstart_sentiment", "vocab_file": tmp_path / "vocab.txt"}, GLUE)
    (tmp_path / "run.json").write_bytes(run_file_content(config))
    assert read_run(tmp_path / "run.json", type(config)) == config


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{cut", "Expecting property name"), ("[]", "PretrainingConfig"), ('{"run": {"phase": 3}}', "phase")],
)
def test_a_damaged_run_file_is_refused_with_what_to_do(content, reason, tmp_path):
    file = tmp_path / "run.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=f"run={file} must be a run file .*{reason}.* start the training"):
        read_run(file, PretrainingConfig)


def test_only_a_launchers_words_name_a_run_file():
    assert given_run_file(["--run", "a/run.json"]) == Path("a/run.json")
    assert given_run_file(["--config", "quickstart_phase1"]) is None
    assert given_run_file(["--run"]) is None


# The modules of this project that a rank of pre-training loads: not more, so that a start stays cheap.
MOST_MODULES = 112
_RESOLVING = (
    "bert.config.command_line",
    "bert.config.entry_point",
    "bert.config.setting_sources",
    "bert.pretraining.entry",
    "bert.pretraining.recipes",
    "bert.planning.planner",
    "bert.planning.dry_run",
)
_RANK = """
import sys
from pathlib import Path
import run_pretraining
import bert.pretraining.task, bert.training.training_run
root = str(Path.cwd()) + "/"
print(*(name for name, module in sys.modules.items() if str(getattr(module, "__file__", "")).startswith(root)
        and "/.venv" not in module.__file__))
"""


def test_a_rank_loads_nothing_that_resolves_settings_and_few_modules():
    done = subprocess.run(
        [sys.executable, "-c", _RANK],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    modules = done.stdout.split()
    assert not [name for name in modules if name.startswith(_RESOLVING)]
    assert len(modules) <= MOST_MODULES, f"{len(modules)} modules: {' '.join(sorted(modules))}"
