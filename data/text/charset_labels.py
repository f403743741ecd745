"""Python's codecs for the names of character sets in web pages and mails.

Many programs write the name of a standard and the bytes of Microsoft's larger set: `gb2312` and characters of GBK. The
Encoding Standard of the WHATWG therefore reads the larger set, and so does this module.
"""

import codecs
import re

_LABELS = {
    "gb18030": "gb2312 gb_2312 gb_2312-80 gb2312-80 chinese csgb2312 csiso58gb231280 iso-ir-58 euc-cn gbk x-gbk cp936 "
    "ms936 windows-936",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "cp949": "euc-kr euckr cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ks_c_5601 ksc5601 "
    "ksc_5601 windows-949 x-windows-949",
    "cp932": "shift_jis shift-jis sjis x-sjis csshiftjis ms_kanji ms932 windows-31j windows-932",
    "euc_jp": "x-euc-jp cseucpkdfmtjapanese",
    "iso2022_jp_ms": "iso-2022-jp iso2022-jp csiso2022jp iso-2022-jp-ms cp50220 cp50221 cp50222 x-iso-2022-jp",
    "iso2022_kr": "iso-2022-kr csiso2022kr",
    "hz": "hz-gb-2312",
    "cp874": "windows-874 x-windows-874 dos-874 tis-620 iso-8859-11 iso8859-11",
    "cp1254": "iso-8859-9 iso8859-9 iso_8859-9 latin5 l5 csisolatin5",
    "iso8859_8": "iso-8859-8-i iso-8859-8-e csiso88598i csiso88598e logical visual",
    "iso8859_6": "iso-8859-6-i iso-8859-6-e csiso88596i csiso88596e",
    "koi8_u": "koi8-ru koi8-u",
    "koi8_r": "koi koi8 cskoi8r",
    "mac_roman": "macintosh x-mac-roman csmacintosh",
    "mac_cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "mac_greek": "x-mac-greek",
    "mac_turkish": "x-mac-turkish",
    "mac_latin2": "x-mac-ce x-mac-centraleurroman",
    "cp866": "csibm866",
    "utf_8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8 utf8mb4",
}
_CODEC_OF = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}
_CODEC_OF |= {f"x-cp{page}": f"cp{page}" for page in range(1250, 1259)}
_WESTERN = frozenset("ascii iso8859-1".split())  # names that pages and mails give to text of cp1252
_UNUSABLE = ("utf-16", "utf-32", "idna", "punycode", "undefined")  # the name of the first two was read as ASCII
_LATIN = ("cp125[0247]", "iso8859-([1-49]|1[03456])", "mac-roman", "mac-latin2")
_META = re.compile(rb"<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_XML = re.compile(rb"\A\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']\s*([A-Za-z0-9_.:-]+)")
_HEAD_BYTES = 4096  # the standard looks at 1,024 bytes


def python_codec(label: str) -> str:
    """Python's codec for a character set in the table; another name is returned unchanged."""
    return _CODEC_OF.get(label.strip().lower(), label)


def known_codec(label: str) -> str:
    """The name itself if Python knows it, otherwise the codec in the table."""
    try:
        codecs.lookup(label)
    except (LookupError, ValueError):
        return python_codec(label)
    return label


def named_codec(label: str) -> str:
    """Codec for a character set named in a page or mail; "" if Python has none, or the name says nothing."""
    try:
        info = codecs.lookup(python_codec(label))
    except (LookupError, ValueError):
        return ""
    if not info._is_text_encoding or info.name.startswith(_UNUSABLE):
        return ""
    return "cp1252" if info.name in _WESTERN else info.name


def declared_codec(head: bytes) -> str:
    """Codec that an HTML or XML page declares in its first bytes; "" without one."""
    head = head[:_HEAD_BYTES]
    match = _XML.search(head) or _META.search(head)
    return named_codec(match[1].decode("ascii")) if match else ""


def is_latin(codec: str) -> bool:
    """Whether a codec is single-byte, with accented letters in its upper half."""
    return any(re.fullmatch(pattern, codec) for pattern in _LATIN)
