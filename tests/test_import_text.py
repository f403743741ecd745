import bz2
import gzip
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from data import import_text
from data.corpus import list_sources, plan_blocks, read_documents
from data.deduplication import SeenDocuments, TextDigest
from data.text_inputs import lines

REPOSITORY = Path(__file__).parent.parent
CHINESE = "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\u3002"
TRADITIONAL = "\u5317\u4eac\u662f\u4e2d\u570b\u7684\u9996\u90fd\u3002"
CZECH = "\u0158eka te\u010de p\u0159es star\u00e9 m\u011bsto k mo\u0159i, \u017elut\u00fd k\u016f\u0148 p\u011bl. "
RUSSIAN = ("\u0420\u0435\u043a\u0430 \u0442\u0435\u0447\u0451\u0442 \u043a \u043c\u043e\u0440\u044e \u0447\u0435\u0440"
           "\u0435\u0437 \u0441\u0442\u0430\u0440\u044b\u0439 \u0433\u043e\u0440\u043e\u0434. ") * 5
FRENCH = ("La rivi\u00e8re coule \u00e0 travers la vieille ville, o\u00f9 les \u00e9l\u00e8ves \u00e9tudient "
          "pendant l'\u00e9t\u00e9. ")


def run(output: Path, *arguments) -> dict:
    import_text.main(["--output-dir", str(output), *map(str, arguments)])
    return json.loads((output / "report.json").read_text())


def documents(output: Path) -> dict[str, str]:
    """Text by id."""
    files = sorted(output.rglob("source/*/*.txt"), key=lambda path: (str(path.parent), int(path.stem)))
    rows = [line.split(" ", 1) for path in files for line in path.read_bytes().decode().split("\n")[:-1]]
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize(("separator", "expected"), [
    ("file", {"a": "One. Two. Three. Four."}),
    ("line", {"a:2": "One.", "a:3": "Two.", "a:6": "Three.", "a:7": "Four."}),
    ("blank-line", {"a:2": "One. Two.", "a:6": "Three. Four."}),
])  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_separates_documents_is_told(tmp_path, separator, expected, end):
    (tmp_path / "a.txt").write_bytes(end.join(["", "One.", "Two.", " \t", "", "Three.", "\tFour. "]).encode())
    run(tmp_path / "out", "--input", tmp_path / "a.txt", "--document-separator", separator)
    assert documents(tmp_path / "out") == expected


def test_rows_of_jsonl_and_parquet_become_documents_and_bad_ones_are_named(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": "One.\\nTwo."}\n\n{"text": 3}\nno json\n{"other": "x"}\n["x"]\n'
                                      '{"text": null}\n{"text": "\\ud800 x\\u0000y"}\n' + "[" * 100_000)
    pq.write_table(pa.table({"text": ["Three.", None, "Four."], "n": [1, 2, 3]}), tmp_path / "b.parquet")
    report = run(tmp_path / "out", "--input", tmp_path / "a.jsonl", tmp_path / "b.parquet")
    assert documents(tmp_path / "out") == {"a:1": "One. Two.", "a:8": "\ufffd xy", "b:1": "Three.", "b:3": "Four."}
    assert report["counts"]["bad rows"] == 7 and report["counts"]["NUL characters removed"] == 1
    printed = capsys.readouterr().out
    for place in ("a.jsonl:3: field 'text' holds a int", "a.jsonl:4: is not JSON",
                  "a.jsonl:5: field 'text' holds no text", "a.jsonl:6: is a list", "a.jsonl:9: is not JSON",
                  "b.parquet:2: field 'text' holds no text"):
        assert place in printed


