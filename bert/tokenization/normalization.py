"""Normalisation of text before WordPiece: case, accents, and words of scripts without spaces."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unicodedata import category, normalize

from bert.tokenization.segmentation import CUTTING

if TYPE_CHECKING:  # the library is loaded where a text is tokenised
    from tokenizers.normalizers import Normalizer

RARE = 1 / 1000  # share of the words of a vocabulary that may be of another kind, as foreign and damaged ones are


@dataclass(frozen=True)
class Normalization:
    """Text normalisation of a model, saved in tokenizer_config.json under the names of transformers.

    Three pairs of the first two are usual: BERT's "uncased" (the default), lower case with accents, and the text as it
    is. "Accents" are all that Unicode can take off a letter: vowel signs, tones and voiced marks too.

    Attributes:
        lowercase: do_lower_case of transformers and PaddleNLP.
        strip_accents: None: where text is lower-cased.
        word_segmenter: cuts scripts without spaces into words; None: no one does.
        equal_letters: é has the same tokens as one character and as two (`bert.tokenization.equal_letters`). Older
            models, and other libraries', do not say so, and get the text as it is written.
    """

    lowercase: bool = True
    strip_accents: bool | None = None
    word_segmenter: str | None = None
    equal_letters: bool = False

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> "Normalization | None":
        """The normalisation recorded in the settings of shards; None if they have none."""
        if settings.get("lowercase") is None:
            return None
        segmenter = settings.get("word_segmenter")
        cutter = segmenter if segmenter in CUTTING else None
        return cls(
            settings["lowercase"], settings.get("strip_accents"), cutter, bool(settings.get("equal_letters", False))
        )

    def strips(self) -> bool:
        return self.lowercase if self.strip_accents is None else self.strip_accents

    def normalizer(self) -> "Normalizer":
        from tokenizers.normalizers import BertNormalizer, Sequence

        from bert.tokenization.equal_letters import equalizing

        rules = BertNormalizer(lowercase=self.lowercase, strip_accents=self.strip_accents)
        return Sequence([*equalizing(lowercase=self.lowercase), rules]) if self.equal_letters else rules

    def settings(self) -> dict[str, Any]:
        """The entries of tokenizer_config.json."""
        others = {
            "strip_accents": self.strip_accents,
            "word_segmenter": self.word_segmenter,
            "equal_letters": self.equal_letters or None,
        }
        return {"do_lower_case": self.lowercase} | {name: value for name, value in others.items() if value is not None}

    def __str__(self) -> str:
        if self.lowercase:
            return "lower-cased" if self.strips() else "lower-cased, accents kept"
        return "cased, without accents" if self.strips() else "cased"


UNCASED, ACCENTED, CASED = Normalization(), Normalization(strip_accents=False), Normalization(lowercase=False)


def stripped(text: str) -> str:
    """Strip accents as the `tokenizers` library does; it decomposes Korean syllables too."""
    return "".join(letter for letter in normalize("NFD", text) if category(letter) != "Mn")


def inferred_normalization(words: Iterable[str]) -> Normalization:
    """Infer the normalisation from the words of a vocabulary: CASED, ACCENTED or UNCASED."""
    words = list(words)
    other_words = [word for word in words if not word.isascii()]
    limit = RARE * len(words)
    has_capital = any("A" <= letter <= "Z" for word in words for letter in word)
    if has_capital or sum(word != word.lower() for word in other_words) > limit:
        return CASED
    return ACCENTED if sum(stripped(word.lower()) != word for word in other_words) > limit else UNCASED
