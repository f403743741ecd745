"""run.sub on a real Slurm cluster of two nodes: preempted, requeued, resumed exactly, chained, refused.

bash scripts/run_tests.sh tests/cluster      some ten minutes; needs root, slurm-wlm and munge
"""

import json
import re
import shlex
import sys
import time
from pathlib import Path

import pytest
import slurm_cluster
import workplace
from slurm_cluster import SlurmCluster

from bert import REPOSITORY
from tests.support import corpora

REASON = slurm_cluster.why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no Slurm: {REASON}")
TRAINING_SECONDS = 90  # of phase 1 of the preempted run, which gets 25 to 55 seconds at a time


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    return folder, workplace.make(folder)


class Job:
    """A submitted run.sub; its environment is that of a tiny training, with the given changes."""

    def __init__(self, cluster: SlurmCluster, place, name: str, *phases: int, options=(), flags=(), **variables):
        folder, environment = place
        self.cluster, self.output, self.results = cluster, folder / f"{name}.out", folder / name
        environment = {**environment, "OUTPUT_DIR": str(self.results), **variables}
        if len(phases) == 1:
            environment["PHASE"] = str(phases[0])
        words = [
            *shlex.split(f"sbatch --parsable -N2 --output={self.output}"),
            *options,
            str(workplace.REPOSITORY / "run.sub"),
            *workplace.flags(folder, *phases),
            *flags,
        ]
        self.id = cluster.run(words, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    def fact(self, name: str) -> str:
        return re.search(rf"\b{name}=(\S+)", self.cluster.output("scontrol", "show", "job", self.id))[1]

    def wait(self, seconds: float, states=("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")) -> str:
        """Wait for the job's end and return the state in which it ended."""
        deadline = time.monotonic() + seconds
        while self.fact("JobState") not in states:
            assert time.monotonic() < deadline, f"{self.fact('JobState')} after {seconds} s\n{self.log()}"
            time.sleep(1)
        return self.fact("JobState")

    def log(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""


def steps(job: Job, phase: int = 1) -> list[int]:
    folder = job.results / "bert-tiny" / f"phase{phase}"
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def test_preempted_by_its_time_limit_it_continues_to_the_same_weights_and_phase_2_follows(cluster, place):
    trial = Job(cluster, place, "trial", 1, MAX_STEPS="50", SAVE_STEPS="1000")
    assert trial.wait(300) == "COMPLETED", trial.log()
    rate = 50 / json.loads((trial.results / "phase1/summary.json").read_text())["raw_train_time"]
    sizes = {"MAX_STEPS": str(int(rate * TRAINING_SECONDS)), "MAX_STEPS_PHASE2": "20"}

    whole = Job(cluster, place, "whole", 1, 2, **sizes)  # both phases in one job, without a limit
    assert whole.wait(1200) == "COMPLETED", whole.log()
    assert whole.fact("Restarts") == "0"

    limit = ("--time=2", "--signal=B:USR1@60")  # Slurm looks every 30 s: the signal comes after 30 to 60 seconds
    first = Job(cluster, place, "limited", 1, options=limit, **sizes)
    second = Job(cluster, place, "limited", 2, options=(*limit, f"--dependency=afterok:{first.id}"), **sizes)
    assert first.wait(3000) == "COMPLETED", first.log()
    assert int(first.fact("Restarts")) >= 1
    assert second.wait(600) == "COMPLETED", second.log()
    log = first.log()
    assert "the time limit is near: saving, then stopping" in log
    assert "the job continues where it was saved" in log and "continuing " in log

    for phase in (1, 2):
        expected, found = (workplace.weights_sha256(job.results, phase) for job in (whole, first))
        last = sizes["MAX_STEPS"] if phase == 1 else sizes["MAX_STEPS_PHASE2"]
        assert f"{last}/bert_paddle.safetensors" in expected and f"{last}/bert_paddle_optimizer.safetensors" in expected
        assert {name: found.get(name) for name in expected} == expected


def test_a_job_that_fails_is_not_requeued_and_what_depends_on_it_does_not_start(cluster, place):
    first = Job(cluster, place, "failing", 1, MAX_STEPS="20", MASKING="statisch")
    second = Job(
        cluster,
        place,
        "failing",
        2,
        MAX_STEPS="20",
        options=(f"--dependency=afterok:{first.id}", "--kill-on-invalid-dep=yes"),
    )
    assert first.wait(60) == "FAILED"
    assert (first.fact("Restarts"), first.fact("ExitCode")) == ("0", "2:0")
    assert "must be one of static, dynamic" in first.log() and "it is not requeued" in first.log()
    assert second.wait(60) == "CANCELLED"
    assert not first.results.joinpath("bert-tiny").exists()


def test_missing_shards_are_made_by_a_job_of_their_own(cluster, place, tmp_path):
    corpus = corpora.write_source(tmp_path / "wikipedia", num_documents=60)
    shards = {
        "INPUT_DIR": str(tmp_path / "shards1"),
        "INPUT_DIR_PHASE2": str(tmp_path / "shards2"),
        "WIKIPEDIA_SOURCE": str(corpus / "source"),
        "DASK_TASKS_PER_NODE": "1",
        "NUM_SHARDS_PER_WORKER": "1",
        "BIN_SIZE_PHASE2": "none",
        "SAMPLE_RATIO": "1.0",
        "MAX_STEPS": "4",
        "MAX_STEPS_PHASE2": "4",
    }
    never = Job(cluster, place, "made", 1, PREPROCESS="never", **shards)
    assert never.wait(120) == "FAILED"
    assert "has no shards" in never.log() or "does not exist" in never.log(), never.log()
    # All of them name the ranks of the training, so that the number of shards fits.
    made = Job(cluster, place, "made", 1, 2, PREPROCESS="only", **shards)
    train = Job(cluster, place, "made", 1, 2, options=(f"--dependency=afterok:{made.id}",), **shards)
    assert made.wait(300) == "COMPLETED", made.log()
    assert len(list(Path(shards["INPUT_DIR"]).glob("*.parquet"))) == 2  # one for each rank
    assert train.wait(300) == "COMPLETED", train.log()
    assert steps(train, 1) == [4] and steps(train, 2) == [4]
    assert "making them" not in train.log()[len(made.log()) :]


def test_preprocessing_on_slurms_nodes_writes_the_same_bytes_as_here(cluster, tmp_path):
    """dask-jobqueue submits one job for each worker, with the settings of ~/.config/dask/jobqueue.yaml."""
    pytest.importorskip("dask_jobqueue", reason="bash scripts/setup.sh dask")
    corpus = corpora.write_source(tmp_path / "wikipedia", num_documents=60)
    vocabulary = corpora.write_vocabulary(tmp_path / "vocab.txt")
    settings = {
        "DASK_JOBQUEUE__SLURM__CORES": "1",
        "DASK_JOBQUEUE__SLURM__MEMORY": "1GB",
        "DASK_JOBQUEUE__SLURM__LOG_DIRECTORY": str(tmp_path),
    }
    sinks = {}
    for name, scheduler in (("here", ()), ("slurm", ("--scheduler", "slurm"))):
        sinks[name] = tmp_path / name
        command = [
            *shlex.split(
                f"{sys.executable} -m data.preprocess_bert_pretrain --wikipedia {corpus / 'source'} "
                f"--sink {sinks[name]} --vocab-file {vocabulary} --target-seq-length 32 --num-shards 4 "
                "--local-n-workers 2 --masking static --max-predictions-per-seq 8 --seed 5"
            ),
            *scheduler,
        ]
        done = cluster.run(command, cwd=workplace.REPOSITORY, env=settings, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:] + cluster.logs()
    files = {name: {path.name: path.read_bytes() for path in sink.glob("*.parquet")} for name, sink in sinks.items()}
    assert len(files["here"]) == 4 and files["slurm"] == files["here"]
    workers = re.findall(r"JobName=dask-worker", cluster.output("scontrol", "show", "jobs"))
    assert len(workers) == 2


@pytest.mark.parametrize("flags", [[], ["--gpus-per-node=2"]])
def test_the_steps_have_the_gpus_that_slurm_manages(tmp_path, flags):
    """--exclusive gives the GPUs to the job; its steps have to ask for them."""
    python = tmp_path / "python"
    python.write_text('#!/bin/bash\necho "$3: GPUs ${CUDA_VISIBLE_DEVICES:-none}"\n')
    python.chmod(0o755)
    variables = {"BERT_PYTHON": str(python), "OUTPUT_DIR": str(tmp_path / "out")}
    with SlurmCluster(tmp_path / "cluster", gpus_per_node=2) as managed:
        output = tmp_path / "job.out"
        command = ["sbatch", "--wait", "-N2", f"--output={output}", *flags, str(REPOSITORY / "run.sub")]
        done = managed.run(command, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + output.read_text()
    seen = [line for line in output.read_text().splitlines() if re.match("(prepare|train): ", line)]
    assert seen == ["prepare: GPUs 0,1", "train: GPUs 0,1", "train: GPUs 0,1"]
