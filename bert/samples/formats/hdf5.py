"""Reads and writes older HDF5 shards: padded matrices with static masks.

They lack checksums, so every value is checked.
"""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.samples.formats.arrow import check_values
from bert.samples.formats.shard_writer import REMEDY, ShardDescription, refuse
from bert.samples.sample_table import SampleTable, StaticMasks
from bert.tokenization.token_strings import TokenStrings

_ROW_DATASETS = ("input_ids", "input_mask", "segment_ids")  # [n, s]
_MASK_DATASETS = ("masked_lm_positions", "masked_lm_ids")  # [n, p]
_LABELS = "next_sentence_labels"  # [n] or [n, 1]
DATASETS = (*_ROW_DATASETS, *_MASK_DATASETS, _LABELS)
WIDTHS = {_ROW_DATASETS: 0, _MASK_DATASETS: 0, (_LABELS,): 1}  # values of a sample; 0: as many as the first has


def describe(path: Path) -> ShardDescription:
    """Number of samples, without their lengths; ValueError for a missing or wrong dataset."""
    import h5py  # only users of such shards need it

    with h5py.File(path, "r") as file:
        return ShardDescription(len(_datasets(file)["input_ids"]), 0, masked=True)


def read(data: bytes, strings: TokenStrings) -> SampleTable:
    """Decode a shard; ValueError names the first value that breaks a rule."""
    import h5py

    with h5py.File(io.BytesIO(data), "r") as file:
        return table_of({name: dataset[:] for name, dataset in _datasets(file).items()}, strings)


def write(path: Path, table: SampleTable, max_seq_length: int, max_predictions: int) -> None:
    """Write masked pairs, padded to the given widths, as the loaders of NVIDIA's PyTorch trainer read them."""
    import h5py

    assert table.masks is not None
    counts = table.masks.counts()
    if len(table) and counts.max() > max_predictions:
        raise ValueError(
            f"max_predictions_per_seq={max_predictions} must be at least {counts.max()}, the masks of a sample; raise "
            "--max-predictions-per-seq"
        )
    if table.is_single().any():
        raise ValueError("HDF5 shards hold pairs of sentences, not single sequences; use --output-format arrow")
    real = np.arange(max_seq_length) < table.lengths()[:, None]
    masked = np.arange(max_predictions) < counts[:, None]
    values = {name: np.zeros(real.shape, np.int32) for name in _ROW_DATASETS}
    values |= {name: np.zeros(masked.shape, np.int32) for name in _MASK_DATASETS}
    values["input_ids"][real] = table.token_ids
    values["input_mask"][real] = 1
    values["segment_ids"][real & (np.arange(max_seq_length) >= table.first_lengths[:, None])] = 1
    values["masked_lm_positions"][masked] = table.masks.positions
    values["masked_lm_ids"][masked] = table.masks.labels
    with h5py.File(path, "w") as file:
        for name, matrix in {**values, _LABELS: table.is_random_next}.items():
            wide = name in ("input_ids", *_MASK_DATASETS)
            file.create_dataset(name, data=matrix, dtype="i4" if wide else "i1", compression="gzip")


def table_of(values: dict[str, np.ndarray], strings: TokenStrings) -> SampleTable:
    """Samples of padded matrices named as in DATASETS; ValueError names the first value that breaks a rule.

    Positions of masked_lm_positions after a row's last mask are 0, which is [CLS] and never masked.
    """
    values = {name: matrix.astype(np.int64, copy=False) for name, matrix in values.items()}  # whatever byte order
    ids, mask, segments = (values[name] for name in _ROW_DATASETS)
    positions, labels = (values[name] for name in _MASK_DATASETS)
    random_next = values[_LABELS].reshape(-1)
    lengths, columns, masked = mask.astype(bool).sum(axis=1), np.arange(ids.shape[1]), positions != 0
    real = columns < lengths[:, None]
    first = ((segments == 0) & real).sum(axis=1)
    _check(mask == real, mask, "input_mask", "it must be ones, then zeros")
    second = columns >= first[:, None]
    _check((segments == second) | ~real, segments, "segment_ids", "they must be 0 for [CLS] A [SEP], 1 for B [SEP]")
    rule = "[CLS] A [SEP] are at least 2, and B [SEP] must follow with 1"
    _check((first >= 2) & (first < lengths), first, "the number of tokens with segment_ids 0", rule)
    rule = "after a 0 (no mask) there must be nothing but 0"
    _check(masked[:, :-1] | ~masked[:, 1:], positions, "masked_lm_positions", rule)
    _check((random_next == 0) | (random_next == 1), random_next, _LABELS, "it must be 0 or 1 (random next sentence)")
    masks = StaticMasks(offsets_of(masked.sum(axis=1)), positions[masked], labels[masked])
    table = SampleTable(ids[real], offsets_of(lengths), first.astype(np.int32), random_next.astype(bool), masks)
    check_values(table, strings.vocabulary)
    dtype = strings.vocabulary.id_dtype()
    masks = replace(masks, positions=masks.positions.astype(np.uint16), labels=masks.labels.astype(dtype))
    return replace(table, token_ids=table.token_ids.astype(dtype), masks=masks)


def _datasets(file: Any) -> dict[str, Any]:
    import h5py

    leading = [
        name for name in DATASETS if name in file and not isinstance(file.get(name, getlink=True), h5py.HardLink)
    ]
    datasets = {
        name: file[name] for name in DATASETS if name not in leading and isinstance(file.get(name), h5py.Dataset)
    }
    leading += [name for name, data in datasets.items() if data.external or data.is_virtual]
    if leading:
        raise ValueError(
            f"{leading[0]} is kept in another file, which could be any; a shard must hold its own: make it again"
        )
    missing = [name for name in DATASETS if name not in datasets]
    if missing:
        raise ValueError(
            f"has no dataset {missing[0]!r} (it has {', '.join(map(str, file))}); an HDF5 shard has "
            f"{', '.join(DATASETS)}: make it again"
        )
    rows, masks = datasets["input_ids"].shape, datasets["masked_lm_positions"].shape
    shapes_of = dict.fromkeys(_ROW_DATASETS, [rows]) | dict.fromkeys(_MASK_DATASETS, [(*rows[:1], *masks[1:])])
    shapes_of_labels = [rows[:1], (*rows[:1], 1)]
    for name, data in datasets.items():
        if data.nbytes > (1 << 20) + 2000 * max(1, data.id.get_storage_size()):  # chunks not stored read as zeros
            raise ValueError(f"{name} would take {data.nbytes} bytes and stores far fewer; {REMEDY}")
        if data.dtype.kind not in "iub":
            raise ValueError(f"{name} are of type {data.dtype}, they must be integers; {REMEDY}")
        if len(rows) != 2 or len(masks) != 2 or data.shape not in shapes_of.get(name, shapes_of_labels):
            raise ValueError(
                f"{name} has the shape {data.shape}, input_ids {rows}, masked_lm_positions {masks}; they must have one "
                f"row per sample, {' and '.join(_ROW_DATASETS)} one width, {' and '.join(_MASK_DATASETS)} one width, "
                f"{_LABELS} one value for each sample; {REMEDY}"
            )
    return datasets


def _check(good: np.ndarray, values: np.ndarray, name: str, rule: str) -> None:
    """Refuse the first value, in row order, where `good` [n, ...] is False."""

    def describe(index: int) -> str:
        row, *column = np.unravel_index(index, good.shape)
        place = f" at place {column[0]}" if column else ""
        return f"sample {row}: {name} is {values[(row, *column)]}{place}; {rule}"

    refuse(~good.reshape(-1), describe)
