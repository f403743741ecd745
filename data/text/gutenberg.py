"""Extracts the book from a Project Gutenberg file: removes the licence and the transcriber's lines."""

import re

_START = re.compile(r"^\s*\*\s*\*\s*\*\s*START\s+OF\s+(?:THE|THIS)\s+PROJECT\s+GUTENBERG\b", re.I)
_END = re.compile(
    r"^\s*\*\s*\*\s*\*\s*END\s+OF\s+(?:THE|THIS)\s+PROJECT\s+GUTENBERG\b"
    r"|^\s*End of (?:the )?Project Gutenberg(?:'s|\u2019s| EBook\b)",
    re.I,
)
_OLD_START = re.compile(r"\*END\*?\s*THE SMALL PRINT|^\s*\*+\s*END\s*THE SMALL PRINT", re.I)  # until about 2003
_CREDIT = re.compile(
    r"^\s*(?:Produced by|E-?text prepared by|This e-?text was (?:produced|prepared) by"
    r"|Transcribed (?:by|from)|\[?Transcriber'?s note)",
    re.I,
)
_MENTIONS = re.compile(r"Project\s+Gutenberg", re.I)
_CREDIT_PARAGRAPHS = 6  # only among the first paragraphs of the book


def book_of(text: str) -> tuple[str, bool]:
    """(text between the licences, whether there were any); a text without licences is returned unchanged."""
    lines = text.split("\n")
    start = next((number + 1 for number, line in enumerate(lines) if _START.search(line) or _OLD_START.search(line)), 0)
    while start and start < len(lines) and lines[start].strip() and "***" in lines[start]:
        start += 1  # the second line of a long mark
    end = next((number for number in range(start, len(lines)) if _END.search(lines[number])), len(lines))
    found = start > 0 or end < len(lines)
    return (_without_credits("\n".join(lines[start:end])) if found else text), found


def _without_credits(text: str) -> str:
    """Remove credits and, near the beginning, paragraphs that name the project."""
    paragraphs = re.split(r"\n[ \t]*(?:\n[ \t]*)+", text.strip())
    kept = [
        paragraph
        for number, paragraph in enumerate(paragraphs)
        if number >= _CREDIT_PARAGRAPHS or not (_CREDIT.search(paragraph) or _MENTIONS.search(paragraph))
    ]
    return "\n\n".join(kept)
