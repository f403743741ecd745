"""Undecodable bytes become U+FFFD and are counted separately for each decoder and thread."""

import codecs
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from data.text.counting_decoder import CountingDecoder


@pytest.mark.parametrize(
    ("codec", "data", "text", "undecodable"),
    [
        ("utf-8", b"", "", 0),
        ("utf-8", "gr\u00fcn \u732b".encode(), "gr\u00fcn \u732b", 0),
        ("utf-8", b"gr\xfcn", "gr\ufffdn", 1),
        ("utf-8", b"\xff\xfe.", "\ufffd\ufffd.", 2),
        ("utf-8", b"a\xe7\x8cb", "a\ufffdb", 2),  # two bytes of three: one mark, two bytes
        ("utf-8", b"a\xe7\x8c", "a\ufffd", 2),  # cut off at the end
        ("ascii", b"\x80a\x81", "\ufffda\ufffd", 2),
        ("cp1252", b"\x80\x81", "\u20ac\ufffd", 1),
        ("gb18030", b"\xc3\xa8\xff", "\u732b\ufffd", 1),
        ("utf-16-le", b"a\x00\x00\xd8b\x00", "a\ufffdb", 2),  # half of a surrogate pair
    ],
)
def test_undecodable_bytes_are_replaced_and_counted(codec, data, text, undecodable):
    decoder = CountingDecoder(codec)
    assert decoder.decode(data) == (text, undecodable)
    assert decoder.decode(b"") == ("", 0), "the count is of one call"
    texts = [decoder.decode_piece(data[at : at + 1], is_last=False) for at in range(len(data))]
    texts.append(decoder.decode_piece(b"", is_last=True))
    assert "".join(piece for piece, _ in texts) == text and sum(number for _, number in texts) == undecodable


@pytest.mark.parametrize("codec", ["utf-8", "cp1252", "shift_jis", "euc-kr", "gb18030", "utf-16-be"])
def test_any_bytes_give_the_text_that_python_gives(codec):
    data = random.Random(7).randbytes(5000)
    text, undecodable = CountingDecoder(codec).decode(data)
    assert text == data.decode(codec, "replace")
    assert text.count("\ufffd") - data.decode(codec, "ignore").count("\ufffd") <= undecodable <= len(data)


def test_decoders_that_alternate_count_their_own():
    utf_8, ascii_only = CountingDecoder("utf-8"), CountingDecoder("ascii")
    assert utf_8.decode_piece(b"\xe7", is_last=False) == ("", 0)
    assert ascii_only.decode(b"\xe7\x8c\xff") == ("\ufffd" * 3, 3)
    assert utf_8.decode_piece(b"\x8c", is_last=False) == ("", 0)
    assert utf_8.decode_piece(b"", is_last=True) == ("\ufffd", 2)


def test_threads_count_their_own():
    def counts(number: int) -> set[int]:
        decoder = CountingDecoder("utf-8")
        return {decoder.decode(b"\xff" * number)[1] for _ in range(50)}

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(counts, (300, 700))) == [{300}, {700}]
    finally:
        sys.setswitchinterval(interval)


def test_an_unknown_codec_is_refused():
    with pytest.raises(LookupError, match="unknown encoding: klingon"):
        CountingDecoder("klingon")


def test_the_error_handler_does_not_encode():
    with pytest.raises(UnicodeEncodeError):
        codecs.encode("\u732b", "ascii", "replace and count")
