"""The text of HTML, without markup, scripts and navigation."""

from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

_DROPPED = frozenset("head script style noscript template svg nav select button".split())
_OF_HEAD = frozenset("html head title base link meta script style noscript template".split())
_CONTENT = frozenset("main article".split())  # what ends navigation whose end tag is missing
_INLINE = frozenset("a abbr b bdi bdo cite code data dfn em font i kbd mark q s samp small span strong sub sup".split())


def text_of_html(chunks: Iterable[str]) -> Iterator[str]:
    """The text in pieces; elements other than inline ones are separated by line ends."""
    parser = _Parser()
    for chunk in chunks:
        parser.feed(chunk)
        yield parser.taken()
    parser.close()
    yield parser.taken()


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._text: list[str] = []
        self._dropped: list[str] = []  # open elements whose text is left out

    def taken(self) -> str:
        text = "".join(self._text)
        self._text.clear()
        return text

    def handle_starttag(self, tag: str, _: object) -> None:
        if self._dropped and self._ends(tag):
            self._dropped.clear()
        if tag in _DROPPED:
            self._dropped.append(tag)
        self._break(tag)

    def handle_startendtag(self, tag: str, _: object) -> None:
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._dropped:
            while self._dropped.pop() != tag:
                pass
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self._text.append(data)

    def _ends(self, tag: str) -> bool:
        """Whether an element begins that the open ones cannot hold: an end tag is missing, or was omitted."""
        in_head = self._dropped[-1] == "head" and tag not in _OF_HEAD
        in_navigation = self._dropped[0] in ("nav", "select", "button") and tag in _CONTENT
        return tag == "body" or in_head or in_navigation

    def _break(self, tag: str) -> None:
        if tag not in _INLINE:
            self._text.append("\n")
