"""Normalises letters that look equal to the same code points, so that they become the same tokens.

`normal_form` is for texts that are read; `equalizing` gives the library's rules for the tokenizer, which meets texts of
any origin. Both make NFC (Unicode's composed form), write ligatures as letters, and leave out marks that show nothing.
The presentation forms of Arabic letters, which PDF files have, are no rule of the tokenizer: a hundred rules more would
make other libraries' tokenisation ten times slower. `without_forms` turns them into letters before the tokenizer gets a
text.
"""

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any
from unicodedata import category, normalize

if TYPE_CHECKING:  # both are loaded where a text is tokenised
    import numpy as np
    from tokenizers.normalizers import Normalizer

UNSEEN = "\u00ad\u2060\ufeff"  # soft hyphen, word joiner, byte order mark inside a text: no part of a word
_LATIN_LIGATURES = [chr(code) for code in range(0xFB00, 0xFB07)]  # ff fi fl ffi ffl st st
# Ligatures of Latin, Armenian and Hebrew; forms and ligatures of Arabic, without the signs for whole phrases.
_FORMS = re.compile(f"[{UNSEEN}\ufb00-\ufb06\ufb13-\ufb17\ufb4f-\ufdf9\ufe70-\ufefc]")
_RULELESS = re.compile("[\ufb13-\ufb17\ufb4f-\ufdf9\ufe70-\ufefc]")  # forms that `equalizing` has no rule for
_MAY_BE_RULELESS = re.compile(rb"\xef[\xac-\xb7\xb9-\xbb]")  # in UTF-8
_CARRIERS = " \u0640"  # below the form of a vowel sign that stands alone
_FINAL_SIGMA = r"(?<=[\p{Lu}\p{Ll}])Σ(?![\p{Lu}\p{Ll}])"  # Unicode's rule, but for marks between the letters
# A stroke through <, = and > makes one letter of what are else marks; all of these have three bytes of UTF-8.
_STRUCK = {f"{mark}\u0338".encode(): normalize("NFC", f"{mark}\u0338").encode() for mark in "<=>"}
_STROKE = "\u0338".encode()


def normal_form(text: str) -> str:
    """The text in NFC, with ligatures and presentation forms as letters, and without invisible characters."""
    if text.isascii():
        return text
    if _FORMS.search(text):
        text = _FORMS.sub(lambda form: _letters(form[0]), text)
    return normalize("NFC", text)


@lru_cache(maxsize=None)
def _letters(form: str) -> str:
    letters = "" if form in UNSEEN else normalize("NFKC", form)
    return letters.lstrip(_CARRIERS) if len(letters) > 1 else letters


def without_forms(text: str) -> str:
    """Replace Arabic, Armenian and Hebrew presentation forms, for which `equalizing` has no rule."""
    if text.isascii() or not _RULELESS.search(text):
        return text
    return _RULELESS.sub(lambda form: _letters(form[0]), text)


def may_have_forms(text: "np.ndarray") -> bool:
    """Whether `without_forms` may change a UTF-8 text, uint8 [n]."""
    return _MAY_BE_RULELESS.search(text.data) is not None


def written_characters(text: str) -> "np.ndarray":
    """Original position of each character of `without_forms(text)`, and the end: int64 [n + 1]."""
    import numpy as np

    lengths = [len(_letters(character)) if _RULELESS.match(character) else 1 for character in text]
    return np.append(np.repeat(np.arange(len(text)), lengths), len(text))


def first_of_letter(text: str) -> int:
    """Start of the last letter of a text, which marks or Korean vowels in the next text may continue."""
    place = len(text) - 1
    while place > 0 and continues_letter(text[place]):
        place -= 1
    return max(0, place)


def continues_letter(character: str) -> bool:
    """Whether NFC may join a character to the previous one: a mark, or part of a Korean syllable."""
    return character > "\u02ff" and (category(character)[0] == "M" or "\u1160" <= character <= "\u11ff")


def equalizing(*, lowercase: bool) -> "list[Normalizer]":
    """Normaliser rules before BERT's own, which drop UNSEEN: NFC, Latin ligatures, and final sigma if lower-cased."""
    from tokenizers import Regex
    from tokenizers.normalizers import NFC, Replace

    ligatures = [Replace(ligature, _letters(ligature)) for ligature in _LATIN_LIGATURES]
    return [*ligatures, NFC(), *([Replace(Regex(_FINAL_SIGMA), "ς")] if lowercase else [])]


@cache
def word_pattern() -> str:
    r"""Regular expression of a word including marks (vowels of Hindi, accents), which \w excludes."""
    codes = (*range(0x300, 0x3100), *range(0xA66F, 0xAC00), *range(0xFB1E, 0xFE30))  # where the BMP has marks
    marks = "".join(chr(code) for code in codes if category(chr(code))[0] == "M")
    return rf"\w[\w{marks}\u200c\u200d]*"


def struck(text: "np.ndarray") -> "np.ndarray":
    """Replace <, = or > plus a combining stroke by NFC's single letter, which has as many bytes: UTF-8, uint8 [n]."""
    import numpy as np

    content = text.tobytes()
    if _STROKE not in content:
        return text
    for apart, joined in _STRUCK.items():
        content = content.replace(apart, joined)
    return np.frombuffer(content, np.uint8)


def with_marks(text: str, spans: Any) -> "np.ndarray":
    """Extend the last character of tokens over marks that NFC joined to it: character ranges int [n, 2].

    Args:
        text: of the tokens, in the order of `spans`.
    """
    import numpy as np

    spans = np.array(spans, np.int64).reshape(-1, 2)
    if normalize("NFC", text) == text:
        return spans
    followers = [*spans[1:, 0].tolist(), len(text)]
    for span, following in zip(spans, followers, strict=True):
        end = int(span[1])
        while end < following and continues_letter(text[end]):
            end += 1
        span[1] = end
    return spans