def test_fields_can_be_named_and_ids_are_kept(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "One.", "key": "k 1"}\n{"body": "Two.", "key": 7}\n{"body": "Three."}')
    report = run(tmp_path / "out", "--input", tmp_path, "--text-field", "body", "--id-field", "key")
    assert documents(tmp_path / "out") == {"k_1": "One.", "7": "Two."} and report["counts"]["bad rows"] == 1
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(SystemExit, match=r"no column 'body', only \['text'\]"):
        run(tmp_path / "out2", "--input", tmp_path / "b.parquet", "--text-field", "body")


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
        ".zst": zstandard.ZstdCompressor(write_checksum=True).compress}


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files_are_read_and_damaged_ones_refused(tmp_path, suffix):
    data = "".join(f"Line {number} of the text.\n" for number in range(20_000)).encode()
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](data[:100_000]) + PACK[suffix](data[100_000:]))  # two members, as `cat` leaves them
    run(tmp_path / "out", "--input", tmp_path / f"a.txt{suffix}", "--document-separator", "line")
    assert list(documents(tmp_path / "out").values()) == data.decode().split("\n")[:-1]
    whole = PACK[suffix](data)
    for broken in (whole[:len(whole) // 2], whole[:-3], whole[:50] + b"\x00\xff\x00\xff" + whole[54:]):
        path.write_bytes(broken)
        with pytest.raises(SystemExit, match=r"a\.txt\.\w+: is damaged or cut off"):
            run(tmp_path / "broken", "--input", path)
        assert not list((tmp_path / "broken").rglob("0.txt")) or not (tmp_path / "broken/source").exists()


def test_damaged_parquet_is_refused(tmp_path):
    path, rng = tmp_path / "a.parquet", random.Random(0)
    pq.write_table(pa.table({"text": [f"Text {rng.random()}" for _ in range(2000)]}), path, write_page_checksum=True)
    data = path.read_bytes()
    for number in range(40):
        damaged = bytearray(data)
        damaged[rng.randrange(4, len(data) // 2)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged if number % 2 else data[:rng.randrange(1, len(data))])
        with pytest.raises(SystemExit, match=r"a\.parquet: is damaged"):
            run(tmp_path / "out", "--input", path)


@pytest.mark.parametrize(("text", "codec", "lang"), [
    (FRENCH * 8, "utf-8", "fr"), (FRENCH * 8, "utf-8-sig", "fr"), (FRENCH * 8, "latin-1", "fr"),
    (RUSSIAN, "cp1251", "ru"), (RUSSIAN, "koi8-r", "ru"), (CHINESE * 30, "utf-8", "zh"),
    (CHINESE * 30, "gb18030", "zh"), (TRADITIONAL * 30, "big5", "zh"), (CZECH * 8, "cp1250", "cs"),
    (FRENCH * 8, "utf-16", "fr"), (FRENCH * 8, "utf-16-be", "fr"),
    (FRENCH * 8, "utf-16-le", "fr"), (CHINESE * 30, "utf-32", "zh"),
    ("\U0001f600 \u05e9\u05dc\u05d5\u05dd.", "utf-8", "he"),
])  # fmt: skip
def test_encodings_are_detected_and_reported(tmp_path, text, codec, lang):
    (tmp_path / "a.txt").write_bytes(text.encode(codec))
    report = run(tmp_path / "out", "--input", tmp_path / "a.txt", "--lang", lang)
    assert documents(tmp_path / "out") == {"a": text.strip()}
    assert len(report["encodings"]) == 1 and (tmp_path / "out/source" / lang / "0.txt").exists()
    assert report["counts"].get("undecodable bytes", 0) == 0


def test_undecodable_bytes_are_counted_and_marked(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes(CHINESE.encode() * 50 + b"\xff\xfe. " + CHINESE.encode() * 50)
    (tmp_path / "b.txt").write_bytes(b"plain \xe9")
    report = run(tmp_path / "out", "--input", tmp_path / "a.txt")
    assert documents(tmp_path / "out")["a"] == CHINESE * 50 + "\ufffd\ufffd. " + CHINESE * 50
    assert report["counts"]["undecodable bytes"] == 2
    assert "a.txt: 2 bytes are not utf-8" in capsys.readouterr().out
    report = run(tmp_path / "told", "--input", tmp_path / "b.txt", "--encoding", "ascii")
    assert documents(tmp_path / "told")["b"] == "plain \ufffd" and report["counts"]["undecodable bytes"] == 1


def test_white_space_and_control_characters_leave_one_line_per_document(tmp_path):
    text = "\ufeffA\x00b\u2028c\x0bd\x0ce\x85f\u00a0g\u3000h\t i \U0001f469\u200d\U0001f4bb \u0627\u0644 e\u0301"
    (tmp_path / "a.txt").write_bytes(text.encode())
    run(tmp_path / "out", "--input", tmp_path / "a.txt")
    assert documents(tmp_path / "out")["a"] == "Ab c d e f g h i \U0001f469\u200d\U0001f4bb \u0627\u0644 e\u0301"
    block, = plan_blocks(list_sources([tmp_path / "out"]), 1 << 20)
    assert [text.rstrip("\n") for text in read_documents(block, Counter())] == [documents(tmp_path / "out")["a"]]


def test_folders_are_read_in_order_and_strange_names_do_no_harm(tmp_path):
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    for name in ("b.txt", "a; rm -rf x.txt", "$(touch y).txt", "sub/c d.txt.gz", ".hidden.txt", "picture.png"):
        data = f"Text of {name}".encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    report = run(tmp_path / "out", "--input", folder)
    assert list(documents(tmp_path / "out")) == ["$(touch_y)", "a;_rm_-rf_x", "b", "sub/c_d"]
    assert report["counts"]["files of other kinds left out"] == 2


@pytest.mark.parametrize(("arguments", "message"), [
    (["--input", "nowhere"], "no such file or folder"), (["--input", "empty"], "no file to read"),
    (["--input", "x.bin"], "name it with --format"),
    (["--input", "a.txt", "--lang", "../.."], "must be a language code"),
    (["--input", "a.txt", "--held-out-fraction", "1"], "held_out_fraction=1.0"),
    (["--input", "a.txt", "--encoding", "klingon"], "not known to Python"),
    (["--input", "blank.txt"], "gave no document"),
    (["--input", "a.txt", "--held-out-fraction", "0.000001"], "gave no document for held_out"),
    (["--input", "a.txt", "--deduplicate", "near", "--near-threshold", "0.1"], "near_threshold=0.1"),
    (["--input", "a.txt", "--format", "parquet"], "is damaged"),
])  # fmt: skip
def test_errors_name_the_value_and_the_remedy(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("Some text.")
    (tmp_path / "blank.txt").write_text(" \n\n")
    (tmp_path / "x.bin").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match=message):
        run(tmp_path / "out", *arguments)
    assert not list((tmp_path / "out").rglob("0.txt")) or not (tmp_path / "out/source").exists()


def test_other_text_is_not_overwritten(tmp_path):
    (tmp_path / "a.txt").write_text("Some text.")
    run(tmp_path / "out", "--input", tmp_path / "a.txt")
    with pytest.raises(SystemExit, match="holds other text already"):
        run(tmp_path / "out", "--input", tmp_path / "a.txt")


def sentence(rng: random.Random, length: int = 60) -> str:
    return " ".join(f"w{rng.randrange(5000)}" for _ in range(length)) + "."


def test_duplicates_are_dropped_on_request_and_named(tmp_path):
    rng = random.Random(1)
    base = [sentence(rng) for _ in range(50)]
    near = [text.replace(text.split()[30], "changed", 1) for text in base[:20]]  # 5 of 56 sequences differ
    far = [" ".join(text.split()[:30]) + " " + sentence(rng, 30) for text in base[20:30]]
    (tmp_path / "a.txt").write_text("\n".join([*base, *base[:7], *near, *far, "One.", "Two.", "One."]))
    keep = ("--input", tmp_path / "a.txt", "--document-separator", "line")
    assert run(tmp_path / "all", *keep)["counts"]["documents"] == 90
    exact = run(tmp_path / "exact", *keep, "--deduplicate", "exact")
    assert exact["counts"]["dropped: exact duplicate"] == 8 and exact["counts"]["documents"] == 82
    assert exact["duplicates"][0] == "a:51 = a:1 (exact)"
    report = run(tmp_path / "near", *keep, "--deduplicate", "near", "--near-threshold", "0.75")
    assert report["counts"]["dropped: exact duplicate"] == 8 and report["counts"]["dropped: near duplicate"] == 20
    assert set(documents(tmp_path / "near").values()) == {*base, *far, "One.", "Two."}
    again = run(tmp_path / "again", *keep, "--deduplicate", "near", "--near-threshold", "0.75")
    assert again == report and documents(tmp_path / "again") == documents(tmp_path / "near")


@pytest.mark.parametrize("mode", ["near"])
def test_chinese_text_has_near_duplicates_too(tmp_path, mode):
    rng = random.Random(2)
    text = "".join(chr(rng.randrange(0x4e00, 0x9000)) for _ in range(300))
    (tmp_path / "a.txt").write_text(f"{text}\n{text[:150]}\u4e00{text[150:]}\n{text[::-1]}\n")
    report = run(tmp_path / "out", "--input", tmp_path / "a.txt", "--document-separator", "line", "--deduplicate", mode,
                 "--lang", "zh")
    assert report["counts"]["dropped: near duplicate"] == 1 and list(documents(tmp_path / "out")) == ["a:1", "a:3"]


def test_the_estimated_similarity_is_right(tmp_path):
    rng = random.Random(3)
    seen = SeenDocuments(tmp_path / "seen", "near", 0.8)
    found = {}
    for share in (0.5, 0.7, 0.9, 0.95):
        count = 0
        for number in range(40):
            words = [str(rng.random()) for _ in range(404)]
            common = round(2 * share / (1 + share) * 400)
            for variant in (words, words[:common + 4] + [str(rng.random()) for _ in range(400 - common)]):
                digest = TextDigest(True)
                digest.add(" ".join(variant).replace(".", "").encode())
                count += seen.earlier(f"{share} {number}", digest) is not None
        found[share] = count
    seen.close()
    assert found[0.5] == 0 and found[0.7] <= 3 and found[0.9] >= 39 and found[0.95] == 40, found
    assert not (tmp_path / "seen").exists()


def test_the_held_out_part_is_chosen_by_the_text(tmp_path):
    rng = random.Random(4)
    texts = [sentence(rng, 10) for _ in range(400)]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    (tmp_path / "b.txt").write_text("\n".join(reversed(texts + texts[:50])))
    parts = {}
    for name in ("a", "b"):
        run(tmp_path / name, "--input", tmp_path / f"{name}.txt", "--document-separator", "line",
            "--held-out-fraction", "0.1")
        parts[name] = {part: set(documents(tmp_path / name / part).values()) for part in ("train", "held_out")}
    assert parts["a"] == parts["b"] and 20 <= len(parts["a"]["held_out"]) <= 60
    assert parts["a"]["train"] | parts["a"]["held_out"] == set(texts)
    assert parts["a"]["train"].isdisjoint(parts["a"]["held_out"])
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"train", "held_out", "report.json"}


def test_a_run_killed_while_it_publishes_is_finished_by_the_next(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("\n".join(f"Text {number}." for number in range(50)))
    command = ("--input", tmp_path / "a.txt", "--document-separator", "line", "--held-out-fraction", "0.3")
    whole = run(tmp_path / "whole", *command)
    publish = import_text.publish

    def once(prepared, final):
        publish(prepared, final)
        raise KeyboardInterrupt
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(import_text, "publish", once)
        run(tmp_path / "cut", *command)
    assert run(tmp_path / "cut", *command) == whole
    assert documents(tmp_path / "cut") == documents(tmp_path / "whole")


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 40))])
def test_a_killed_import_leaves_no_text_and_the_next_is_whole(tmp_path, number):
    rng = random.Random(number)
    (tmp_path / "a.txt").write_text("\n".join(sentence(rng, 20) for _ in range(20_000)))
    command = ["--input", str(tmp_path / "a.txt"), "--document-separator", "line"]
    process = subprocess.Popen([sys.executable, "-m", "data.import_text", *command, "--output-dir", tmp_path / "cut"],
                               cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "cut").exists():
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.5))
    process.send_signal(signal.SIGKILL)
    process.wait()
    if not (tmp_path / "cut/report.json").exists():
        run(tmp_path / "cut", *command)
    run(tmp_path / "whole", *command)
    assert documents(tmp_path / "cut") == documents(tmp_path / "whole")


