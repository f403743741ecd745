"""Reads older HDF5 shards: padded matrices with static masks. They lack checksums, so every value is checked."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from bert.arrays.ragged import offsets_of
from bert.samples.formats.shard_writer import Description
from bert.samples.sample_table import SampleTable, StaticMasks
from bert.tokenization.token_strings import TokenStrings

_ROW_DATASETS = ("input_ids", "input_mask", "segment_ids")  # [n, s]
_MASK_DATASETS = ("masked_lm_positions", "masked_lm_ids")  # [n, p]
_LABELS = "next_sentence_labels"  # [n] or [n, 1]
_DATASETS = (*_ROW_DATASETS, *_MASK_DATASETS, _LABELS)
_REMEDY = "the shard is damaged or written by another program: make it again"


def describe(path: Path) -> Description:
    """The number of samples, without their lengths; ValueError if a dataset is missing or of a wrong type or shape."""
    import h5py  # only users of such shards need it

    with h5py.File(path, "r") as file:
        return Description(len(_datasets(file)["input_ids"]), 0, masked=True)


def read(data: bytes, strings: TokenStrings) -> SampleTable:
    """Decode a shard; ValueError names the first value that breaks a rule.

    Positions of masked_lm_positions after a row's last mask are 0, which is [CLS] and never masked.
    """
    import h5py

    vocabulary = strings.vocabulary
    with h5py.File(io.BytesIO(data), "r") as file:
        values = {name: dataset[:] for name, dataset in _datasets(file).items()}
    ids, mask, segments = (values[name] for name in _ROW_DATASETS)
    positions, labels = (values[name] for name in _MASK_DATASETS)
    lengths = mask.astype(bool).sum(axis=1)
    columns = np.arange(ids.shape[1])
    real = columns < lengths[:, None]
    _check(mask == real, mask, "input_mask", "it must be ones, then zeros")
    first = ((segments == 0) & real).sum(axis=1)
    _check(
        (segments == (columns >= first[:, None])) | ~real,
        segments,
        "segment_ids",
        "they must be 0 for [CLS] A [SEP], then 1 for B [SEP]",
    )
    _check(
        (first >= 2) & (first < lengths),
        first,
        "the number of tokens with segment_ids 0",
        "[CLS] A [SEP] are at least 2, and B [SEP] must follow with 1",
    )
    inside = (
        f"ids must lie in 0..{len(vocabulary) - 1}, as in {vocabulary.source} (use the vocabulary the shard was "
        "made with)"
    )
    _check(_in_range(ids, len(vocabulary)), ids, "input_ids", inside)
    masked = positions != 0
    _check(
        _in_range(positions, lengths[:, None]),
        positions,
        "masked_lm_positions",
        "they must be positions inside the sample",
    )
    _check(
        masked[:, :-1] | ~masked[:, 1:],
        positions,
        "masked_lm_positions",
        "after a 0 (no mask) there must be nothing but 0",
    )
    _check(_in_range(labels, len(vocabulary)) | ~masked, labels, "masked_lm_ids", inside)
    random_next = values[_LABELS].reshape(-1)
    _check((random_next == 0) | (random_next == 1), random_next, _LABELS, "it must be 0 or 1 (random next sentence)")
    dtype = vocabulary.id_dtype()
    return SampleTable(
        ids[real].astype(dtype),
        offsets_of(lengths),
        first.astype(np.int32),
        random_next.astype(bool),
        StaticMasks(offsets_of(masked.sum(axis=1)), positions[masked].astype(np.uint16), labels[masked].astype(dtype)),
    )


def _datasets(file: Any) -> dict[str, Any]:
    import h5py

    found = {name: file[name] for name in _DATASETS if isinstance(file.get(name), h5py.Dataset)}
    missing = [name for name in _DATASETS if name not in found]
    if missing:
        raise ValueError(
            f"has no dataset {missing[0]!r} (it has {', '.join(file)}); an HDF5 shard has "
            f"{', '.join(_DATASETS)}: make it again"
        )
    for name, data in found.items():
        if data.dtype.kind not in "iub":
            raise ValueError(f"{name} are of type {data.dtype}, they must be integers; {_REMEDY}")
    rows = found["input_ids"].shape
    for names, rule in ((_ROW_DATASETS, rows), (_MASK_DATASETS, found["masked_lm_positions"].shape)):
        for name in names:
            if len(rule) != 2 or found[name].shape != rule or rule[0] != rows[0]:
                raise ValueError(
                    f"{name} has the shape {found[name].shape}, {names[0]} {rule}, input_ids {rows}; they "
                    f"must have one row per sample, {' and '.join(names)} one width; {_REMEDY}"
                )
    if found[_LABELS].shape not in (rows[:1], (rows[0], 1)):
        raise ValueError(
            f"{_LABELS} has the shape {found[_LABELS].shape}, it must have one value for each of the "
            f"{rows[0]} samples; {_REMEDY}"
        )
    return found


def _in_range(values: np.ndarray, stop: Any) -> np.ndarray:
    return (values >= 0) & (values < stop)


def _check(good: np.ndarray, values: np.ndarray, name: str, rule: str) -> None:
    """Raise a ValueError that names the first value, in row order, where `good` [n, ...] is False."""
    if good.all():
        return
    place = np.unravel_index(int(np.argmin(good)), good.shape)
    column = f" at place {place[1]}" if len(place) > 1 else ""
    raise ValueError(f"sample {place[0]}: {name} is {values[place]}{column}; {rule}; {_REMEDY}")
