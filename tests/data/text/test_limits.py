"""Small files that become very large are left out and named; logs that repeat themselves are read."""

import bz2
import gzip
import lzma
import shutil
from collections import namedtuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from data.text import size_limits
from data.text.importing import ImportSettings, import_files
from data.text.lddl_writer import check_room
from data.text.readers import Reading
from data.text.survey import survey
from tests.data.text.test_office import zipped

LINE = b"All work and no play makes Jack a dull boy.\n"
MANIFEST = "<item id='a' href='a.html' media-type='text/html'/>"
ITEM = "<itemref idref='a'/>"
COMPRESSED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}


def dictionary(path):
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["y" * 10**5]))
    pq.write_table(pa.table({"text": words}), path, compression="zstd")


def few_rows(path):
    pq.write_table(pa.table({"text": ["z" * 3_000_000] * 3}), path, compression="zstd")


def compressed(kind):
    return lambda path: path.write_bytes(COMPRESSED[kind](LINE * 100_000))


BOMBS = {"a.parquet": dictionary, "b.parquet": few_rows}
BOMBS |= {f"c.txt.{kind}": compressed(kind) for kind in COMPRESSED}
BOMBS |= {"d.docx": lambda path: path.write_bytes(zipped({"word/document.xml": "<w:p/>" * 500_000}))}


@pytest.fixture(autouse=True)
def least(monkeypatch):
    monkeypatch.setattr(size_limits, "_LEAST_BYTES", 1 << 20)


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_becomes_very_much_is_named_and_the_folder_goes_on(tmp_path, monkeypatch, name):
    monkeypatch.setattr(size_limits, "_MOST_RATIO", 20)
    (tmp_path / "in").mkdir()
    BOMBS[name](tmp_path / "in" / name)
    (tmp_path / "in" / "good.txt").write_text("A good text.")
    report = import_files([tmp_path / "in"], tmp_path / "out", ImportSettings())
    (line,) = report["left out"]
    assert line.startswith(f"{tmp_path}/in/{name}: ") and "20 times its size" in line
    assert report["counts"]["files that become too much left out"] == 1 == report["counts"]["files read"]
    assert report["counts"]["bytes of text"] < 2 << 20


def test_an_e_book_whose_list_repeats_a_chapter_has_it_once(tmp_path):
    package = f"<p><manifest>{MANIFEST}</manifest><spine>{ITEM * 50_000}</spine></p>"
    container = "<c><rootfile full-path='p.opf'/></c>"
    book = {"META-INF/container.xml": container, "p.opf": package, "a.html": "<p>One chapter.</p>" * 1000}
    (tmp_path / "a.epub").write_bytes(zipped(book))
    assert 10_000 < survey([tmp_path], Reading()).text_bytes < 20_000


@pytest.mark.parametrize("kind", COMPRESSED)
def test_logs_that_repeat_themselves_are_read(tmp_path, kind):
    lines = (f"2026-11-26T{n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d}Z WARN the same again" for n in range(40_000))
    log = "\n".join(lines).encode()
    data = COMPRESSED[kind](log)
    (tmp_path / f"a.log.{kind}").write_bytes(data)
    assert len(log) > 8 * len(data)
    assert survey([tmp_path], Reading()).text_bytes == len(log)


def test_an_import_leaves_room_on_the_disk(tmp_path, monkeypatch):
    disk = namedtuple("disk", "total free")(100 << 30, 5 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: disk)
    check_room(tmp_path, 3 << 30)
    with pytest.raises(OSError, match="5.4 GB of the disk are free, and 4.8 GB are to be written"):
        check_room(tmp_path, int(4.5 * 2**30))
    (tmp_path / "a.txt").write_text("A text.")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: disk._replace(free=1000))
    with pytest.raises(OSError, match="1.0 kB of the disk are free, and 7 bytes are to be written"):
        import_files([tmp_path / "a.txt"], tmp_path / "out", ImportSettings())
    assert not [*(tmp_path / "out").iterdir()]


def test_a_blank_line_after_a_first_line_of_text_hides_no_missing_header(tmp_path):
    """Fuzzing found such a file: it ended the import."""
    (tmp_path / "a.csv").write_text(f"{'a long text ' * 9};x\n\n{'another text ' * 9};y\n")
    with pytest.raises(ValueError, match="has no names of columns in its first line, which is a row"):
        survey([tmp_path / "a.csv"], Reading())
