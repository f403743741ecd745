"""The doctor's checks on facts of other machines, and its facts about this one."""

import dataclasses
import importlib.metadata
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.doctor import facts as machine_facts
from bert.doctor import requirements as environment
from bert.doctor.checks import FAILURE, PASSED, WARNING, examine, runs_on
from bert.doctor.facts import Facts, Gpu, ask_paddle, collect
from bert.runtime.paddle_api import IS_PADDLE_3

GIB = 2**30
CPU_BUILD = {"version": "2.6.2", "cuda": None, "gpus": 0, "nccl": None, "product": 64.0**3, "decompresses": True}
HEALTHY = Facts(
    python="3.11.0",
    paddle=CPU_BUILD,
    paddle_problem="",
    paddle_loaded_early=False,
    preloaded="",
    encoding="utf-8",
    extras=("train", "paddle"),
    requirement_differences=(),
    has_ranges=False,
    gpus=(),
    cpu_vendor="GenuineIntel",
    cpu_model="",
    cpu_flags=frozenset({"avx", "avx2"}),
    mkl_debug_cpu_type=None,
    cpu_quota=None,
    memory_nodes=1,
    logical_processors=8,
    usable_cores=8,
    usable_processors=8,
    memory_bytes=64 * GIB,
    shm_bytes=8 * GIB,
    open_files=65536,
    locked_memory_bytes=-1,
    output_dir=Path("results"),
    output_problem="",
    output_locks=True,
    output_free_bytes=100 * GIB,
    output_free_files=10**6,
    output_file_system="ext4",
    hostname="a",
    host_address="10.0.0.1",
    ports_free=True,
)
A100 = Gpu("NVIDIA A100-SXM4-80GB", "8.0", 81920, "525.1")
DGX = dataclasses.replace(HEALTHY, gpus=(A100,) * 8, paddle={**CPU_BUILD, "cuda": "11.8", "gpus": 8, "nccl": 21602})
B200 = Gpu("NVIDIA B200", "10.0", 183359, "570.1")
H100 = dataclasses.replace(
    DGX,
    gpus=(Gpu("NVIDIA H100", "9.0", 81559, "550.1"),) * 8,
    paddle={**DGX.paddle, "version": "3.1.1", "cuda": "12.6"},
)


def changed(facts: Facts, **changes) -> Facts:
    paddle = {**facts.paddle, **changes.pop("built", {})}
    return dataclasses.replace(facts, **{"paddle": paddle, **changes})


def problems(facts: Facts) -> dict[str, tuple[str, str]]:
    return {finding.name: (finding.level, finding.advice) for finding in examine(facts) if finding.level != PASSED}


@pytest.mark.parametrize("facts", [HEALTHY, DGX, H100], ids=["cpu", "dgx", "hopper"])
def test_healthy_machines_have_no_findings(facts):
    assert problems(facts) == {}


