"""Extracts English prose from docstrings: leaves out code, tables, headings, field lists and ASCII art."""

import inspect
import re

_ROLE = re.compile(r":[a-zA-Z][\w:+.-]*:`~?\.?([^`<]*?)(?:\s*<[^>`]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^>`]*>`_{0,2}")
_LITERAL = re.compile(r"(`{1,2})([^`]+)\1_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])")
_CITATION = re.compile(r"\s*\[[\w#.-]+\]_")
_BULLET = re.compile(r"\s*(?:[-*+\u2022]|\(?(?:\d{1,2}|[a-z])[.)])\s+")
_FIELD = re.compile(r"\s*(?:[:@][\w -]+.*:(?:\s|$)|\.\.\s|[\w*, .\[\]'\"-]+\s:\s\S|[\w.*]+\s?\([^)]*\)\s?:)")
_RULE = re.compile(r"\s*([^\w\s])\1{2,}|.*[|+][-=]{3,}|.*\S {3,}\S|.*\|.*\|")
_DOCTEST = re.compile(r"\s*(?:>>>|\.\.\.(?:\s|$)|\$ |In \[\d+\]|#\s?include)")
_WORD = re.compile(r"[A-Za-z]+(?:['\u2019-][A-Za-z]+)*")
_NOISE = re.compile(r"[{}\\<>=|~^$#@_]|\w\(|::")
_COMMON = frozenset(
    "the of and a an to in is it that this be are as for on with or if by not from at which can will when you has "
    "have was were but may must its all any no each than then also only used use into does do should other".split()
)
_MIN_CHARACTERS, _MIN_WORDS = 40, 7


def clean_markup(text: str) -> str:
    """One line of text without reStructuredText or Markdown marks; the marked words stay."""
    for pattern, replacement in (
        (_ROLE, r"\1"),
        (_LINK, r"\1"),
        (_LITERAL, r"\2"),
        (_EMPHASIS, r"\2"),
        (_CITATION, ""),
    ):
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


def is_prose(paragraph: str) -> bool:
    """Whether a line of text reads as English prose: the form of sentences, many common words, few signs of code."""
    words = _WORD.findall(paragraph)
    if len(paragraph) < _MIN_CHARACTERS or len(words) < _MIN_WORDS:
        return False
    if not (paragraph[0].isupper() or paragraph[0] in "\"'(") or paragraph.rstrip("\"')")[-1:] not in (".", "!", "?"):
        return False
    letters = sum(map(len, words))
    common = sum(word.lower() in _COMMON for word in words)
    foreign = sum(ord(character) > 0x2100 or 0x300 <= ord(character) < 0x2000 for character in paragraph)
    return (
        letters >= 0.72 * len(paragraph)
        and common >= 0.2 * len(words)
        and foreign == 0
        and len(_NOISE.findall(paragraph)) <= len(words) // 12
    )


def _paragraphs(text: str) -> list[list[str]]:
    """Groups of lines: blank lines, bullets and changes to a deeper indentation separate them."""
    groups: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip():
            groups.append([])
        elif _BULLET.match(line):
            groups.append([_BULLET.sub("", line, count=1)])
        else:
            groups[-1].append(line)
    return [group for group in groups if group]


def prose_of(docstring: str) -> list[str]:
    """The prose paragraphs of a docstring, each on one line, in order."""
    found = []
    code_follows = False
    for lines in _paragraphs(inspect.cleandoc(docstring.replace("\x00", ""))):
        indented = lines[0][:1].isspace()  # an empty bullet has no character
        is_code = code_follows and indented
        code_follows = is_code or lines[-1].rstrip().endswith("::")
        if is_code or any(_DOCTEST.match(line) or _RULE.match(line) or _FIELD.match(line) for line in lines):
            continue
        paragraph = clean_markup(" ".join(lines))
        if is_prose(paragraph):
            found.append(paragraph)
    return found
