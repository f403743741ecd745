"""Token sequences for calibrating a quantised export and for checking it: from a file of texts, or random ones."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bert.arrays.ragged import offsets_of
from bert.config.architecture import BertConfig
from bert.finetuning.loader import FeatureTable, prediction_batches
from bert.inference.lines import LineFormat, read_lines
from bert.randomness import integers_below, stream_key

MOST_TEXTS = 256
_RANDOM_SEQUENCES, _RANDOM_LENGTH = 64, 128
_BATCH_SIZE = 8
_KEYS = (("question", "context"), ("text", "text_pair"), ("sentence1", "sentence2"), ("text",), ("sentence",))
Texts = Sequence[str | tuple[str, str]]


@dataclass(frozen=True)
class Sample:
    """Batches for an exported model.

    Attributes:
        source: where the sequences come from, for serving.json.
        batches: of int64 [b, s] by the names of serving.INPUTS; b is at most 8.
    """

    source: str
    batches: list[dict[str, np.ndarray]]

    def sequences(self) -> int:
        return sum(len(batch["input_ids"]) for batch in self.batches)

    def tokens(self) -> int:
        return sum(int(batch["attention_mask"].sum()) for batch in self.batches)

    def joined(self) -> dict[str, np.ndarray]:
        """All sequences as one batch, padded with zeros."""
        width = max(batch["input_ids"].shape[1] for batch in self.batches)
        pads = [((0, 0), (0, width - batch["input_ids"].shape[1])) for batch in self.batches]
        return {
            name: np.concatenate([np.pad(batch[name], pad) for batch, pad in zip(self.batches, pads, strict=True)])
            for name in self.batches[0]
        }


def read_texts(path: Path, columns: Sequence[str] = ()) -> list[str | tuple[str, str]]:
    """The first 256 texts, or pairs of texts, of a file of lines as run_predict.py reads them.

    Args:
        columns: names of the texts in the model's training data.
    Raises:
        ValueError: the file cannot be read, or a line is not a text.
    """
    keys = [tuple(columns), *_KEYS] if columns else list(_KEYS)
    found: list[str | tuple[str, str]] = []
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; name a file with one text a line") from None
    try:
        form = LineFormat("auto", path, splits_tabs=True, keys=keys)
        for line in read_lines(descriptor):
            if line is None or form.is_header(line):
                continue
            try:
                if line.text is None:
                    raise ValueError(line.error)
                found.append(_texts_of(form.parse(line.text), keys))
            except ValueError as error:
                raise ValueError(f"{path}:{line.number}: {error}") from None
            if len(found) == MOST_TEXTS:
                break
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; name a file with one text a line") from None
    finally:
        os.close(descriptor)
    if not found:
        raise ValueError(f"{path} holds no text; name a file with one text a line, some hundred of them")
    return found


def _texts_of(given: Any, keys: Sequence[tuple[str, ...]]) -> str | tuple[str, str]:
    if isinstance(given, Mapping):
        names = next((names for names in keys if all(name in given for name in names)), None)
        if names is None:
            raise ValueError(f"the object has the keys {', '.join(given) or 'none'}; it must have text")
        given = [given[name] for name in names]
    texts = (given,) if isinstance(given, str) else tuple(given)
    if len(texts) > 2 or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("a line must have one text, or two separated by a tab")
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def sample_of_texts(source: str, texts: Texts, tokenizer_file: Path, max_length: int, pad_id: int) -> Sample:
    """The texts as sequences of at most `max_length` tokens, batched by length."""
    return _batched(source, table_of_texts(texts, tokenizer_file, max_length, pad_id), max_length)


def table_of_texts(texts: Texts, tokenizer_file: Path, max_length: int, pad_id: int = 0) -> FeatureTable:
    """The texts as sequences of at most `max_length` tokens, by a tokenizer.json."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_truncation(max_length)
    encoded = tokenizer.encode_batch(list(texts))
    lengths = np.array([len(text.ids) for text in encoded], np.int64)
    ids = np.concatenate([np.array(text.ids, np.int64) for text in encoded])
    first = np.array([len(text.ids) - sum(text.type_ids) for text in encoded], np.int64)
    return FeatureTable(ids, offsets_of(lengths), first, pad_id=pad_id)


def random_sample(config: BertConfig, seed: int = 42) -> Sample:
    """64 sequences of random tokens and of random lengths up to 128, half of them pairs."""
    key = partial(stream_key, seed, "sample of an export")
    longest = min(_RANDOM_LENGTH, config.max_position_embeddings)
    lengths = 2 + integers_below(key("lengths"), np.arange(_RANDOM_SEQUENCES), longest - 1)
    ids = integers_below(key("tokens"), np.arange(lengths.sum()), config.vocab_size)
    first = lengths.copy()
    if config.type_vocab_size > 1:
        first[::2] = (lengths[::2] + 1) // 2
    table = FeatureTable(ids, offsets_of(lengths), first, pad_id=config.pad_token_id)
    return _batched(f"{_RANDOM_SEQUENCES} sequences of random tokens", table, longest)


def _batched(source: str, table: FeatureTable, max_length: int) -> Sample:
    batches = prediction_batches(table, _BATCH_SIZE, max_seq_length=max_length)
    return Sample(source, [batch.feed for batch in batches])
