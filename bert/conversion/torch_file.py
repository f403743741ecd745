"""Reads the tensors of PyTorch's .bin, .pt and .pth without torch: the zip format (since 1.6) and the legacy format.

Both keep a pickle that describes the tensors, and the raw numbers beside it. `pickles` reads the pickle as data. The
numbers are views of the mapped file.
"""

import io
import mmap
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion import raw_tensors, untrusted_files
from bert.conversion.pickles import Builders, ordered_dict, read_pickle
from bert.conversion.raw_tensors import BFLOAT16, RawTensors
from bert.conversion.untrusted_files import ConversionError, count_elements, excerpt

_STORAGES = {
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": BFLOAT16,
    "DoubleStorage": np.dtype("<f8"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LARGEST_PICKLE = 256 << 20
_WRAPPERS = ("model", "state_dict", "model_state_dict", "module")  # training checkpoints nest the weights


@dataclass
class Storage:
    """A flat array of numbers; in the legacy format it follows the pickle that refers to it."""

    key: str
    dtype: np.dtype
    num_elements: int
    numbers: np.ndarray | None = None

    def num_bytes(self) -> int:
        return self.num_elements * self.dtype.itemsize

    def place(self, data: mmap.mmap, begin: int) -> None:
        self.numbers = np.frombuffer(data, self.dtype, self.num_elements, begin)


@dataclass(frozen=True)
class TorchTensor:
    """A strided view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def array(self) -> np.ndarray:
        """The tensor as an array; refuses strides that repeat elements or leave the storage."""
        numbers, count = self.storage.numbers, count_elements(self.shape)
        if numbers is None:
            raise ConversionError(f"its numbers ({self.storage.key[:40]}) are missing")
        if count == 0:
            return np.zeros(self.shape, numbers.dtype)
        axes = list(zip(self.shape, self.strides, strict=True))
        last = self.offset + sum((size - 1) * stride for size, stride in axes)
        repeats = count > len(numbers) or any(stride <= 0 and size > 1 for size, stride in axes)
        if repeats or last >= len(numbers):
            raise ConversionError(f"a tensor of shape {list(self.shape)} reaches out of its {len(numbers)} numbers")
        strides = [stride * numbers.dtype.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(numbers[self.offset :], self.shape, strides, writeable=False)


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> TorchTensor:
    count_elements(shape)
    are_numbers = isinstance(strides, tuple) and all(type(number) is int for number in (offset, *strides))
    if not isinstance(storage, Storage) or not are_numbers or offset < 0 or len(strides) != len(shape):
        raise ConversionError("a tensor that is not a strided view of a storage")
    return TorchTensor(storage, offset, shape, strides)


_BUILDERS: Builders = {
    ("collections", "OrderedDict"): ordered_dict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    **{("torch", name): dtype for name, dtype in _STORAGES.items()},
}


def read_torch(path: Path) -> RawTensors:
    """All tensors of a state dictionary that `torch.save` wrote, on its own or below `model` or `state_dict`."""
    data = untrusted_files.map_file(path)
    value = (_read_zip if data[:4] == b"PK\x03\x04" else _read_legacy)(path, data)
    notes: list[str] = []
    wrapper = next((key for key in _WRAPPERS if isinstance(value, dict) and isinstance(value.get(key), dict)), None)
    if wrapper:
        other_keys = ", ".join(sorted(excerpt(key) for key in value if key != wrapper)) or "nothing"
        notes.append(f"{path.name}: read {wrapper!r}; left out beside it: {other_keys}")
        value = value[wrapper]
    if not isinstance(value, dict) or not any(isinstance(item, TorchTensor) for item in value.values()):
        raise ConversionError(f"{path} holds no dictionary of tensors; save the model's state_dict()")
    tensors: dict[str, np.ndarray] = {}
    for name, item in value.items():
        if not isinstance(item, TorchTensor) or not isinstance(name, str):
            notes.append(f"{path.name}: left out, not a tensor: {excerpt(name)}")
            continue
        try:
            tensors[name] = item.array()
        except (ValueError, OverflowError) as error:
            raise ConversionError(f"{path}: {name[:80]}: {error}; fetch it again") from None
    raw_tensors.check_volume(tensors, path, len(data))
    return RawTensors(tensors, path, {"format": "pt"}, tuple(notes))


def _storage_of(identity: Any) -> Storage:
    """The storage that a persistent id names: ('storage', torch.FloatStorage, key, device, number of elements, ...)."""
    if not isinstance(identity, tuple) or len(identity) not in (5, 6) or identity[0] != "storage":
        raise ConversionError("the pickle refers to something that is not a storage")
    _, dtype, key, _, count = identity[:5]
    is_view = len(identity) == 6 and identity[5] is not None
    if not isinstance(dtype, np.dtype) or not isinstance(key, str) or type(count) is not int or count < 0 or is_view:
        raise ConversionError(f"the storage {excerpt(key)}, which is of an unknown kind")
    return Storage(key, dtype, count)


# ---- the zip format -----------------------------------------------------------------------------------------------


def _read_zip(path: Path, data: mmap.mmap) -> Any:
    """The unpickled value of the zip format, with its storages read."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
        names = [name for name in entries if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(names) != 1:
            raise ConversionError("it is without one data.pkl, as torch.save writes it")
        folder = names[0].removesuffix("data.pkl")
        start, size = _place(data, entries, names[0])
        order, length = _place(data, entries, f"{folder}byteorder")
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise ConversionError(f"{path} is a damaged zip archive ({error}); fetch it again") from None
    if data[order : order + length] not in (b"", b"little"):
        raise ConversionError(f"{path} was saved on a big-endian machine; save it on a little-endian one")
    if size > _LARGEST_PICKLE:
        raise ConversionError(f"{path}: its description of tensors has {size} bytes, more than any BERT needs")

    def storage_of(identity: Any) -> Storage:
        storage = _storage_of(identity)
        begin, length = _place(data, entries, f"{folder}data/{storage.key}")
        if begin and length != storage.num_bytes():
            raise ConversionError(f"{length} bytes for {storage.num_elements} numbers of {storage.dtype}")
        if begin:
            storage.place(data, begin)
        return storage

    return read_pickle(str(path), io.BytesIO(data[start : start + size]), size, _BUILDERS, storage_of)


def _place(data: mmap.mmap, entries: Mapping[str, zipfile.ZipInfo], name: str) -> tuple[int, int]:
    """(start, size) of an entry's bytes in the zip file, stored uncompressed and aligned; (0, 0) if it is missing."""
    entry = entries.get(name)
    if entry is None:
        return 0, 0
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.compress_size != entry.file_size:
        raise ConversionError(f"{name[:80]} is compressed or encrypted, which torch.save never does")
    header = data[entry.header_offset : entry.header_offset + 30]
    start = entry.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:], "little")
    if header[:4] != b"PK\x03\x04" or start + entry.file_size > len(data):
        raise ConversionError(f"{name[:80]} is not where it should be, or truncated")
    return start, entry.file_size


# ---- the legacy format --------------------------------------------------------------------------------------------


def _read_legacy(path: Path, data: mmap.mmap) -> Any:
    """Read the legacy format: five pickles (magic number, version, machine, value, keys), then the storages."""
    storages: dict[str, Storage] = {}

    def storage_of(identity: Any) -> Storage:
        storage = _storage_of(identity)
        if storages.setdefault(storage.key, storage) != storage:
            raise ConversionError(f"two storages have the key {storage.key[:40]}")
        return storages[storage.key]

    def read() -> Any:
        return read_pickle(str(path), data, len(data), _BUILDERS, storage_of)

    magic, version, system = read(), read(), read()
    if magic != _LEGACY_MAGIC or version != 1001 or not isinstance(system, dict) or not system.get("little_endian"):
        raise ConversionError(f"{path} was not written by torch.save on a little-endian machine")
    value, keys = read(), read()
    if not isinstance(keys, list):
        raise ConversionError(f"{path} does not list its storages; it is damaged")
    position = data.tell()
    for key in keys:
        storage = storages.get(key) if isinstance(key, str) else None
        if storage is None or int.from_bytes(data[position : position + 8], "little") != storage.num_elements:
            raise ConversionError(
                f"{path} is truncated or damaged: storage {excerpt(key)} is not there; fetch it again"
            )
        begin, position = position + 8, position + 8 + storage.num_bytes()
        if position > len(data):
            raise ConversionError(f"{path} is truncated: storage {excerpt(key)} reaches beyond its end; fetch it again")
        storage.place(data, begin)
    return value
