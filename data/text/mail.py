"""Reads mails of .mbox and .eml files and Maildir folders by Python's email: what their senders wrote themselves.

The text is the subject without "Re:", and the plain text, or the HTML if there is none, without quotations, what
introduces them, and signatures. Other headers and attachments are left out. The group of a mail is its thread.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from itertools import chain
from typing import Any

from data.text.columns import Row
from data.text.encodings import check_encoding, decoded, whole_lines
from data.text.html_text import DROPPED, text_of_html

_MOST_CHARACTERS, _MOST_DEPTH, _MOST_SUBJECT = 64 << 20, 20, 2_000  # of a mail, of its parts, of its subject
_FROM = re.compile(r"From \S.*\d\d:\d\d.*\d{4}")  # the line before each mail of an mbox
_REPLY = re.compile(r"(?:\s*(?:re|aw|wg|fwd?|sv|vs|tr|rv|ré|odp|antw|ynt|res|enc)(?:\[\d+\])?\s*[:\uff1a])+\s*", re.I)
_BELOW = re.compile(r"--|-{3,} ?[^-]{3,40} ?-{3,}|_{10,}")  # the line above a signature, an original or a list's footer
_DATE, _MOST_INTRODUCTION = re.compile(r"\d{4}|\d:\d\d"), 3  # lines before a quotation that say who wrote it, and when


def is_mbox(head: bytes) -> bool:
    """Whether a file that begins so holds mails, one after the other."""
    first, _, second = head.decode("latin-1").partition("\n")
    return _FROM.match(first) is not None and re.match("[!-9;-~]+:", second) is not None


def read_mails(chunks: Iterable[bytes], kind: str, encoding: str, language: str, counts: Counter) -> Iterator[Row]:
    """The text and the thread of each mail; kind is mbox or eml, encoding that of parts that name none."""
    for number, content in enumerate(_contents(chunks, kind == "mbox"), start=1):
        try:
            if content is None:
                raise ValueError(f"has more than {_MOST_CHARACTERS >> 20} MB")
            mail = message_from_bytes(content.encode("latin-1"))
            own = _own_text("\n".join(_texts(mail, encoding, language, counts)).splitlines())
            ids = " ".join(str(mail[name] or "") for name in ("References", "In-Reply-To", "Message-ID"))
            thread = re.search(r"<[^<>\s]+>", ids)
            subject = _REPLY.sub("", _subject(mail), count=1) if own else ""
            yield Row(number, {"text": f"{subject}\n{own}".strip(), "thread": thread and thread[0]})
        except (MessageError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            yield Row(number, None, f"is no mail that can be read ({type(error).__name__}: {str(error)[:100]})")


def _contents(chunks: Iterable[bytes], is_box: bool) -> Iterator[str | None]:
    """Each mail, its bytes as Latin-1; None for one that is too long."""
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


def _texts(part: Message, encoding: str, language: str, counts: Counter, depth: int = 0) -> Iterator[str]:
    """The text of a part and of those inside of it; of alternatives the plain one."""
    kind = part.get_content_type()
    inside: Any = part.get_payload()
    if kind.startswith("multipart/") and isinstance(inside, list) and depth < _MOST_DEPTH:
        if kind == "multipart/alternative":
            inside = [one for one in inside if one.get_content_type() == "text/plain"][:1] or inside[-1:]
        for one in inside:
            yield from _texts(one, encoding, language, counts, depth + 1)
    elif (
        kind not in ("text/plain", "text/html") or part.get_filename() or part.get_content_disposition() == "attachment"
    ):
        counts["attachments of mails, not read"] += 1
    else:
        content: Any = part.get_payload(decode=True) or b""
        codec = str(part.get_content_charset() or "us-ascii")
        with suppress(ValueError):
            check_encoding(codec)
            encoding = {"us-ascii": encoding, "iso-8859-1": "auto:cp1252", "utf-8": "auto"}.get(codec, codec)
        _, text = decoded(lambda: [content], encoding, language, counts, check=False)
        if kind == "text/html":  # what it quotes is dropped, and the line that marks it introduces it
            text = chain(text_of_html(text, DROPPED | {"blockquote"}), ["\n>"])
        yield "".join(text)


def _subject(mail: Message) -> str:
    """The decoded subject; "" if it cannot be decoded."""
    with suppress(MessageError, ValueError, LookupError):
        return " ".join(str(make_header(decode_header(str(mail["Subject"] or "")[:_MOST_SUBJECT]))).split())
    return ""


def _own_text(lines: list[str]) -> str:
    """The lines that are no quotation, nor what introduces one ("On Monday X wrote:"), nor a signature."""
    kept: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith(">"):
            while kept and not kept[-1]:
                kept.pop()
            if kept and kept[-1].endswith((":", "\uff1a")):
                above = [kept[-length] for length in range(1, min(_MOST_INTRODUCTION, len(kept)) + 1)]
                del kept[-next((length for length, one in enumerate(above, start=1) if _DATE.search(one)), 1) :]
        elif not _BELOW.fullmatch(line):
            kept.append(line)
        elif any(kept):
            break
    return "\n".join(kept).strip()
