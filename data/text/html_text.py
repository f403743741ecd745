"""The text of HTML pages, without markup, scripts and navigation."""

from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

DROPPED = frozenset("head script style noscript template svg nav select button".split())
_OF_HEAD = frozenset("html head title base link meta script style noscript template".split())
_CONTENT = frozenset("main article".split())  # what ends navigation whose end tag is missing
_INLINE = frozenset("a abbr b bdi bdo cite code data dfn em font i kbd mark q s samp small span strong sub sup".split())


def text_of_html(chunks: Iterable[str], dropped: frozenset[str] = DROPPED) -> Iterator[str]:
    """The text in pieces, without the dropped elements; those that are not inline are separated by line ends."""
    parser = _Parser(dropped)
    for chunk in chunks:
        parser.feed(chunk)
        yield "".join(parser.text)
        parser.text.clear()
    parser.close()
    yield "".join(parser.text)


class _Parser(HTMLParser):
    def __init__(self, dropped: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._left_out = dropped
        self.text: list[str] = []
        self._dropped: list[str] = []  # open elements whose text is left out
        self._num_dropped = Counter[str]()  # of each tag: a page of 100,000 end tags is not searched so often

    def handle_starttag(self, tag: str, _: object) -> None:
        if self._dropped and self._ends(tag):
            self._dropped.clear()
            self._num_dropped.clear()
        if tag in self._left_out:
            self._dropped.append(tag)
            self._num_dropped[tag] += 1
        self.handle_startendtag(tag, _)

    def handle_startendtag(self, tag: str, _: object) -> None:
        if tag not in _INLINE:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        while self._num_dropped[tag]:
            last = self._dropped.pop()
            self._num_dropped[last] -= 1
            if last == tag:
                break
        self.handle_startendtag(tag, None)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """An unknown `<![name[` is a comment, as in a browser; the library raises AssertionError."""
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i)

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self.text.append(data)

    def _ends(self, tag: str) -> bool:
        """Whether an element begins that the open ones cannot hold: an end tag is missing, or was omitted."""
        in_head = self._dropped[-1] == "head" and tag not in _OF_HEAD
        in_navigation = self._dropped[0] in ("nav", "select", "button") and tag in _CONTENT
        return tag == "body" or in_head or in_navigation
