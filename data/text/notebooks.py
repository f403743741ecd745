"""Reads text of notebooks (.ipynb) and subtitles (.srt, .vtt), without code, numbers and times."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any

from data.text.encodings import MAX_ROW_CHARACTERS, lines
from data.text.text_check import NotTextError

_PICTURE = re.compile(r"!?\[[^\]]*\]\((?:data|attachment):[^)]*\)")
_TIMES = re.compile(r"\s*(?:\d+:)?\d\d:\d\d[,.]\d{1,3}\s*-->\s*(?:\d+:)?\d\d:\d\d[,.]\d{1,3}.*")
_STYLE = re.compile(r"</?[a-z][^<>]*>|<[\d:.]+>|\{\\[^{}]*\}", re.IGNORECASE)
_BLOCKS = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)\b.*")


def notebook_text(chunks: Iterable[str], counts: Counter) -> Iterator[str]:
    """Text of a notebook's Markdown cells.

    Args:
        counts: gets how many cells of code there are, which are not read.

    Raises:
        NotTextError: it is no notebook, or has no text.
    """
    parts: list[str] = []
    for chunk in chunks:
        parts.append(chunk)
        if sum(map(len, parts)) > MAX_ROW_CHARACTERS:
            raise NotTextError(f"is longer than {MAX_ROW_CHARACTERS} characters")
    try:
        notebook = json.loads("".join(parts))
    except (ValueError, RecursionError) as error:
        raise NotTextError(f"is no notebook: it is not JSON ({error})") from None
    has_text = False
    for cell in _cells(notebook):
        kind, source = cell.get("cell_type"), cell.get("source", "")
        text = "".join(map(str, source)) if isinstance(source, list) else str(source)
        if kind in ("markdown", "heading"):
            has_text |= bool(text.strip())
            yield _PICTURE.sub("", text) + "\n\n"
        elif kind == "code":
            counts["cells of code in notebooks, not read"] += 1
    if not has_text:
        raise NotTextError("is a notebook without cells of text")


def _cells(notebook: Any) -> Iterator[dict[str, Any]]:
    """Cells of a notebook, also of the older format with worksheets."""
    if isinstance(notebook, dict):
        sheets = notebook.get("worksheets")
        for holder in [notebook, *(sheets if isinstance(sheets, list) else [])]:
            cells = holder.get("cells") if isinstance(holder, dict) else None
            yield from (cell for cell in (cells if isinstance(cells, list) else []) if isinstance(cell, dict))


def subtitle_text(chunks: Iterable[str]) -> Iterator[str]:
    """Spoken lines of subtitles; a line that the next subtitle repeats is kept once.

    Raises:
        NotTextError: no line has times.
    """
    has_times = is_said = is_left_out = is_web = False  # is_web: WebVTT, which writes & as &amp;
    last, parts = "", list[str]()
    for part, ends in lines(chunks):
        parts.append(part)
        if not ends:
            continue
        line = "".join(parts).strip("\ufeff \t")
        parts.clear()
        is_web |= not has_times and line.startswith("WEBVTT")
        if not line:
            is_said = is_left_out = False
        elif _TIMES.fullmatch(line):
            has_times = is_said = True
            is_left_out = False
        elif not is_said and _BLOCKS.fullmatch(line):
            is_left_out = True
        elif is_said and not is_left_out:
            text = _said(line, is_web)
            if text and text != last:
                yield text + "\n"
                last = text
    rest = _said("".join(parts), is_web)
    if is_said and rest and rest != last:
        yield rest + "\n"
    if not has_times:
        raise NotTextError("has no times of subtitles")


def _said(line: str, is_web: bool) -> str:
    text = _STYLE.sub("", line)
    return " ".join((unescape(text) if is_web else text).split())
