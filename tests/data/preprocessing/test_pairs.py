"""Documents packed to full length, for masked-LM training without sentence pairs."""

from collections import Counter
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

from bert.samples.manifest import read_manifest
from bert.samples.shards import ShardDirectory
from bert.tokenization.token_strings import TokenStrings
from data import preprocess_bert_pretrain
from data.preprocess_bert_pretrain import main as preprocess
from data.preprocessing.pairs import pack_documents
from data.preprocessing.settings import PairSettings, SampleSettings
from data.text import lddl_reader
from data.text.sentences import TokenizedDocuments
from tests.support.corpora import vocabulary, write_source, write_vocabulary

WORDS = vocabulary()
SEP, CLS = WORDS.id_of("[SEP]"), WORDS.id_of("[CLS]")


def documents(*lengths: int) -> TokenizedDocuments:
    """Return documents of one sentence each, whose tokens tell their places."""
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=int)])
    tokens = 1000 + np.arange(ends[-1], dtype=np.int32)
    return TokenizedDocuments(tokens, ends, np.arange(len(lengths) + 1))


@pytest.mark.parametrize(("share", "mean"), [(0.0, 126), (0.5, 97), (1.0, 68)])
def test_a_share_of_the_sequences_has_a_random_length(share, mean):
    counts = Counter()
    settings = PairSettings(128, duplicate_factor=2, short_seq_prob=share)
    packed, spans = pack_documents(documents(*[50] * 2000), settings, 0, SEP, counts)
    lengths = spans.first_stop - spans.first_start
    assert lengths.mean() == pytest.approx(mean, rel=0.05) and lengths.max() == 126
    assert len(np.unique(lengths)) > 100 if share else np.mean(lengths >= 124) > 0.99
    slices = zip(spans.first_start, spans.first_stop, strict=True)
    read = np.concatenate([packed.token_ids[start:stop] for start, stop in slices])
    assert np.sum(read != SEP) == 200_000 - counts["tokens dropped at the ends of blocks"], "all of it, twice"


def test_separate_documents_are_for_masked_lm():
    for changes in ({"objective": "mlm_nsp"}, {"pairs": PairSettings(18)}):
        values = {"pairs": PairSettings(18, 0.0), "block_bytes": 1, "objective": "mlm", "separate_documents": True}
        with pytest.raises(ValueError, match="separate_documents=True packs documents .* pass --objective mlm"):
            SampleSettings(**{**values, **changes})


@pytest.mark.parametrize(
    "flags",
    [
        ("--masking", "static", "--separate-documents", "--num-shards", "3"),
        ("--masking", "static", "--whole-word-masking", "--duplicate-factor", "2", "--output-format", "arrow"),
        ("--num-shards", "2", "--bin-size", "16"),
    ],
)
def test_shards_of_sequences_are_read_whatever_the_workers_format_masks_and_bins(tmp_path, flags):
    vocab_file = write_vocabulary(tmp_path / "vocab.txt")
    write_source(tmp_path / "text")
    made = []
    for workers in (1, 2):
        command = f"--text {tmp_path / 'text'} --sink {tmp_path / str(workers)} --vocab-file {vocab_file}".split()
        options = "--target-seq-length 32 --block-size 3000 --objective mlm --local-n-workers".split()
        preprocess([*command, *options, str(workers), *flags])
        folder = ShardDirectory(tmp_path / str(workers), WORDS, 32)
        assert folder.manifest is not None and folder.manifest.settings["objective"] == "mlm"
        tables = [folder.load(index) for index in range(len(folder.shards))]
        made.append([(table.token_ids.tobytes(), table.offsets.tobytes()) for table in tables])
    assert made[0] == made[1]
    lengths = np.concatenate([table.lengths() for table in tables])
    assert (lengths == 32).mean() > 0.8 and not any(table.is_random_next.any() for table in tables)
    for table in tables:
        assert table.is_single().all()
        if table.masks:
            assert not np.isin(table.masks.labels, [SEP, WORDS.id_of("[CLS]")]).any()
            assert 0.1 < len(table.masks.labels) / len(table.token_ids) < 0.2
            again = table.unmasked().token_ids
            assert (
                TokenStrings(WORDS).join(again, table.offsets[:-1], table.offsets[1:])[0].as_py().startswith("[CLS] ")
            )


@pytest.fixture
def sources(tmp_path):
    """Write two documents of 27 kB, of disjoint words, then a few short ones; blocks have 4,000 bytes, pieces 1,000."""
    write_vocabulary(tmp_path / "vocab.txt")
    river, boats = "The river runs to the sea. " * 1000, "Old boats wait under bridges. " * 900
    (tmp_path / "text/source/en").mkdir(parents=True)
    (tmp_path / "text/source/en/0.txt").write_text(f"a {river}\nb {boats}\n")
    (tmp_path / "text/source/en/1.txt").write_text(
        "".join(f"c{number} Stones and fish over water.\n" * 3 for number in range(9))
    )
    with mock.patch.object(lddl_reader, "MAX_DOCUMENT_BYTES", 1000):
        yield tmp_path


def run(root, sink, *flags):
    words = ("--text", root / "text", "--sink", sink, "--vocab-file", root / "vocab.txt", "--target-seq-length", "64")
    preprocess_bert_pretrain.main([str(word) for word in (*words, "--block-size", "4000", "--num-shards", "2", *flags)])


@pytest.mark.parametrize("long", ["a river and boats", "a river alone"])
def test_half_of_the_pairs_of_a_long_document_have_a_random_next_of_its_other_parts(sources, long):
    if long == "a river alone":
        (sources / "text/source/en/0.txt").write_text("a " + "The river runs to the sea. " * 1000)
        (sources / "text/source/en/1.txt").unlink()
    run(sources, sources / "out", "--local-n-workers", "1")
    counts = read_manifest(sources / "out").counts
    assert counts["blocks of one long document, whose random next sentences are of its other parts"] > 5
    rows = [row for path in (sources / "out").glob("shard-*") for row in pq.ParquetFile(path).read().to_pylist()]
    assert 0.4 < np.mean([row["is_random_next"] for row in rows]) < 0.6
