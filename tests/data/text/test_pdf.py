"""PDF files: hyphenated words at line ends, and repeated lines of pages."""

from collections import Counter

import pytest

from data.text.pdf_text import REPEATED, joined_pages, with_whole_words, without_repeated


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("the contin-\nuation of", "the continuation of"),
        (
            "\u042d\u043a\u043e\u043d\u043e\u043c\u0438-\n\u0447\u0435\u0441\u043a\u0438\u0439",
            "\u042d\u043a\u043e\u043d\u043e\u043c\u0438\u0447\u0435\u0441\u043a\u0438\u0439",
        ),
        ("\u03b5\u03bb\u03bb\u03b7-\n\u03bd\u03b9\u03ba\u03ac", "\u03b5\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac"),
        (
            "\u017c\u00f3-\n\u0142ty, szcz\u0119-\n\u015bcie, id\u0151-\n\u0151",
            "\u017c\u00f3\u0142ty, szcz\u0119\u015bcie, id\u0151-\n\u0151",
        ),
        ("\u0939\u093f\u0928-\n\u0926\u0940", "\u0939\u093f\u0928\u0926\u0940"),
        ("\u05d9\u05e8\u05d5-\n\u05e9\u05dc\u05d9\u05dd", "\u05d9\u05e8\u05d5\u05e9\u05dc\u05d9\u05dd"),
        ("Donau\u00ad\ndampf\u2010\nschiff- \n fahrt", "Donaudampfschifffahrt"),
        ("Haus-\nund Hofarbeit, in-\nen uit, H\u00e4nde- \noder F\u00fc\u00dfe", None),
        ("pre-\nand post-war, d-\na", None),
        ("Vitamin D-\nMangel, COVID-\n19, 1990-\n1995", "Vitamin D-Mangel, COVID-19, 1990-1995"),
        ("a well-\nknown man is well-known", "a well-known man is well-known"),
        ("Frau-\nen und Frauen, under-\nstand", "Frauen und Frauen, understand"),
        ("- one\n- two -\nthree \u2013\nfour", None),
        ("AI-\n\u9a71\u52a8", None),
    ],
)
def test_a_word_that_a_line_end_cuts_is_whole(text, joined):
    assert with_whole_words(text) == (text if joined is None else joined)


def pages(number: int, header: str, footer: str) -> list[list[str]]:
    body = [
        [f"Body {'abcdefghijkl'[n]} begins.", "It is long.", f"It ends {'abcdefghijkl'[n]}."] for n in range(number)
    ]
    return [[header.format(n + 1), "", *lines, footer.format(n + 1)] for n, lines in enumerate(body)]


def test_headers_and_footers_that_pages_repeat_are_left_out_and_counted():
    counts = Counter()
    text = joined_pages(pages(4, "CONFIDENTIAL  Report 2024", "Page {} of 4"), counts)
    assert text.split("\n")[:4] == ["Body a begins.", "It is long.", "It ends a.", "Body b begins."]
    assert "CONF" not in text and "Page" not in text and counts[REPEATED] == 8
    left_and_right = [
        page for pair in zip(pages(3, "{} Book", "-"), pages(3, "Chapter {}", "*"), strict=True) for page in pair
    ]
    assert all(
        page[0].startswith("Body") and page[-1].startswith("It ends")
        for page in without_repeated(left_and_right, counts)
    )


def test_lines_that_few_pages_repeat_and_lines_inside_stay():
    two = pages(2, "Header", "Footer {}")
    assert without_repeated(two, Counter()) == [[line for line in page if line] for page in two]
    same = [["One.", f"Line {'abc'[n]}.", "So it is."] for n in range(3)]
    assert without_repeated(
        [[f"{'xyz'[n]}", *lines, f"{'uvw'[n]}"] for n, lines in enumerate(same)], counts := Counter()
    )[0] == ["x", *same[0], "u"]
    assert not counts


def test_a_word_that_the_end_of_a_page_cuts_is_whole():
    cut = [["Header", "Begin of the inter-", "1"], ["Header", "national word.", "2"], ["Header", "End.", "3"]]
    assert joined_pages(cut, Counter()) == "Begin of the international word.\nEnd.\n"
