"""Statistics of a directory of shards (counts, lengths, masks, tokens) and the problems found in it."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from bert.arrays.ragged import positions_in_rows
from bert.randomness import hash64
from bert.samples.listing import Shard
from bert.samples.sample_table import SampleTable
from bert.samples.shards import ShardDirectory
from bert.tokenization.vocabulary import Vocabulary

_KEY = np.uint64(0x5EED)
_MAX_UNKNOWN, _MAX_DUPLICATES = 0.01, 0.01
_RANDOM_NEXT_RANGE = (0.45, 0.55)
_MASKED_RANGE = (0.12, 0.18)


@dataclass
class ShardStatistics:
    """Sums over all samples that could be read.

    Attributes:
        lengths: number of tokens -> samples; lengths_of_bins: the same for each bin (None without bins).
        tokens: int64 [vocabulary size], how often each occurs, masks undone.
        counts: "samples", "random next", "masks" and their kinds, "duplicates", and violations of rules.
        shard_sizes: bin -> samples of each shard.
        problems: sentences for the user.
    """

    tokens: np.ndarray
    lengths: Counter = field(default_factory=Counter)
    lengths_of_bins: dict[int | None, Counter] = field(default_factory=dict)
    counts: Counter = field(default_factory=Counter)
    shard_sizes: dict[int | None, list[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def share(self, what: str, of: str = "samples") -> float:
        """counts[what] / counts[of], 0 without any."""
        return self.counts[what] / self.counts[of] if self.counts[of] else 0.0

    def num_tokens(self) -> int:
        """Tokens of all samples, special ones counted."""
        return sum(length * count for length, count in self.lengths.items())

    def padding(self, multiple: int = 8) -> dict[str, float]:
        """Share of padding if every sample were padded to the longest there is, and to the longest of its bin."""

        def padded(lengths: Counter) -> int:
            return sum(lengths.values()) * -(-max(lengths) // multiple) * multiple

        if not self.lengths:
            return {}
        return {
            "to the longest sample": 1 - self.num_tokens() / padded(self.lengths),
            "to the longest of the bin": 1 - self.num_tokens() / sum(map(padded, self.lengths_of_bins.values())),
        }


def statistics_of(directory: ShardDirectory) -> ShardStatistics:
    """Read every shard; a shard that cannot be read becomes a problem."""
    vocabulary = directory.vocabulary
    result = ShardStatistics(np.zeros(len(vocabulary), np.int64))
    hashes = [np.zeros(0, np.uint64)]
    for index, shard in enumerate(directory.shards):
        try:
            table = directory.load(index)
        except ValueError as error:
            result.problems.append(f"cannot be read: {error}")
            continue
        _add(result, shard, table, vocabulary)
        hashes.append(_row_hashes(table))
    result.counts["duplicates"] = result.counts["samples"] - len(np.unique(np.concatenate(hashes)))
    result.problems += _problems(result, vocabulary)
    return result


def _add(result: ShardStatistics, shard: Shard, table: SampleTable, vocabulary: Vocabulary) -> None:
    lengths, counts = Counter(table.lengths().tolist()), result.counts
    result.lengths.update(lengths)
    result.lengths_of_bins.setdefault(shard.bin_id, Counter()).update(lengths)
    result.shard_sizes.setdefault(shard.bin_id, []).append(len(table))
    plain = table.unmasked()
    result.tokens += np.bincount(plain.token_ids, minlength=len(vocabulary))
    special = np.isin(plain.token_ids, [vocabulary.id_of(token) for token in ("[CLS]", "[SEP]", "[PAD]")])
    counts["special tokens inside A or B"] += int(special.sum()) - 3 * len(table) + int(table.is_single().sum())
    counts["samples"] += len(table)
    counts["random next"] += int(table.is_random_next.sum())
    counts["single sequences"] += int(table.is_single().sum())
    counts["empty A or B"] += int(((table.first_lengths <= 2) | (table.lengths() - table.first_lengths == 1)).sum())
    if table.masks:
        flat = np.repeat(table.offsets[:-1], table.masks.counts()) + table.masks.positions
        shown, labels = table.token_ids[flat], table.masks.labels
        is_mask, unchanged = shown == vocabulary.id_of("[MASK]"), shown == labels
        counts["masks"] += len(labels)
        counts["masks shown as [MASK]"] += int(is_mask.sum())
        counts["masks left unchanged"] += int(unchanged.sum())
        replaced = shown[~is_mask & ~unchanged]
        counts["masks shown as a special or [unused] token"] += int(
            (~np.isin(replaced, vocabulary.replacement_ids())).sum()
        )


def _row_hashes(table: SampleTable) -> np.ndarray:
    """uint64 [n]: 64 bits of each sample's tokens, masks undone."""
    if not len(table):
        return np.zeros(0, np.uint64)
    plain = table.unmasked()
    keys = plain.token_ids.astype(np.int64) << 16 | positions_in_rows(plain.offsets)
    return np.add.reduceat(hash64(_KEY, keys), plain.offsets[:-1])


def _problems(result: ShardStatistics, vocabulary: Vocabulary) -> list[str]:
    counts, found = result.counts, []
    low, high = _RANDOM_NEXT_RANGE
    pairs, singles = counts["samples"] - counts["single sequences"], counts["single sequences"]
    if singles:
        counts["special tokens inside A or B"] = 0  # a [SEP] between two documents
        if pairs:
            found.append(f"{singles} samples are single sequences, {pairs} are pairs; a folder holds one of the two")
    if pairs and not low <= result.share("random next") <= high:
        found.append(f"{result.share('random next'):.1%} of the pairs have a random next sentence; it should be half")
    if counts["masks"]:
        rate = counts["masks"] / result.num_tokens()
        if not _MASKED_RANGE[0] <= rate <= _MASKED_RANGE[1]:
            found.append(f"{rate:.1%} of the tokens are masked; 15% is usual")
    for what in ("masks shown as a special or [unused] token", "special tokens inside A or B", "empty A or B"):
        if counts[what]:
            found.append(f"{what}: {counts[what]}; there should be none")
    unknown = result.tokens[vocabulary.id_of("[UNK]")] / max(1, result.num_tokens())
    if unknown > _MAX_UNKNOWN:
        found.append(f"{unknown:.1%} of the tokens are [UNK]; does the vocabulary belong to this text?")
    if result.share("duplicates") > _MAX_DUPLICATES:
        found.append(f"{result.share('duplicates'):.1%} of the samples occur more than once")
    return found + _problems_of_bins(result)


def _problems_of_bins(result: ShardStatistics) -> list[str]:
    found = []
    if len({len(sizes) for sizes in result.shard_sizes.values()}) > 1:
        found.append("bins differ in their number of files; LDDL's loader needs the same number of files for each bin")
    for bin_id, sizes in result.shard_sizes.items():
        if max(sizes) - min(sizes) > 1:
            where = "" if bin_id is None else f" of bin {bin_id}"
            found.append(
                f"the shards{where} hold {min(sizes)} to {max(sizes)} samples; LDDL's loader wants them to "
                "differ by 1 at most: run data.balance_shards"
            )
    bins = sorted((bin_id, some) for bin_id, some in result.lengths_of_bins.items() if bin_id is not None and some)
    for (first, lengths), (second, others) in pairwise(bins):
        if max(lengths) >= min(others):
            found.append(
                f"bin {first} has samples of {max(lengths)} tokens, bin {second} of {min(others)}; bins must "
                "not overlap"
            )
    return found
