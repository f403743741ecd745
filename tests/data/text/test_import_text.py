import bz2
import errno
import gzip
import json
import lzma
import os
import random
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.exit_codes import BAD_INPUT, NOT_SAVED
from data import import_text
from data.text import compression, importing
from data.text import lddl_writer as source_files
from data.text.compression import CHUNK_BYTES
from data.text.deduplication import SeenDocuments
from data.text.encodings import Encoding, detect, lines
from data.text.lddl_reader import list_sources, numbered_documents, plan_blocks
from data.text.same_text import TextDigest
from tests.support.commands import refused
from tests.support.peak_memory import peak_of

CHINESE = "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\u3002"
TRADITIONAL = "\u5317\u4eac\u662f\u4e2d\u570b\u7684\u9996\u90fd\u3002"
CZECH = "\u0158eka te\u010de p\u0159es star\u00e9 m\u011bsto k mo\u0159i, \u017elut\u00fd k\u016f\u0148 p\u011bl. "
RUSSIAN = (
    "\u0420\u0435\u043a\u0430 \u0442\u0435\u0447\u0451\u0442 \u043a \u043c\u043e\u0440\u044e \u0447\u0435\u0440"
    "\u0435\u0437 \u0441\u0442\u0430\u0440\u044b\u0439 \u0433\u043e\u0440\u043e\u0434. "
) * 5
FRENCH = (
    "La rivi\u00e8re coule \u00e0 travers la vieille ville, o\u00f9 les \u00e9l\u00e8ves \u00e9tudient "
    "pendant l'\u00e9t\u00e9. "
)


def run(output: Path, *arguments) -> dict:
    import_text.main(["--output-dir", str(output), *map(str, arguments)])
    return json.loads((output / "report.json").read_text())


