"""Random next sentences of a block that one long document fills."""

from collections import Counter
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

from bert.samples.manifest import read_manifest
from data import preprocess_bert_pretrain
from data.preprocessing.borrowed_documents import borrowed_texts, write_sources
from data.text import lddl_reader
from data.text.lddl_reader import list_sources, numbered_documents, plan_blocks
from tests.support.corpora import write_vocabulary


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


def test_half_of_the_pairs_of_a_long_document_have_a_random_next_of_another(sources):
    run(sources, sources / "out", "--local-n-workers", "1")
    counts = read_manifest(sources / "out").counts
    assert counts["blocks of one long document, whose random next sentences are of other blocks"] > 8
    rows = [row for path in (sources / "out").glob("shard-*") for row in pq.ParquetFile(path).read().to_pylist()]
    assert 0.4 < np.mean([row["is_random_next"] for row in rows]) < 0.6
    for row in rows:
        if not {"stones", "and", "fish", "over", "water"} & set(f"{row['A']} {row['B']}".split()):
            assert (document_of(row["A"]) != document_of(row["B"])) == row["is_random_next"]


def document_of(tokens):
    return bool(set(tokens.split()) & {"the", "river", "runs", "to", "sea"})


@pytest.mark.thorough
def test_they_do_not_depend_on_the_number_of_workers(sources):
    run(sources, sources / "one", "--local-n-workers", "1")
    run(sources, sources / "two", "--local-n-workers", "2")
    for path in sorted((sources / "one").glob("shard-*")):
        assert path.read_bytes() == (sources / "two" / path.name).read_bytes()


def test_borrowed_texts_are_of_other_documents_without_ids_and_repeatable(sources):
    found = list_sources([sources / "text"])
    write_sources(sources, found)
    for block in plan_blocks(found, 4000)[:-1]:
        own = " ".join(text for _, text in numbered_documents(block, Counter()))
        texts = borrowed_texts(sources, block, seed=1)
        assert texts == borrowed_texts(sources, block, seed=1) != borrowed_texts(sources, block, seed=2)
        for text in texts:
            assert not any(word in own for word in ("river", "boats") if word in text)
            assert text.split()[0] not in {"a", "b", *(f"c{number}" for number in range(9))}
            whole = "The river runs to the sea. Old boats wait under bridges. Stones and fish over water."
            assert set(text.split()) <= set(whole.split())  # no word is cut


def test_a_source_of_one_document_has_no_random_next(sources):
    (sources / "text/source/en/0.txt").write_text("a " + "The river runs to the sea. " * 1000)
    (sources / "text/source/en/1.txt").unlink()
    run(sources, sources / "out", "--local-n-workers", "1")
    counts = read_manifest(sources / "out").counts
    assert counts["samples with a random next"] == 0
    assert counts["blocks of one document, thus without a random next"] > 3
