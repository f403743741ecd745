"""Files for Slurm jobs: a tiny pre-training of two phases, and the environment that run.sub reads."""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bert import REPOSITORY  # noqa: F401
from tests.support import corpora

LENGTHS = {1: 32, 2: 48}
MODEL = {
    "vocab_size": 112,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 48,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


def make(folder: Path) -> dict[str, str]:
    """Write the files of a training below `folder`; return the variables that name them for run.sub."""
    folder.mkdir(parents=True, exist_ok=True)
    corpora.write_vocabulary(folder / "vocab.txt")
    (folder / "bert_config.json").write_text(json.dumps(MODEL))
    for phase, length in LENGTHS.items():
        tables = [
            corpora.random_table(64, seed=10 * phase + number, masked=True, longest=length - 2) for number in range(4)
        ]
        corpora.write_shards(folder / f"shards{phase}", tables)
    return {
        "CONFIG": "large",
        "GPUS": "0",
        "PRECISION": "fp32",
        "NUM_WORKERS": "0",
        "SEED": "7",
        "SAVE_STEPS": "50",
        "TRAIN_BATCH_SIZE": "4",
        "TRAIN_BATCH_SIZE_PHASE2": "2",
        "GRADIENT_ACCUMULATION_STEPS": "2",
        "GRADIENT_ACCUMULATION_STEPS_PHASE2": "2",
        "INPUT_DIR": str(folder / "shards1"),
        "INPUT_DIR_PHASE2": str(folder / "shards2"),
        "VOCAB_FILE": str(folder / "vocab.txt"),
        "BERT_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }


def flags(folder: Path, *phases: int) -> list[str]:
    """Return the flags for which run.sub has no variable."""
    lengths = [word for phase in phases for word in (f"--phase{phase}-max-seq-length", str(LENGTHS[phase]))]
    return [
        *shlex.split(f"--config-file {folder / 'bert_config.json'} --bert-model bert-tiny"),
        *lengths,
        *shlex.split(
            "--max-predictions-per-seq 8 --cpu-threads 1 --log-freq 50 --keep-checkpoints 50 --peak-tflops 0.1"
        ),
    ]


def weights_sha256(output_dir: Path, phase: int) -> dict[str, str]:
    """Return the sha256 of every safetensors file of the phase's checkpoints, by STEP/NAME."""
    folder = output_dir / "bert-tiny" / f"phase{phase}"
    files = sorted(folder.glob("[0-9]*/*.safetensors"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@dataclass(frozen=True)
class Host:
    name: str
    address: str
    device: str  # that leads to the other

    def command(self, words: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]


def why_not() -> str | None:
    """Return what this machine lacks; None if nothing."""
    if shutil.which("ip") is None:
        return "ip not found: apt-get install iproute2"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    name = f"bert-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"network namespaces are forbidden here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Make hosts 10.231.0.1 and 10.231.0.2, under names that no other run uses."""
    ends = [f"bv{os.getpid()}-{number}" for number in (1, 2)]  # at most 15 characters
    hosts = [Host(f"bert-{os.getpid()}-{number}", f"10.231.0.{number}", ends[number - 1]) for number in (1, 2)]
    try:
        for host in hosts:
            ip("netns", "add", host.name)
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for host, end in zip(hosts, ends, strict=True):
            ip("link", "set", end, "netns", host.name)
            ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", end)
            ip("-n", host.name, "link", "set", end, "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts[0], hosts[1]
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True, check=False)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
