"""Extracts English prose from docstrings and manual pages: no code, tables, fields or markup."""

import ast
import inspect
import re
import warnings
from typing import Any

_ROFF_FONT = re.compile(r"\\f(?:[A-Z]|\([A-Z]{2}|\[\w*\])|\\[&/,|^]|\\s[-+]?\d+")
_ROFF_TEXT = re.compile(r"\.(?:B|I|R|BR|BI|IR|RB|RI|IB|SM|Nm|Ar|Fl|Xr)\s+(.*)")
_MARKUP = (  # and what is left of it
    (re.compile(r":[a-zA-Z][\w:+.-]*:`~?\.?([^`<]*?)(?:\s*<[^>`]*>)?`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^>`]*>`_{0,2}"), r"\1"),
    (re.compile(r"(`{1,2})([^`]+)\1_{0,2}"), r"\2"),
    (re.compile(r"(?<![\w*])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])"), r"\2"),
    (re.compile(r"\s*\[[\w#.-]+\]_"), ""),
)
_BULLET = re.compile(r"\s*(?:[-*+\u2022]|\(?(?:\d{1,2}|[a-z])[.)])\s+")
_FIELD = re.compile(r"\s*(?:[:@][\w -]+.*:(?:\s|$)|\.\.\s|[\w*, .\[\]'\"-]+\s:\s\S|[\w.*]+\s?\([^)]*\)\s?:)")
_RULE = re.compile(r"\s*([^\w\s])\1{2,}|.*[|+][-=]{3,}|.*\S {3,}\S|.*\|.*\|")
_DOCTEST = re.compile(r"\s*(?:>>>|\.\.\.(?:\s|$)|\$ |In \[\d+\]|#\s?include)")
_WORD = re.compile(r"[A-Za-z]+(?:['\u2019-][A-Za-z]+)*")
_NOISE = re.compile(r"[{}\\<>=|~^$#@_]|\w\(|::")
_FOREIGN = re.compile("[\u0300-\u1fff\u2101-\U0010ffff]")  # scripts other than Latin, and symbols
_COMMON = frozenset(
    "the of and a an to in is it that this be are as for on with or if by not from at which can will when you has "
    "have was were but may must its all any no each than then also only used use into does do should other".split()
)
_MIN_CHARACTERS, _MIN_WORDS = 40, 7


def docstrings_of(code: bytes) -> list[str]:
    """Docstrings of a module, its classes and its functions, in order; [] if it does not parse."""
    if b'"""' not in code and b"'''" not in code:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    nodes: list[Any] = []
    statements: list[ast.AST] = [tree]
    while statements:  # expressions, most of a tree, hold no definitions
        statement = statements.pop()
        if isinstance(statement, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            nodes.append(statement)
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            statements += getattr(statement, part, ())
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))
    return [text for node in nodes if (text := ast.get_docstring(node, clean=True))]


def without_roff(text: str) -> str:
    """The text of a manual page: requests with words are replaced by them, others separate paragraphs."""
    lines = []
    for line in text.splitlines():
        if line.startswith((".", "'")):
            match = _ROFF_TEXT.fullmatch(line)
            line = match.group(1).replace('"', "") if match else ""
        lines.append(_ROFF_FONT.sub("", line).replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\"))
    return "\n".join(lines)


def clean_markup(text: str) -> str:
    """A line without the marks of reStructuredText and Markdown; marked words stay."""
    for pattern, rest in _MARKUP:
        text = pattern.sub(rest, text)
    return " ".join(text.split())


def is_prose(paragraph: str) -> bool:
    """Whether a line is English prose: form of a sentence, many common words, few signs of code."""
    words = _WORD.findall(paragraph)
    if len(paragraph) < _MIN_CHARACTERS or len(words) < _MIN_WORDS:
        return False
    is_sentence = paragraph[0].isupper() or paragraph[0] in "\"'("
    return (
        is_sentence
        and paragraph.rstrip("\"')")[-1:] in (".", "!", "?")
        and sum(map(len, words)) >= 0.72 * len(paragraph)
        and sum(word.lower() in _COMMON for word in words) >= 0.2 * len(words)
        and not _FOREIGN.search(paragraph)
        and len(_NOISE.findall(paragraph)) <= len(words) // 12
    )


def _paragraphs(text: str) -> list[list[str]]:
    """Group lines to paragraphs at blank lines, bullets and deeper indentation."""
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
    """Prose paragraphs of a docstring in order, each on one line."""
    prose = []
    code_follows = False
    for lines in _paragraphs(inspect.cleandoc(docstring.replace("\x00", ""))):
        indented = lines[0][:1].isspace()  # an empty bullet has no character
        is_code = code_follows and indented
        code_follows = is_code or lines[-1].rstrip().endswith("::")
        if is_code or any(_DOCTEST.match(line) or _RULE.match(line) or _FIELD.match(line) for line in lines):
            continue
        paragraph = clean_markup(" ".join(lines))
        if is_prose(paragraph):
            prose.append(paragraph)
    return prose
