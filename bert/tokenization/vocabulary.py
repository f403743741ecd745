"""BERT's vocabulary: its tokens, the refused ones, their ids, and facts about words."""

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bert.tokenization.normalization import Normalization, inferred_normalization

if TYPE_CHECKING:  # not for --help
    import numpy as np

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION_PREFIX = "##"
_WHITE_SPACE = re.compile(r"[ \t\n\r]")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens of a vocab.txt, checked on construction; a token's id is its line number minus one.

    `stated`: what the tokenizer.json says that it was read from. `bert.tokenization.library` has the vocabulary of any
    other tokenizer.
    """

    tokens: tuple[str, ...]
    source: str = "vocabulary"
    stated: Normalization | None = None

    def __post_init__(self) -> None:
        first_line: dict[str, int] = {}
        for line, token in enumerate(self.tokens, start=1):
            if not token or _WHITE_SPACE.search(token):
                _check_token(token, line, self.source)
            if first_line.setdefault(token, line) != line:
                raise ValueError(
                    f"{self.source}:{line}: {token[:80]!r} is on line {first_line[token]} already; "
                    "a token has one id: remove one of the two lines"
                )
        ids = {token: line - 1 for token, line in first_line.items()}
        object.__setattr__(self, "_ids", ids | self._special_ids(ids))

    def _special_ids(self, ids: dict[str, int]) -> dict[str, int]:
        """Ids of SPECIAL_TOKENS; ValueError if one is missing."""
        missing = [token for token in SPECIAL_TOKENS if token not in ids]
        if missing:
            raise ValueError(
                f"{self.source}: none of its {len(self.tokens)} lines (1 to {len(self.tokens)}) is "
                f"{' or '.join(missing)}; BERT needs {' '.join(SPECIAL_TOKENS)}: "
                "use the vocabulary that the model was made with"
            )
        return {token: ids[token] for token in SPECIAL_TOKENS}

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._ids  # type: ignore[attr-defined]

    def id_of(self, token: str) -> int:
        """Id of a token; KeyError if it is not in the vocabulary."""
        return self._ids[token]  # type: ignore[attr-defined]

    def name_of(self, special: str) -> str:
        """This vocabulary's name of one of SPECIAL_TOKENS."""
        return self.tokens[self.id_of(special)]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.file_content()).hexdigest()

    def file_name(self) -> str:
        """File name of the vocabulary in checkpoints and exports."""
        return "vocab.txt"

    def file_content(self) -> bytes:
        """Content of a vocab.txt with these tokens."""
        return "".join(token + "\n" for token in self.tokens).encode()

    def id_dtype(self) -> "np.dtype":
        """The smallest dtype, uint16 or int32, that holds every id."""
        import numpy as np

        return np.dtype(np.uint16 if len(self) <= 1 << 16 else np.int32)

    def check_model_size(self, vocab_size: int) -> None:
        """Refuse a vocab_size that is neither the number of tokens nor this number rounded up to a multiple of 8."""
        rounded = -(-len(self) // 8) * 8
        if vocab_size not in (len(self), rounded):
            raise ValueError(
                f"{self.source}:{len(self)}: the last line gives {len(self)} tokens, but the model's "
                f"vocab_size is {vocab_size}; it must be {len(self)} or {rounded} (a multiple of 8): "
                "use the vocabulary that belongs to the model, or set vocab_size"
            )

    def normalization(self, lowercase: bool | None = None, strip_accents: bool | None = None) -> Normalization:
        """The normalisation without segmenter: as given, else as stated or inferred from the words.

        Raises:
            ValueError: a tokenizer.json decides by itself, and not as given.
        """
        usual = self.stated or inferred_normalization(self._words())
        if lowercase is not None and lowercase != usual.lowercase:
            usual = Normalization(lowercase)
        return usual if strip_accents is None else replace(usual, strip_accents=strip_accents)

    def _words(self) -> list[str]:
        return [token for token in self.tokens if token not in SPECIAL_TOKENS and not token.startswith("[")]

    def is_wordpiece(self) -> bool:
        """Whether the tokenizer is BERT's WordPiece, so that a vocab.txt describes it fully."""
        return True

    def check_extendable(self) -> None:
        """Raise ValueError unless words can be added at the end."""

    def knows_words(self) -> bool:
        """Whether tokens show where words begin."""
        return True

    def continuations(self) -> "np.ndarray":
        """Whether each token continues the word of the token before, bool [size]."""
        import numpy as np

        return np.array([token.startswith(CONTINUATION_PREFIX) for token in self.tokens], bool)

    def shown(self, index: int) -> str:
        """A token for readers: a word, or a word's end with a mark before it."""
        return self.tokens[index]

    def insert(self, before: str, shown: str) -> str:
        """Append a token, as in `shown`, to a text."""
        continues = shown.startswith(CONTINUATION_PREFIX)
        return (before.rstrip() if continues else before) + shown.removeprefix(CONTINUATION_PREFIX).lstrip()

    def pair_separators(self) -> int:
        """Separator tokens between the two texts of a pair."""
        return 1

    def second_type(self) -> int:
        """Token type of the second text of a pair."""
        return 1

    def replacement_ids(self) -> "np.ndarray":
        """Ids that may replace a masked token, all but special and [unused...] tokens: int64."""
        import numpy as np

        words = [token for token in self.tokens if token not in SPECIAL_TOKENS and not token.startswith("[unused")]
        if not words:
            raise ValueError(
                f"{self.source}: its {len(self)} lines are all special or [unused] tokens; "
                "words are needed: train a vocabulary with data.train_vocabulary"
            )
        return np.array([self.id_of(word) for word in words], np.int64)


def _check_token(token: str, line: int, source: str) -> None:
    """Raise ValueError for a token that is empty or has white space."""
    rule = f"{token[:80]!r} contains white space; WordPiece tokens have none: one token per line, without counts"
    if not token:
        rule = "blank line; every line is a token, and a blank one shifts all ids after it: remove it"
    elif token.endswith("\r"):
        rule = f"{token[:80]!r} ends in CR LF; lines must end in LF alone: convert the file, e.g. with dos2unix"
    raise ValueError(f"{source}:{line}: {rule}")
