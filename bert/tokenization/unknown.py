"""Limits the share of unknown tokens in training text: one limit for every command that trains."""

from typing import TYPE_CHECKING

from bert.tokenization.vocabulary import Vocabulary

if TYPE_CHECKING:  # not for --help
    import numpy as np

MOST_UNKNOWN_TO_TRAIN = 0.1  # share of the tokens; more of them leave too little to learn from
_FRAME = ("[PAD]", "[CLS]", "[SEP]")


def refuse_unknown(ids: "np.ndarray", vocabulary: Vocabulary, source: str) -> None:
    """Raise ValueError if too many of the training tokens are [UNK].

    Args:
        ids: integers, of whole sequences, whose special tokens do not count.
        source: of the text, for the message.
    """
    import numpy as np

    counts = np.bincount(ids, minlength=len(vocabulary))
    words = counts.sum() - counts[[vocabulary.id_of(token) for token in _FRAME]].sum()
    share = counts[vocabulary.id_of("[UNK]")] / max(1, words)
    if share > MOST_UNKNOWN_TO_TRAIN:
        raise ValueError(
            f"{source}: {share:.1%} of its tokens are [UNK] in {vocabulary.source}, more than "
            f"{MOST_UNKNOWN_TO_TRAIN:.0%}: the vocabulary is of another language or case; pass a --model that was "
            "trained on such text, such as bert-base-multilingual-cased"
        )
