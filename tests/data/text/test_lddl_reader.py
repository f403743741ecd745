"""Source text in blocks: each line is read once, for any block size, and long lines come in pieces."""

from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.tokenization.wordpiece import WordPieceTokenizer
from data.preprocessing.pipeline import _sampled
from data.preprocessing.settings import PairSettings, SampleSettings
from data.text import lddl_reader
from data.text.lddl_reader import MAX_DOCUMENT_BYTES, SourceFile, list_sources, numbered_documents, plan_blocks
from data.text.sentences import tokenize_documents
from tests.support.corpora import vocabulary, write_source

WORDS = vocabulary()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    write_source(root / "text")
    return root


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 12))
def test_blocks_are_the_bytes_of_all_files_in_order_and_of_one_size(sizes, block_bytes):
    sources = [SourceFile(f"{number}.txt", size) for number, size in enumerate(sizes)]
    blocks = plan_blocks(sources, block_bytes)
    everything = [(source.path, place) for source in sources for place in range(source.num_bytes)]
    found = [[(path, place) for path, *edges in block.ranges for place in range(*edges)] for block in blocks]
    assert [place for places in found for place in places] == everything
    assert all(len(places) == block_bytes for places in found[:-1]) and all(found)
    assert [(block.index, block.num_bytes) for block in blocks] == [(n, block_bytes) for n in range(len(blocks))]


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
