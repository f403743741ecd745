"""Writes the blocks of a report as one self-contained HTML or Markdown file."""

import base64
import html
from dataclasses import dataclass


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Table:
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Picture:
    title: str
    png: bytes

    def uri(self) -> str:
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


Block = Heading | Text | Table | Picture

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}
td,th{border:1px solid #ddd;padding:.25em .6em;text-align:left;vertical-align:top}
th{background:#f4f4f4}img{max-width:100%;width:530px}"""


def to_html(title: str, blocks: list[Block]) -> str:
    body = "\n".join(_html(block) for block in blocks)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Text):
        return f"<p>{html.escape(block.text)}</p>"
    if isinstance(block, Picture):
        return f'<img alt="{html.escape(block.title)}" src="{block.uri()}">'
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in block.header)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
    return f"<table><tr>{head}</tr>{rows}</table>"


def to_markdown(title: str, blocks: list[Block]) -> str:
    return "\n\n".join([f"# {_plain(title)}", *(_markdown(block) for block in blocks)]) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_plain(block.text)}"
    if isinstance(block, Text):
        return _plain(block.text)
    if isinstance(block, Picture):
        return f"![{_plain(block.title)}]({block.uri()})"
    lines = [block.header, ["---"] * len(block.header), *block.rows]
    return "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)


def _plain(text: str) -> str:
    """The text on one line, with the characters escaped that Markdown interprets."""
    for mark in "\\`*_<>|[]":
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())
