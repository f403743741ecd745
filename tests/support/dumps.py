"""MediaWiki dumps of our own making, in the shape of Wikipedia's."""

from __future__ import annotations

import bz2
from pathlib import Path
from xml.sax.saxutils import escape

NAMESPACES = {-2: "Medium", 0: "", 1: "Diskussion", 6: "Datei", 10: "Vorlage", 14: "Kategorie"}


def header(extra: str = "") -> str:
    spaces = "".join(
        f'<namespace key="{key}" case="first-letter">{name}</namespace>' for key, name in NAMESPACES.items()
    )
    return (
        f'{extra}<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">\n'
        f"<siteinfo><sitename>Test</sitename><namespaces>{spaces}</namespaces></siteinfo>\n"
    )


def page(
    number: int,
    text: str,
    *,
    title: str | None = None,
    namespace: int = 0,
    redirect: bool = False,
    model: str = "wikitext",
) -> str:
    """Return one page's XML."""
    target = '<redirect title="Elsewhere" />' if redirect else ""
    return (
        f"  <page>\n    <title>{escape(title or f'Page {number}')}</title>\n    <ns>{namespace}</ns>\n"
        f"    <id>{number}</id>\n    {target}<revision>\n      <id>{number + 10**6}</id>\n"
        f'      <model>{model}</model>\n      <text bytes="1" xml:space="preserve">{escape(text)}</text>\n'
        f"    </revision>\n  </page>\n"
    )


def article(number: int, num_sentences: int = 6) -> str:
    """Return the markup of an article whose sentences carry its number."""
    sentences = " ".join(
        f"The '''river''' of [[town {number}|town number {number}]] runs to the sea {place}."
        for place in range(num_sentences)
    )
    return (
        f"{{{{Infobox|name=x|{{{{nested}}}}}}}}\n{sentences}<ref>{{{{cite}}}}</ref>\n\n== History ==\n"
        f"It was built in {1000 + number} &amp; is old.\n* item\n[[Category:Rivers]]\n"
    )


def pages(count: int) -> list[str]:
    """Return articles, and among them a redirect, a talk page, a stub and a module."""
    made = []
    for number in range(1, count + 1):
        if number % 10 == 3:
            made.append(page(number, "#REDIRECT [[Elsewhere]]", redirect=True))
        elif number % 10 == 5:
            made.append(page(number, article(number), namespace=1))
        elif number % 10 == 7:
            made.append(page(number, "{{only a template}}\n* a list"))
        elif number % 10 == 9:
            made.append(page(number, "return {}", model="Scribunto"))
        else:
            made.append(page(number, article(number)))
    return made


def streams(parts: list[str], per_stream: int = 4) -> list[bytes]:
    """Return the bzip2 streams of a multistream dump: the header, the pages, the end."""
    rows = [parts[start : start + per_stream] for start in range(0, len(parts), per_stream)]
    return [bz2.compress(text.encode()) for text in (header(), *("".join(row) for row in rows), "</mediawiki>\n")]


def write_dump(path: Path, parts: list[str], per_stream: int = 4) -> Path:
    """Write a multistream dump (*.bz2), or plain XML (*.xml)."""
    if path.suffix == ".xml":
        path.write_text(header() + "".join(parts) + "</mediawiki>\n")
    else:
        path.write_bytes(b"".join(streams(parts, per_stream)))
    return path
