"""A folder of files as a hospital might have: notes, tables, Office files and broken files, all made by code."""

import io
import json
import zipfile
from pathlib import Path

SENTENCES = (
    "The patient was admitted with chest pain and shortness of breath.",
    "No fracture is seen on the radiograph of the left wrist.",
    "Treatment with antibiotics was begun on the second day.",
    "The wound healed well and the stitches were removed.",
    "Blood pressure was stable during the whole stay.",
)
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns"


def note(number: int, sentences: int = 4) -> str:
    """Return a text that differs for each number."""
    chosen = (SENTENCES[(number + place * (1 + number // 5)) % len(SENTENCES)] for place in range(sentences))
    return " ".join([f"Case {number}.", *chosen])


def zipped(members: dict[str, str | bytes]) -> bytes:
    """Return the bytes of a zip file."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def docx(*paragraphs: str, body: str = "") -> bytes:
    """Return a Word document; body: more of its XML."""
    runs = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    return zipped({"word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{runs}{body}</w:body></w:document>'})


def odt(*paragraphs: str, body: str = "") -> bytes:
    """Return an OpenDocument text."""
    runs = "".join(f"<text:p>{text}</text:p>" for text in paragraphs)
    names = f'xmlns:office="{OPEN_DOCUMENT}:office:1.0" xmlns:text="{OPEN_DOCUMENT}:text:1.0"'
    content = f"<office:document-content {names}><office:body>{runs}{body}</office:body></office:document-content>"
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})


def epub(*chapters: str) -> bytes:
    """Return an e-book of some chapters, in the order of its spine."""
    numbers = range(len(chapters), 0, -1)  # the files are named in another order
    items = "".join(f'<item id="c{n}" href="text/c{n}.xhtml" media-type="application/xhtml+xml"/>' for n in numbers)
    spine = "".join(f'<itemref idref="c{n}"/>' for n in numbers)
    opf = f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine></package>'
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    )
    pages = {
        f"OEBPS/text/c{n}.xhtml": f"<html><head><title>t</title></head><body><p>{text}</p></body></html>"
        for n, text in zip(numbers, chapters, strict=True)
    }
    return zipped({"META-INF/container.xml": container, "OEBPS/book.opf": opf, **pages})


def xlsx(*rows: tuple[str, ...]) -> bytes:
    """Return a workbook of one sheet."""
    main, office = "http://schemas.openxmlformats.org/spreadsheetml/2006/main", "http://schemas.openxmlformats.org"
    relations = f"{office}/package/2006/relationships"
    of_book = f"{office}/officeDocument/2006/relationships"

    def related(kind: str, target: str) -> str:
        relation = f'<Relationship Id="r1" Type="{of_book}/{kind}" Target="{target}"/>'
        return f'<Relationships xmlns="{relations}">{relation}</Relationships>'

    cells = "".join(
        "<row>" + "".join(f'<c t="inlineStr"><is><t>{text}</t></is></c>' for text in row) + "</row>" for row in rows
    )
    types = "".join(
        f'<Override PartName="/xl/{name}.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.'
        f'{kind}+xml"/>'
        for name, kind in (("workbook", "sheet.main"), ("sheet1", "worksheet"))
    )
    sheet = '<sheet name="first" sheetId="1" r:id="r1"/>'
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{office}/package/2006/content-types">{types}</Types>',
            "_rels/.rels": related("officeDocument", "xl/workbook.xml"),
            "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{of_book}"><sheets>{sheet}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": related("worksheet", "sheet1.xml"),
            "xl/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData></worksheet>',
        }
    )


def rtf(*paragraphs: str) -> bytes:
    text = "".join(rf"{paragraph}\par " for paragraph in paragraphs)
    return rf"{{\rtf1\ansi\ansicpg1252 {{\fonttbl{{\f0 Arial;}}}}\f0 {text}}}".encode("cp1252")


def pdf(*pages: str) -> bytes:
    """Return a PDF with a line of text on each page."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 20 700 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * n} 0 R >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    data, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    start = len(data)
    data += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode()
    return data + f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()


def write_hospital(folder: Path) -> None:
    """Write 48 files: 38 that can be read, 10 that cannot."""
    folder.mkdir(parents=True)
    for number in range(25):
        patient = folder / f"notes/patient{number // 5}"
        patient.mkdir(parents=True, exist_ok=True)
        (patient / f"{number:02}.txt").write_text(note(number))
    rows = "".join(f'{n},2024-01-{n % 28 + 1:02},patient{n // 6},"{note(100 + n)}"\n' for n in range(30))
    files: dict[str, bytes] = {
        "umlauts.txt": "Die Frau klagt \xfcber R\xfcckenschmerzen. Sie f\xfchlt sich m\xfcde. ".encode("latin-1") * 5,
        "reports.csv": f"id,date,patient,report\n{rows}".encode(),
        "letters.jsonl": b"".join(json.dumps({"n": n, "body": note(200 + n)}).encode() + b"\n" for n in range(10))
        + b'{"n": 10, "body": "cut o',
        "page.html": f"<html><body><p>{note(300)}</p></body></html>".encode(),
        "old/page.htm": f"<p>{note(301)}".encode(),
        "discharge.docx": docx(note(310), note(311)),
        "letter.docx": docx(note(312)),
        "scan.pdf": pdf(note(320), note(321)),
        "guideline.pdf": pdf(note(322)),
        "history.rtf": rtf(note(330)),
        "table.odt": odt(note(340)),
        "findings.xlsx": xlsx(("id", "finding"), *((f"{n}", note(360 + n)) for n in range(5))),
        "book.epub": epub(note(350), note(351)),
        # what cannot be read
        "broken.docx": docx(note(1))[:-30],
        "broken.pdf": b"%PDF-1.4\n" + bytes(range(256)) * 8,
        "broken.json": b'{"text": ',
        "noise.txt": bytes(range(256)) * 40,
        "image.png": b"\x89PNG\r\n\x1a\n" + bytes(2000),
        "slides.ppt": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000),
        "backup.zip": zipped({"a.txt": "Hidden in an archive."}),
        "numbers.csv": b"a,b\n1,2\n3,4\n",
        "cut.txt.gz": b"\x1f\x8b\x08\x00cut",
        "letters.txt~": b"An older version.",
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
