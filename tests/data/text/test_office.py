import io
import time
import zipfile
from importlib.util import find_spec

import pytest

from data.text import contents, file_formats
from data.text.compression import DamagedError
from data.text.findings import Findings
from data.text.inputs import list_inputs
from data.text.readers import Reading, read_pieces
from data.text.survey import survey
from data.text.text_check import NotTextError
from tests.support.hospital import WORD, docx, epub, odt, pdf, rtf, zipped

needs_office = pytest.mark.skipif(
    any(find_spec(package) is None for package in ("pypdf", "striprtf", "openpyxl")),
    reason="bash scripts/setup.sh office",
)


def read(path, findings=None, **reading) -> list[str]:
    """Return the documents of a file, with single spaces."""
    documents, pieces = [], []
    (source,) = list_inputs([path], "auto", findings or Findings())
    for piece in read_pieces(source, Reading(**reading), findings or Findings()):
        pieces.append(piece.text)
        if piece.ends:
            documents.append(" ".join("".join(pieces).split()))
            pieces = []
    return documents


FORM = (
    "<w:sdt><w:sdtContent><w:p><w:r><w:t>In a form</w:t><w:tab/><w:t>field.</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    "<w:p><w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>"
    "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Cell</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>two.</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
)
NOTE = (
    "<text:p>With<text:s/>a<text:note><text:note-citation>7</text:note-citation><text:note-body><text:p> note </text:p>"
    "</text:note-body></text:note>.</text:p>"
)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.docx", docx("One &amp; two.", "Three.", body=FORM), "One & two. Three. In a form field. Cell two."),
        ("a.odt", odt("One.", body=NOTE), "One. With a note ."),
        ("a.epub", epub("First chapter.", "Second &eacute;."), "First chapter. Second \u00e9."),
        pytest.param("a.rtf", rtf("Caf\u00e9 one.", "Two."), "Caf\u00e9 one. Two.", marks=needs_office),
        pytest.param("a.pdf", pdf("Page one.", "Page two."), "Page one. Page two.", marks=needs_office),
    ],
)
def test_the_text_of_office_files_is_read(tmp_path, name, data, text):
    (tmp_path / name).write_bytes(data)
    assert read(tmp_path / name) == [text]


STYLES = f'''<w:styles xmlns:w="{WORD}"><w:style w:styleId="Secret"><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:styleId="Child"><w:basedOn w:val="Secret"/></w:style>
<w:style w:styleId="Shown"><w:basedOn w:val="Secret"/><w:rPr><w:vanish w:val="0"/></w:rPr></w:style></w:styles>'''


def word_run(text: str, formatting: str = "") -> str:
    return f"<w:r><w:rPr>{formatting}</w:rPr><w:t>{text}</w:t></w:r>"


def test_readings_above_a_word_are_no_part_of_it(tmp_path):
    """Ruby, here and in HTML, shows how a Chinese or Japanese word is read."""
    ruby = "<w:ruby><w:rt>" + word_run("kan") + "</w:rt><w:rubyBase>" + word_run("漢") + "</w:rubyBase></w:ruby>"
    body = f"<w:body><w:p><w:r>{ruby}</w:r>" + word_run("字") + "</w:p></w:body>"
    document = f'<w:document xmlns:w="{WORD}">{body}</w:document>'
    (tmp_path / "a.docx").write_bytes(zipped({"word/document.xml": document}))
    open_document = (
        '<o xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><text:p><text:ruby><text:ruby-base>漢'
        "</text:ruby-base><text:ruby-text>kan</text:ruby-text></text:ruby>字</text:p></o>"
    )
    (tmp_path / "b.odt").write_bytes(zipped({"content.xml": open_document}))
    assert [read(tmp_path / name) for name in ("a.docx", "b.odt")] == [["漢字"], ["漢字"]]


