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
from hypothesis import given, settings
from hypothesis import strategies as st

import data.train_vocabulary
from bert import REPOSITORY
from bert.samples.dataset import PretrainingDataset
from bert.samples.manifest import NUM_SAMPLES_NAME, read_manifest
from bert.samples.sample_table import SampleTable
from bert.samples.settings import LoaderSettings
from bert.samples.shards import ShardDirectory
from bert.tokenization.wordpiece import WordPieceTokenizer
from data import preprocess_bert_pretrain
from data.balance_shards import balance
from data.preprocessing import pipeline
from data.preprocessing.pairs import draw_pairs, spans_to_table
from data.preprocessing.pipeline import _sampled
from data.preprocessing.settings import PairSettings, SampleSettings
from data.text import lddl_reader
from data.text.lddl_reader import MAX_DOCUMENT_BYTES, list_sources, numbered_documents, plan_blocks
from data.text.sentences import TokenizedDocuments, tokenize_documents
from data.text.vocabulary_training import learn_vocabulary
from data.train_vocabulary import texts_of
from tests.support.commands import refused
from tests.support.corpora import vocabulary, write_source, write_vocabulary

WORDS = vocabulary()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with vocab.txt and text/source/en/*.txt."""
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
    """30% of the text are masked in the shards and predicted; a limit for 15% is refused at both places."""
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


def tokenized(num_documents: int, seed: int = 0) -> TokenizedDocuments:
    """Documents of 1 to 9 sentences whose tokens count up, so that a token tells its place."""
    rng = np.random.default_rng(seed)
    sentences = rng.integers(1, 10, num_documents)
    lengths = rng.integers(1, 25, sentences.sum())
    return TokenizedDocuments(
        np.arange(lengths.sum(), dtype=np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([[0], np.cumsum(sentences)]),
    )


def make_pairs(documents: TokenizedDocuments, settings: PairSettings, counts: Counter) -> SampleTable:
    """The samples of a block, in random order."""
    return spans_to_table(documents.token_ids, draw_pairs(documents, settings, 0, counts), WORDS)


@pytest.mark.parametrize("duplicate_factor", [1, 5])
def test_pairs_are_what_their_label_says(duplicate_factor):
    documents = tokenized(400)
    table = make_pairs(documents, PairSettings(40, 0.1, duplicate_factor), Counter())
    owner = np.searchsorted(documents.sentence_offsets[documents.document_offsets], documents.token_ids, side="right")
    several = []
    for row in range(len(table)):
        low, high = table.offsets[row : row + 2]
        ids, middle = table.token_ids[low:high], table.first_lengths[row]
        assert ids[0] == WORDS.id_of("[CLS]") and ids[-1] == ids[middle - 1] == WORDS.id_of("[SEP]")
        first, second = ids[1 : middle - 1], ids[middle:-1]
        assert len(first) and len(second) and len(ids) <= 40
        assert (np.diff(first) == 1).all() and (np.diff(second) == 1).all()  # both are connected text
        if table.is_random_next[row]:
            assert owner[first[0]] != owner[second[0]]
        else:
            assert owner[first[0]] == owner[second[0]] and second[0] > first[-1]
            boundaries = documents.sentence_offsets
            assert ((boundaries > first[-1]) & (boundaries <= second[0])).any()
            assert second[0] == first[-1] + 1 or len(ids) == 40  # only what was cut for length lies between
        sizes = np.diff(documents.document_offsets)[[owner[first[0]] - 1]]
        several.append(sizes[0] > 4)
    several = np.array(several)
    assert table.is_random_next[several].mean() == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("target", [24, 64, 128])
def test_half_of_all_pairs_have_a_random_next_though_chunks_of_one_sentence_always_do(target):
    counts: Counter = Counter()
    documents = tokenized(20_000)
    table = make_pairs(documents, PairSettings(target, 0.1, 2), counts)
    assert table.is_random_next.mean() == pytest.approx(0.5, abs=0.01)
    assert not [name for name in counts if name.startswith("blocks where over half")]


def test_a_block_of_one_document_has_no_random_next():
    counts: Counter = Counter()
    table = make_pairs(tokenized(1, seed=4), PairSettings(40), counts)
    assert len(table) and not table.is_random_next.any()
    lone = TokenizedDocuments(np.arange(5, dtype=np.int32), np.array([0, 5]), np.array([0, 1]))
    assert len(make_pairs(lone, PairSettings(40), counts)) == 0
    assert counts["lone sentences dropped for want of a second document"] >= 1


def test_no_document_or_empty_ones_give_no_sample():
    tokenizer = WordPieceTokenizer(WORDS)
    for texts in ([], ["", "  ", "\x00"]):
        documents = tokenize_documents(enumerate(texts), tokenizer, "en", Counter())
        assert len(make_pairs(documents, PairSettings(40), Counter())) == 0


@pytest.mark.parametrize("block_bytes", [1, 7, 100, 1 << 20])
def test_blocks_hold_every_line_once(corpus, block_bytes):
    sources = list_sources([corpus / "text"])
    whole = [line.partition(" ")[2] for source in sources for line in Path(source.path).read_text().splitlines()]
    found = [
        text.strip() for block in plan_blocks(sources, block_bytes) for _, text in numbered_documents(block, Counter())
    ]
    assert found == whole


def test_hidden_files_and_folders_are_no_source(tmp_path):
    for name in ("1.txt", ".checkpoints/1.txt", "en/.unfinished.txt", "en/2.txt"):
        path = tmp_path / ".home" / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("id The river runs.\n")
    assert [Path(source.path).name for source in list_sources([tmp_path / ".home"])] == ["1.txt", "2.txt"]


HARD_LINES = {
    "no text": b"id-only\n",
    "blank": b"\n \n",
    "not UTF-8": b"a the \xff\xfe river runs. To the sea.\n",
    "NUL": b"b the\x00 river. Runs\x00.\n",
    "CR LF": b"c The river. Runs to sea.\r\n",
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
    preprocess_bert_pretrain.main(
        shlex.split(
            f"--text {tmp_path / 'text'} --sink {tmp_path / 'out'} --vocab-file {corpus / 'vocab.txt'} "
            "--local-n-workers 1"
        )
    )
    ShardDirectory(tmp_path / "out", WORDS, 128).verify()
    assert read_manifest(tmp_path / "out").counts["documents not UTF-8"] == 1


@pytest.mark.parametrize("block_bytes", [300_000, 1 << 20, 5_000_000, 1 << 25])
def test_a_line_longer_than_memory_allows_is_shared_out(tmp_path, block_bytes):
    river, solid = b"river runs over stones. " * (MAX_DOCUMENT_BYTES // 24 * 3), "\u00e9".encode() * MAX_DOCUMENT_BYTES
    (tmp_path / "0.txt").write_bytes(b"id-1 " + river + b"\nid-2 the sea.\nid-3 " + solid + b"\nid-4 fish.")
    counts: Counter = Counter()
    per_block = [
        [text for _, text in numbered_documents(block, counts)]
        for block in plan_blocks(list_sources([tmp_path]), block_bytes)
    ]
    texts = [text for found in per_block for text in found]
    assert max(len(text.encode()) for text in texts) <= MAX_DOCUMENT_BYTES + (1 << 16)
    assert max(sum(map(len, found)) for found in per_block) <= MAX_DOCUMENT_BYTES + 2 * block_bytes
    assert "".join(texts).encode() == river + b"\nthe sea.\n" + solid + b"\nfish."
    assert counts["input bytes"] == (tmp_path / "0.txt").stat().st_size
    assert counts["pieces cut from long lines"] >= 2 and "documents not UTF-8" not in counts


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=8), st.integers(1, 40), st.booleans())
def test_any_lines_in_any_blocks_come_out_whole(tmp_path_factory, lines, block_bytes, final_line_feed):
    folder = tmp_path_factory.mktemp("lines") / "source"
    folder.mkdir()
    text = "\n".join("i " + ("a " if spaced else "\u00e9") * length for length, spaced in lines)
    (folder / "0.txt").write_text(text + "\n" * final_line_feed + "i .")
    with mock.patch.object(lddl_reader, "MAX_DOCUMENT_BYTES", 16):
        texts = [
            found
            for block in plan_blocks(list_sources([folder]), block_bytes)
            for _, found in numbered_documents(block, Counter())
        ]
    expected = "".join(line.partition(" ")[2] for line in (folder / "0.txt").read_text().splitlines())
    assert "".join("".join(texts).split()) == "".join(expected.split())


INTERRUPTED = """
import sys
from pathlib import Path
from data import preprocess_bert_pretrain
from data.preprocessing import pipeline
made = pipeline.make_block

def make_block(job, block):
    print("at work", flush=True)  # the words of this block are new to the tokenizer when the signal comes
    return made(job, block)

preprocess_bert_pretrain.make_block = make_block
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
    with (
        mock.patch.object(preprocess_bert_pretrain, "write_manifest", side_effect=InterruptedError("killed")),
        refused("killed"),
    ):
        run(corpus, tmp_path / "out", "--num-shards", "4")
    assert list((tmp_path / "out").glob("shard-3.parquet"))
    run(corpus, tmp_path / "out", *others)
    assert hashes(tmp_path / "out") == hashes(tmp_path / "whole")


def test_pieces_of_a_long_line_are_one_document(tmp_path):
    line = " ".join(["The river runs to the sea. Old boats wait."] * 30)
    (tmp_path / "0.txt").write_text("".join(f"id{number} {line}\n" for number in range(3)))
    counts: Counter = Counter()
    with mock.patch.object(lddl_reader, "MAX_DOCUMENT_BYTES", 200):
        blocks = plan_blocks(list_sources([tmp_path]), 2000)
        found = [list(numbered_documents(block, counts)) for block in blocks]
    assert len(blocks) == 2 and counts["pieces cut from long lines"] > 10
    assert [sorted({number for number, _ in texts}) for texts in found] == [[0, 1], [0, 1]]
    assert counts["documents read"] == 4  # the second one in both blocks
    documents = tokenize_documents(found[0], WordPieceTokenizer(WORDS), "en", Counter())
    assert len(documents.document_offsets) == 3
    kept = list(_sampled(iter(found[0]), SampleSettings(PairSettings(40), 2000, sample_ratio=0.5), 0, Counter()))
    assert {number for number, _ in kept} != {0, 1} and [pair for pair in found[0] if pair[0] in dict(kept)] == kept


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


def test_a_source_given_twice_is_refused(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "1.txt").write_text("id The sea.\n")
    for folders in ([tmp_path, tmp_path], [tmp_path, tmp_path / "source"]):
        with pytest.raises(ValueError, match="the same file as"):
            list_sources(folders)


def test_text_that_was_held_out_is_not_read_by_accident(tmp_path):
    for part in ("train", "held_out"):
        write_source(tmp_path / part / "source" / "en", num_documents=3)
    with pytest.raises(ValueError, match="held_out, which is not for training, .*; give one of the two"):
        list_sources([tmp_path])
    assert all("train" in Path(source.path).parts for source in list_sources([tmp_path / "train"]))


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
