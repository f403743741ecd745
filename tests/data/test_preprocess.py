import hashlib
import io
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

import data.train_vocabulary
from bert import REPOSITORY
from bert.samples.dataset import PretrainingDataset
from bert.samples.manifest import NUM_SAMPLES_NAME, read_manifest
from bert.samples.settings import LoaderSettings
from bert.samples.shards import ShardDirectory
from bert.tokenization.wordpiece import WordPieceTokenizer
from data import preprocess_bert_pretrain
from data.preprocessing import pipeline, shard_run
from data.preprocessing.balancing import balance
from data.text.lddl_reader import list_sources, numbered_documents, plan_blocks
from data.text.vocabulary_training import learn_vocabulary
from data.train_vocabulary import texts_of
from tests.support.commands import refused
from tests.support.corpora import vocabulary, write_source, write_vocabulary

WORDS = vocabulary()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write a folder with vocab.txt and text/source/en/*.txt."""
    root = tmp_path_factory.mktemp("corpus")
    write_vocabulary(root / "vocab.txt")
    write_source(root / "text")
    return root


def arguments(corpus: Path, sink: Path, *flags: str) -> list[str]:
    paths = ("--text", str(corpus / "text"), "--sink", str(sink), "--vocab-file", str(corpus / "vocab.txt"))
    return [*paths, *"--target-seq-length 64 --block-size 3000 --local-n-workers 1".split(), *flags]


def run(corpus: Path, sink: Path, *flags: str, workers: int = 1) -> None:
    preprocess_bert_pretrain.main(arguments(corpus, sink, "--local-n-workers", str(workers), *flags))


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def rows(folder: Path) -> list[dict]:
    return [
        row
        for path in sorted(folder.iterdir())
        if ".parquet" in path.name
        for row in pq.ParquetFile(path).read(use_threads=False).to_pylist()
    ]


@pytest.mark.parametrize(
    ("capital", "flags", "lowercase"), [(None, [], True), ("Paris", [], False), ("Paris", ["--lowercase"], True)]
)
def test_the_vocabulary_decides_the_case_unless_a_flag_does(corpus, tmp_path, capital, flags, lowercase):
    tokens = (corpus / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(tokens + (f"{capital}\n" if capital else ""))
    run(corpus, tmp_path / "sink", "--vocab-file", str(tmp_path / "vocab.txt"), *flags)
    assert read_manifest(tmp_path / "sink").settings["lowercase"] is lowercase


@pytest.mark.long
@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--num-shards", "3", "--masking", "static", "--duplicate-factor", "2"],
        ["--bin-size", "16", "--num-shards", "2", "--masking", "static", "--whole-word-masking"],
        ["--output-format", "arrow", "--num-shards", "3", "--sample-ratio", "0.7"],
    ],
)
def test_output_does_not_depend_on_the_number_of_workers(corpus, tmp_path, flags):
    for workers in (1, 2, 3):
        run(corpus, tmp_path / str(workers), *flags, workers=workers)
    first = hashes(tmp_path / "1")
    assert len(first) > 3 and first == hashes(tmp_path / "2") == hashes(tmp_path / "3")
    ShardDirectory(tmp_path / "1", WORDS, 64).verify()


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_shards_of_several_row_groups_do_not_depend_on_which_are_left_to_write(corpus, tmp_path, kind):
    flags = ("--bin-size", "16", "--num-shards", "2", "--masking", "static", "--output-format", kind)
    write = pipeline._write_shards

    def killed(job, plans, row_group_bytes):
        write(job, plans, row_group_bytes)
        largest = max(plans, key=lambda plan: (job.sink / plan.name).stat().st_size)
        (job.folder / f"{largest.name}.json").unlink()
        raise RuntimeError("killed before the last shard of the group was whole")

    with mock.patch.object(pipeline, "_ROW_GROUP_BYTES", 8000):
        run(corpus, tmp_path / "whole", *flags)
        with mock.patch.object(pipeline, "_write_shards", killed), pytest.raises(RuntimeError):
            run(corpus, tmp_path / "again", *flags)
        run(corpus, tmp_path / "again", *flags)
    run(corpus, tmp_path / "one group", *flags)
    assert hashes(tmp_path / "whole") == hashes(tmp_path / "again") != hashes(tmp_path / "one group")


@pytest.mark.long
def test_dask_workers_write_the_same_bytes(corpus, tmp_path):
    pytest.importorskip("distributed", reason="bash scripts/setup.sh dask")
    flags = ("--num-shards", "3", "--masking", "static", "--bin-size", "32")
    run(corpus, tmp_path / "local", *flags)
    run(corpus, tmp_path / "dask", *flags, "--scheduler", "dask", workers=2)
    assert hashes(tmp_path / "local") == hashes(tmp_path / "dask")


def test_slurm_without_settings_is_refused(corpus, tmp_path):
    pytest.importorskip("dask_jobqueue", reason="bash scripts/setup.sh dask")
    with refused("Slurm's settings are incomplete"):
        run(corpus, tmp_path / "out", "--scheduler", "slurm")


@pytest.mark.parametrize("balanced", [False, True])
def test_bins_hold_lengths_of_one_range_and_are_numbered_without_gaps(corpus, tmp_path, balanced):
    run(corpus, tmp_path / "out", "--bin-size", "16", "--masking")
    folder = tmp_path / "out"
    if balanced:
        folder = tmp_path / "balanced"
        balance(tmp_path / "out", folder, 2)
    ranges: dict[int, set[int]] = {}
    for path in folder.glob("*.parquet_*"):
        table = pq.ParquetFile(path).read(use_threads=False)
        ranges.setdefault(int(path.name.rpartition("_")[2]), set()).update(
            ((table["num_tokens"].to_numpy().astype(int) - 1) // 16).tolist()
        )
        assert set(table["bin_id"].to_pylist()) == {int(path.name.rpartition("_")[2])}
    assert sorted(ranges) == list(range(len(ranges))) and len(ranges) >= 3
    assert [len(ranges[bin_id]) for bin_id in sorted(ranges)] == [1] * len(ranges)
    assert [min(ranges[bin_id]) for bin_id in sorted(ranges)] == sorted(map(min, ranges.values()))


def test_static_masks_restore_to_the_text(corpus, tmp_path):
    run(corpus, tmp_path / "static", "--masking", "static")
    run(corpus, tmp_path / "dynamic")
    for masked, plain in zip(rows(tmp_path / "static"), rows(tmp_path / "dynamic"), strict=True):
        tokens = ["[CLS]", *masked["A"].split(), "[SEP]", *masked["B"].split(), "[SEP]"]
        positions = np.load(io.BytesIO(masked["masked_lm_positions"]))
        assert len(positions) == max(1, round(0.15 * len(tokens)))
        for position, label in zip(positions, masked["masked_lm_labels"].split(), strict=True):
            tokens[position] = label
        assert tokens == ["[CLS]", *plain["A"].split(), "[SEP]", *plain["B"].split(), "[SEP]"]


def test_training_does_not_cut_static_masks_of_another_share(corpus, tmp_path):
    """30% of the text are masked in the shards and predicted; both places refuse a limit for 15%."""
    flags = ["--masking", "static", "--masked-lm-ratio", "0.3"]
    with refused("max_predictions_per_seq=10 must be at least 19 for masked_lm_ratio=0.3 of 64 tokens; pass"):
        run(corpus, tmp_path, *flags, "--max-predictions-per-seq", "10")
    run(corpus, tmp_path, *flags)
    usual = LoaderSettings(max_seq_length=64, max_predictions_per_seq=10)
    with pytest.raises(ValueError, match="static masks, max_predictions_per_seq=10 must be at least 19"):
        PretrainingDataset(tmp_path, WORDS, usual, seed=1)
    wide = LoaderSettings(max_seq_length=64, max_predictions_per_seq=20, masked_lm_ratio=0.3)
    table = PretrainingDataset(tmp_path, WORDS, wide, seed=1)
    shares = [
        table.collation.mask_counts(shard, np.arange(len(shard)), np.uint64(0), np.arange(len(shard))) / shard.lengths()
        for shard in map(table.load_shard, range(len(table.shard_counts)))
    ]
    assert np.concatenate(shares).mean() == pytest.approx(0.3, abs=0.02)
    PretrainingDataset(tmp_path, WORDS, usual.model_copy(update={"masking": "dynamic"}), seed=1)


HARD_LINES = {
    "no text": b"id-only\n",
    "blank": b"\n \n",
    "not UTF-8": b"a the \xff\xfe river runs. To the sea.\n",
    "NUL": b"b the\x00 river. Runs\x00.\n",
    "CR LF": b"c " + 5 * b"The river. Runs to sea. " + b"\r\n",  # many words that are known: unknown ones are refused
    "right to left": "d \u05d0\u05d1\u05d2. \u0645\u0631\u062d\u0628\u0627 \u0628\u0643.\n".encode(),
    "emoji": "e \U0001f600 fish! \U0001f1e9\U0001f1ea\n".encode(),
    "one sentence": b"f Sea.\n",
    "no line feed": b"g Old boats. Wait.",
}


def test_hard_documents_are_read_and_counted(corpus, tmp_path):
    folder = tmp_path / "text" / "source" / "en"
    folder.mkdir(parents=True)
    (folder / "0.txt").write_bytes(b"\xef\xbb\xbf" + b"".join(HARD_LINES.values()))
    counts: Counter = Counter()
    texts = [
        text
        for block in plan_blocks(list_sources([tmp_path / "text"]), 1 << 20)
        for _, text in numbered_documents(block, counts)
    ]
    assert len(texts) == 7 and counts["documents without text"] == 1 and counts["documents not UTF-8"] == 1
    assert counts["blank lines"] == 2
    (folder / "1.txt").write_text("".join(f"{number} the river runs to sea over stones.\n" for number in range(40)))
    preprocess_bert_pretrain.main(
        shlex.split(
            f"--text {tmp_path / 'text'} --sink {tmp_path / 'out'} --vocab-file {corpus / 'vocab.txt'} "
            "--local-n-workers 1"
        )
    )
    ShardDirectory(tmp_path / "out", WORDS, 128).verify()
    assert read_manifest(tmp_path / "out").counts["documents not UTF-8"] == 1


INTERRUPTED = """
import sys
from pathlib import Path
from data import preprocess_bert_pretrain
from data.preprocessing import pipeline, shard_run
made = pipeline.make_block

def make_block(job, block):
    print("at work", flush=True)  # the words of this block are new to the tokenizer when the signal comes
    return made(job, block)

shard_run.make_block = make_block
preprocess_bert_pretrain.main(sys.argv[1:])
"""


def test_a_run_that_was_interrupted_is_simply_started_again(corpus, tmp_path):
    flags = ("--num-shards", "3", "--masking", "static", "--local-n-workers", "2", "--block-size", "1000")
    run(corpus, tmp_path / "whole", *flags)
    command = [sys.executable, "-c", INTERRUPTED, *arguments(corpus, tmp_path / "out", *flags)]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for _ in range(4):
        process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted; the same command resumes" in errors
    assert "Traceback" not in errors
    run(corpus, tmp_path / "out", *flags)
    assert hashes(tmp_path / "out") == hashes(tmp_path / "whole")


@pytest.mark.parametrize("others", [["--num-shards", "2"], [], ["--num-shards", "4", "--compression", "zstd"]])
def test_a_killed_run_may_be_started_again_with_other_shards(corpus, tmp_path, others):
    run(corpus, tmp_path / "whole", *others)
    with mock.patch.object(shard_run, "write_manifest", side_effect=InterruptedError("killed")), refused("killed"):
        run(corpus, tmp_path / "out", "--num-shards", "4")
    assert list((tmp_path / "out").glob("shard-3.parquet"))
    run(corpus, tmp_path / "out", *others)
    assert hashes(tmp_path / "out") == hashes(tmp_path / "whole")


def test_links_are_followed_and_other_files_are_counted(corpus, tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "3.txt").write_text("id The sea.\n")
    (tmp_path / "near" / "source").mkdir(parents=True)
    for name in ("1.txt", "01.txt", "\u00b2.txt", "2.txt.gz", ".3.txt"):
        (tmp_path / "near" / "source" / name).write_text("id-1 The river runs to sea. Old boats wait.\n")
    (tmp_path / "near" / "source" / "more").symlink_to(tmp_path / "far")
    (tmp_path / "near" / "source" / "round").symlink_to(tmp_path / "near")
    found = [Path(source.path).name for source in list_sources([tmp_path / "near"])]
    assert found == ["01.txt", "1.txt", "3.txt", "\u00b2.txt"]
    run(corpus, tmp_path / "out", "--wikipedia", str(tmp_path / "near"))
    assert read_manifest(tmp_path / "out").counts["files left out, as they are not named *.txt"] == 1


def test_a_finished_run_is_not_repeated_and_another_one_is_refused(corpus, tmp_path):
    run(corpus, tmp_path / "out")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    run(corpus, tmp_path / "out")
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with refused("holds .* of other shards"):
        run(corpus, tmp_path / "out", "--seed", "7")


def test_a_bin_of_fewer_samples_than_shards_has_fewer_files_and_this_is_counted(corpus, tmp_path):
    run(corpus, tmp_path / "shards", "--bin-size", "4", "--num-shards", "13")
    manifest = read_manifest(tmp_path / "shards")
    sizes = {}
    for record in manifest.shards.values():
        sizes.setdefault(record.bin_id, []).append(record.num_samples)
    small = [counts for counts in sizes.values() if sum(counts) < 13]
    assert small and all(counts == [1] * len(counts) for counts in small)
    assert all(len(counts) == 13 and max(counts) - min(counts) <= 1 for counts in sizes.values() if sum(counts) >= 13)
    assert manifest.counts["bins of fewer samples, thus of fewer files, than --num-shards"] == len(small)


@pytest.mark.parametrize("flags", [[], ["--bin-size", "32", "--masking", "static"]])
def test_balancing_keeps_every_sample_and_its_input(corpus, tmp_path, flags):
    run(corpus, tmp_path / "parts", *flags)
    before = hashes(tmp_path / "parts")
    balance(tmp_path / "parts", tmp_path / "shards", 3)
    assert hashes(tmp_path / "parts") == before
    manifest = read_manifest(tmp_path / "shards")
    for bin_id in {record.bin_id for record in manifest.shards.values()}:
        sizes = [record.num_samples for record in manifest.shards.values() if record.bin_id == bin_id]
        assert len(sizes) == 3 and max(sizes) - min(sizes) <= 1
    assert sorted(map(str, rows(tmp_path / "shards"))) == sorted(map(str, rows(tmp_path / "parts")))
    assert (tmp_path / "shards" / NUM_SAMPLES_NAME).exists()
    ShardDirectory(tmp_path / "shards", WORDS, 64).verify()


def test_the_same_text_gives_the_same_vocabulary_without_unknown_words_of_the_text(corpus):
    one, other = (learn_vocabulary(texts_of([str(corpus / "text")]), 200) for _ in range(2))
    assert one.tokens == other.tokens and one.tokens[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert {"river", "bridges"} <= set(one.tokens)
    assert one.id_of("[UNK]") not in WordPieceTokenizer(one).encode("The river runs to sea over 12 bridges.")
    with pytest.raises(ValueError, match="vocab_size=20 must be at least"):
        learn_vocabulary(texts_of([str(corpus / "text")]), 20)


def test_a_vocabulary_can_be_trained_on_a_part_spread_over_the_text(tmp_path):
    folder = tmp_path / "source" / "en"
    folder.mkdir(parents=True)
    for number, word in enumerate(("alder", "birch", "cedar", "maple")):  # nearly two blocks each
        (folder / f"{number}.txt").write_text("".join(f"id {word}\n" for _ in range(900)))
    with mock.patch.object(data.train_vocabulary, "_BLOCK_BYTES", 4096):
        found = learn_vocabulary(texts_of([str(tmp_path)], 0.0082), 100).tokens
        assert {"alder", "cedar"} <= set(found) and not {"birch", "maple"} & set(found)
        whole = learn_vocabulary(texts_of([str(tmp_path)], 99), 100)
        assert {"alder", "birch", "cedar", "maple"} <= set(whole.tokens)