@pytest.mark.parametrize(
    ("body", "text", "hidden"),
    [
        (word_run("A ") + word_run("secret ", "<w:vanish/>") + word_run("b."), "A b.", 1),
        (word_run("A ") + word_run("shown ", '<w:vanish w:val="false"/>') + word_run("b."), "A shown b.", 0),
        (word_run("A ") + word_run("secret ", '<w:rStyle w:val="Child"/>') + word_run("b."), "A b.", 1),
        (word_run("A ") + word_run("x ", '<w:rStyle w:val="Shown"/>') + word_run("b."), "A x b.", 0),
        (
            '<w:pPr><w:pStyle w:val="Secret"/></w:pPr>' + word_run("gone") + word_run("on", '<w:vanish w:val="0"/>'),
            "on",
            1,
        ),
        (
            "<w:pPr><w:rPr><w:vanish/></w:rPr></w:pPr>" + word_run("The mark alone is hidden."),
            "The mark alone is hidden.",
            0,
        ),
        (
            "<w:r><w:rPr><w:vanish/></w:rPr><w:pict><w:p>"
            + word_run("in a box")
            + "</w:p></w:pict></w:r>"
            + word_run("b."),
            "b.",
            1,
        ),
    ],
)
def test_hidden_text_of_word_is_left_out_and_counted(tmp_path, body, text, hidden):
    document = f'<w:document xmlns:w="{WORD}"><w:body><w:p>{body}</w:p></w:body></w:document>'
    (tmp_path / "a.docx").write_bytes(zipped({"word/document.xml": document, "word/styles.xml": STYLES}))
    assert read(tmp_path / "a.docx", findings := Findings()) == [text]
    assert findings.counts["hidden passages, not read"] == hidden


def test_deleted_and_hidden_text_of_opendocument_is_left_out_and_counted(tmp_path):
    def style(name: str, kind: str) -> str:
        return f'<style:style style:name="{name}"><style:{kind}-properties text:display="none"/></style:style>'

    names = "xmlns:office='o' xmlns:text='t' xmlns:style='s'"
    content = (
        f"<office:document-content {names}><office:automatic-styles>{style('T1', 'text')}{style('S1', 'section')}"
        "</office:automatic-styles><office:body><text:tracked-changes><text:changed-region><text:deletion><text:p>gone"
        "</text:p></text:deletion></text:changed-region></text:tracked-changes><text:p>One "
        '<text:span text:style-name="T1">secret <text:span>too </text:span></text:span>two.</text:p>'
        '<text:section text:style-name="S1"><text:p>hidden</text:p></text:section>'
        '<text:p><text:hidden-paragraph text:is-hidden="true">h</text:hidden-paragraph>Three.</text:p>'
        "</office:body></office:document-content>"
    )
    (tmp_path / "a.odt").write_bytes(zipped({"content.xml": content}))
    assert read(tmp_path / "a.odt", findings := Findings()) == ["One two. Three."]
    assert findings.counts["hidden passages, not read"] == 3 and findings.counts["deleted passages, not read"] == 1


@needs_office
@pytest.mark.parametrize(
    ("body", "text", "hidden", "deleted"),
    [
        (r"A {\deleted gone \'e9 \u233?}b.", "A b.", 0, 1),
        (r"A {\v secret {\b bold }\v0 shown }b.", "A shown b.", 1, 0),
        (r"A \v secret\par more\v0 b \v\deleted x\plain y\deleted0 z.", "A b z.", 1, 1),
        (r"{\stylesheet{\s1\v Secret;}}A \viewkind4 b.", "A b.", 0, 0),
        (
            r"A{\footnote \pard A {\i long} note.} b.\par C{\*\footnote Two{\v  h}.} d.",
            "A b. C d. A long note. Two.",
            1,
            0,
        ),
        (r"A b.{\header head}{\*\annotation note}", "A b.", 0, 0),
    ],
)
def test_deleted_and_hidden_text_of_rtf_is_left_out_and_footnotes_are_read(tmp_path, body, text, hidden, deleted):
    (tmp_path / "a.rtf").write_bytes(rtf(body))
    assert read(tmp_path / "a.rtf", findings := Findings()) == [text]
    assert findings.counts["hidden passages, not read"] == hidden
    assert findings.counts["deleted passages, not read"] == deleted


