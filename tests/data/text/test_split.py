import io
import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import import_text
from data.text.held_out_split import Documents, _read_document, check_groups, held_out_bytes, plan_split
from data.text.lddl_writer import character_start
from data.text.sentences import last_start


def prose(rng: random.Random, num_bytes: int) -> str:
    """Return distinct sentences of about this size in all."""
    sentences, size = [], 0
    while size < num_bytes:
        words = [f"w{rng.randrange(10**6)}" for _ in range(rng.randint(3, 15))]
        sentences.append(f"The {' '.join(words)} ended.")
        size += len(sentences[-1]) + 1
    return " ".join(sentences)


def split(folder, texts: dict[str, str], *arguments) -> tuple[dict, dict[str, dict[str, str]]]:
    """Return (report, {part: {id: text}}) for texts by file name."""
    (folder / "in").mkdir(parents=True)
    for name, text in texts.items():
        (folder / "in" / f"{name}.txt").write_text(text)
    import_text.main(["--input", str(folder / "in"), "--output-dir", str(folder / "out"), *arguments])
    parts = {}
    for part in ("train", "held_out"):
        lines = (folder / "out" / part / "source/en/0.txt").read_text().splitlines()
        parts[part] = dict(line.split(" ", 1) for line in lines)
        assert len(parts[part]) == len(lines)
    return json.loads((folder / "out/report.json").read_text()), parts


def sentences(texts: dict[str, str]) -> list[str]:
    return [sentence for text in texts.values() for sentence in re.findall(r"The .*? ended\.", text)]


SIZES = {
    "one long document": [400_000],
    "a giant among notes": [1_000_000, *[105] * 20],
    "15 odd files": [105, 300, 2000, 40_000, 5000, 90_000, 700, 12_000, 3000, 60, 150_000, 8000, 2500, 600, 33_000],
    "articles": [5000] * 100,
    "lines": [150] * 1500,
}


@pytest.mark.parametrize(
    ("name", "fraction"), [*((name, 0.05) for name in SIZES), ("15 odd files", 0.01), ("one long document", 0.3)]
)
def test_the_share_is_one_of_the_text_and_no_sentence_is_torn_or_lost(tmp_path, name, fraction):
    rng = random.Random(1)
    texts = {f"{number}": prose(rng, size) for number, size in enumerate(SIZES[name])}
    report, parts = split(tmp_path, texts, "--held-out-fraction", str(fraction))
    found = {part: sentences(some) for part, some in parts.items()}
    assert sorted(found["train"] + found["held_out"]) == sorted(sentences(texts))
    assert all(text == " ".join(sentences({"": text})) for part in parts.values() for text in part.values())
    share = report["parts"]["held_out"]["share"]
    assert 0.9 * fraction < share < 1.1 * fraction
    assert share + report["parts"]["train"]["share"] == pytest.approx(1)
    assert report["parts"]["held_out"]["documents"] == len(parts["held_out"])


def test_documents_are_whole_where_there_are_many_and_blocks_of_all_of_a_long_one(tmp_path):
    rng = random.Random(2)
    texts = {f"{number}": prose(rng, 2000) for number in range(200)}
    _, parts = split(tmp_path / "many", texts, "--held-out-fraction", "0.1")
    whole = [name for name, text in parts["held_out"].items() if texts[name] == text]
    assert len(whole) >= len(parts["held_out"]) - 1 >= 15
    text = prose(rng, 500_000)
    _, parts = split(tmp_path / "one", {"novel": text}, "--held-out-fraction", "0.1")
    places = [text.index(block) / len(text) for block in parts["held_out"].values()]
    assert len(places) >= 6 and min(places) < 0.3 and max(places) > 0.7
    assert {name.partition("#")[0] for part in parts.values() for name in part} == {"novel"}


def test_order_names_and_number_of_files_do_not_matter(tmp_path):
    rng = random.Random(3)
    texts = [prose(rng, size) for size in (*[1500] * 50, 90_000)]
    command = ("--held-out-fraction", "0.1")
    _, ordered = split(tmp_path / "a", {f"a{number:02}": text for number, text in enumerate(texts)}, *command)
    _, other = split(tmp_path / "b", {f"b{-number:03}": text for number, text in enumerate(texts)}, *command)
    joined = "\n\n".join(text for text in texts[::-1])
    _, one_file = split(tmp_path / "c", {"c": joined}, *command, "--document-separator", "blank-line")
    for part in ("train", "held_out"):
        assert set(ordered[part].values()) == set(other[part].values()) == set(one_file[part].values())


def test_equal_texts_are_in_one_part_without_deduplication(tmp_path):
    rng = random.Random(4)
    texts = {f"{number}": prose(rng, 300 + 40 * number) for number in range(60)}
    texts |= {"long": prose(rng, 60_000)}
    twins = {f"{name}-again": text for name, text in texts.items()}
    for fraction in ("0.05", "0.33"):
        _, parts = split(tmp_path / fraction, {**texts, **twins}, "--held-out-fraction", fraction)
        assert set(parts["train"].values()).isdisjoint(parts["held_out"].values())


def test_added_documents_move_few_others(tmp_path):
    rng = random.Random(5)
    texts = {f"{number}": prose(rng, 1000) for number in range(400)}
    more = {f"more{number}": prose(rng, 1000) for number in range(80)}
    _, before = split(tmp_path / "before", texts, "--held-out-fraction", "0.2")
    _, after = split(tmp_path / "after", {**texts, **more}, "--held-out-fraction", "0.2")
    moved = [name for name in texts if (name in before["held_out"]) != (name in after["held_out"])]
    assert 60 < len(before["held_out"]) < 100 and len(moved) <= 12, moved


