"""Reads mails (.mbox and .eml files, Maildir folders): the text that their senders wrote themselves.

The text is the subject without "Re:", and the first alternative that has text, the plain one before HTML, without
quotations, what introduces them, and signatures. Mails that are forwarded or collected in a digest follow, each read
alike. Other headers, also those above a forwarded text, and attachments are left out. A mail's group is its thread.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from itertools import chain
from typing import Any, NamedTuple

from data.text.charset_labels import named_codec
from data.text.columns import Row
from data.text.encodings import decoded, whole_lines
from data.text.html_text import DROPPED, text_of_html
from data.text.mail_lines import own_text

_MOST_CHARACTERS, _MOST_DEPTH, _MOST_SUBJECT = 64 << 20, 20, 2_000  # of a mail, of its parts, of its subject
_FROM = re.compile(  # the line before each mail of an mbox: a sender, a weekday, a month and a day, a time and a year
    r"From (?:.*\S )? ?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +(?:\d\d? +)?"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b.*\d{4}"
)
_BEFORE_HEADERS = re.compile(
    rb"\A\s+(?=(?:subject|from|to|date|received|return-path|message-id|mime-version|content-type|x-[\w-]+|delivered-to):)",
    re.IGNORECASE,
)
_REPLY = re.compile(r"(?:\s*(?:re|aw|wg|fwd?|sv|vs|tr|rv|ré|odp|antw|ynt|res|enc)(?:\[\d+\])?\s*[:\uff1a])+\s*", re.I)
_SPLIT_LINE, _SOFT_BREAK = re.compile(r"=[ \t]+(?=\r?\n)"), re.compile(r"(?<!\n--) \n (?! )|(?<!\n--) \n(?![>\n]|--\s)")
_SEALED = {  # parts that hold the text of a mail where this program cannot read it, with the remedy
    "application/ms-tnef": "holds its text in winmail.dat, Outlook's own format; unpack it, e.g. with tnef",
    "application/pkcs7-mime": "is encrypted or signed in one piece (S/MIME); save it without",
    "application/x-pkcs7-mime": "is encrypted or signed in one piece (S/MIME); save it without",
    "application/pgp-encrypted": "is encrypted (PGP); save it without",
}


class _Reader(NamedTuple):
    """Decoding of parts that name no encoding, and counts of omitted parts.

    Attributes:
        was_wide: the mails were saved as UTF-16, and are UTF-8 now, whatever 8-bit parts say of themselves.
    """

    encoding: str
    language: str
    counts: Counter
    was_wide: bool = False


def is_mbox(head: bytes) -> bool:
    """Whether a file with this beginning is an mbox of several mails."""
    first, _, second = head.decode("latin-1").partition("\n")
    return _FROM.match(first) is not None and re.match("[!-9;-~]+:", second) is not None


def is_mail(head: bytes) -> bool:
    """Whether a file with this beginning is a single mail with delivery headers, whatever its name."""
    headers = re.split(r"\r?\n\r?\n", head.decode("latin-1").removeprefix("\xef\xbb\xbf"), maxsplit=1)[0]
    lines = [line for line in re.split(r"\r?\n", headers) if line[:1] not in (" ", "\t")]
    names = [line.partition(":")[0].lower() for line in lines if re.match("[!-9;-~]+:", line)]
    # A cut head may end inside of its last line.
    return len(names) >= len(lines) - 1 and "from" in names and bool({"message-id", "received"} & {*names})


def read_mails(chunks: Iterable[bytes], kind: str, encoding: str, language: str, counts: Counter) -> Iterator[Row]:
    """Text and thread of each mail; kind is mbox or eml, `encoding` is for parts that name none."""
    pieces = iter(chunks)
    head = next(pieces, b"")
    was_wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    reader = _Reader(encoding, language, counts, was_wide)
    plain = _as_utf_8(chain([head], pieces)) if was_wide else _without_mark(head, pieces)
    for number, content in enumerate(_contents(plain, kind == "mbox"), start=1):
        try:
            if content is None:
                raise ValueError(f"has more than {_MOST_CHARACTERS >> 20} MB")
            mail = message_from_bytes(content.encode("latin-1"))
            for part in mail.walk():
                if isinstance(part.get_param("charset"), tuple):  # in RFC 2231's form, by which Python decodes nothing
                    part.set_param("charset", part.get_content_charset() or "")
            text = _mail_text(mail, reader)
            ids = " ".join(str(mail[name] or "") for name in ("References", "In-Reply-To", "Message-ID"))
            thread = re.search(r"<[^<>\s]+>", ids)
            sealed = "" if text else next((_SEALED[kind] for kind in _kinds(mail) if kind in _SEALED), "")
            yield Row(number, None if sealed else {"text": text, "thread": thread and thread[0]}, sealed)
        except (MessageError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            yield Row(number, None, f"is no mail that can be read ({type(error).__name__}: {str(error)[:100]})")


def _contents(chunks: Iterable[bytes], is_box: bool) -> Iterator[str | None]:
    """Bytes of each mail, as Latin-1; None for a mail that is too long."""
    held, size = list[str](), 0
    before: str | None = ""
    for line in whole_lines(chunk.decode("latin-1") for chunk in chunks):
        if is_box and before == "" and line and _FROM.match(line):
            if size:
                yield "\n".join(held) if size <= _MOST_CHARACTERS else None
            held, size = [], 0
        else:
            size += _MOST_CHARACTERS if line is None else len(line) + 1
            if size > _MOST_CHARACTERS:
                held.clear()
            held.append(re.sub("^>(>*From )", r"\1", line or ""))
        before = line
    if size:
        yield "\n".join(held) if size <= _MOST_CHARACTERS else None


def _as_utf_8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Convert a mail that an editor saved as UTF-16 with a byte order mark to UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    return (decoder.decode(piece).encode("utf-8", "replace") for piece in chunks)


def _without_mark(head: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    """Remove the byte order mark, and blank lines before the headers."""
    return chain([_BEFORE_HEADERS.sub(b"", head.removeprefix(codecs.BOM_UTF8))], rest)


def _kinds(mail: Message) -> Iterator[str]:
    return (part.get_content_type() for part in mail.walk())


def _mail_text(mail: Message, reader: _Reader, depth: int = 0) -> str:
    """Subject and new text (without quotations) of a mail and of forwarded mails; "" without new text."""
    inner = list[Message]()
    own = own_text("\n".join(_texts(mail, reader, inner, depth)).splitlines())
    subject = _REPLY.sub("", _subject(mail, reader), count=1) if own else ""
    forwarded = [_mail_text(one, reader, depth + 1) for one in inner] if depth < _MOST_DEPTH else []
    return "\n\n".join(filter(None, [f"{subject}\n{own}".strip(), *forwarded]))


def _texts(part: Message, reader: _Reader, inner: list[Message], depth: int) -> Iterator[str]:
    """Texts of a part and its inner parts; of alternatives the first with text, plain text first.

    Args:
        inner: gets the mails that are inside of it.
    """
    kind = part.get_content_type()
    inside: Any = part.get_payload()
    if kind == "message/rfc822" and isinstance(inside, list):
        inner += inside
    elif kind == "multipart/alternative" and isinstance(inside, list) and depth < _MOST_DEPTH:
        plain = [one for one in inside if one.get_content_type() == "text/plain"]
        for one in [*plain, *(one for one in reversed(inside) if one not in plain)]:  # the last is the richest
            texts = list(_texts(one, reader, inner, depth + 1))
            if any(map(str.strip, texts)):
                yield from texts
                break
    elif kind.startswith("multipart/") and isinstance(inside, list) and depth < _MOST_DEPTH:
        if kind == "multipart/report":  # that a mail was not delivered, or was read; with the mail
            inside = inside[:1]
        for one in inside:
            yield from _texts(one, reader, inner, depth + 1)
    elif (
        kind not in ("text/plain", "text/html") or part.get_filename() or part.get_content_disposition() == "attachment"
    ):
        reader.counts["attachments of mails, not read"] += 1
    else:
        yield _part_text(part, kind == "text/html", reader)


def _part_text(part: Message, is_page: bool, reader: _Reader) -> str:
    transfer = str(part["Content-Transfer-Encoding"]).strip().lower()
    if transfer == "quoted-printable" and not part.is_multipart():
        part.set_payload(_SPLIT_LINE.sub("=", str(part.get_payload())))
    content: Any = part.get_payload(decode=True) or b""
    codec = named_codec(str(part.get_content_charset() or ""))
    encoding = {"": reader.encoding, "cp1252": "auto:cp1252", "utf-8": "auto"}.get(codec, codec)
    if str(part.get_content_charset()).lower() == "us-ascii":  # what programs write that do not know
        encoding = reader.encoding
    if reader.was_wide and not content.isascii() and transfer not in ("quoted-printable", "base64"):
        encoding = "utf-8"
    is_unknown = encoding == reader.encoding
    _, text = decoded(
        lambda: [content], encoding, reader.language, reader.counts, check=False, is_page=is_page and is_unknown
    )
    if is_page:  # what it quotes is dropped, and the line that marks it introduces it
        return "".join(chain(text_of_html(text, DROPPED | {"blockquote"}), ["\n>"]))
    if str(part.get_param("delsp") or "").lower() == "yes":  # a blank at the end of a line belongs to the format
        return _SOFT_BREAK.sub("", "".join(text).replace("\r\n", "\n"))
    return "".join(text)


def _subject(mail: Message, reader: _Reader) -> str:
    """The subject; raw bytes are decoded as UTF-8 or in the encoding of the text."""
    raw = next((str(value) for name, value in mail.raw_items() if name.lower() == "subject"), "")[:_MOST_SUBJECT]
    parts = []
    with suppress(MessageError, ValueError, LookupError):
        text = _decoded_bytes(raw.encode("ascii", "surrogateescape"), _encoding_of_text(mail, reader), reader)
        for content, charset in decode_header(text):
            if isinstance(content, bytes):
                parts.append(_decoded_bytes(content, named_codec(charset or "") or "auto", reader))
            else:
                parts.append(content)
    return " ".join("".join(parts).split())


def _decoded_bytes(content: bytes, encoding: str, reader: _Reader) -> str:
    return "".join(decoded(lambda: [content], encoding, reader.language, reader.counts, check=False)[1])


def _encoding_of_text(mail: Message, reader: _Reader) -> str:
    """Encoding for header bytes that are not UTF-8: the code page that the first text part names."""
    charsets = (str(part.get_content_charset() or "") for part in mail.walk())
    named = next(filter(None, map(named_codec, charsets)), "")
    return f"auto:{named}" if named and not named.startswith("utf") else reader.encoding