def test_footnotes_of_word_are_read_and_comments_and_deletions_are_not(tmp_path):
    def part(name: str, text: str) -> str:
        return f'<w:{name} xmlns:w="{WORD}"><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:{name}>'

    body = "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>" + word_run("One.") + "</w:p>"
    members = {"word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'}
    members |= {"word/footnotes.xml": part("footnotes", "A long note."), "word/endnotes.xml": part("endnotes", "End.")}
    members |= {"word/comments.xml": part("comments", "c"), "word/header1.xml": part("hdr", "head")}
    (tmp_path / "a.docx").write_bytes(zipped(members))
    assert read(tmp_path / "a.docx", findings := Findings()) == ["One. A long note. End."]
    assert findings.counts["deleted passages, not read"] == 1


def test_a_chapter_declares_its_encoding_and_a_page_that_lists_chapters_is_left_out(tmp_path):
    book = epub("One.", "X")
    content = '<?xml version="1.0" encoding="iso-8859-1"?><html><body><p>Caf\u00e9 <u>t</u>wo.</p>'.encode("latin-1")
    (tmp_path / "a.epub").write_bytes(book)
    data = replaced(tmp_path / "a.epub", "OEBPS/text/c1.xhtml", content)
    (tmp_path / "a.epub").write_bytes(data)
    assert read(tmp_path / "a.epub") == ["One. Caf\u00e9 two."]
    with zipfile.ZipFile(tmp_path / "a.epub") as archive:
        package = archive.read("OEBPS/book.opf").replace(b'id="c2"', b'id="c2" properties="nav scripted"')
    (tmp_path / "a.epub").write_bytes(replaced(tmp_path / "a.epub", "OEBPS/book.opf", package))
    assert read(tmp_path / "a.epub") == ["Caf\u00e9 two."]


@needs_office
def test_hidden_sheets_rows_and_columns_are_left_out_and_counted(tmp_path):
    from openpyxl import load_workbook

    rows = [
        ["note", "secret"],
        *([f"A visible text that is long enough, of number {n}.", "S" * 99 + " s s s"] for n in range(5)),
    ]
    workbook(tmp_path / "a.xlsx", plain=rows, hidden=[["note"], ["Nobody reads this."]], more=[["note"], ["Last."]])
    book = load_workbook(tmp_path / "a.xlsx")
    book["hidden"].sheet_state = "veryHidden"
    book["plain"].row_dimensions[3].hidden = book["plain"].row_dimensions[6].hidden = True
    book["plain"].column_dimensions["B"].hidden = True
    book.save(tmp_path / "a.xlsx")
    texts = [f"A visible text that is long enough, of number {n}." for n in (0, 2, 3)]
    assert read(tmp_path / "a.xlsx", findings := Findings(), text_field="note") == [*texts, "Last."]
    counts = {name: number for name, number in findings.counts.items() if "hidden" in name}
    assert counts == {"hidden sheets, not read": 1, "hidden rows, not read": 2, "hidden columns, not read": 1}
    assert read(tmp_path / "a.xlsx")[:3] == texts  # the hidden column has the longest text
    assert (
        len(read(tmp_path / "a.xlsx", text_field="secret,note")) == 4
        and "S" in read(tmp_path / "a.xlsx", text_field="secret")[0]
    )
    for sheet in book:
        sheet.sheet_state = "hidden" if sheet.title != "plain" else "visible"
    book["plain"].column_dimensions["A"].hidden = True
    book.save(tmp_path / "b.xlsx")
    with pytest.raises(NotTextError, match=r"its hidden columns \['note', 'secret'\] are read if they are named"):
        read(tmp_path / "b.xlsx")


@needs_office
def test_cells_right_of_the_named_columns_are_counted(tmp_path):
    workbook(tmp_path / "a.xlsx", first=[["text"], ["One.", "a remark", " "], ["Two.", None, "another"], ["Three."]])
    assert read(tmp_path / "a.xlsx", findings := Findings()) == ["One.", "Two.", "Three."]
    assert findings.noticed() == ["not read: 2 cells right of the columns that have a name"]


def workbook(path, **sheets) -> None:
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)


@needs_office
def test_the_sheets_of_a_workbook_are_tables(tmp_path):
    reports = [
        ["n", "report"],
        *([n, f"A report of number {n} that is long."] for n in range(3)),
        [None, None],
        [3, None],
    ]
    workbook(tmp_path / "a.xlsx", codes=[["a", "b"], [1, 2]], first=reports, second=[["text"], ["More."]])
    findings = Findings()
    texts = read(tmp_path / "a.xlsx", findings)
    assert texts == [*(f"A report of number {n} that is long." for n in range(3)), "More."]
    assert findings.guessed == [f"{tmp_path}/a.xlsx: column 'report', the longest text"]
    assert [problem.partition(": ")[2] for problem in findings.problems] == [
        "sheet 'codes' has no column 'text', only ['a', 'b']",
        "field 'report' holds no text",
    ]
    with pytest.raises(NotTextError, match="no column 'nothing'"):
        read(tmp_path / "a.xlsx", text_field="nothing")


