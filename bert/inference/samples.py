"""Makes token sequences, from a file of texts or at random, that calibrate a quantised export or check an export."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bert.arrays.ragged import offsets_of
from bert.config.architecture import BertConfig
from bert.conversion.tokenizer_settings import stated_normalization
from bert.finetuning.loader import FeatureTable, prediction_batches
from bert.inference.export_files import INPUTS
from bert.inference.rows import PAIR_KEYS, QUESTION_KEYS, SINGLE_KEYS, RawRequest, RowForm, filled_rows, texts_of
from bert.randomness import integers_below, stream_key
from bert.tokenization.segmentation import with_spaces

MOST_TEXTS = 256
_RANDOM_SEQUENCES, _RANDOM_LENGTH = 64, 128
_BATCH_SIZE = 8
Texts = Sequence[tuple[str, ...]]  # one text, or two


@dataclass(frozen=True)
class Sample:
    """Token sequences for an exported model; `source` describes them in serving.json."""

    source: str
    table: FeatureTable
    max_length: int

    def batches(self, size: int = _BATCH_SIZE, names: Sequence[str] = INPUTS) -> list[dict[str, np.ndarray]]:
        """Batches of at most `size` sequences, sorted by length: int64 [b, s] arrays by the names of the inputs."""
        batches = prediction_batches(self.table, size, max_seq_length=self.max_length)
        return [{name: batch.feed[name] for name in names} for batch in batches]


def read_texts(path: Path, columns: Sequence[str] = ()) -> Texts:
    """Read the first 256 texts, or pairs of texts, of a file in the formats of run_predict.py.

    Args:
        columns: names of the texts in the model's training data.
    """
    keys = [names for names in (tuple(columns), *QUESTION_KEYS, *PAIR_KEYS, *SINGLE_KEYS) if names]

    def check(raw: RawRequest) -> tuple[str, ...]:
        texts = texts_of(raw, keys)
        if len(texts) > 2 or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError("a line must have one text, or two separated by a tab")
        return texts

    texts = []
    try:
        for row in islice(filled_rows(path, RowForm(keys, check, splits_tabs=True)), MOST_TEXTS):
            if row.error:
                raise ValueError(f"{row.where}: {row.error}")
            texts.append(row.texts)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; name a file with one text a line") from None
    if not texts:
        raise ValueError(f"{path} holds no text; name a file with one text a line, some hundred of them")
    return texts


class ExportedTokenizer:
    """Reads the tokenizer.json of an export. Special tokens that stand in a text are treated as plain text."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.encode_special_tokens = True
        self._separate_words = partial(with_spaces, segmenter=stated_normalization(folder).get("word_segmenter"))

    def table(self, texts: Texts, max_length: int, pad_id: int = 0) -> FeatureTable:
        """Tokenise texts to sequences of at most `max_length` tokens."""
        self._tokenizer.enable_truncation(max_length)
        cut = [[*map(self._separate_words, text)] for text in texts]
        encoded = self._tokenizer.encode_batch([text if len(text) == 2 else text[0] for text in cut])
        ids = np.concatenate([np.array(text.ids, np.int64) for text in encoded])
        first = np.array([len(text.ids) - sum(text.type_ids) for text in encoded], np.int64)
        return FeatureTable(ids, offsets_of([len(text.ids) for text in encoded]), first, pad_id=pad_id)


def random_sample(config: BertConfig, seed: int = 42) -> Sample:
    """Make 64 sequences of random tokens with random lengths up to 128; half of them are pairs."""
    key = partial(stream_key, seed, "sample of an export")
    longest = min(_RANDOM_LENGTH, config.max_position_embeddings)
    lengths = 2 + integers_below(key("lengths"), np.arange(_RANDOM_SEQUENCES), longest - 1)
    ids = integers_below(key("tokens"), np.arange(lengths.sum()), config.vocab_size)
    first = lengths.copy()
    if config.type_vocab_size > 1:
        first[::2] = (lengths[::2] + 1) // 2
    table = FeatureTable(ids, offsets_of(lengths), first, pad_id=config.pad_token_id)
    return Sample(f"{_RANDOM_SEQUENCES} sequences of random tokens", table, longest)
