"""Abbreviations that end no sentence, for languages where sentencex 1.0.32 ends one there.

They mean "for example", "that is", "see", "compare", "so-called", "among others", or name a language or a title: in
each of them a word must follow. Tried on "<word> Jonas namas." with and without words before it.
"""

import re

_ABBREVIATIONS = {
    "lt": "pvz. t.y. plg. žr. vad. angl. lot. rus. vok. pranc. lenk. doc. prof. dr.",
    "lv": "piem. sal. sk. angļu. t.s.",
    "et": "nt. näit. vrd. vt. nn. ingl.",
    "fi": "ts. ks. vrt. engl. ns. ruots. saks.",
    "hu": "pl. vö. ún. ld. lásd. ang. ill.",
    "cs": "srov. angl. mj. tzv. např. něm. lat.",
    "sk": "porov. t.j. angl. napr. tzv. nem. lat.",
    "pl": "tzw. tj. m.in. por. np. zob. ang. łac. dr.",
    "hr": "npr. tzv. tj. usp. eng. njem. lat.",
    "sr": "npr. tzv. tj. up. нпр. тзв. тј. уп. енгл.",
    "bs": "npr. tzv. tj. usp.",
    "sl": "npr. tj. prim. t.i. angl. lat.",
    "ro": "ex. p.ex. cf. engl.",
    "bg": "напр. т.е. т.нар. ср. вж. англ.",
    "mk": "пр. т.е. т.н. англ. проф.",
    "uk": "напр. англ. т.зв. пор. див. лат. рос.",
    "be": "напр. г.зн. гл. англ. параўн. праф.",
    "ru": "напр. т.е. ср. см. англ. лат. нем. фр.",
    "el": "π.χ. δηλ. βλ. πρβλ. αγγλ. λατ. γαλλ.",
    "tr": "örn. bkz. krş. ing. lat. yun.",
    "sv": "t.ex. dvs. jfr. s.k. bl.a. eng.",
    "da": "bl.a. f.eks. dvs. jf. såk. eng.",
    "nb": "f.eks. dvs. jf. bl.a. s.k. eng.",
    "nn": "t.d. m.a. dvs. jf. eng.",
    "is": "t.d. þ.e. m.a. sbr.",
    "nl": "d.w.z. bijv. bv. m.n. vgl. eng. zgn.",
    "de": "engl. z.b. d.h. vgl. sog. lat. franz. griech.",
    "fr": "c.-à-d. p.ex. cf. ang. lat. dr.",
    "es": "cf. p.ej. ej. ing. lat.",
    "pt": "cf. p.ex. ex. ingl. lat.",
    "ca": "cf. p.ex. angl. lat.",
    "id": "mis. ttg. bhs. a.l.",
    "eo": "ekz. d-ro. kp. t.e.",
    "eu": "adib. h.d. ik.",
    "ga": "m.sh.",
    "sq": "p.sh. d.m.th.",
}  # fmt: skip
_SHORT = 4  # letters of a word that may be an abbreviation before a small letter


class OpenEnds:
    """Words of a language that end no sentence.

    Args:
        language: its code, without country.
    """

    def __init__(self, language: str) -> None:
        words = _ABBREVIATIONS.get({"no": "nb"}.get(language, language), "").split()
        spaced = (re.escape(word).replace(r"\.", r"\.\s?").removesuffix(r"\s?") for word in words)
        self._ends = (
            re.compile(rf"(?:^|[\s(\[\u00ab\u201e\u201c\"])(?:{'|'.join(spaced)})\s*\Z", re.I) if words else None
        )

    def goes_on(self, sentence: str, following: str) -> bool:
        """Whether a sentence continues: after such a word, or after a short word before a small letter."""
        if self._ends is not None and self._ends.search(sentence[-32:]):
            return True
        bare = sentence.rstrip()
        if not bare.endswith(".") or bare.endswith("..") or not following[:1].islower():
            return False
        word = bare[:-1].split()[-1:] or [""]
        return 0 < len(word[0].strip('([\u00ab\u201e\u201c"')) <= _SHORT and word[0][-1:].isalpha()
