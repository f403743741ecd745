"""Seven-bit encodings, and names of character sets in web pages and mails."""

from collections import Counter

import pytest

from data import import_text
from data.text.charset_labels import named_codec
from data.text.encodings import Decoding, decoded, remembered
from data.text.text_check import NotTextError

JAPANESE = "これは日本語の文です。 Text ABC。\n会議の記録です。\n"


def read(content: bytes, encoding: str = "auto", pieces: int = 1 << 20, is_page: bool = False) -> tuple[str, str, int]:
    counts = Counter[str]()
    chunks = [content[place : place + pieces] for place in range(0, len(content), pieces)]
    found, text = decoded(lambda: chunks, encoding, "en", counts, check=False, is_page=is_page)
    return "".join(text), found.name, counts["undecodable bytes"]


@pytest.mark.parametrize("pieces", [32, 1 << 20])
@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (JAPANESE, "iso-2022-jp"),
        ("Plain ASCII first.\n" * 9000 + JAPANESE, "iso-2022-jp"),
        ("회의 기록입니다. 오늘 ABC\n둘째 줄\n", "iso2022_kr"),
        ("这是中文的文本。会议记录。\nABC 第二行\n", "hz"),
        ("Größe und Füße, über alles + mehr.\n", "utf-7"),
        ("Привет мир, как дела?\n", "utf-7"),
        ("日本語の文書です。\n会議の記録\n", "utf-7"),
        ("Ab öж 语 und mehr\n", "utf-32-le"),
        ("Ab öж 语 und mehr\n", "utf-32-be"),
        ("Ab öд mehr und mehr\n", "utf-16-le"),
    ],
)
def test_a_text_of_seven_bits_or_wide_characters_is_recognised(text, codec, pieces):
    assert read(text.encode(codec), pieces=pieces) == (text, read(text.encode(codec))[1], 0)


def test_microsofts_characters_in_iso_2022_jp_are_read():
    """Row 13 of the table has a circled one at 2D21 and a company's sign at 2D6A; 7C62 is an IBM extension."""
    line = b"a \x1b$B-!-j|b$3$s\x1b(B b \x1b(I12\x1b(B\n"
    content = JAPANESE.encode("iso-2022-jp") + line
    assert read(content)[0] == JAPANESE + "a ①㈱髙こん b ｱｲ\n"
    broken = JAPANESE.encode("iso-2022-jp") + b"\x1b$B\x7e\x7e$3\x1b(B end\n"
    text, _, undecodable = read(broken)
    assert text.startswith(JAPANESE) and text.endswith("こ end\n") and undecodable


@pytest.mark.parametrize(
    "content",
    [
        b"In TeX ~{a} is ~{b}~} and ~{cd~}, and \x1b[31mred\x1b[0m, and \x1b(B.\n",
        b"C+foo, 1 + 2, +49- 30, ann+test-x, C++-Programm, a+AbC-d.\n",
        b"C+foo and C+foo and +foo- and C+foo\n",
        b"key: ab+cdefgh+ijklmnop==\n" * 9,
    ],
)
def test_plain_ascii_is_not_taken_for_an_escape(content):
    assert read(content) == (content.decode(), "utf-8", 0)


def test_iso_2022_cn_is_refused_with_its_remedy():
    with pytest.raises(NotTextError, match="ISO-2022-CN, which is not read; convert it"):
        read(b"\x1b$)A\x0e=;;;\x0f\n")


@pytest.mark.parametrize(
    ("label", "text", "codec"),
    [
        ("windows-874", "สวัสดีครับ", "cp874"),
        ("GB2312", "镕", "gbk"),
        ("ks_c_5601-1987", "뷁", "cp949"),
        ("x-sjis", "①髙", "cp932"),
        ("iso-8859-8-i", "שלום", "iso8859-8"),
        ("x-mac-cyrillic", "Привет", "mac-cyrillic"),
        ("iso-8859-9", "“ğ”", "cp1254"),
        ("ISO-8859-1", "“é” €", "cp1252"),
    ],
)
def test_a_label_of_the_web_names_microsofts_larger_set(label, text, codec):
    assert text.encode(codec).decode(named_codec(label)) == text
    page = b'<html><head><meta charset="%s"></head><p>%s' % (label.encode(), text.encode(codec))
    assert read(page, is_page=True)[0].endswith(text)
    if label != "ISO-8859-1":  # the flag means what Python means by it
        assert read(text.encode(codec), encoding=label)[0] == text
        assert Decoding(label).encoding == label and remembered(label) == f"auto:{label}"


@pytest.mark.parametrize("label", ["", "x-unknown", "rot13", "utf-16", "idna", "a\0b"])
def test_a_label_that_names_no_codec_says_nothing(label):
    assert named_codec(label) == ""


DECLARED = '<meta http-equiv="Content-Type" content="text/html; charset={0}"><p>'


@pytest.mark.parametrize(
    ("label", "text", "codec"),
    [
        ("euc-kr", "회의", "euc-kr"),
        ("iso-8859-2", "Šel žák", "iso8859-2"),
        ("windows-1258", "Đơn", "cp1258"),
        ("iso-2022-jp", "会議", "iso-2022-jp"),
        ("utf-8", "Größe", "utf-8"),
        ("iso-8859-1", "Größe", "utf-8"),  # the page is wrong
        ("shift_jis", "会議の記録です", "utf-8"),  # the page is wrong
        ("utf-8", "Die Größe der Tür über dem Haus.", "cp1252"),  # the page is wrong
        ("koi8-r", "Это моя книга", "koi8-r"),
    ],
)
def test_a_short_page_is_read_as_it_declares_if_it_can_be(tmp_path, label, text, codec):
    assert read((DECLARED.format(label) + text).encode(codec), is_page=True)[0].endswith(f"<p>{text}")
    (tmp_path / "a.html").write_bytes((DECLARED.format(label) + text).encode(codec))
    import_text.main(["--input", str(tmp_path / "a.html"), "--output-dir", str(tmp_path / "out")])
    assert (tmp_path / "out/source/en/0.txt").read_text("utf-8") == f"a {text}\n"
    xml = f'<?xml version="1.0" encoding="{label}"?><p>'
    assert read((xml + text).encode(codec), is_page=True)[0].endswith(f"<p>{text}")
