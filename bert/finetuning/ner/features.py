"""Makes windows of tokens from tagged words. A word's tag is predicted at its first word piece."""

from dataclasses import dataclass

import numpy as np

from bert.arrays.ragged import offsets_of, ragged_indices
from bert.finetuning.loader import FeatureTable, single_sequences
from bert.finetuning.ner.conll import TaggedText
from bert.samples.sample_table import Slices
from bert.tokenization.library import TextTokenizer

NO_WORD = -1


@dataclass(frozen=True, kw_only=True)
class TaggedFeatures(FeatureTable):
    """Features of tagged text. word_indices: int32 [T], the word that is predicted at each token, or NO_WORD."""

    word_indices: np.ndarray


def token_features(
    tokenizer: TextTokenizer,
    text: TaggedText,
    max_seq_length: int,
    document_context: bool = False,
    overlap: int | None = None,
) -> tuple[TaggedFeatures, dict[str, int]]:
    """One window [CLS] ... [SEP] for every sentence, several for a long sentence.

    Every word is predicted in exactly one window. The windows of a long sentence overlap, so that each word is
    predicted where it has context on both sides.

    Args:
        document_context: fill each window with neighbouring sentences of the same document.
        overlap: tokens at either edge of a long sentence's windows that are context only; None: a quarter.
    Returns:
        also counts; `empty_words` are words without a piece (only control characters), which become [UNK].
    """
    limit = max_seq_length - 2
    pieces, starts, counts = _pieces(tokenizer, text, limit)
    first, after, low, high = _owned_words(text, starts, limit, limit // 4 if overlap is None else overlap)
    counts |= {
        "sentences": len(text.sentence_offsets) - 1,
        "windows": len(first),
        "split_sentences": int(len(np.unique(low[(first > low) | (after < high)]))),
    }
    if document_context:
        sentence = np.searchsorted(text.sentence_offsets, first, "right") - 1
        low, high = (bound[sentence] for bound in text.document_bounds())
    left, right = _with_context(starts, first, after, low, high, limit)
    lengths = starts[right] - starts[left]
    cls_id, sep_id = tokenizer.vocabulary.id_of("[CLS]"), tokenizer.vocabulary.id_of("[SEP]")
    ids, offsets = single_sequences(Slices(pieces, starts[left], lengths), cls_id, sep_id)
    words = np.full(offsets[-1], NO_WORD, np.int32)
    owned = ragged_indices(first, after - first)
    window = np.repeat(np.arange(len(first)), after - first)
    words[offsets[window] + 1 + starts[owned] - starts[left[window]]] = owned
    pad_id = tokenizer.vocabulary.id_of("[PAD]")
    return TaggedFeatures(input_ids=ids, offsets=offsets, word_indices=words, pad_id=pad_id), counts


def _pieces(tokenizer: TextTokenizer, text: TaggedText, limit: int) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """The word pieces of all words, offsets int64 [words + 1], and counts; every word has 1 to `limit` pieces."""
    ids, offsets = tokenizer.encode_words(text.words)
    lengths = np.diff(offsets)
    num_pieces = np.clip(lengths, 1, limit)
    starts = offsets_of(num_pieces)
    pieces = np.full(starts[-1], tokenizer.vocabulary.id_of("[UNK]"), ids.dtype)
    present = np.minimum(lengths, limit)
    pieces[ragged_indices(starts[:-1], present)] = ids[ragged_indices(offsets[:-1], present)]
    return pieces, starts, {"cut_words": int((lengths > limit).sum()), "empty_words": int((lengths == 0).sum())}


def _owned_words(
    text: TaggedText, starts: np.ndarray, limit: int, overlap: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each window, the words [first, after) that it predicts of sentence [low, high): int64 [windows] each."""
    low, high = text.sentence_offsets[:-1], text.sentence_offsets[1:]
    rows = []
    for begin, end in zip(low.tolist(), high.tolist(), strict=True):
        place = begin
        while place < end:
            # The first window of a sentence needs no context on its left, the last one none on its right.
            at_edge = place == begin or starts[end] - starts[place] <= limit - overlap
            room = limit - overlap if at_edge else max(limit - 2 * overlap, 1)
            after = int(np.searchsorted(starts, starts[place] + room, "right")) - 1
            after = end if starts[end] - starts[begin] <= limit else min(max(after, place + 1), end)
            rows.append((place, after, begin, end))
            place = after
    return tuple(np.array(rows, np.int64).T)


def _with_context(
    starts: np.ndarray, first: np.ndarray, after: np.ndarray, low: np.ndarray, high: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """The words [left, right) in each window: its own, and as many neighbours as fit, evenly on both sides."""
    budget = limit - (starts[after] - starts[first])
    before, behind = starts[first] - starts[low], starts[high] - starts[after]
    before = np.minimum(before, np.maximum(budget // 2, budget - behind))
    left = np.searchsorted(starts, starts[first] - before, "left")
    behind = np.minimum(behind, budget - (starts[first] - starts[left]))
    right = np.searchsorted(starts, starts[after] + behind, "right") - 1
    return left, right
