"""Compiles the machine code of our loops, which the first use on a machine makes."""

import subprocess
import sys
from pathlib import Path

from bert import REPOSITORY
from tests.support import corpora


def compile_loops(folder: Path) -> None:
    """Make shards and train on them, in processes of their own: the machine code is kept beside the sources."""
    source = corpora.write_source(folder / "text")
    vocabulary = corpora.write_vocabulary(folder / "vocab.txt")
    sizes = "--vocab-size 106 --hidden-size 8 --num-hidden-layers 1 --num-attention-heads 2 --intermediate-size 13"
    lengths = "--max-seq-length 64 --max-position-embeddings 64 --max-predictions-per-seq 10 --batch-size 4"
    data = f"--input-dir {folder}/shards --eval-dir {folder}/shards --vocab-file {vocabulary}"
    training = f"{sizes} {lengths} --global-batch-size 4 --max-steps 1 --device cpu --no-visualdl"
    for line in (
        f"-m data.train_vocabulary --input {source}/source --vocab-size 90 --output {folder}/trained.txt",
        f"-m data.preprocess_bert_pretrain --text {source}/source --sink {folder}/shards --vocab-file {vocabulary} "
        "--target-seq-length 64 --masking --num-shards 2",
        f"run_pretraining.py --config quickstart_phase1 {data} {training} --output-dir {folder}/run",
    ):
        done = subprocess.run([sys.executable, *line.split()], cwd=REPOSITORY, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
