"""Records outputs of the real libraries (tests/golden/libraries), for tests on machines without them.

    BERT_LDDL_VENV=VENV BERT_TORCH_VENV=VENV .venv/bin/python -m tests.interop.record

LDDL's environment is made by `bash -c 'source scripts/setup.sh; find_lddl'`, PyTorch's by
scripts/benchmark_inference.sh.
A library whose environment is not named is left as it was recorded.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from data.preprocessing.balancing import balance
from tests.conversion import recorded_outputs
from tests.interop import test_lddl
from tests.interop.test_lddl import GOLDEN, SHAPES, lddl, make_shards
from tests.support.corpora import write_source, write_vocabulary


def record_lddl(folder: Path) -> None:
    """Record LDDL's outputs: its loader's rows of our shards, its batches in order, its own shards and their rows."""
    write_vocabulary(folder / "vocab.txt")
    corpus = write_source(folder)
    shards = make_shards(corpus, folder / "batches", "bins")
    lddl("batches", shards, corpus / "vocab.txt", GOLDEN / "lddl_batches.npz", "--batch-size", 8)
    for shape in SHAPES:
        shards = make_shards(corpus, folder / shape, shape)
        dump(shards, corpus, GOLDEN / f"lddl_rows_of_ours_{shape}.npz")
        if shape != "plain":
            made = GOLDEN / f"lddl_{shape}"
            shutil.rmtree(made, ignore_errors=True)
            more = "--num-blocks 2 --local-n-workers 1 --sample-ratio 1.0".split()
            lddl("preprocess", "--", *test_lddl.flags(corpus, made, shape), *more)
            for path in [path for path in made.iterdir() if ".parquet" not in path.name]:
                path.unlink()  # indices of the samples
            balance(made, folder / f"{shape}_balanced", 2)
            dump(folder / f"{shape}_balanced", corpus, GOLDEN / f"lddl_rows_{shape}.npz")


def dump(shards: Path, corpus: Path, output: Path) -> None:
    lddl("dump", shards, corpus / "vocab.txt", output, "--batch-size", 16)
    arrays = {name: array.astype("int16") for name, array in np.load(output).items()}
    np.savez_compressed(output, **arrays)


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if test_lddl.LDDL_PYTHON.exists():
            record_lddl(Path(folder))
        recorded_outputs.record("paddlenlp", sys.executable, Path(folder))
        if venv := os.environ.get("BERT_TORCH_VENV"):
            recorded_outputs.record("transformers", f"{venv}/bin/python", Path(folder))


if __name__ == "__main__":
    main()
