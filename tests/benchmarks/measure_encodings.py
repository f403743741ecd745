"""Measures how many texts of 15 languages in four encodings each are decoded as they were written.

    python -m tests.benchmarks.measure_encodings [--texts 15] [--share FOLDER] [--show]

The texts are translated messages and manual pages of the packages installed on this machine (FOLDER/locale and
FOLDER/man, of /usr/share), 100 to 3,000 bytes each, every one with a letter that is not ASCII. A text is right if every
character is. A row for each language: right with the language given, and without.
"""

import gettext
import gzip
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bert.help_parser import HelpParser
from data.text.encodings import decoded

PAGES = {
    **dict.fromkeys(("fr", "de", "es", "it", "pt", "sv"), ("cp1252", "iso8859-15", "cp850", "utf-8")),
    **dict.fromkeys(("pl", "cs", "hu", "ro", "sl"), ("cp1250", "iso8859-2", "cp852", "utf-8")),
    "tr": ("cp1254", "iso8859-9", "cp857", "utf-8"),
    "lt": ("cp1257", "iso8859-13", "iso8859-4", "utf-8"),
    "ru": ("cp1251", "koi8-r", "cp866", "utf-8"),
    "el": ("cp1253", "iso8859-7", "cp737", "utf-8"),
}
_MARKUP = re.compile(r"^[.'].*|\\f.|\\[(*&].*?|\\-", re.MULTILINE)


def sentences(share: Path, language: str) -> list[str]:
    """The translations of a language in a folder like /usr/share: sentences of at least five words, no placeholders."""
    found = set(_messages(share, language)) | set(_manual(share, language))
    return sorted(text for text in found if len(text.split()) >= 5 and not re.search(r"[%{}<>\\|_$]|--", text))


def _messages(share: Path, language: str) -> Iterator[str]:
    for folder in (language, "pt_BR") if language == "pt" else (language,):
        for path in sorted((share / "locale" / folder / "LC_MESSAGES").glob("*.mo")):
            try:
                with path.open("rb") as file:
                    catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
            except (OSError, UnicodeDecodeError):
                continue
            yield from (" ".join(text.split()) for key, text in catalog.items() if key and isinstance(text, str))


def _manual(share: Path, language: str) -> Iterator[str]:
    for path in sorted((share / "man" / language).glob("man*/*.gz")):
        try:
            page = gzip.decompress(path.read_bytes()).decode()
        except (OSError, UnicodeDecodeError):
            continue
        yield from (" ".join(line.split()) for line in _MARKUP.sub("", page).splitlines())


def texts_of(language: str, page: str, number: int, found: list[str]) -> Iterator[bytes]:
    """Return encoded texts of 100 to 3,000 bytes, each a little larger than the one before."""
    draw = random.Random(f"{language} {page}")
    fitting = [text for text in found if text.encode(page, "ignore").decode(page) == text]
    for index in range(number):
        size = round(100 * 30 ** (index / max(1, number - 1)))
        while True:
            start, text = draw.randrange(len(fitting)), b""
            for sentence in [*fitting[start:], *fitting]:
                text += sentence.encode(page) + b"\n"
                if len(text) >= size:
                    break
            text = text[:size].decode(page, "ignore").encode(page)  # no half character
            if not text.isascii():
                yield text
                break


def is_right(text: bytes, page: str, language: str, show: bool) -> bool:
    found, pieces = decoded(lambda: [text], "auto", language, Counter(), check=False)
    right = "".join(pieces) == text.decode(page)
    if show and not right:
        odd = next(line for line in text.decode(page).splitlines() if not line.isascii())
        read = odd.encode(page).decode(found.name, "replace")
        print(f"  {page} {len(text)} bytes read as {found.name}: {odd[:60]!r} -> {read[:60]!r}")
    return right


def main() -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=15, help="of each language and encoding")
    parser.add_argument("--share", type=Path, default=Path("/usr/share"), help="where locale/ and man/ are")
    parser.add_argument("--show", action="store_true", help="print a line of each text that is decoded wrongly")
    options = parser.parse_args()
    total = Counter[str]()
    print("| language | encodings | right with the language | without |\n|---|---|---|---|")
    for language, pages in PAGES.items():
        found, right = sentences(options.share, language), {"given": Counter[str](), "not given": Counter[str]()}
        for page in pages:
            for text in texts_of(language, page, options.texts, found):
                right["given"][page] += is_right(text, page, language, options.show)
                right["not given"][page] += is_right(text, page, "en", options.show)
        cells = [" + ".join(str(counts[page]) for page in pages) for counts in right.values()]
        print(f"| {language} | {', '.join(pages)} | {cells[0]} | {cells[1]} |", flush=True)
        total.update({name: counts.total() for name, counts in right.items()})
    every = len(PAGES) * 4 * options.texts
    print(f"all: {total['given']} of {every} with the language, {total['not given']} without")


if __name__ == "__main__":
    main()
