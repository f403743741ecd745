"""Statistics of a folder of shards (counts, lengths, masks, tokens), and problems in them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from bert.arrays.ragged import positions_in_rows
from bert.randomness import hash64
from bert.samples.sample_table import SampleTable
from bert.samples.shards import Shard, ShardDirectory
from bert.tokenization.vocabulary import Vocabulary
from data.preprocessing.problems import Unknown, problems_of_pairs, problems_of_tokens

_KEY = np.uint64(0x5EED)
_MAX_DUPLICATES = 0.01
_MORE_OF_NVIDIAS = 0.15  # its shards have 55 to 62% random next sentences: chunks of one sentence always have one
_MASKED_RANGE = (0.12, 0.18)
_IMPOSSIBLE = ("masks shown as a special or [unused] token", "special tokens inside A or B", "empty A or B")


@dataclass
class ShardStatistics:
    """Sums over all readable samples.

    Attributes:
        tokens: int64 [vocabulary size], how often each occurs, masks undone.
        lengths_of_bins: bin (None without bins) -> number of tokens -> samples.
        counts: "samples", "random next", "masks" and their kinds, "duplicates", and violations of rules.
        shard_sizes: bin -> samples of each shard.
        problems: sentences for the user.
    """

    tokens: np.ndarray
    lengths_of_bins: dict[int | None, Counter] = field(default_factory=dict)
    counts: Counter = field(default_factory=Counter)
    shard_sizes: dict[int | None, list[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def lengths(self) -> Counter:
        """Number of samples by number of tokens."""
        return sum(self.lengths_of_bins.values(), Counter())

    def share(self, name: str, of: str = "samples") -> float:
        """The quotient counts[name] / counts[of]; 0 if the latter is 0."""
        return self.counts[name] / self.counts[of] if self.counts[of] else 0.0

    def num_tokens(self) -> int:
        """Number of tokens of all samples, with special ones."""
        return int(self.tokens.sum())

    def padding(self) -> dict[str, float]:
        """Share of padding, if samples are padded to the longest of all, and to the longest of its bin."""

        def share(groups: Iterable[Counter]) -> float:
            padded = sum(sum(group.values()) * -(-max(group) // 8) * 8 for group in groups if group)
            return 1 - self.num_tokens() / padded

        if not self.lengths:
            return {}
        return {
            "to the longest sample": share([self.lengths]),
            "to the longest of the bin": share(self.lengths_of_bins.values()),
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
    result.problems += _problems(result, vocabulary, are_ours=directory.manifest is not None)
    return result


def _add(result: ShardStatistics, shard: Shard, table: SampleTable, vocabulary: Vocabulary) -> None:
    lengths, single, plain = table.lengths(), table.is_single(), table.unmasked().token_ids
    result.lengths_of_bins.setdefault(shard.bin_id, Counter()).update(lengths.tolist())
    result.shard_sizes.setdefault(shard.bin_id, []).append(len(table))
    result.tokens += np.bincount(plain, minlength=len(vocabulary))
    special = np.isin(plain, [vocabulary.id_of(token) for token in ("[CLS]", "[SEP]", "[PAD]")])
    empty = (table.first_lengths <= 2) | (lengths - table.first_lengths == 1)
    counts = {
        "special tokens inside A or B": special.sum() - 3 * len(table) + single.sum(),
        "samples": len(table),
        "random next": table.is_random_next.sum(),
        "single sequences": single.sum(),
        "empty A or B": empty.sum(),
    }
    if table.masks:
        flat = np.repeat(table.offsets[:-1], table.masks.counts()) + table.masks.positions
        masked_ids, labels = table.token_ids[flat], table.masks.labels
        is_mask, unchanged = masked_ids == vocabulary.id_of("[MASK]"), masked_ids == labels
        no_word = ~np.isin(masked_ids, vocabulary.replacement_ids())
        counts["masks"] = len(labels)
        counts["masks shown as [MASK]"], counts["masks left unchanged"] = is_mask.sum(), unchanged.sum()
        counts["masks shown as a special or [unused] token"] = (no_word & ~is_mask & ~unchanged).sum()
    result.counts.update({name: int(count) for name, count in counts.items()})


def _row_hashes(table: SampleTable) -> np.ndarray:
    """64-bit hashes of the tokens of each sample without masks, uint64 [n]."""
    if not len(table):
        return np.zeros(0, np.uint64)
    plain = table.unmasked()
    keys = plain.token_ids.astype(np.int64) << 16 | positions_in_rows(plain.offsets)
    return np.add.reduceat(hash64(_KEY, keys), plain.offsets[:-1])


def _problems(result: ShardStatistics, vocabulary: Vocabulary, are_ours: bool) -> list[str]:
    counts, num_tokens = result.counts, max(1, result.num_tokens())
    singles, pairs = counts["single sequences"], counts["samples"] - counts["single sequences"]
    if singles:
        counts["special tokens inside A or B"] = 0  # a [SEP] between two documents
    random_next, duplicates = result.share("random next"), result.share("duplicates")
    masked, unknown = counts["masks"] / num_tokens, result.tokens[vocabulary.id_of("[UNK]")] / num_tokens
    problems = []
    if singles and pairs:
        problems.append(f"{singles} samples are single sequences, {pairs} are pairs; a folder holds one of the two")
    problems += problems_of_pairs(pairs, random_next, 0.0 if are_ours else _MORE_OF_NVIDIAS)
    if counts["masks"] and not _MASKED_RANGE[0] <= masked <= _MASKED_RANGE[1]:
        problems.append(f"{masked:.1%} of the tokens are masked; 15% is usual")
    problems += [f"{name}: {counts[name]}; there should be none" for name in _IMPOSSIBLE if counts[name]]
    problems += problems_of_tokens(Unknown(unknown, num_tokens, Counter()))
    if duplicates > _MAX_DUPLICATES:
        problems.append(f"{duplicates:.1%} of the samples occur more than once")
    return problems + _problems_of_bins(result)


def _problems_of_bins(result: ShardStatistics) -> list[str]:
    problems = []
    if len({len(sizes) for sizes in result.shard_sizes.values()}) > 1:
        problems.append(
            "bins differ in their number of files; LDDL's loader needs the same number of files for each bin"
        )
    for bin_id, sizes in result.shard_sizes.items():
        if max(sizes) - min(sizes) > 1:
            where = "" if bin_id is None else f" of bin {bin_id}"
            problems.append(
                f"the shards{where} hold {min(sizes)} to {max(sizes)} samples; LDDL's loader wants them to "
                "differ by 1 at most: run data.balance_shards"
            )
    bins = sorted((bin_id, some) for bin_id, some in result.lengths_of_bins.items() if bin_id is not None and some)
    for (first, lengths), (second, others) in pairwise(bins):
        if max(lengths) >= min(others):
            problems.append(
                f"bin {first} has samples of {max(lengths)} tokens, bin {second} of {min(others)}; bins must "
                "not overlap"
            )
    return problems
