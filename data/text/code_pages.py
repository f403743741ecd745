"""Chooses the code page of text that is not UTF-8, by the letters and words of the languages that are written in it."""

import codecs
import math
import re
from collections import Counter

from charset_normalizer import from_bytes

_WEST, _CENTRAL, _BALTIC = "cp1252 iso8859-15 cp850 mac-roman", "cp1250 iso8859-2 cp852", "cp1257 iso8859-13 iso8859-4"
# Language -> its code pages, the likeliest first; its letters that are not ASCII, and its commonest words.
_LANGUAGES = {
    "en": (_WEST, "éèüöïçáñíóä", "the of and to in is that for it with was on are as be this by from or not you have"),
    "fr": (
        _WEST,
        "éèàêçôîûùâœëïü",
        "le la les de des du et à un une est en que qui dans pour pas sur par ne au où été",
    ),
    "de": (_WEST, "üäößé", "der die das und ist nicht ein eine zu den von mit für auf im dem des wird oder kann auch"),
    "es": (_WEST, "óíáéñúü", "el la los las de que y en un una no se es por con para del al como está más sí"),
    "it": (_WEST, "èàùòìéî", "il la le di che e è un una non per in del della con si sono dei da al più può perché"),
    "pt": (_WEST, "ãçéáíóêõâàúôü", "o a os as de que e do da não em um uma para com se por no na é são está"),
    "nl": (_WEST, "ëéïèöüóá", "de het een en van is niet in op te dat voor met zijn aan er bij of wordt"),
    "sv": (_WEST, "äöåé", "och att det som en är av för inte den på med till ett om kan från eller i ska"),
    "da": (_WEST, "åøæéöü", "og at det er en af for ikke den på med til et som kan fra der eller i skal"),
    "nb": (_WEST, "åøæéòôó", "og det er en av for ikke den på med til et som kan fra eller i skal å"),
    "fi": (_WEST, "äöåé", "ja ei on se että ole voi jos tai kun mutta tämä joka"),
    "is": (_WEST, "íáðöóéþúæý", "og að er ekki sem í á við til ekki það af fyrir með"),
    "ca": (_WEST, "óèéàíòçúïü·", "el la els les de que i en un una no es per amb del és més"),
    "sq": (_WEST, "ëç", "të e dhe në i është një për nga me që nuk së"),
    "eu": (_WEST, "ñüç", "eta da ez bat du dira ere edo duen izan"),
    "af": (_WEST, "ëêéïôûá", "die van en is nie in te 'n het vir wat om op met"),
    "pl": (_CENTRAL, "łąęóżśćńź", "w i na z się nie do to jest że od po dla lub jak o przez być został"),
    "cs": (_CENTRAL, "íáěéřýčšžůúťňďó", "a se na je v že do s z pro to nebo k jako není který být by po od"),
    "sk": (_CENTRAL, "áíýéčšžťúľóôňäďĺŕ", "a sa na je v že do s z pre to alebo k ako nie ktorý byť by po od"),
    "hu": (_CENTRAL, "áéőöíóüúű", "a az és nem hogy egy is ez van meg csak vagy kell lehet el ha"),
    "ro": (_CENTRAL, "ăîțâșţş", "de și şi a în la nu un o pentru care este din cu se sau pe nu al să fi"),
    "sl": (_CENTRAL, "čšžćđ", "je in na se za v ni z da ki so ali ne s po lahko če kot bo"),
    "hr": (_CENTRAL, "čšžćđ", "je i u na se za nije da su ili ne s od kao po može što koji ako"),
    "tr": ("cp1254 iso8859-9 cp857", "ıişüğöçİâî", "ve bir bu için ile değil olarak da de en daha var ya veya"),
    "lt": (_BALTIC, "ėšųžąįūčę", "ir yra nėra į iš kad su ne arba tai kaip bet nuo per už"),
    "lv": (_BALTIC, "āīēšūņļžčģķ", "un ir nav uz no ar ka vai par lai kā tas bet nevar"),
    "et": (_BALTIC, "äõüöšž", "ja ei on see et ole või kui ka mis oma aga"),
    "ru": (
        "cp1251 koi8-r cp866 iso8859-5",
        "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",
        "и в не на с для по из что это или к при от как",
    ),
    "uk": (
        "cp1251 koi8-u cp866 iso8859-5",
        "оаніиетвслркудмпзяьбгчхжїйюцєшщфґ",
        "і в не на з для та що або до як від за при це",
    ),
    "bg": (
        "cp1251 koi8-r cp866 iso8859-5",
        "аоиетнрсвлпдкмзгъубчщяжхцшйюфь",
        "и в не на с за да се от е са или при по като",
    ),
    "el": (
        "cp1253 iso8859-7 cp737",
        "αοτιενσςρκπμυλίήόηάωγδέύθχφώβξζψϊ",
        "το να και η ο του της την με δεν για σε από είναι τα",
    ),
    "he": ("cp1255 iso8859-8", "יוהלאתרבמשנדעחקםפסטזגןצכךץף", "של את על לא עם או זה כי הוא היא אל כל אם גם"),
}
_ALIASES = {"no": "nb", "nn": "nb", "bs": "hr", "sr": "hr", "az": "tr", "gl": "pt"}
# Marks, by where they may stand: before a word, behind one, and between two letters.
_BEFORE, _BEHIND, _BETWEEN = "“”„‘‚…«»‹›€£§©¡¿•", "”“’‘…»«›‹©®™°ªº", "’–—·\xa0\xad"
_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE_BYTES = 1 << 14
# Log-likelihoods: of a character that is not ASCII; of all words being among the commonest; of a language and a page.
_MARK, _FOREIGN, _MISPLACED, _CONTROL = -2.0, -6.0, -8.0, -12.0
_WORDS, _GIVEN, _PLACE, _OF_RARE = 40.0, 8.0, -0.5, -8.0
_LEAST_FIT, _LEAST_FIT_OF_ALPHABETS = -3.5, -2.6  # mean of the characters; below it the text is of another page
_ALPHABET = 20  # letters
_RARE = ("cp850", "cp852", "cp857", "cp737", "cp866", "mac-roman")
_NEVER = ["hp_roman8"]