def test_of_very_little_text_a_kilobyte_is_held_out_and_said(tmp_path, capsys):
    rng = random.Random(6)
    texts = {f"{number}": prose(rng, 600) for number in range(20)}
    report, _ = split(tmp_path, texts, "--held-out-fraction", "0.01")
    assert 900 <= report["parts"]["held_out"]["bytes"] < 1300
    printed = capsys.readouterr()
    assert " documents, 1.1 kB (8.3% of the text) in 1 file" in printed.out
    assert "warning: 8.3% of the text are held out instead of 1.0%, as less than 1.0 kB is no measure" in printed.err
    assert "held-out part has 1.1 kB; a loss measured on less than 20.0 kB is noisy: give more text" in printed.err
    split(tmp_path / "more", {"0": prose(rng, 100_000)}, "--held-out-fraction", "0.05")
    assert (
        "5.2 kB; a loss measured on less than 20.0 kB is noisy: give --held-out-fraction 0.21"
        in capsys.readouterr().err
    )
    split(tmp_path / "enough", {"0": prose(rng, 100_000)}, "--held-out-fraction", "0.25")
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("space", [" ", ""])
@pytest.mark.parametrize("letters", ["ab", "\u5317\u4eac\u5e02", "\U0001f600\U0001f601"])
def test_text_without_sentences_is_cut_at_words_or_characters(tmp_path, letters, space):
    words = ["".join(random.Random(number).choices(letters, k=20)) for number in range(5000)]
    _, parts = split(tmp_path, {"a": space.join(words)}, "--held-out-fraction", "0.2")
    found = [text for part in parts.values() for text in part.values()]
    if space:
        assert sorted(word for text in found for word in text.split()) == sorted(words)
    assert sorted("".join(found).replace(" ", "")) == sorted("".join(words))


def blocks_of(text: bytes, number: int) -> list[bytes]:
    """Divide into blocks of about equal size, each cut at the last start of a sentence in its second half."""
    blocks, start = [], 0
    for place in range(1, number):
        block = text[start : len(text) * place // number]
        low, high = (character_start(block, place) for place in (len(block) // 2, len(block) - 4))
        window = block[low:high].decode()
        cut = low + len(window[: last_start(window, 0, len(window))].encode())
        blocks.append(block[:cut])
        start += cut
    return [*blocks, text[start:]]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.text(alphabet="ab. \u4e2d\U0001f600", min_size=40, max_size=400), min_size=1, max_size=5),
    st.integers(1, 6),
)
def test_blocks_are_the_text(texts, num_blocks):
    texts = [" ".join(text.split()) or "x" * 30 for text in texts]
    file = io.BytesIO("".join(f"id{number} {text}\n" for number, text in enumerate(texts)).encode())
    for number, text in enumerate(texts):
        identifier, blocks = _read_document(file, len(text.encode()), num_blocks if len(text) > 30 else 1)
        found = [block.decode() for block in blocks]
        assert identifier == b"id%d" % number and "".join(found) == text + "\n"
        expected = blocks_of(text.encode(), len(found))
        assert [block.encode() for block in found] == [*expected[:-1], expected[-1] + b"\n"]


def planned(hashes: list[int], sizes: list[int], grouped: list[bool], fraction: float) -> tuple[list[int], list[bool]]:
    """Return (blocks of each document, whether each block is held out) by the hashes, the smallest first."""
    total = sum(sizes)
    target = max(total * fraction, min(1000, total * 0.2))
    block_bytes = min(8 << 20, max(256, int(target) // 8))
    numbers = [
        -(-size // block_bytes) if size > 2 * block_bytes and not whole else 1
        for size, whole in zip(sizes, grouped, strict=True)
    ]
    blocks = [
        ((key + place * 0x9E3779B97F4A7C15) % 2**64, size / number)
        for key, size, number in zip(hashes, sizes, numbers, strict=True)
        for place in range(number)
    ]
    held_out, best, last = 0.0, float("inf"), -1
    for key in sorted({key for key, _ in blocks}):  # blocks of one key, such as a group's, stay together
        held_out += sum(size for own, size in blocks if own == key)
        if abs(held_out - target) < best - 1e-6:
            best, last = abs(held_out - target), key
    return numbers, [key <= last for key, _ in blocks]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.one_of(st.integers(1, 3000), st.integers(1, 99_999)), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([0.01, 0.05, 0.3]),
    st.booleans(),
)
def test_documents_are_held_out_in_the_order_of_their_hashes_up_to_the_nearest_size(rows, fraction, has_groups):
    documents, hashes, sizes, grouped = Documents(), [], [], []
    for key, size, is_grouped in rows:
        for _ in range(2 if has_groups and is_grouped else 1):  # a group of two
            documents.add(key.to_bytes(8, "big") + bytes(24), size, has_groups and is_grouped)
            hashes, sizes, grouped = [*hashes, key], [*sizes, size], [*grouped, has_groups and is_grouped]
    if len({*hashes}) < len(rows):
        return
    numbers, are_held_out = plan_split(documents, fraction)
    assert (numbers.tolist(), are_held_out.tolist()) == planned(hashes, sizes, grouped, fraction)


@pytest.mark.parametrize(
    ("size", "fraction", "held_out"), [(10**6, 0.05, 50_000), (10_000, 0.01, 1000), (1000, 0.01, 200)]
)
def test_a_kilobyte_or_a_fifth_is_held_out_at_least(size, fraction, held_out):
    assert held_out_bytes(size, fraction) == pytest.approx(held_out)


def test_groups_that_do_not_divide_the_text_are_refused():
    check_groups(None, 0)
    check_groups("folder", 2)
    for number, problem in ((0, "no document has a group"), (1, "all documents are of one group")):
        with pytest.raises(ValueError, match=f"group_by=folder: {problem}; name a column"):
            check_groups("folder", number)