@pytest.mark.parametrize(("kind", "flags", "limit"), [
    ("txt", ["--document-separator", "line"], 60_000), ("txt", ["--deduplicate", "near"], 60_000),
    ("gz", ["--document-separator", "blank-line", "--deduplicate", "exact"], 60_000), ("zst", [], 60_000),
    ("jsonl", [], 600_000),
])  # fmt: skip
def test_a_line_of_100_megabytes_does_not_need_its_size_in_memory(tmp_path, kind, flags, limit):
    """Limits in KiB above a run on a small file; a line of JSON has to be held as a whole."""
    peaks = {}
    for name, size in (("small", 1000), ("large", 100_000_000)):
        text = b"The old river runs to the sea over stones. " * (size // 43)
        data = b'{"text": "' + text + b'"}\n' if kind == "jsonl" else text
        path = tmp_path / (f"{name}.{kind}" if kind in ("txt", "jsonl") else f"{name}.txt.{kind}")
        path.write_bytes(PACK[f".{kind}"](data) if f".{kind}" in PACK else data)
        peaks[name] = _peak("--input", path, "--output-dir", tmp_path / f"out-{name}", *flags)
        path.unlink()
    assert (tmp_path / "out-large/source/en/0.txt").stat().st_size > 99_000_000
    assert peaks["large"] < peaks["small"] + limit, peaks


def _peak(*arguments) -> int:
    """Peak resident memory of an import in its own process, KiB."""
    code = ("import sys; from data import import_text; import_text.main(sys.argv[1:])\n"
            "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])")  # ru_maxrss has the parent's
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], cwd=REPOSITORY, check=True, text=True,
                          capture_output=True)
    return int(done.stdout.split()[-1])


