"""The first updates of both phases against transformers on PyTorch, whose curves are recorded in tests/golden.

Recorded with: python -m tests.pretraining.test_learning_curve PYTHON   (an interpreter with torch and transformers)
"""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from bert import REPOSITORY
from tests.benchmarks.learning_curve import LENGTHS, VARIANTS, Comparison, differences
from tests.support.corpora import random_table, vocabulary, write_shards, write_vocabulary

GOLDEN = REPOSITORY / "tests/golden/learning_curve"
UPDATES = 20  # of each phase
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 37}


def comparison(folder: Path, optimizer: str) -> Comparison:
    """Make samples of skewed random tokens, so that there is something to learn, and a model of two small layers."""
    data = folder / "data"
    if not data.exists():
        data.mkdir(parents=True)
        write_vocabulary(data / "vocab.txt")
        low = vocabulary().id_of("a")
        number = len(vocabulary()) - low
        for phase, length in LENGTHS.items():
            table = random_table(150, seed=phase, masked=True, longest=length, shortest=10)
            for ids in (table.token_ids, table.masks.labels):
                words = ids >= low
                ids[words] = low + (ids[words].astype(int) - low) ** 3 // number**2
            write_shards(data / f"shards-{length}", [table])
    return Comparison(folder / optimizer, data, optimizer, "bert-tiny", UPDATES, batch_size=8, sizes=SIZES)


def fingerprint(one: Comparison) -> str:
    """Return the sha256 of all batches; the recorded curves hold for these batches."""
    digest = hashlib.sha256()
    for phase in LENGTHS:
        with np.load(one.folder / f"batches-phase{phase}.npz") as arrays:
            for name in sorted(arrays.files):
                digest.update(name.encode() + np.ascontiguousarray(arrays[name], np.int64).tobytes())
    return digest.hexdigest()


@pytest.mark.long
@pytest.mark.parametrize(
    "optimizer, variant",
    [("Lamb", VARIANTS[1]), ("AdamW", VARIANTS[0])],
    ids=["Lamb on two ranks", "AdamW on one rank"],
)
def test_losses_norms_and_rates_are_those_of_an_independent_implementation(tmp_path, optimizer, variant):
    golden = json.loads((GOLDEN / f"{optimizer}.json").read_text())
    one = comparison(tmp_path, optimizer)
    one.write_task(threads=1)
    assert fingerprint(one) == golden["batches"], "other batches: record the curves again (see the top of this file)"
    shutil.copytree(GOLDEN / "initial", one.folder / "initial")
    ours = one.run_ours(variant)
    for phase in LENGTHS:
        found = differences(ours[phase], golden["phases"][str(phase)])
        assert found["loss"] < 1e-4 and found["gradient_norm"] < 1e-3 and found["learning_rate"] < 1e-6, found
    assert ours[2][-1]["loss"] < ours[1][0]["loss"]


def record(python: Path) -> None:
    """Write PyTorch's curves and the initial weights."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for optimizer in ("Lamb", "AdamW"):
        with tempfile.TemporaryDirectory() as folder:
            one = comparison(Path(folder), optimizer)
            one.write_task(threads=1)
            one.write_initial(python)
            shutil.copytree(one.folder / "initial", GOLDEN / "initial", dirs_exist_ok=True)
            curves = {"batches": fingerprint(one), "phases": one.run_torch(python)}
            (GOLDEN / f"{optimizer}.json").write_text(json.dumps(curves, indent=0) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
