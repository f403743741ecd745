"""Detects hidden text in Word and OpenDocument files, by its own formatting or by a style.

Word      <w:vanish/> in the formatting of a run, or of a style that the run or its paragraph names
OpenDocument      text:display="none" in the style of a span, paragraph or section; hidden-text and hidden-paragraph
"""

from collections import Counter
from collections.abc import Mapping
from xml.etree import ElementTree

HIDDEN, DELETED = "hidden passages, not read", "deleted passages, not read"
_OFF = ("0", "false", "off")


def local(name: str) -> str:
    """Name of an element or attribute without its namespace."""
    return name.rpartition(" ")[2]


def hidden_word_styles(styles: ElementTree.Element) -> frozenset[str]:
    """Ids of Word styles with hidden text, by themselves or by their base style."""
    own: dict[str, bool] = {}
    parents: dict[str, str] = {}
    for style in styles.iterfind("{*}style"):
        name = _value(style, "styleId")
        vanish, based_on = style.find("{*}rPr/{*}vanish"), style.find("{*}basedOn")
        if vanish is not None:
            own[name] = _value(vanish, "val") not in _OFF
        if based_on is not None:
            parents[name] = _value(based_on, "val")
    hidden = set()
    for name in {*own, *parents}:
        style_id, seen = name, set[str]()
        while style_id not in own and style_id in parents and style_id not in seen:
            seen.add(style_id)
            style_id = parents[style_id]
        if own.get(style_id):
            hidden.add(name)
    return frozenset(hidden)


def _value(element: ElementTree.Element, name: str) -> str:
    return next((value for key, value in element.attrib.items() if key.endswith("}" + name)), "")


class WordVisibility:
    """Tracks the elements of a Word file; `is_hidden` is about the next text."""

    def __init__(self, counts: Counter, styles: frozenset[str] = frozenset()) -> None:
        self.is_hidden = False
        self._counts, self._styles = counts, styles
        self._runs: list[bool] = []  # open runs: a text box is a run with paragraphs in it
        self._paragraphs: list[bool] = []
        self._depth_of_mark = 0  # inside of what formats the mark of a paragraph, not its text

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "p":
            self._paragraphs.append(False)
        elif name == "pPr":
            self._depth_of_mark += 1
        elif name == "pStyle" and self._paragraphs:
            self._paragraphs[-1] = self._value(attributes) in self._styles
        elif name == "r":
            self._runs.append(bool(self._paragraphs and self._paragraphs[-1]))
        elif name == "rStyle" and self._runs and not self._depth_of_mark:
            self._runs[-1] |= self._value(attributes) in self._styles
        elif name == "vanish" and self._runs and not self._depth_of_mark:
            self._runs[-1] = self._value(attributes) not in _OFF
        elif name == "del" and not self._depth_of_mark:
            self._counts[DELETED] += 1
        elif name == "t" and self.is_hidden:
            self._counts[HIDDEN] += 1
        self.is_hidden = any(self._runs)

    def end(self, name: str) -> None:
        if name == "pPr":
            self._depth_of_mark -= 1
        elif name == "r" and self._runs:
            self._runs.pop()
        elif name == "p" and self._paragraphs:
            self._paragraphs.pop()
        self.is_hidden = any(self._runs)

    @staticmethod
    def _value(attributes: Mapping[str, str]) -> str:
        return next((value for key, value in attributes.items() if local(key) == "val"), "")


class OpenDocumentVisibility:
    """As `WordVisibility`, for an OpenDocument file, whose styles come before its text."""

    def __init__(self, counts: Counter) -> None:
        self.is_hidden = False
        self._counts = counts
        self._style = ""  # that is being defined
        self._styles: set[str] = set()
        self._open: list[bool] = []  # of each open element, whether it is hidden

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        values = {local(key): value for key, value in attributes.items()}
        if name == "style":
            self._style = values.get("name", "")
        elif name in ("text-properties", "section-properties") and values.get("display") == "none":
            self._styles.add(self._style)
        hides = values.get("style-name") in self._styles or (
            values.get("is-hidden") == "true" or (name == "section" and values.get("display") == "none")
        )
        if hides and not self.is_hidden:
            self._counts[HIDDEN] += 1
        if name == "deletion":
            self._counts[DELETED] += 1
        self._open.append(hides)
        self.is_hidden |= hides

    def end(self, name: str) -> None:
        if self._open.pop():
            self.is_hidden = any(self._open)
