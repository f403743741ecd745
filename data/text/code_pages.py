"""Checks language codes, and guesses the code page of text that is not UTF-8, by code_pages.tsv."""

import codecs
import locale
import math
import re
from collections import Counter
from functools import cache
from pathlib import Path

_ALIASES = {"no": "nb", "nn": "nb", "bs": "hr", "sr": "hr", "az": "tr", "gl": "pt"}
# Marks, by where they may stand: before a word, behind one, and between two letters.
_BEFORE, _BEHIND, _BETWEEN = "“”„‘‚…«»‹›€£§©¡¿•", "”“’‘…»«›‹©®™°ªº", "’–—·\xa0\xad"
_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE_BYTES = 1 << 14
# Log-likelihoods: of a character that is not ASCII; of all words being among the commonest; of a language and a page.
_MARK, _FOREIGN, _MISPLACED, _CONTROL = -2.0, -6.0, -8.0, -12.0
_WORDS, _GIVEN, _PLACE, _OF_RARE = 40.0, 8.0, -0.5, -8.0
_RARE = tuple("cp850 cp852 cp857 cp737 cp861 cp862 cp866 cp1125 iso8859-3 iso8859-14 mac-roman mac-cyrillic".split())
_LEAST_FIT, _LEAST_FIT_OF_ALPHABETS = -3.5, -2.6  # mean of the characters; below it the text is of another page
_ALPHABET = 20  # letters
_TAG = re.compile("([a-z]{2,8})([-_][A-Za-z0-9]{1,12})*")
# ISO 639-1 with its former codes, and the Wikipedia in simple English.
_CODES = """aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee
el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik in io is it iu iw
ja ji jv jw ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mo mr ms mt my na
nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr
ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu simple""".split()


def check_language(code: str) -> str:
    """Return the code; ValueError unless it has three letters, or two letters of ISO 639-1."""
    tag, named = _TAG.fullmatch(code), locale.normalize(code)
    if tag and (len(tag[1]) == 3 or tag[1] in _CODES):
        return code
    is_close = named != code and named[:2] in _CODES  # german, cz
    raise ValueError(
        f"language={code!r} must be a code of ISO 639 in small letters, of two letters that ISO 639-1 has or of three, "
        f"as pl, nds or pt-BR; {f'did you mean {named[:2]}?' if is_close else 'correct it, or drop it'}"
    )


def base_language(code: str) -> str:
    """Language without script, country and variety: pt-BR -> pt."""
    return re.split("[-_]", code)[0]


@cache
def _languages() -> list[tuple[str, list[str], str, list[str]]]:
    """Rows of the table: (language, code pages, letters, words)."""
    rows = Path(__file__).with_name("code_pages.tsv").read_text("utf-8").splitlines()[1:]
    split = (row.split("\t") for row in rows)
    return [(code, pages.split(), letters, words.split()) for code, pages, letters, words in split]


def common_words() -> dict[str, list[str]]:
    """The most frequent words of each language in the table."""
    return {language: words for language, _, _, words in _languages()}


def guess(sample: bytes, language: str) -> str | None:
    """The likeliest codec of text that is not UTF-8; None if none is likely.

    It is that in which letters, marks and words fit some language best, the given one rather than others. Where none
    fits, charset-normalizer names one of the given language, or, of other scripts, any.
    """
    language = base_language(language)
    language, best = _ALIASES.get(language, language), (-math.inf, "")
    for page in dict.fromkeys(page for _, pages, *_ in _languages() for page in pages):
        try:
            text = sample[:_SAMPLE_BYTES].decode(page)
        except UnicodeDecodeError:
            continue
        places = Counter(place for place in zip(" " + text, text, text[1:] + " ", strict=False) if place[1] > "\x7f")
        words = Counter(_WORD.findall(text.lower()))
        for code, pages, letters, common in _languages():
            least = _LEAST_FIT_OF_ALPHABETS if len(letters) > _ALPHABET or page in _RARE else _LEAST_FIT
            fit = sum(number * _fit(place, letters) for place, number in places.items()) if page in pages else -math.inf
            if fit > least * places.total():
                share = sum(words[word] for word in common) / max(1, words.total())
                of_page = _PLACE * pages.index(page) + _OF_RARE * (page in _RARE)
                best = max(best, (fit + _WORDS * share + _GIVEN * (code == language != "en") + of_page, page))
    if best[1]:
        return best[1]
    own = [page for code, pages, *_ in _languages() if code == language != "en" for page in pages]
    from charset_normalizer import from_bytes  # here: nearly all text is named above

    match = from_bytes(sample, cp_isolation=own).best() if own else None
    if match is None:
        match = from_bytes(sample, cp_exclusion=["hp_roman8"]).best()
    return None if match is None or match.encoding in ("utf_8", "ascii") else codecs.lookup(match.encoding).name


def _fit(place: tuple[str, str, str], letters: str) -> float:
    """Score of a character between its neighbours, in a language with these letters."""
    before, character, after = place
    if character.isalpha() and character not in "ªº":
        if character.isupper() and before.islower():
            return _MISPLACED
        rank = letters.find(character.lower())
        return _FOREIGN if rank < 0 else -math.log(rank + 1.5)
    if character < "\xa0":
        return _CONTROL
    is_behind, is_before = before.isalpha(), after.isalpha()
    marks = (_BEHIND if is_behind else "") + (_BEFORE if is_before else "") or _BEHIND + _BEFORE
    if character in _BETWEEN or (character in marks and not (is_behind and is_before)):
        return _MARK
    return _MISPLACED if is_behind or is_before else _FOREIGN
