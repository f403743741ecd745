import bz2
import hashlib
import json
import os
import random
from pathlib import Path

import pytest

from data import download_wikipedia
from data.fetching.transfer import DownloadError
from data.text.lddl_reader import list_sources
from data.wikipedia import articles as wikipedia_text
from data.wikipedia.articles import Extraction, extract
from data.wikipedia.dump import DumpError, Span, SpanReader, parse_page, plan_spans
from tests.support.commands import refused
from tests.support.dumps import article, header, page, pages, streams, write_dump
from tests.support.faulty_server import Served, serving
from tests.support.peak_memory import peak_of


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    return write_dump(tmp_path_factory.mktemp("dump") / "testwiki.xml.bz2", pages(100))


def job(dump: Path, output: Path, **settings) -> Extraction:
    return Extraction(dump, output, **{"span_bytes": 900, "max_file_bytes": 4000, **settings})


def texts(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*.txt")}


def lines(output: Path) -> list[str]:
    files = sorted((output / "source").rglob("*.txt"), key=lambda path: int(path.stem))
    return [line for path in files for line in path.read_text().splitlines()]


def test_articles_become_lines_and_everything_else_is_counted(dump, tmp_path):
    report = extract(job(dump, tmp_path), 1)
    found = lines(tmp_path)
    assert [line.split()[0] for line in found] == [f"wiki-{n}" for n in range(1, 101) if n % 10 not in (3, 5, 7, 9)]
    sentences = [f"The river of town number 1 runs to the sea {place}." for place in range(6)]
    assert found[0] == " ".join(["wiki-1", *sentences, "It was built in 1001 & is old."])
    assert report["counts"] == {
        "articles": 60,
        "characters": sum(len(line.partition(" ")[2]) for line in found),
        "pages": 100,
        "characters of markup": sum(len(article(n)) for n in range(1, 101) if n % 10 not in (3, 5, 7, 9))
        + 10 * len("{{only a template}}\n* a list"),
        "dropped: no sentences": 10,
        "dropped: not wikitext": 10,
        "dropped: other namespace": 10,
        "dropped: redirect": 10,
    }
    assert report["documents"] == 60 and len(report["files"]) > 3
    assert all(facts["bytes"] < 4000 + 500 for facts in report["files"].values())
    assert {path.name for path in tmp_path.iterdir()} == {"source", "report.json"}
    assert sum(source.num_bytes for source in list_sources([tmp_path])) == report["bytes"]


def ids(dump: Path, span_bytes: int) -> list[int]:
    return [parse_page(xml).id for span in plan_spans(dump, span_bytes) for xml in SpanReader(dump, span).pages()]


@pytest.mark.parametrize("span_bytes", [7, 100, 901, 5000, 1 << 20])
def test_every_page_is_in_exactly_one_span(dump, span_bytes):
    assert ids(dump, span_bytes) == list(range(1, 101))


@pytest.mark.parametrize("span_bytes", [7, 50, 333, 1 << 20])
@pytest.mark.parametrize("stream_bytes", [5, 37, 5000])
def test_pages_may_lie_across_streams_as_parallel_compressors_leave_them(tmp_path, span_bytes, stream_bytes):
    xml = (header() + "".join(page(number, f"Text {number}.") for number in range(1, 8)) + "</mediawiki>").encode()
    path = tmp_path / "x.xml.bz2"
    path.write_bytes(
        b"".join(bz2.compress(xml[start : start + stream_bytes]) for start in range(0, len(xml), stream_bytes))
    )
    assert ids(path, span_bytes) == list(range(1, 8))


@pytest.mark.parametrize("span_bytes", [1, 3, 64, 1000, 1 << 20])
def test_plain_xml_and_a_single_stream_give_the_same_pages(tmp_path, span_bytes):
    plain = write_dump(tmp_path / "x.xml", pages(10))
    single = tmp_path / "single.xml.bz2"
    single.write_bytes(bz2.compress(plain.read_bytes()))
    assert ids(plain, span_bytes) == ids(single, span_bytes) == list(range(1, 11))


def test_text_does_not_depend_on_the_number_of_workers(dump, tmp_path):
    for workers in (1, 2, 3):
        extract(job(dump, tmp_path / str(workers)), workers)
    reports = [(tmp_path / str(workers) / "report.json").read_bytes() for workers in (1, 2, 3)]
    assert texts(tmp_path / "1") == texts(tmp_path / "2") == texts(tmp_path / "3") and len(set(reports)) == 1


def test_a_finished_extraction_is_not_repeated_and_other_text_not_touched(dump, tmp_path, monkeypatch):
    first = extract(job(dump, tmp_path), 1)
    monkeypatch.setattr(wikipedia_text, "extract_span", None)
    assert extract(job(dump, tmp_path), 1) == first
    with pytest.raises(ValueError, match="contains other text already"):
        extract(job(dump, tmp_path, min_characters=5), 1)


@pytest.mark.parametrize("place", range(14))
def test_an_extraction_stopped_anywhere_ends_in_the_same_files(dump, tmp_path, monkeypatch, place):
    """The extraction is stopped at each n-th call that changes something on the disk."""
    extract(job(dump, tmp_path / "whole"), 1)
    calls = 0

    def stopping(function):
        def called(*arguments, **named):
            nonlocal calls
            calls += 1
            if calls == 1 + place * 2:
                raise KeyboardInterrupt
            return function(*arguments, **named)

        return called

    with monkeypatch.context() as context:
        for module, name in (
            (wikipedia_text, "write_atomically"),
            (wikipedia_text, "publish"),
            (wikipedia_text, "fresh_folder"),
            (wikipedia_text.shutil, "rmtree"),
            (os, "link"),
        ):
            context.setattr(module, name, stopping(getattr(module, name)))
        with pytest.raises(KeyboardInterrupt):
            extract(job(dump, tmp_path / "cut"), 1)
            raise KeyboardInterrupt
    extract(job(dump, tmp_path / "cut"), 1)
    assert texts(tmp_path / "cut") == texts(tmp_path / "whole")
    assert (tmp_path / "cut/report.json").read_bytes() == (tmp_path / "whole/report.json").read_bytes()


def test_an_empty_dump_is_an_error(tmp_path):
    for name, data, message in (
        ("a.xml.bz2", b"", "is empty"),
        ("b.xml", b"", "is empty"),
        ("c.xml.bz2", bz2.compress(b""), "no <mediawiki>"),
        ("d.xml.bz2", bz2.compress(header().encode() + b"</mediawiki>"), "holds no page"),
        ("e.xml.bz2", b"<html>not found", "no <mediawiki>"),
        ("f.xml.bz2", bz2.compress(b"some text"), "no <mediawiki>"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DumpError, match=message):
            extract(job(tmp_path / name, tmp_path / "out"), 1)
        assert not list((tmp_path / "out").rglob("*.txt"))


def test_a_dump_without_articles_is_an_error(tmp_path):
    write_dump(tmp_path / "x.xml.bz2", [page(1, "#REDIRECT [[x]]", redirect=True), page(2, article(2), namespace=10)])
    with pytest.raises(DumpError, match="none of its 2 pages is an article"):
        extract(job(tmp_path / "x.xml.bz2", tmp_path / "out"), 1)


@pytest.mark.parametrize("kind", ["multistream", "single", "xml"])
def test_a_dump_cut_off_anywhere_is_an_error_that_says_where(tmp_path, kind):
    parts = pages(24)
    if kind == "xml":
        data = write_dump(tmp_path / "x.xml", parts).read_bytes()
    elif kind == "single":
        data = bz2.compress((header() + "".join(parts) + "</mediawiki>\n").encode())
    else:
        data = b"".join(streams(parts))
    path = tmp_path / ("x.xml" if kind == "xml" else "x.xml.bz2")
    rng = random.Random(1)
    for cut in [rng.randrange(1, len(data) - 3) for _ in range(40)]:
        path.write_bytes(data[:cut])
        with pytest.raises(DumpError) as error:
            extract(job(path, tmp_path / "out", span_bytes=700), 1)
        assert "byte" in str(error.value) or "no page" in str(error.value) or "mediawiki" in str(error.value)
        assert not (tmp_path / "out/source").exists()


def test_a_flipped_bit_is_never_read_as_text(tmp_path):
    path, rng = tmp_path / "x.xml.bz2", random.Random(2)
    data = b"".join(streams(pages(24)))
    path.write_bytes(data)
    extract(job(path, tmp_path / "whole"), 1)
    silent = 0
    for number in range(60):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            extract(job(path, tmp_path / str(number)), 1)
        except DumpError:
            continue
        # a header that announces larger blocks than there are is harmless
        silent += texts(tmp_path / str(number)) != texts(tmp_path / "whole")
    assert silent == 0


def test_bytes_after_the_streams_are_an_error(tmp_path):
    path = tmp_path / "x.xml.bz2"
    path.write_bytes(b"".join(streams(pages(12))) + b"garbage after it")
    with pytest.raises(DumpError, match="are not a bzip2 stream"):
        extract(job(path, tmp_path / "out"), 1)


ENTITIES = (
    "<!DOCTYPE x ["
    + '<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
    + "]>"
)


def test_entities_that_expand_without_end_are_refused_unread(tmp_path):
    path = tmp_path / "x.xml"
    path.write_text(header(ENTITIES) + page(1, "x").replace(">x<", ">&j;<") + "</mediawiki>")
    with pytest.raises(DumpError, match="declares a document type"):
        extract(job(path, tmp_path / "out"), 1)


@pytest.mark.parametrize(
    "hostile",
    [
        page(2, "x").replace(">x<", ">&j;<"),
        page(2, "x").replace("<title>", ENTITIES + "<title>"),
        page(2, "x").replace(">x<", '><!ENTITY a SYSTEM "file:///etc/passwd">&a;<'),
        page(2, "x").replace(">x<", ">\x01<"),
        page(2, "x").replace("<id>2</id>", "<id>two</id>"),
        page(2, "x").replace("</revision>", ""),
    ],
)
def test_a_page_that_is_not_well_formed_is_counted_and_the_next_is_read(tmp_path, hostile):
    path = tmp_path / "x.xml"
    path.write_text(header() + page(1, article(1)) + hostile + page(3, article(3)) + "</mediawiki>")
    report = extract(job(path, tmp_path / "out", span_bytes=1 << 20), 1)
    assert report["counts"]["dropped: not well-formed XML"] == 1
    assert [line.split()[0] for line in lines(tmp_path / "out")] == ["wiki-1", "wiki-3"]


def test_a_page_longer_than_memory_is_skipped_and_counted(tmp_path):
    path = write_dump(tmp_path / "x.xml.bz2", [page(1, article(1)), page(2, "word " * 10_000), page(3, article(3))], 1)
    for limit in (2_000, 20_000, 50_000):
        reader = SpanReader(path, Span(0, 0, path.stat().st_size), limit)
        assert [xml and parse_page(xml).id for xml in reader.pages()] == [1, None, 3]


@pytest.mark.long
def test_memory_does_not_grow_with_the_dump(tmp_path):
    """Ten times the dump needs the same memory; so does a bomb of 400 MB in a few hundred bytes."""
    peaks = {}
    for name, parts in (
        ("small", [page(n, article(n, 200)) for n in range(40)]),
        ("large", [page(n, article(n, 200)) for n in range(400)]),
    ):
        peaks[name] = _peak(write_dump(tmp_path / f"{name}.xml.bz2", parts, 20), tmp_path / name)
    bomb = tmp_path / "bomb.xml.bz2"
    bomb.write_bytes(
        bz2.compress((header() + page(1, article(1)) + "<page>").encode())
        + bz2.compress(b"x" * 100_000_000) * 4
        + bz2.compress(b"</page></mediawiki>")
    )
    peaks["bomb"] = _peak(bomb, tmp_path / "bomb")
    assert peaks["large"] < peaks["small"] + 20_000 and peaks["bomb"] < peaks["small"] + 80_000, peaks


def _peak(dump: Path, output: Path) -> int:
    """Return the peak memory, in KiB, of an extraction in its own process."""
    code = "from pathlib import Path; from data.wikipedia.articles import Extraction, extract\n"
    return peak_of(f"{code}extract(Extraction(Path(sys.argv[1]), Path(sys.argv[2])), 1)", dump, output)


class Site:
    """Serves as a mirror with one dump and its list of checksums."""

    def __init__(self, data: bytes, digest: str | None = None, date: str = "20240101") -> None:
        self.name = f"enwiki-{date}-pages-articles-multistream.xml.bz2"
        digest = digest or hashlib.sha1(data).hexdigest()
        self.dump = Served(data, drops=[len(data) // 3])
        sums = Served(f"{'0' * 40}  other.bz2\n{digest}  {self.name}\n".encode())
        self.files = {f"/enwiki/{date}/{self.name}": self.dump, f"/enwiki/{date}/enwiki-{date}-sha1sums.txt": sums}


def test_a_dump_is_downloaded_verified_and_extracted(tmp_path, dump, capsys):
    site = Site(dump.read_bytes())
    with serving(site.files) as url:
        command = ["--outdir", str(tmp_path), "--dump-date", "20240101", "--mirror", url, "--local-n-workers", "1"]
        download_wikipedia.main(command)
        assert len(site.dump.requests) == 2
        download_wikipedia.main(command)
    assert len(site.dump.requests) == 2  # nothing is fetched again
    assert "60 articles" in capsys.readouterr().out
    assert (tmp_path / "download" / site.name).read_bytes() == dump.read_bytes()
    assert len(lines(tmp_path)) == 60 and json.loads((tmp_path / "report.json").read_text())["documents"] == 60


def test_a_dump_with_another_checksum_than_published_is_refused(tmp_path, dump):
    with (
        serving(Site(dump.read_bytes(), "1" * 40).files) as url,
        pytest.raises(DownloadError, match="not the one whose checksum is sha1:1111"),
    ):
        download_wikipedia.download_dump("en", "20240101", tmp_path, mirrors=[url])
    assert not list(tmp_path.glob("enwiki*"))


def test_a_dump_without_a_published_checksum_is_refused(tmp_path, dump):
    with serving(Site(dump.read_bytes()).files) as url, refused("cannot be verified"):
        download_wikipedia.main(["--outdir", str(tmp_path), "--mirror", url, "--dump-date", "20230101"])


def test_a_finished_text_of_an_older_extraction_is_kept(dump, tmp_path, monkeypatch):
    monkeypatch.setattr(wikipedia_text, "_VERSION", 1)
    made = extract(job(dump, tmp_path), 1)
    monkeypatch.undo()
    assert extract(job(dump, tmp_path), 1) == made and made["settings"]["extraction"] == 1
