"""A table of pre-training samples in flat arrays, used by all shard formats, masks and batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bert.arrays.compiled import compiled, copied
from bert.arrays.ragged import offsets_of, ragged_indices


@dataclass(frozen=True)
class StaticMasks:
    """Static masks of n samples; row i has positions[offsets[i]:offsets[i + 1]] and as many labels."""

    offsets: np.ndarray  # int64 [n + 1]
    positions: np.ndarray  # uint16 [P], position in the sample; 0 is [CLS]
    labels: np.ndarray  # [P], true token ids

    def counts(self) -> np.ndarray:
        """Number of masks of each sample, int64 [n]."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "StaticMasks":
        counts = self.offsets[rows + 1] - self.offsets[rows]
        flat = ragged_indices(self.offsets[rows], counts)
        return StaticMasks(offsets_of(counts), self.positions[flat], self.labels[flat])


@dataclass(frozen=True)
class SampleTable:
    """Table of n samples with T tokens; row i is token_ids[offsets[i]:offsets[i + 1]], [CLS] A [SEP] B [SEP].

    A row may be a single sequence, [CLS] A [SEP]: of masked-LM training without sentence pairs.

    Attributes:
        continues: bool [T], tokens that continue the previous token's word, as a word segmenter found them; None:
            the vocabulary's ## pieces are all that continue words.
    """

    token_ids: np.ndarray  # uint16 or int32 [T]
    offsets: np.ndarray  # int64 [n + 1]
    first_lengths: np.ndarray  # int32 [n], number of tokens with type 0, len(A) + 2
    is_random_next: np.ndarray  # bool [n]
    masks: StaticMasks | None = None  # static masks, already applied to token_ids; or None
    continues: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.is_random_next)

    def lengths(self) -> np.ndarray:
        """Number of tokens of each sample, int64 [n]."""
        return np.diff(self.offsets)

    def is_single(self) -> np.ndarray:
        """Whether each sample is a single sequence without B, bool [n]."""
        return self.first_lengths == self.lengths()

    def take(self, rows: np.ndarray) -> "SampleTable":
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        flat = ragged_indices(self.offsets[rows], lengths)
        return SampleTable(
            self.token_ids[flat],
            offsets_of(lengths),
            self.first_lengths[rows],
            self.is_random_next[rows],
            self.masks.take(rows) if self.masks else None,
            None if self.continues is None else self.continues[flat],
        )

    def unmasked(self) -> "SampleTable":
        """The table with original tokens in place of its static masks."""
        if self.masks is None:
            return self
        ids = self.token_ids.copy()
        ids[np.repeat(self.offsets[:-1], self.masks.counts()) + self.masks.positions] = self.masks.labels
        return replace(self, token_ids=ids, masks=None)


def lengths_with_end(second_lengths: np.ndarray) -> np.ndarray:
    """Number of tokens of B with its [SEP]; 0 without B: int64 [n]."""
    return second_lengths + (second_lengths > 0)


class Slices(NamedTuple):
    """Slices of a flat array: slice i is values[starts[i]:][:lengths[i]]."""

    values: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of_rows(cls, values: np.ndarray, lengths: np.ndarray) -> "Slices":
        """The slices of consecutive rows."""
        return cls(values, offsets_of(lengths)[:-1], lengths)


def join_pairs(
    first: Slices, second: Slices, cls_id: int, sep_id: int, single: bool = False, separators: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Build flat rows [CLS] A [SEP] B [SEP] from the slices A and B.

    Args:
        single: where B is empty the row is a single sequence, [CLS] A [SEP]; otherwise a pair, [CLS] A [SEP] [SEP].
        separators: [SEP] between A and B of a pair.
    Returns:
        (token ids [T], offsets int64 [n + 1]).
    """
    second_lengths = lengths_with_end(second.lengths) if single else second.lengths + separators
    offsets = offsets_of(first.lengths + 2 + second_lengths)
    ids = np.empty(offsets[-1], first.values.dtype)
    _join(first, second, offsets, cls_id, sep_id, separators, ids)
    return ids, offsets


@compiled
def _join(
    first: Slices, second: Slices, offsets: np.ndarray, cls_id: int, sep_id: int, separators: int, ids: np.ndarray
) -> None:
    for row in range(len(first.lengths)):
        place, start = offsets[row], first.starts[row]
        ids[place] = cls_id
        place = copied(ids, place + 1, first.values, start, start + first.lengths[row])
        ids[place] = sep_id
        rest = offsets[row + 1] - place - 1 - separators  # tokens of B; negative for a single sequence
        if rest >= 0:
            for _ in range(separators - 1):
                place += 1
                ids[place] = sep_id
            start = second.starts[row]
            place = copied(ids, place + 1, second.values, start, start + rest)
            ids[place] = sep_id


def concatenate(tables: Sequence[SampleTable]) -> SampleTable:
    """Concatenate tables; all must have masks or none, and all words or none."""
    if len(tables) == 1:
        return tables[0]
    masks = [table.masks for table in tables if table.masks]
    continues = [table.continues for table in tables if table.continues is not None]
    assert len(masks) in (0, len(tables)) and len(continues) in (0, len(tables))
    return SampleTable(
        np.concatenate([table.token_ids for table in tables]),
        offsets_of(np.concatenate([table.lengths() for table in tables])),
        np.concatenate([table.first_lengths for table in tables]),
        np.concatenate([table.is_random_next for table in tables]),
        _concatenate_masks(masks) if masks else None,
        np.concatenate(continues) if continues else None,
    )


def _concatenate_masks(masks: Sequence[StaticMasks]) -> StaticMasks:
    return StaticMasks(
        offsets_of(np.concatenate([part.counts() for part in masks])),
        np.concatenate([part.positions for part in masks]),
        np.concatenate([part.labels for part in masks]),
    )


@dataclass(frozen=True)
class LocatedSamples:
    """Samples and their places: sample i has the id ids[i] and is row rows[i] of tables[table_of[i]]."""

    ids: np.ndarray
    tables: Sequence[SampleTable]
    table_of: np.ndarray
    rows: np.ndarray

    def take(self, places: np.ndarray | slice) -> "LocatedSamples":
        return LocatedSamples(self.ids[places], self.tables, self.table_of[places], self.rows[places])

    def by_table(self) -> list[tuple[SampleTable, np.ndarray]]:
        """(table, indices of its samples) for each table that has samples."""
        return [(self.tables[number], np.flatnonzero(self.table_of == number)) for number in np.unique(self.table_of)]

    def lengths(self) -> np.ndarray:
        """Number of tokens of each sample, int64 [n]."""
        lengths = np.empty(len(self.rows), np.int64)
        for table, places in self.by_table():
            rows = self.rows[places]
            lengths[places] = table.offsets[rows + 1] - table.offsets[rows]
        return lengths

    def gathered(self) -> tuple[SampleTable, np.ndarray]:
        """One table that contains the samples, and their rows in it."""
        parts = self.by_table()
        if len(parts) == 1:
            return parts[0][0], self.rows
        table = concatenate([table.take(self.rows[places]) for table, places in parts])
        return table, np.argsort(np.concatenate([places for _, places in parts]))


def word_positions(continues: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions in their samples of tokens marked in `continues` [T]: (uint16 [P], offsets int64 [n + 1])."""
    places = np.flatnonzero(continues)
    rows = np.searchsorted(offsets, places, side="right") - 1
    counts = np.bincount(rows, minlength=len(offsets) - 1)
    return (places - offsets[rows]).astype(np.uint16), offsets_of(counts)
