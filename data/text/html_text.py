"""Extracts the text of HTML pages, without markup, scripts and navigation."""

from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

DROPPED = frozenset("head script style noscript template svg nav select button".split())
_OF_HEAD = frozenset("html head title base link meta script style noscript template".split())
_CONTENT = frozenset("main article".split())  # what ends navigation whose end tag is missing
_READINGS = frozenset("rt rp".split())  # of ruby: above the letters of a word, which they would cut
# What a browser shows as a block, of HTML's own style sheet and of older pages. Any other element of HTML stands inside
# of a line; any other element of XML separates, but for those that mark words.
_BLOCKS = frozenset(
    "address article aside audio blockquote body br button canvas caption center col colgroup dd details dialog dir "
    "div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html "
    "iframe legend li listing main menu nav noframes noscript object ol optgroup option p plaintext pre script search "
    "section select style summary svg table tbody td template textarea tfoot th thead title tr ul video xmp".split()
)
_MARKS_WORDS = frozenset(
    "a abbr acronym b bdi bdo big bold cite code data del dfn em emph font hi i img ins italic kbd mark q s samp small "
    "span strike strong sub sup time tt u underline var wbr".split()
)


def text_of_html(chunks: Iterable[str], dropped: frozenset[str] = DROPPED) -> Iterator[str]:
    """Text in pieces without dropped elements; line ends separate blocks and do not occur inside lines."""
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
        self._is_xml = False

    def handle_pi(self, data: str) -> None:
        self._is_xml |= data.startswith("xml ")

    def handle_starttag(self, tag: str, _: object) -> None:
        self._is_xml &= tag != "html"
        if self._dropped and self._ends(tag):
            self._dropped.clear()
            self._num_dropped.clear()
        if tag in self._left_out or (tag in _READINGS and not self._is_xml):
            self._dropped.append(tag)
            self._num_dropped[tag] += 1
        self.handle_startendtag(tag, _)

    def handle_startendtag(self, tag: str, _: object) -> None:
        if tag not in _MARKS_WORDS if self._is_xml else tag in _BLOCKS:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "ruby" and self._dropped and self._dropped[-1] in _READINGS:
            self._num_dropped[self._dropped.pop()] -= 1
        while self._num_dropped[tag]:
            last = self._dropped.pop()
            self._num_dropped[last] -= 1
            if last == tag:
                break
        self.handle_startendtag(tag, None)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Treat an unknown `<![name[` as a comment, as browsers do; the library raises AssertionError."""
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i)

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self.text.append(data)

    def _ends(self, tag: str) -> bool:
        """Whether an element starts that the open ones cannot contain, because an end tag is missing."""
        if self._dropped[0] in _READINGS:
            return tag in _READINGS or tag in _BLOCKS
        in_head = self._dropped[-1] == "head" and tag not in _OF_HEAD
        in_navigation = self._dropped[0] in ("nav", "select", "button") and tag in _CONTENT
        return tag == "body" or in_head or in_navigation
