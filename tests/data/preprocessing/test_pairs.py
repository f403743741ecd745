"""Documents packed to full length, for masked-LM training without sentence pairs."""

from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

from bert.samples.manifest import read_manifest
from bert.samples.shards import ShardDirectory
from bert.tokenization.token_strings import TokenStrings
from data import preprocess_bert_pretrain
from data.preprocess_bert_pretrain import main as preprocess
from data.preprocessing import pairs
from data.preprocessing.pairs import pack_documents, pack_separately, spans_to_table
from data.preprocessing.settings import PairSettings, SampleSettings
from data.text import lddl_reader
from data.text.sentences import TokenizedDocuments
from tests.support.corpora import vocabulary, write_source, write_vocabulary

WORDS = vocabulary()
SEP, CLS = WORDS.id_of("[SEP]"), WORDS.id_of("[CLS]")


def documents(*lengths: int) -> TokenizedDocuments:
    """Documents of one sentence each, whose tokens tell their places."""
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=int)])
    tokens = 1000 + np.arange(ends[-1], dtype=np.int32)
    return TokenizedDocuments(tokens, ends, np.arange(len(lengths) + 1))


def sequences(spans, tokens) -> list[list[int]]:
    found = [tokens[a:b].tolist() for a, b in zip(spans.first_start, spans.first_stop, strict=True)]
    return sorted(found, key=lambda sequence: sequence[0])


def test_all_tokens_come_once_in_sequences_of_the_full_length_with_sep_between_documents():
    given, counts = documents(9, 30, 33), Counter()
    packed, spans = pack_documents(given, PairSettings(18), 0, SEP, counts)
    found = sequences(spans, packed.token_ids)
    assert [len(sequence) for sequence in found] == [16, 16, 16, 16, 10], "the last [SEP] of the text is not needed"
    flat = [token for sequence in found for token in sequence]
    assert [token for token in flat if token != SEP] == given.token_ids.tolist()
    assert found[0] == [*range(1000, 1009), SEP, *range(1009, 1015)]
    assert spans.lengths().max() == 18 and not spans.is_random_next.any()
    table = spans_to_table(packed.token_ids, spans, WORDS)
    assert table.is_single().all() and (table.token_ids[table.offsets[1:] - 1] == SEP).all()
    assert counts["samples"] == len(found)


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


@pytest.mark.parametrize("repetitions", [1, 3])
def test_separate_documents_are_whole_or_cut_at_the_full_length_and_leave_little_room(repetitions):
    lengths, counts = [*np.random.RandomState(0).randint(1, 17, 300), 40, 0, 100], Counter()
    given, settings = documents(*lengths), PairSettings(18, duplicate_factor=repetitions)
    packed, spans = pack_separately(given, settings, 5, WORDS, counts)
    table = spans_to_table(packed.token_ids, spans, WORDS)
    assert table.lengths().max() == 18 and table.lengths().mean() > 17.5 and table.is_single().all()
    assert (table.token_ids[table.offsets[:-1]] == CLS).all() and (table.token_ids[table.offsets[1:] - 1] == SEP).all()
    ids = table.token_ids
    parts = [part[part != SEP].tolist() for part in np.split(ids, np.flatnonzero(ids == CLS))[1:]]
    assert (np.diff(np.flatnonzero(np.isin(ids, [CLS, SEP])))[1::2] == 1).all(), "[CLS] follows each [SEP]"
    assert sorted(token for part in parts for token in part[1:]) == sorted(given.token_ids.tolist() * repetitions)
    wholes = {(1000 + end - length, length) for end, length in zip(np.cumsum(lengths), lengths, strict=True)}
    cut = [part[1:] for part in parts if (part[1], len(part) - 1) not in wholes]
    assert all(part[0] >= 1000 + sum(lengths) - 140 for part in cut) and len(cut) >= 10 * repetitions
    assert counts["samples"] == len(table) and counts["documents or parts of them in sequences"] == len(parts)
    assert repetitions == 1 or len({part[0] for part in cut}) > 10 + 10, "each repetition cuts elsewhere"
    again = pack_separately(given, replace(settings, seed=7), 5, WORDS, Counter())[0]
    assert packed.token_ids.tolist() != again.token_ids.tolist()
    assert len(pack_separately(documents(), settings, 0, WORDS, counts)[1].first_start) == 0


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
    """Two documents of 27 kB, of disjoint words, then a few short ones; blocks of 4,000 bytes, pieces cut at 1,000."""
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


def test_the_parts_of_a_long_document_are_whole_sentences_and_short_ones_stay_as_they_are():
    sentences = TokenizedDocuments(np.arange(900), np.arange(0, 901, 3), np.array([0, 290, 300]))
    parts = pairs._with_parts(sentences, Counter()).document_offsets
    assert parts[[0, -2, -1]].tolist() == [0, 290, 300] and np.diff(parts)[:-1].min() >= 8 and len(parts) > 30
    for bounds in ([0, 200, 300], [0, 15], [0]):
        documents = replace(sentences, document_offsets=np.array(bounds))
        assert pairs._with_parts(documents, Counter()) is documents