def replaced(path, member: str, content: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, content if name == member else old.read(name))
    return data.getvalue()


ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>'
DOCUMENT = f'<w:document xmlns:w="{WORD}"><w:body>'
HOSTILE = {
    "bomb.docx": (zipped({"word/document.xml": DOCUMENT + "<w:p/>" * 6_000_000}), "becomes more than "),
    "entities.docx": (zipped({"word/document.xml": ENTITIES + DOCUMENT + "&b;"}), "declares XML entities"),
    "entities.epub": (zipped({"META-INF/container.xml": ENTITIES + "<a>&b;</a>"}), "declares XML entities"),
    "deep.docx": (zipped({"word/document.xml": DOCUMENT + "<w:p>" * 100_000}), "is damaged or cut off"),
    "cut.docx": (docx("Text.")[:-30], "is damaged or cut off"),
    "other.docx": (zipped({"a.txt": "x"}), "is a zip file without the text"),
    "old.docx": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "is protected by a password, or of an older Office"),
    "lost.epub": (zipped({"META-INF/container.xml": "<c><rootfile full-path='x'/></c>"}), "is damaged or cut off"),
    "noise.rtf": (bytes(range(256)), "is not RTF"),
    "noise.pdf": (b"%PDF-1.4\n" + bytes(range(256)), "is damaged or cut off"),
    "cycle.pdf": (pdf("x").replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]"), "is damaged or cut off"),
    "nested.pdf": (pdf("x) Tj " + "[" * 20_000 + "("), "RecursionError"),
    "scan.pdf": (pdf("", ""), "has pages without text, as a scan has; recognise its text"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_office_file_is_named_and_ends_nothing(tmp_path, name):
    data, reason = HOSTILE[name]
    (tmp_path / name).write_bytes(data)
    (tmp_path / "good.txt").write_text("A good text.")
    found = survey([tmp_path], Reading())
    assert found.documents.total() == 1
    (line,) = found.findings.left_out
    if name.endswith((".rtf", ".pdf")) and needs_office.args[0]:
        reason = "needs the package"
    assert line.startswith(f"{tmp_path}/{name}: {reason}") or f": {reason}" in line
    with pytest.raises(ValueError, match=name):
        survey([tmp_path / name], Reading())


@needs_office
def test_workbooks_that_declare_entities_or_take_too_long_are_refused(tmp_path, monkeypatch):
    workbook(tmp_path / "a.xlsx", first=[["text"], ["Some text."]])
    fonts = b'<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><fonts>'
    fonts += b"<font/>" * 400_000 + b"</fonts></styleSheet>"
    sheet = f"{ENTITIES}<worksheet>&b;</worksheet>".encode()
    for member, content, reason in (
        ("xl/worksheets/sheet1.xml", sheet, "is damaged"),
        ("xl/styles.xml", fonts, "took more than 1 seconds"),
    ):
        monkeypatch.setattr("data.text.contents._LEAST_SECONDS", 0.5)
        (tmp_path / "b.xlsx").write_bytes(replaced(tmp_path / "a.xlsx", member, content))
        with pytest.raises(DamagedError, match=reason):
            read(tmp_path / "b.xlsx")


def test_a_reader_that_hides_what_stopped_it_took_too_long():
    def converted():
        try:
            while True:
                pass
        except BaseException:
            raise TypeError("expected bool")  # noqa: B904
        yield

    with pytest.raises(TimeoutError, match="took more than 0 seconds"):
        next(contents._with_cpu_limit(converted(), 0.1))


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(file_formats, "find_spec", lambda package: None)
    (tmp_path / "a.pdf").write_bytes(pdf("Text."))
    (tmp_path / "a.docx").write_bytes(docx("Text."))
    (line,) = survey([tmp_path], Reading()).findings.left_out
    assert "a.pdf: needs the package pypdf; install it with `" in line and line.endswith("scripts/setup.sh office`")


@pytest.mark.parametrize("mark", ["<a ", "<!--", "<![CDATA[", "<?", "<a x='"])
def test_a_malformed_page_is_given_up_after_a_limit_of_time(tmp_path, monkeypatch, mark):
    monkeypatch.setattr("data.text.contents._LEAST_SECONDS", 0.1)
    monkeypatch.setattr("data.text.contents._SECONDS_PER_MEGABYTE", {"html": 0.0})
    (tmp_path / "a.html").write_text(mark * 200_000)
    (tmp_path / "b.html").write_text("<p>Good.")
    begun = time.process_time()
    found = survey([tmp_path], Reading())
    assert time.process_time() - begun < 3
    assert found.documents["html"] == 1 and found.findings.counts["damaged files left out"] == 1
    assert "a.html: took more than 0 seconds of CPU time" in found.findings.left_out[0]


@pytest.mark.parametrize("page", ["<nav>" * 100_000 + "x" + "</a>" * 100_000, "<nav>" * 99_999 + "</svg>" * 99_999])
def test_end_tags_of_nothing_take_linear_time(tmp_path, page):
    (tmp_path / "a.html").write_text(page + "<main>The end. <![ odd ]> <p>x")
    begun = time.process_time()
    assert read(tmp_path / "a.html") == ["The end. x"]
    assert time.process_time() - begun < 4
