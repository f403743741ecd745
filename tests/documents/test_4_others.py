"""Plans, doctor, package, self-test, Docker, Slurm."""

import json
import os
import sys

import pytest

from bert import REPOSITORY
from tests.documents.document import TRIED, command, output_of, run
from tests.support.documents import COMMANDS, FENCE, TEXTS


def test_plans_are_printed(clone):
    shown = TEXTS["bert/planning/README.md"]
    quoted = next(block for language, block in FENCE.findall(shown) if language == "text").splitlines()
    line = command(".venv/bin/python run_pretraining.py --plan")
    printed = output_of(line, clone, "--batch-size 512", "at 32 an hour").splitlines()
    assert len(quoted) == 10 and [line for line in quoted if line not in printed] == []
    output_of(command("bash scripts/run_pretraining.sh --config large --plan"), clone, "together")
    modern = command(".venv/bin/python run_pretraining.py --config phase1_modernbert_base")
    output_of(modern, clone, "phase1 of modernbert-base")
    checked = output_of(command(".venv/bin/python -m tests.benchmarks.planner_check"), clone)
    document = "bert/planning/MEASUREMENTS.md"
    assert checked in TEXTS[document], f"the table of {document} is not what the planner says"


def test_the_benchmark_of_training_compares_four(clone):
    """The README's command with a model that takes seconds."""
    start = command("bash scripts/benchmark_training.sh")
    if "BERT_TORCH_VENV" not in os.environ:
        pytest.skip("PyTorch is gigabytes: name an environment for it (made if it is not there), BERT_TORCH_VENV=DIR")
    output_of(f"{start} --cases bert-tiny --rounds 2 --updates 2 --warmup-steps 1", clone, timeout=2400)
    (case,) = json.loads((clone / ".benchmark/training/results.json").read_text())["cases"]
    assert len(case["rows"]) == 4


def test_stop_files_are_made(clone):
    (clone / "results/quickstart").mkdir(parents=True, exist_ok=True)
    for name in ("STOP", "FINISH"):
        output_of(command(f"touch results/quickstart/{name}"), clone)
        (clone / "results/quickstart" / name).unlink()


def test_no_result_holds_an_environment(clone):
    """Of all commands before this one."""
    (clone / "results").mkdir(exist_ok=True)
    found = run(command("grep -rlE"), clone)
    assert (found.returncode, found.stdout) == (1, ""), found


def test_help_and_doctor_are_readable(clone):
    output_of(command(".venv/bin/python run_pretraining.py --help"), clone, "--gradient-merge-steps")
    output_of(command(".venv/bin/python -m bert.doctor"), clone, "\nfit to train: 0 failure(s)")


def test_the_package_is_installed_with_its_dependencies(clone):
    for start in ("python3 -m venv env", "env/bin/pip install ."):
        output_of(command(start), clone, timeout=1800)
    output_of("env/bin/bert-on-paddle doctor", clone, "\nfit to train: 0 failure(s)")


def test_the_self_test_of_gpus_lists_its_checks_and_runs_some_on_a_cpu(clone):
    plain = "bash scripts/run_gpu_selftest.sh"
    lines = [line for line in COMMANDS if line.startswith(plain)]
    TRIED.update(lines)
    assert {plain, f"{plain} --list", f"{plain} --device cpu"} < set(lines)
    for line in lines:
        output_of(line if line.endswith(" --list") else f"{line} --list", clone, "test_ranks[accumulated]")
    output_of(f"{plain} --device cpu --only doctor --only fused", clone, "5 passed")


def test_docker_commands_and_several_nodes_resolve(clone):
    assert output_of(command("bash scripts/docker/build.sh") + " --dry-run", clone).startswith("docker build ")
    launched = output_of(
        command("bash scripts/docker/launch.sh").replace("launch.sh ", "launch.sh --dry-run ", 1), clone
    )
    assert launched.strip().endswith("bash scripts/run_pretraining.sh --config large")
    line = command("bash scripts/run_pretraining.sh --config dgxa100-80g_2x8gpu_amp") + " --dry-run"
    output_of(line, clone, "x 16 ranks")


def test_slurm_accepts_the_submissions(clone, tmp_path):
    """A cluster of two nodes takes them, held; tests/cluster lets such jobs run."""
    lines = [command("sbatch -N2"), command("PHASE=2 sbatch")]
    sys.path.insert(0, str(REPOSITORY / "tests/cluster"))
    import slurm_cluster

    if reason := slurm_cluster.why_not():
        pytest.skip(f"no Slurm: {reason}")
    with slurm_cluster.SlurmCluster(tmp_path / "slurm") as cluster:
        for line in lines:
            cluster.run(["bash", "-c", line], cwd=clone, env={"SBATCH_HOLD": "1"}, check=True)
        jobs = cluster.output("squeue", "--noheader", "--format=%i %T %l %D %E").splitlines()
        assert [job.split()[1:4] for job in jobs] == [["PENDING", "4:00:00", "2"]] * 3
        assert sum("afterok:2" in job for job in jobs) == 1, jobs