def guess(sample: bytes, language: str) -> str | None:
    """The likeliest codec of text that is not UTF-8; None: there is none.

    Of the pages of the languages above, the one in which letters, marks and words fit some language best, the given one
    rather than others. Other scripts and pages are charset-normalizer's to name.
    """
    language, best = _ALIASES.get(language, language), (-math.inf, "")
    for page in dict.fromkeys(page for pages, *_ in _LANGUAGES.values() for page in pages.split()):
        try:
            text = sample[:_SAMPLE_BYTES].decode(page)
        except UnicodeDecodeError:
            continue
        places = Counter(place for place in zip(" " + text, text, text[1:] + " ", strict=False) if place[1] > "\x7f")
        words = Counter(_WORD.findall(text.lower()))
        for code, (pages, letters, common) in _LANGUAGES.items():
            if page in pages.split():
                fit = sum(number * _fit(place, letters) for place, number in places.items())
                share = sum(words[word] for word in common.split()) / max(1, words.total())
                score = fit + _WORDS * share + _GIVEN * (code == language != "en") + _PLACE * pages.split().index(page)
                score += _OF_RARE * (page in _RARE)
                least = _LEAST_FIT_OF_ALPHABETS if len(letters) > _ALPHABET or page in _RARE else _LEAST_FIT
                if fit > least * places.total():
                    best = max(best, (score, page))
    if best[1]:
        return best[1]
    match = from_bytes(sample, cp_exclusion=_NEVER).best()
    return None if match is None or match.encoding in ("utf_8", "ascii") else codecs.lookup(match.encoding).name


def _fit(place: tuple[str, str, str], letters: str) -> float:
    """How likely a character is between its neighbours, in a language of these letters."""
    before, character, after = place
    if character.isalpha() and character not in "ªº":
        rank = letters.find(character.lower())
        is_misplaced = character.isupper() and before.islower()
        return _MISPLACED if is_misplaced else _FOREIGN if rank < 0 else -math.log(rank + 1.5)
    if character < "\xa0":
        return _CONTROL
    if character in _BETWEEN:
        return _MARK
    if before.isalpha() or after.isalpha():
        fits = (not before.isalpha() or character in _BEHIND) and (not after.isalpha() or character in _BEFORE)
        return _MARK if fits and before.isalpha() + after.isalpha() == 1 else _MISPLACED
    return _MARK if character in _BEFORE + _BEHIND else _FOREIGN
