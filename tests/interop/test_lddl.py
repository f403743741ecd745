"""The real lddl 0.1.0 and ours read each other's shards.

BERT_LDDL_VENV names its environment, which `bash -c 'source scripts/setup.sh; find_lddl'` makes. Without it, what it
gave is compared, which tests.interop.record has recorded in tests/golden/libraries.
"""

import os
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bert import REPOSITORY
from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import evaluation_batches
from bert.samples.settings import LoaderSettings
from data import preprocess_bert_pretrain
from data.preprocessing.balancing import balance
from tests.support.corpora import vocabulary, write_source, write_vocabulary

GOLDEN = REPOSITORY / "tests/golden/libraries"
COMMANDS = Path(__file__).parent / "lddl_commands.py"
LDDL_PYTHON = Path(os.environ.get("BERT_LDDL_VENV", "/nowhere"), "bin", "python")
WORDS = vocabulary()
SHAPES = {"plain": (), "static": ("--masking",), "bins": ("--bin-size", "16", "--masking")}

real = pytest.mark.skipif(
    not LDDL_PYTHON.exists(),
    reason="BERT_LDDL_VENV must name an environment with LDDL; find_lddl of scripts/packages.sh makes it",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write a folder with vocab.txt and source/en/*.txt."""
    root = tmp_path_factory.mktemp("corpus")
    write_vocabulary(root / "vocab.txt")
    return write_source(root, num_documents=160)


def lddl(*arguments) -> None:
    ended = subprocess.run(
        [LDDL_PYTHON, COMMANDS, *map(str, arguments)], capture_output=True, text=True, timeout=1200, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]


def lddl_rows(folder: Path, corpus: Path, output: Path) -> Counter:
    """Return (token ids, types, random next, labels or None) of every row that LDDL's loader gives."""
    lddl("dump", folder, corpus / "vocab.txt", output, "--batch-size", 16)
    return rows_in(output)


def rows_in(file: Path) -> Counter:
    """Return the rows of a file that `lddl_commands.py dump` wrote."""
    arrays = dict(np.load(file))
    ends = np.cumsum(arrays["lengths"])
    rows = Counter()
    for place, (start, end) in enumerate(zip(ends - arrays["lengths"], ends, strict=True)):
        labels = tuple(arrays["labels"][start:end].tolist()) if "labels" in arrays else None
        rows[
            tuple(arrays["ids"][start:end].tolist()),
            tuple(arrays["types"][start:end].tolist()),
            int(arrays["next_labels"][place]),
            labels,
        ] += 1
    return rows


def our_rows(folder: Path, masked: bool) -> Counter:
    """Return the rows of our loader; the text without masks if the shards have none."""
    masking = "static" if masked else "dynamic"
    settings = LoaderSettings(max_seq_length=64, max_predictions_per_seq=64, masking=masking, num_workers=0)
    rows = Counter()
    for batch in evaluation_batches(PretrainingDataset(folder, WORDS, settings, seed=42), micro_batch_size=16):
        feed = {name: value.copy() for name, value in batch.feed.items()}
        ids, labels = feed["input_ids"], np.full(feed["input_ids"].size, -1)
        places, true = (feed[name][: batch.num_masked] for name in ("masked_lm_positions", "masked_lm_labels"))
        labels[places] = true
        if not masked:
            ids.reshape(-1)[places] = true
        labels = labels.reshape(ids.shape)
        for row, mask in enumerate(feed["attention_mask"].astype(bool)):
            rows[
                tuple(ids[row, mask].tolist()),
                tuple(feed["token_type_ids"][row, mask].tolist()),
                int(feed["next_sentence_labels"][row]),
                tuple(labels[row, mask].tolist()) if masked else None,
            ] += 1
    return rows


def flags(corpus: Path, sink: Path, shape: str) -> list[str]:
    return [
        *shlex.split(
            f"--books {corpus / 'source'} --sink {sink} --vocab-file {corpus / 'vocab.txt'} --target-seq-length 64 "
            "--duplicate-factor 2"
        ),
        *SHAPES[shape],
    ]


def make_shards(corpus: Path, sink: Path, shape: str, words: str = "") -> Path:
    """Make our shards of the corpus."""
    more = shlex.split(f"--num-shards 4 --block-size 9000 --local-n-workers 1 {words}")
    preprocess_bert_pretrain.main([*flags(corpus, sink, shape), *more])
    return sink


@pytest.mark.nightly
@real
@pytest.mark.parametrize("shape", SHAPES)
def test_lddls_loader_reads_our_shards(corpus, tmp_path, shape):
    shards = make_shards(corpus, tmp_path / "shards", shape)
    compare(shards, lddl_rows(shards, corpus, tmp_path / "rows.npz"), shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_lddls_loader_read_of_our_shards(tmp_path, shape):
    """The rows are recorded; the shards are made again, and must have the same bytes."""
    write_vocabulary(tmp_path / "vocab.txt")
    shards = make_shards(write_source(tmp_path), tmp_path / "shards", shape)
    compare(shards, rows_in(GOLDEN / f"lddl_rows_of_ours_{shape}.npz"), shape)


def compare(shards: Path, theirs: Counter, shape: str) -> None:
    """Check that LDDL's rows of our shards are ours, except rows above the smallest file's number, which it drops."""
    ours = our_rows(shards, shape != "plain")
    if shape == "plain":  # it masks as it loads; the text is seen in its shapes alone
        theirs, ours = (
            Counter({(row[1], row[2]): 0 for row in rows})
            + Counter(key for row, count in rows.items() for key in [(row[1], row[2])] * count)
            for rows in (theirs, ours)
        )
    dropped = ours - theirs
    assert not theirs - ours and theirs.total() > 100
    assert dropped.total() < 4 * len(list(shards.glob("*.parquet*")))


@pytest.mark.nightly
@real
@pytest.mark.parametrize("shape", SHAPES)
def test_our_loader_reads_lddls_shards(corpus, tmp_path, shape):
    lddl(
        "preprocess",
        "--",
        *flags(corpus, tmp_path / "parts", shape),
        *shlex.split("--num-blocks 2 --local-n-workers 1 --sample-ratio 1.0"),
    )
    balance(tmp_path / "parts", tmp_path / "shards", 2)
    ours = our_rows(tmp_path / "parts", shape != "plain")
    assert ours == our_rows(tmp_path / "shards", shape != "plain") and ours.total() > 100
    if shape != "plain":
        theirs = lddl_rows(tmp_path / "shards", corpus, tmp_path / "rows.npz")
        assert not theirs - ours and (ours - theirs).total() < 2 * len(list((tmp_path / "shards").glob("*.parquet*")))


@pytest.mark.parametrize("shape", ["static", "bins"])
def test_our_loader_reads_shards_that_lddl_wrote(tmp_path, shape):
    """The recording has files of LDDL's preprocessor, and the rows of its loader after we had balanced the files."""
    shards = shutil.copytree(GOLDEN / f"lddl_{shape}", tmp_path / "shards")  # where their checksums are noted
    ours, theirs = our_rows(shards, masked=True), rows_in(GOLDEN / f"lddl_rows_{shape}.npz")
    files = len(list(shards.glob("*.parquet*")))
    assert not theirs - ours and (ours - theirs).total() < 2 * files and theirs.total() > 100