@pytest.mark.parametrize(
    "facts,name,level,advice",
    [
        (changed(HEALTHY, python="3.9.2"), "Python", FAILURE, "install Python 3.11 or 3.12 or 3.13"),
        (changed(HEALTHY, requirement_differences=("numpy is 2.1",)), "packages", WARNING, "bash scripts/setup.sh"),
        (changed(HEALTHY, paddle={}, paddle_problem="exit code -11: "), "Paddle", FAILURE, "fresh environment"),
        (changed(HEALTHY, built={"error": "RuntimeError: x"}), "Paddle", FAILURE, "cannot compute"),
        (changed(HEALTHY, built={"product": 3.0}), "Paddle", FAILURE, "a product of ones is wrong"),
        (changed(HEALTHY, built={"version": "3.2.0"}), "Paddle", FAILURE, "static graphs of other versions"),
        (changed(HEALTHY, built={"decompresses": False}), "zlib before Paddle", FAILURE, "import bert (or zlib)"),
        (changed(HEALTHY, paddle_loaded_early=True), "zlib before Paddle", FAILURE, "sitecustomize"),
        (changed(HEALTHY, preloaded="/opt/libzlib.so"), "zlib before Paddle", WARNING, "unset it"),
        (changed(HEALTHY, encoding="ansi_x3.4-1968"), "text encoding", WARNING, "PYTHONUTF8=1"),
        (changed(HEALTHY, gpus=(A100,)), "GPU", FAILURE, "bash scripts/setup.sh"),
        (changed(HEALTHY, built={"cuda": "11.8"}), "GPU", WARNING, "docker --gpus all"),
        (changed(DGX, gpus=(Gpu("NVIDIA H100", "9.0", 81559, "550.1"),) * 8), "GPU", FAILURE, "has no code for 9.0"),
        (changed(H100, built={"cuda": "11.8"}), "GPU", FAILURE, "BERT_PADDLE=3.1 BERT_CUDA=cu126 bash"),
        (changed(H100, gpus=(B200,) * 8), "GPU", FAILURE, "has no code for 10.0: BERT_PADDLE=3.1 BERT_CUDA=cu129 bash"),
        (changed(HEALTHY, gpus=(B200,)), "GPU", FAILURE, "CPU build: BERT_PADDLE=3.1 BERT_CUDA=cu129 bash"),
        (changed(DGX, built={"gpus": 4}), "GPU", WARNING, "Paddle sees 4 of them: check CUDA_VISIBLE_DEVICES"),
        (changed(DGX, gpus=(A100,) * 7 + (Gpu("NVIDIA A10", "8.6", 23028, "525.1"),)), "GPU", WARNING, "they differ"),
        (changed(DGX, built={"nccl": None}), "NCCL", FAILURE, "libnccl.so on LD_LIBRARY_PATH"),
        (changed(HEALTHY, cpu_flags=frozenset({"sse2"})), "processor", FAILURE, "illegal instruction"),
        (changed(HEALTHY, cpu_flags=frozenset({"avx"})), "processor", WARNING, "without AVX2"),
        (changed(HEALTHY, cpu_vendor="AuthenticAMD", mkl_debug_cpu_type="4"), "processor", WARNING, "CPU_TYPE=4"),
        (changed(HEALTHY, cpu_quota=2.0), "cores", WARNING, "docker --cpus"),
        (changed(HEALTHY, usable_cores=1, usable_processors=1), "cores", WARNING, "srun --cpu-bind=none"),
        (changed(HEALTHY, memory_bytes=GIB // 2), "memory", FAILURE, "free some"),
        (changed(HEALTHY, memory_bytes=2 * GIB), "memory", WARNING, "--dry-run prints"),
        (changed(HEALTHY, shm_bytes=64 * 2**20), "/dev/shm", WARNING, "docker gives 64 MB"),
        (changed(DGX, shm_bytes=64 * 2**20), "/dev/shm", FAILURE, "--shm-size=8g"),
        (changed(HEALTHY, shm_bytes=None), "/dev/shm", WARNING, "--shm-size"),
        (changed(HEALTHY, open_files=256), "limits", FAILURE, "ulimit -n 65536"),
        (changed(DGX, locked_memory_bytes=65536), "limits", WARNING, "ulimit -l unlimited"),
        (changed(HEALTHY, output_problem="Permission denied"), "output folder", FAILURE, "cannot be written"),
        (changed(HEALTHY, output_free_bytes=0), "output folder", FAILURE, "no room"),
        (changed(HEALTHY, output_free_files=3), "output folder", FAILURE, "inodes"),
        (changed(HEALTHY, output_locks=False), "output folder", WARNING, "mount it with locks"),
        (changed(HEALTHY, output_file_system="overlay"), "output folder", WARNING, "lost with the machine"),
        (changed(HEALTHY, ports_free=False), "network", FAILURE, "check the firewall"),
        (changed(HEALTHY, host_address=None), "network", WARNING, "/etc/hosts"),
    ],
)
def test_each_problem_is_reported_alone_with_a_remedy(facts, name, level, advice):
    found = problems(facts)
    assert list(found) == [name], found
    assert found[name][0] == level and advice in found[name][1], found


@pytest.mark.parametrize(
    "capability,cuda,runs",
    [
        ("8.0", "11.8", True),
        ("8.6", "11.8", True),
        ("8.9", "11.8", True),  # Ada runs Ampere's machine code
        ("6.0", "11.8", False),
        ("5.2", "11.8", False),
        ("9.0", "11.8", False),
        ("9.0", "12.3", True),
    ],
)
def test_a_gpu_runs_code_of_its_generation_that_is_not_newer(capability, cuda, runs):
    assert runs_on(capability, cuda) is runs


# ---- facts of this machine -------------------------------------------------------------------------------------------


def run_doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "bert.doctor", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_the_command_prints_a_table_and_leaves_no_file(tmp_path):
    done = run_doctor("--output-dir", str(tmp_path / "deep/er"))
    assert done.returncode == 0, done.stdout
    assert f"Paddle              {machine_facts.installed_version('paddlepaddle')}, C" in done.stdout
    assert "\nfit to train: 0 failure(s)" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_paddle_that_crashes_is_reported_not_followed(tmp_path):
    for body, reason in (
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "exit code -11"),
        ("raise ImportError('libcuda.so.1: cannot open')", "libcuda.so.1: cannot open"),
    ):
        (tmp_path / "paddle.py").write_text(body + "\n")
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        facts, problem = ask_paddle(str(python))
        assert facts == {} and reason in problem


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Return a function that puts a script in the place of nvidia-smi."""

    def install(script: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


def test_gpus_are_what_the_driver_lists(tmp_path, monkeypatch, driver):
    driver("echo 'NVIDIA A100-SXM4-80GB, 8.0, 81920, 525.105.17'; echo 'garbage'")
    monkeypatch.setattr(machine_facts, "ask_paddle", lambda python: (CPU_BUILD, ""))
    facts = collect(tmp_path)
    assert facts.gpus == (Gpu("NVIDIA A100-SXM4-80GB", "8.0", 81920, "525.105.17"),)
    assert facts.extras == ("train", "paddle3-gpu" if IS_PADDLE_3 else "gpu")
    assert {"packages", "GPU"} <= problems(facts).keys() and facts.output_problem == ""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for path in (tmp_path / "file", tmp_path / "file/results", tmp_path / "link"):
        assert "output folder" in problems(collect(path)), path


def test_an_installed_package_accepts_newer_versions(monkeypatch):
    ranges = ["numpy>=1.26,<2", "tqdm<1", "none==1"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ranges)
    unmet = environment.unmet_by_installation()
    assert [line.split(" is ")[0] for line in unmet] == ["tqdm", "none"] and unmet[1].endswith("missing, wanted ==1")
    monkeypatch.undo()
    assert environment.unmet_by_installation("no-such-distribution") is None