def documents(output: Path) -> dict[str, str]:
    """Return text by id."""
    files = sorted(output.rglob("source/*/*.txt"), key=lambda path: (str(path.parent), int(path.stem)))
    rows = [line.split(" ", 1) for path in files for line in path.read_bytes().decode().split("\n")[:-1]]
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize(
    ("separator", "expected"),
    [
        ("file", {"a": "One. Two. Three. Four."}),
        ("line", {"a:2": "One.", "a:3": "Two.", "a:6": "Three.", "a:7": "Four."}),
        ("blank-line", {"a:2": "One. Two.", "a:6": "Three. Four."}),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_separates_documents_is_told(tmp_path, separator, expected, end):
    (tmp_path / "a.txt").write_bytes(end.join(["", "One.", "Two.", " \t", "", "Three.", "\tFour. "]).encode())
    run(tmp_path / "out", "--input", tmp_path / "a.txt", "--document-separator", separator)
    assert documents(tmp_path / "out") == expected


def test_rows_of_jsonl_and_parquet_become_documents_and_bad_ones_are_named(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(
        '{"text": "One.\\nTwo."}\n\n{"text": 3}\nno json\n{"other": "x"}\n["x"]\n'
        '{"text": null}\n{"text": "\\ud800 x\\u0000y"}\n' + "[" * 100_000
    )
    pq.write_table(pa.table({"text": ["Three.", None, "Four."], "n": [1, 2, 3]}), tmp_path / "b.parquet")
    report = run(tmp_path / "out", "--input", tmp_path / "a.jsonl", tmp_path / "b.parquet")
    assert documents(tmp_path / "out") == {"a:1": "One. Two.", "a:8": "\ufffd xy", "b:1": "Three.", "b:3": "Four."}
    assert report["counts"]["bad rows"] == 7 and report["counts"]["NUL characters removed"] == 1
    printed = capsys.readouterr().out
    for place in (
        "a.jsonl:3: field 'text' holds a int",
        "a.jsonl:4: is not JSON",
        "a.jsonl:5: field 'text' holds no text",
        "a.jsonl:6: is a list",
        "a.jsonl:9: is not JSON",
        "b.parquet:2: field 'text' holds no text",
    ):
        assert place in printed


def test_fields_can_be_named_and_ids_are_kept(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "One.", "key": "k 1"}\n{"body": "Two.", "key": 7}\n{"body": "Three."}')
    report = run(tmp_path / "out", "--input", tmp_path, "--text-field", "body", "--id-field", "key")
    assert documents(tmp_path / "out") == {"k_1": "One.", "7": "Two."} and report["counts"]["bad rows"] == 1
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "b.parquet")
    with refused(r"no column 'body', only \['text'\]"):
        run(tmp_path / "out2", "--input", tmp_path / "b.parquet", "--text-field", "body")


PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files_are_read_and_damaged_ones_refused(tmp_path, suffix):
    data = "".join(f"Line {number} of the text.\n" for number in range(20_000)).encode()
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](data[:100_000]) + PACK[suffix](data[100_000:]))  # two members, as `cat` leaves them
    run(tmp_path / "out", "--input", tmp_path / f"a.txt{suffix}", "--document-separator", "line")
    assert list(documents(tmp_path / "out").values()) == data.decode().split("\n")[:-1]
    whole = PACK[suffix](data)
    for broken in (whole[: len(whole) // 2], whole[:-3], whole[:50] + b"\x00\xff\x00\xff" + whole[54:]):
        path.write_bytes(broken)
        with refused(r"a\.txt\.\w+: is damaged or cut off"):
            run(tmp_path / "broken", "--input", path)
        assert not list((tmp_path / "broken").rglob("0.txt")) or not (tmp_path / "broken/source").exists()


def test_damaged_parquet_is_refused(tmp_path):
    path, rng = tmp_path / "a.parquet", random.Random(0)
    pq.write_table(pa.table({"text": [f"Text {rng.random()}" for _ in range(2000)]}), path, write_page_checksum=True)
    data = path.read_bytes()
    for number in range(40):
        damaged = bytearray(data)
        damaged[rng.randrange(4, len(data) // 2)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged if number % 2 else data[: rng.randrange(1, len(data))])
        with refused(r"a\.parquet: is damaged"):
            run(tmp_path / "out", "--input", path)


def test_utf16_without_a_mark_is_detected_in_every_script():
    greek, hebrew = "\u03b1\u03b2\u03b3 \u03b4\u03b5. " * 9, "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd. " * 9
    hindi, korean = (
        "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f. " * 9,
        "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4. " * 20,
    )
    mixed = FRENCH * 8 + RUSSIAN * 5 + CHINESE * 9 + "\U0001f600"
    for text in (RUSSIAN, RUSSIAN[:11], CHINESE * 30, "\n".join([CHINESE] * 30), greek, hebrew, hindi, korean, mixed):
        for codec in ("utf-16-le", "utf-16-be"):
            data = text.encode(codec)
            assert detect(lambda data=data: [data]) == Encoding(codec, 0, "two bytes a character, no mark"), text


@pytest.mark.parametrize(
    "data",
    [
        FRENCH.encode() * 8 + b"\x00" * 40 + b"end",
        b"\x00".join([b"One line of text."] * 30),
        b"A\x01 text of many words. " * 9,
        CHINESE.encode() * 30 + b"\x00\x01\x02",
        b"river her small.\r\n\x1a",
        b"a \x0e x",
    ],
)
def test_text_with_control_characters_is_not_taken_for_utf16(tmp_path, data):
    (tmp_path / "a.txt").write_bytes(data)
    report = run(tmp_path / "out", "--input", tmp_path / "a.txt")
    assert report["encodings"] == {"utf-8 (valid)": 1}
    assert documents(tmp_path / "out")["a"] == " ".join(data.decode().replace("\0", "").split())


@pytest.mark.parametrize(
    ("text", "codec", "lang"),
    [
        (FRENCH * 8, "utf-8", "fr"),
        (FRENCH * 8, "utf-8-sig", "fr"),
        (FRENCH * 8, "latin-1", "fr"),
        (RUSSIAN, "cp1251", "ru"),
        (RUSSIAN, "koi8-r", "ru"),
        (CHINESE * 30, "utf-8", "zh"),
        (CHINESE * 30, "gb18030", "zh"),
        (TRADITIONAL * 30, "big5", "zh"),
        (CZECH * 8, "cp1250", "cs"),
        (FRENCH * 8, "utf-16", "fr"),
        (FRENCH * 8, "utf-16-be", "fr"),
        (FRENCH * 8, "utf-16-le", "fr"),
        (CHINESE * 30, "utf-32", "zh"),
        ("\U0001f600 \u05e9\u05dc\u05d5\u05dd.", "utf-8", "he"),
    ],
)
def test_encodings_are_detected_and_reported(tmp_path, text, codec, lang):
    (tmp_path / "a.txt").write_bytes(text.encode(codec))
    report = run(tmp_path / "out", "--input", tmp_path / "a.txt", "--language" if lang == "cs" else "--lang", lang)
    assert documents(tmp_path / "out") == {"a": text.strip()}
    assert len(report["encodings"]) == 1 and (tmp_path / "out/source" / lang / "0.txt").exists()
    assert report["counts"].get("undecodable bytes", 0) == 0


NO_TEXT = {
    "zip": b"PK\x03\x04" + b"words.txt and its text " * 9,
    "pdf": b"%PDF-1.4\n1 0 obj << /Type /Page >> endobj",
    "gzip": gzip.compress(b"Words."),
    "elf": b"\x7fELF\x02\x01",
    "noise": random.Random(1).randbytes(100_000),
    "noise without line ends": random.Random(2).randbytes(100_000).replace(b"\n", b"x"),
    "small numbers": bytes(random.Random(3).randrange(9) for _ in range(5000)),
}


@pytest.mark.parametrize("data", NO_TEXT.values(), ids=NO_TEXT)
def test_what_is_no_text_is_refused_or_left_out_of_a_folder(tmp_path, capsys, data):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_bytes(data)
    (tmp_path / "in/b.txt").write_text("Some text.")
    with refused(r"in/a\.txt: is not text.*; leave it out, convert it to text, or name its"):
        run(tmp_path / "one", "--input", tmp_path / "in/a.txt")
    report = run(tmp_path / "out", "--input", tmp_path / "in")
    assert list(documents(tmp_path / "out").values()) == ["Some text."]
    assert report["counts"] == {
        "files that are no text left out": 1,
        "files read": 1,
        "documents": 1,
        "characters": 10,
        "bytes of text": 10,
        "documents read": 1,
        "undecodable bytes": 0,
    }
    assert "in/a.txt: is not text" in capsys.readouterr().out


@pytest.mark.parametrize(
    "data",
    [
        b"N\x08Na\x08am\x08me\x08e " * 30,
        b"\x1b[31mred\x1b[0m " * 30,
        b"Page one.\x0cPage two.\x1c" * 30,
        b"\x00\x00\x00a" * 90,
        b"PK is short for Peacekeeper.",
        b"%PDF is a mark.",
        b"\x01\x02\x03 in a text" * 3,
        "\ufffd".encode() * 30 + b"end",
        (CHINESE * 30).encode("gb18030")[1:],
        RUSSIAN.encode("cp866"),
    ],
)
def test_strange_text_is_read_all_the_same(tmp_path, data):
    (tmp_path / "a.txt").write_bytes(data)
    assert run(tmp_path / "out", "--input", tmp_path / "a.txt")["counts"]["documents"] == 1


def test_an_encoding_that_decodes_not_any_bytes_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"Some text \xff\xfe.")
    for name in ("base64", "idna", "undefined", "no\udcffname"):
        with refused("encoding='.*; use auto, or a name like utf-8, latin-1 or gb18030"):
            run(tmp_path / "out", "--input", tmp_path / "a.txt", "--encoding", name)
    with refused("a.txt: cannot be read as utf-16 .*utf-16-le or utf-16-be"):
        run(tmp_path / "out", "--input", tmp_path / "a.txt", "--encoding", "utf-16")


def test_undecodable_bytes_are_counted_and_marked(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes(CHINESE.encode() * 50 + b"\xff\xfe. " + CHINESE.encode() * 50)
    (tmp_path / "b.txt").write_bytes(b"plain \xe9")
    report = run(tmp_path / "out", "--input", tmp_path / "a.txt")
    assert documents(tmp_path / "out")["a"] == CHINESE * 50 + "\ufffd\ufffd. " + CHINESE * 50
    assert report["counts"]["undecodable bytes"] == 2
    assert "a.txt: 2 bytes are not utf-8" in capsys.readouterr().out
    report = run(tmp_path / "told", "--input", tmp_path / "b.txt", "--encoding", "ascii")
    assert documents(tmp_path / "told")["b"] == "plain \ufffd" and report["counts"]["undecodable bytes"] == 1


def test_letters_that_are_equal_are_the_same_in_every_file(tmp_path):
    """Letters are equal also where two pieces of a long text meet, although each piece is normalised alone."""
    long_text = "x" * (CHUNK_BYTES - 1) + "e\u0301\u0323 end"
    (tmp_path / "a.txt").write_text("Vie\u0323\u0302t of\ufb01ce Do\u00adnau Haus\u00ad\r\n bau \ufefb", "utf-8")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": long_text}) + "\n" + json.dumps({"text": "plain"}) + "\n")
    (tmp_path / "c.txt").write_text("Việt office Donau Hausbau \u0644\u0627", "utf-8")
    report = run(tmp_path / "out", "--input", tmp_path, "--deduplicate", "exact")
    found = documents(tmp_path / "out")
    assert found["a"] == "Việt office Donau Hausbau \u0644\u0627"
    assert found["b:1"] == "x" * (CHUNK_BYTES - 1) + "\u1eb9\u0301 end"
    assert report["counts"]["dropped: exact duplicate"] == 1, "c"
    assert report["counts"]["documents with letters in two code points, ligatures or soft hyphens, made NFC"] == 2


def test_white_space_and_control_characters_leave_one_line_per_document(tmp_path):
    text = "\ufeffA\x00b\u2028c\x0bd\x0ce\x85f\u00a0g\u3000h\t i \U0001f469\u200d\U0001f4bb \u0627\u0644 e\u0301"
    (tmp_path / "a.txt").write_bytes(text.encode())
    run(tmp_path / "out", "--input", tmp_path / "a.txt")
    assert documents(tmp_path / "out")["a"] == "Ab c d e f g h i \U0001f469\u200d\U0001f4bb \u0627\u0644 \u00e9"
    (block,) = plan_blocks(list_sources([tmp_path / "out"]), 1 << 20)
    assert [text.rstrip("\n") for _, text in numbered_documents(block, Counter())] == [documents(tmp_path / "out")["a"]]


def test_folders_are_read_in_order_and_strange_names_do_no_harm(tmp_path):
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    for name in ("b.txt", "a; rm -rf x.txt", "$(touch y).txt", "sub/c d.txt.gz", ".hidden.txt", "picture.png"):
        data = f"Text of {name}".encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    report = run(tmp_path / "out", "--input", folder)
    assert list(documents(tmp_path / "out")) == ["$(touch_y)", "a;_rm_-rf_x", "b", "sub/c_d"]
    assert report["counts"]["files of other kinds left out"] == 2


def test_names_that_are_not_utf8_are_shown_with_their_bytes(tmp_path, capsys):
    """The names are in ids, in the memory of deduplication, and in the report, which is written after all the work."""
    folder = os.fsencode(tmp_path) + b"/\xe9t\xe9"
    os.mkdir(folder)
    for name, data in (
        (b"bad\xff\xfe.txt", b"One."),
        (b"badx\xff.txt", b"One."),
        (b"bad\xff.jsonl", b'{"text": "Two.", "key": "\\ud800"}\nno json'),
    ):
        Path(os.fsdecode(folder + b"/" + name)).write_bytes(data)
    command = ["--input", os.fsdecode(folder), "--deduplicate", "exact"]
    report = run(Path(os.fsdecode(folder + b"/out")), *command)
    assert documents(Path(os.fsdecode(folder + b"/out"))) == {r"bad\xff:1": "Two.", r"badx\xff": "One."}
    assert report["duplicates"] == [r"bad\xff\xfe = badx\xff (exact)"]
    assert r"/\xe9t\xe9/bad\xff.jsonl:2: is not JSON" in report["problems"][0]
    assert r"\xe9t\xe9/out" in capsys.readouterr().out
    rows = Path(os.fsdecode(folder + b"/bad\xff.jsonl"))
    run(tmp_path / "ids", "--input", rows, "--id-field", "key", "--deduplicate", "exact")
    assert documents(tmp_path / "ids") == {"\ufffd": "Two."}
    with refused(r"/\\xff: no such file"):
        run(tmp_path / "none", "--input", tmp_path / os.fsdecode(b"\xff"))


def test_links_to_folders_are_followed_once_and_nothing_is_left_out_unsaid(tmp_path):
    for name in ("in/sub/a.txt", "real/b.txt", "real/deep/c.txt", "in/a.txt~", "in/.#b.txt", "in/b.bak"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"Text of {name}")
    for name, target in (
        ("more", "../real"),
        ("again", "sub"),
        ("sub/loop", ".."),
        ("deep", "../real/deep"),
        ("gone.txt", "nowhere"),
        ("c.txt", "sub/a.txt"),
    ):
        (tmp_path / "in" / name).symlink_to(target)
    (tmp_path / "in/d.txt").symlink_to("../real/b.txt")
    report = run(tmp_path / "out", "--input", tmp_path / "in", "--format", "txt", "--follow-links")
    assert list(documents(tmp_path / "out")) == ["deep/c", "more/b", "sub/a"]

    def counted(report):
        return {name: count for name, count in report["counts"].items() if "left out" in name or "links" in name}

    always = {"files of other kinds left out": 3, "broken links, pipes and devices left out": 1}
    assert counted(report) == {**always, "links to folders that were read already": 3}
    report = run(tmp_path / "inside", "--input", tmp_path / "in", "--format", "txt")
    assert list(documents(tmp_path / "inside")) == ["sub/a"]
    assert counted(report) == {
        **always,
        "links to folders that were read already": 2,
        "links out of the folder left out": 3,
    }
    line = f"{tmp_path}/in/d.txt: is a link out of the folder, to {tmp_path}/real/b.txt; pass --follow-links to read it"
    assert line in report["left out"]


def test_names_of_files_drive_no_terminal_and_imitate_no_line(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("A text.")
    (tmp_path / "in" / "bad\x1b[2J\nwarning: everything is lost\u202e.docx").write_bytes(b"noise")
    (tmp_path / "in" / "b\x1b[31m\n.txt").write_text("Another text.")
    report = run(tmp_path / "out", "--input", tmp_path / "in")
    (line,) = report["left out"]
    assert line.startswith(f"{tmp_path}/in/bad\\x1b[2J\\nwarning: everything is lost\\u202e.docx: is damaged")
    assert list(documents(tmp_path / "out")) == ["a", r"b\x1b[31m\n"]
    printed = "".join(capsys.readouterr())
    assert not set("\x1b\u202e") & set(printed) and "\nwarning" not in printed


def sentence(rng: random.Random, length: int = 120) -> str:
    return " ".join(f"w{rng.randrange(5000)}" for _ in range(length)) + "."


def test_duplicates_are_dropped_on_request_and_named(tmp_path, capsys):
    rng = random.Random(1)
    base = [sentence(rng) for _ in range(50)]
    near = [text.replace(text.split()[30], "changed", 1) for text in base[:20]]  # 5 of 116 sequences differ
    far = [" ".join(text.split()[:30]) + " " + sentence(rng, 30) for text in base[20:30]]
    (tmp_path / "a.txt").write_text("\n".join([*base, *base[:7], *near, *far, "One.", "Two.", "One."]))
    keep = ("--input", tmp_path / "a.txt", "--document-separator", "line")
    assert run(tmp_path / "all", *keep)["counts"]["documents"] == 90
    exact = run(tmp_path / "exact", *keep, "--deduplicate", "exact")
    assert exact["counts"]["dropped: exact duplicate"] == 8 and exact["counts"]["documents"] == 82
    assert exact["duplicates"][0] == "a:51 = a:1 (exact)"
    assert "duplicates:\n  a:51\n    = a:1 (exact)\n  a:52\n" in capsys.readouterr().out
    report = run(tmp_path / "near", *keep, "--deduplicate", "near")
    assert report["counts"]["dropped: exact duplicate"] == 8 and report["counts"]["dropped: near duplicate"] == 20
    assert set(documents(tmp_path / "near").values()) == {*base, *far, "One.", "Two."}
    again = run(tmp_path / "again", *keep, "--deduplicate", "near")
    assert again == report and documents(tmp_path / "again") == documents(tmp_path / "near")


def test_chinese_text_has_near_duplicates_too(tmp_path):
    rng = random.Random(2)
    text = "".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(300))
    (tmp_path / "a.txt").write_text(f"{text}\n{text[:150]}\u4e00{text[150:]}\n{text[::-1]}\n")
    flags = "--document-separator line --deduplicate near --lang zh".split()
    report = run(tmp_path / "out", "--input", tmp_path / "a.txt", *flags)
    assert report["counts"]["dropped: near duplicate"] == 1 and list(documents(tmp_path / "out")) == ["a:1", "a:3"]


def test_nearly_all_pairs_at_the_threshold_are_found(tmp_path):
    """At least 95% of the pairs whose signatures agree to the threshold are found, and no pair below it."""
    rng, alike, found, shares, threshold = random.Random(6), 0, 0, [], 0.8
    seen = SeenDocuments(tmp_path / "seen", "near")
    common = round(2 * threshold / (1 + threshold) * 200)
    for number in range(150):
        words = [str(rng.randrange(10**9)) for _ in range(204)]
        digests = [TextDigest("near"), TextDigest("near")]
        digests[0].add(" ".join(words).encode())
        digests[1].add(" ".join(words[: common + 4] + words[::-1][: 200 - common]).encode())
        share = np.mean(np.array(digests[0].signature()) == np.array(digests[1].signature()))
        shares.append(share)
        assert seen.earlier(str(number), digests[0]) is None
        is_alike, is_found = share >= threshold, seen.earlier("again", digests[1]) is not None
        assert is_alike or not is_found
        alike, found = alike + is_alike, found + is_found
    seen.close()
    assert not (tmp_path / "seen").exists()
    assert alike > 40 and found >= 0.95 * alike, (alike, found)
    assert np.mean(shares) == pytest.approx(threshold, abs=0.02) and np.std(shares) < 0.06


def test_training_documents_of_all_files_are_mixed(tmp_path, monkeypatch):
    """Shards are cut from neighbouring documents, so each file has documents of all dates, in no order."""
    texts = [f"Text {place} of them all. " + "It goes on for a while. " * (place % 40) for place in range(600)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found = []
    for held in (32 << 20, 100):  # bytes; as few as these are written many times
        monkeypatch.setattr(importing, "MAX_FILE_BYTES", 50_000)
        monkeypatch.setattr(source_files, "_LEAST_HELD", held)
        monkeypatch.setattr(source_files, "_MOST_HELD", held)
        output = tmp_path / f"out-{held}"
        report = run(output, "--input", tmp_path / "in.jsonl", "--held-out-fraction", "0.05")
        folder = output / "train/source/en"
        written = {path.name: path.read_text().splitlines() for path in folder.iterdir()}
        assert report["parts"]["train"]["files"] == len(written)
        assert report["parts"]["train"]["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
        found.append(written)
        for some in written.values():
            places = [int(line.split()[2]) for line in some]
            assert len(places) > 20 and min(places) < 200 and max(places) > 400
            assert abs(np.corrcoef(places, np.arange(len(places)))[0, 1]) < 0.5
    assert found[0] == found[1] and len(found[0]) >= 5
    everything = {**documents(output / "train"), **documents(output / "held_out")}
    assert sorted(" ".join(everything.values()).split()) == sorted(" ".join(texts).split())


def test_a_run_killed_while_it_publishes_is_finished_by_the_next(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("\n".join(f"Text {number}." for number in range(50)))
    command = ("--input", tmp_path / "a.txt", "--document-separator", "line", "--held-out-fraction", "0.3")
    whole = run(tmp_path / "whole", *command)
    publish = importing.publish

    def once(prepared, final):
        publish(prepared, final)
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(SystemExit, match="130"):
        context.setattr(importing, "publish", once)
        run(tmp_path / "cut", *command)
    assert run(tmp_path / "cut", *command) == whole
    assert documents(tmp_path / "cut") == documents(tmp_path / "whole")
    assert {path.name for path in (tmp_path / "cut").iterdir()} == {"train", "held_out", "report.json"}
    with refused("contains other text already"):
        run(tmp_path / "cut", *command)


def test_a_file_given_twice_is_read_once_and_counted(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("The river runs.")
    (tmp_path / "in" / "b.txt").symlink_to(tmp_path / "in" / "a.txt")
    report = run(tmp_path / "out", "--input", tmp_path / "in", tmp_path / "in" / "a.txt")
    assert len(documents(tmp_path / "out")) == 1
    assert report["counts"]["files named or linked twice, read once"] == 2


@pytest.mark.parametrize("when", ["writing", "closing"])
def test_an_interrupted_import_says_so_and_leaves_nothing(tmp_path, monkeypatch, capsys, when):
    (tmp_path / "a.txt").write_text("One.\nTwo.\nThree.")
    command = ("--input", tmp_path / "a.txt", "--document-separator", "line", "--deduplicate", "exact")

    def interrupt(*_):
        raise KeyboardInterrupt

    target, name = (importing, "_warn_if_large") if when == "writing" else (source_files.os, "fsync")
    with monkeypatch.context() as context, pytest.raises(SystemExit) as exit_info:
        context.setattr(target, name, interrupt)
        run(tmp_path / "out", *command)
    told, interrupted = capsys.readouterr().err.splitlines()
    assert exit_info.value.code == 130 and told.startswith("reading ") and interrupted.startswith("interrupted; ")
    assert not (tmp_path / "out").exists()
    run(tmp_path / "out", *command)
    assert len(documents(tmp_path / "out")) == 3


def test_errors_of_the_disk_name_the_path_and_the_remedy(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("Some text.")
    command = ("--input", tmp_path / "a.txt", "--deduplicate", "exact")
    with refused(r"^error: .*/a\.txt/out.*: Not a directory; check that the path"):
        run(tmp_path / "a.txt/out", *command)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def database_full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    def unreadable(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for target, name, replacement, code, message in (
        (source_files.os, "fsync", full, NOT_SAVED, r"/out: No space left on device; free space there"),
        (SeenDocuments, "earlier", database_full, NOT_SAVED, r"/out: database or disk is full; free space there"),
        (compression, "open", unreadable, BAD_INPUT, r"/a\.txt: Input/output error; fix that"),
    ):
        with monkeypatch.context() as context, refused(f"^error: .*{message}", code):
            context.setattr(target, name, replacement, raising=name != "open")
            run(tmp_path / "out", *command)
        assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_line_of_100_megabytes_does_not_need_its_size_in_memory(tmp_path):
    peaks = {}
    for name, size in (("small", 1000), ("large", 100_000_000)):
        path = tmp_path / f"{name}.txt"
        path.write_bytes(b"The old river runs to the sea over stones. " * (size // 43))
        peaks[name] = _peak("--input", path, "--output-dir", tmp_path / f"out-{name}", "--deduplicate", "near")
        path.unlink()
    assert (tmp_path / "out-large/source/en/0.txt").stat().st_size > 99_000_000
    assert peaks["large"] < peaks["small"] + 60_000, peaks  # KiB


def _peak(*arguments) -> int:
    """Return the peak memory, in KiB, of an import in its own process."""
    return peak_of("from data import import_text; import_text.main(sys.argv[1:])", *arguments)


@pytest.mark.long
def test_a_bomb_is_left_out_in_bounded_memory(tmp_path):
    """The file of 15 kB holds half a gigabyte of blanks."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "bomb.txt.zst").write_bytes(zstandard.ZstdCompressor().compress(b" " * 250_000_000) * 2)
    (folder / "end.txt").write_text("The end.")
    assert (folder / "bomb.txt.zst").stat().st_size < 100_000
    assert _peak("--input", folder, "--output-dir", tmp_path / "out", "--document-separator", "line") < 450_000
    assert list(documents(tmp_path / "out").values()) == ["The end."]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet="ab \r\n\u4e2d", max_size=6)))
def test_lines_do_not_depend_on_where_the_pieces_are_cut(chunks):
    def joined(pieces):
        found, current = [], ""
        for text, ends in lines(pieces):
            current += text
            if ends:
                found.append(current)
                current = ""
        return found + [current] * bool(current)

    text = "".join(chunks)
    expected = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert joined(chunks) == (expected if expected[-1] else expected[:-1])
