"""Commands that users of NVIDIA's docker scripts type. No Docker runs: BERT_DOCKER=echo prints its arguments."""

import shlex

import pytest

from bert import REPOSITORY
from tests.test_docker import bash


def echoed(script, *arguments, cwd, **environment):
    """Return the words of each line; launch.sh makes the folders that it mounts, so it runs in a folder of the test."""
    done = bash(script, *arguments, cwd=cwd, BERT_DOCKER="echo", BERT_GPUS="", **environment)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "image", "is_pushed"),
    [
        ([], "bert-on-paddle:ngc", False),
        (["bert"], "bert", False),
        (["bert:22.12-py3", "none"], "bert:22.12-py3", False),
        (["registry.local/bert:22.12-py3", "push"], "registry.local/bert:22.12-py3", True),
        (["--build-arg=HTTP_PROXY=http://p:1"], "bert-on-paddle:ngc", False),
    ],
)
def test_build_takes_the_name_of_the_image_and_push(tmp_path, words, image, is_pushed):
    built, *pushed = echoed("build.sh", *words, cwd=tmp_path)
    assert built[0] == "build" and f"--tag={image}" in built
    assert pushed == ([["push", image]] if is_pushed else [])


@pytest.mark.parametrize(
    ("words", "command", "options"),
    [
        ([], [], []),
        (["/bin/bash", "0,1", "host"], ["/bin/bash"], ['--gpus="device=0,1"', "--network=host"]),
        (["bash", "all"], ["bash"], ["--gpus=all"]),
        (["bash scripts/run_squad.sh /workspace/bert/checkpoints/x"], None, []),
        (["bash", "scripts/run_squad.sh", "x"], ["bash", "scripts/run_squad.sh", "x"], []),
        (["sleep", "5"], ["sleep", "5"], []),
        (["make", "all"], ["make", "all"], []),
        (["python", "0,1", "host"], ["python"], ['--gpus="device=0,1"', "--network=host"]),
        (["python3.11", "all"], ["python3.11"], ["--gpus=all"]),
        (["/usr/bin/python3", "2", "bridge"], ["/usr/bin/python3"], ['--gpus="device=2"', "--network=bridge"]),
        (["ipython", "0,1"], ["ipython"], ['--gpus="device=0,1"']),
        (["python", "x.py", "host"], ["python", "x.py", "host"], []),
        (["seq", "3", "5"], ["seq", "3", "5"], []),
    ],
)
def test_launch_takes_a_quoted_command_gpus_and_a_network(tmp_path, words, command, options):
    (line,) = echoed("launch.sh", *words, cwd=tmp_path)
    command = words[0].split() if command is None else command
    assert line[len(line) - len(command) :] == command and line[len(line) - len(command) - 1].startswith(
        "bert-on-paddle:"
    )
    unquoted = [option.replace('"', "") for option in options]  # echo shows no quotes
    assert sorted(word for word in line if word.startswith(("--gpus", "--network"))) == unquoted


def test_launch_finds_the_data_and_the_checkpoints_of_a_checkout_of_theirs(tmp_path):
    (tmp_path / "data/download").mkdir(parents=True)
    (tmp_path / "checkpoints").mkdir()
    (line,) = echoed("launch.sh", "true", cwd=tmp_path, BERT_PREP_WORKING_DIR="")
    assert f"--volume={tmp_path}/data:/data" in line
    assert f"--volume={tmp_path}/checkpoints:/workspace/bert/checkpoints:ro" in line


def test_the_code_of_wikipedia_is_not_the_data(tmp_path):
    done = bash("launch.sh", "--dry-run", "true", cwd=REPOSITORY, BERT_PREP_WORKING_DIR="", BERT_DATA="")
    assert f"--volume={REPOSITORY}/results/data:/data" in shlex.split(done.stdout)
