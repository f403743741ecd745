"""Detection of a text's code page, also if lines of a file are in several."""

from collections import Counter

import pytest

from data.text.code_pages import check_language
from data.text.encodings import Decoding, decoded, remembered

POLISH = "tekst,ocena\nświetny hotel i miła obsługa,dobra\nżółta ściana,zła\n"
CZECH = "Přišel jsem domů a bylo už pozdě, ale světlo ještě svítilo.\n"
FRENCH = "« Déçu », dit l’hôte… – c’était « très » bruyant.\n"


def read(content: bytes, language: str = "en", encoding: str = "auto") -> tuple[str, str, Counter]:
    counts = Counter[str]()
    found, pieces = decoded(lambda: [content], encoding, language, counts, check=False)
    return "".join(pieces), found.others or found.name, counts


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize(
    ("text", "page"),
    [
        (POLISH, "cp1250"),
        (POLISH, "iso8859-2"),
        (CZECH, "cp1250"),
        (CZECH, "iso8859-2"),
        (CZECH, "cp852"),
        ("Az ő könyve itt van, és nem volt elég idő.\n", "cp1250"),
        (FRENCH, "cp1252"),
        ("He said “yes” – it’s 5 €.\n", "cp1252"),
        ("Die Größe der Tür über dem Haus.\n", "iso8859-1"),
        ("Bu kitabı çok sevdim, ama değişik bir şey.\n", "cp1254"),
        ("Это моя книга, и она не новая.\n", "koi8-r"),
        ("Ta ei õppinud midagi, kuid õpetaja oli hea.\n", "cp1252"),
        ("Õhtul läksime koju ja sõime süüa.\n", "iso8859-15"),
        ("Õnn ja rõõm on siin, kui see on nii.\n", "cp1252"),
        ("Il-ħobż hu tajjeb u l-ġurnata sabiħa, għax ix-xemx qed tiddi.\n", "iso8859-3"),
        ("Ĉu vi ŝatas ĉi tiun ĝardenon, kiu estas antaŭ la domo?\n", "iso8859-3"),
        ("Mae'r tŷ yn fawr ac mae'r dŵr yn oer iawn.\n", "iso8859-14"),
        ("Það er ekki í áætlun að fyrirtækið opni þetta á næsta ári.\n", "cp861"),
        ("Это моя книга, и она не новая.\n", "mac-cyrillic"),
        ("Це моя книга, і вона не нова.\n", "cp1125"),
        ("זה הספר שלי והוא לא חדש.\n", "cp862"),
        ("Αυτό είναι το βιβλίο μου και δεν είναι νέο.\n", "iso8859-7"),
        ("זה הספר שלי והוא לא חדש.\n", "cp1255"),
        ("이것은 나의 책이고 새것이 아닙니다.\n", "cp949"),
    ],
)
def test_a_text_is_decoded_as_it_was_written_without_its_language(text, page, times):
    assert read((text * times).encode(page))[0] == text * times


def test_the_given_language_decides_where_marks_are_misplaced():
    text = "Auf den »link«Aufruf folgt für die »unlink«Funktion dasselbe.\n"
    assert read(text.encode("iso8859-15"), "de")[0] == text


def test_lines_of_another_encoding_are_decoded_line_by_line_and_counted():
    first, second = "Première ligne été.\n", "Deuxième ligne en été.\n"
    for before, behind in ((1, 1), (900, 100), (100, 900)):
        content = first.encode() * before + second.encode("latin-1") * behind
        text, page, counts = read(content, "fr")
        assert (text, page) == (first * before + second * behind, "cp1252")
        assert counts["lines in another encoding than the rest"] == behind
    damaged = ("Größe und Fülle. " * 9).encode()[:-4] + b"\xff\n"
    assert read(damaged * 3)[0].count("\ufffd") == 3  # a line of UTF-8 with a fault is not another encoding


def test_a_code_page_that_is_known_is_that_of_what_is_not_utf8():
    assert read("Škoda\n".encode("cp1250"), encoding="auto:cp1250")[0] == "Škoda\n"
    assert read("Škoda\n".encode(), encoding="auto:cp1250")[0] == "Škoda\n"
    named = ((None, None), ("auto", None), ("utf-8", None), ("cp1250", "auto:cp1250"), ("auto:cp1250", "auto:cp1250"))
    assert [remembered(encoding) for encoding, _ in named] == [known for _, known in named]


def test_a_language_is_a_code_that_there_is():
    codes = "jv lo bo yo sw nds pt-BR zh-Hant zh-min-nan pt_BR simple zh-classical".split()
    assert [*map(check_language, codes)] == codes
    hints = {
        "PL": "mean pl[?]",
        "xx": "drop it",
        "german": "mean de[?]",
        "cz": "mean cs[?]",
        "../x": "it",
        "": "drop it",
    }
    for code, hint in hints.items():
        with pytest.raises(ValueError, match=f"language='{code}' must be a code of ISO 639 .*; .*{hint}$"):
            Decoding(language=code)
    assert read("żółć".encode("iso8859-2"), "pl-PL")[0] == read("żółć".encode("iso8859-2"), "pl")[0]


def test_what_the_command_says_goes_before_what_the_training_said():
    class Said:
        encoding, language, header = None, "pl", None

    assert Decoding.of(Said, Decoding("auto:cp1250", "cs", False)) == Decoding("auto:cp1250", "pl", False)