def test_memory_does_not_grow_with_the_number_of_documents(tmp_path):
    rng, peaks = random.Random(5), []
    for count in (500, 10_000):
        path = tmp_path / f"{count}.txt"
        path.write_text("\n".join(sentence(rng, 30) for _ in range(count)))
        peaks.append(_peak("--input", path, "--output-dir", tmp_path / f"out{count}", "--document-separator", "line",
                           "--deduplicate", "near"))
    assert peaks[1] < peaks[0] + 80_000, peaks  # SQLite's cache of 64 MiB at most


def test_a_bomb_is_read_in_pieces(tmp_path):
    """A gigabyte of blanks in 30 kB."""
    path = tmp_path / "bomb.txt.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b" " * 500_000_000) * 2 + PACK[".zst"](b"The end."))
    assert path.stat().st_size < 100_000
    assert _peak("--input", path, "--output-dir", tmp_path / "out", "--document-separator", "line") < 400_000
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


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["file", "line", "blank-line"]), st.booleans())
def test_any_bytes_are_imported_or_refused_in_words(data, separator, near):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.txt").write_bytes(data)
        command = ["--input", folder / "a.txt", "--document-separator", separator]
        try:
            run(folder / "out", *command, *(["--deduplicate", "near"] if near else []))
        except SystemExit as error:
            assert str(error).startswith("error: 1 files gave no document")
            return
        assert all(text == " ".join(text.split()) != "" for text in documents(folder / "out").values())
        assert os.listdir(folder / "out/source/en") == ["0.txt"]
