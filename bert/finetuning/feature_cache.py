"""A cache on disk of the features of fine-tuning sets, so that a second run does not build them again.

    cache = FeatureCache(directory)
    key = cache.key("glue-mrpc-train", files=[path], vocabulary=vocabulary, settings={"max_seq_length": 128},
                    code=[bert.finetuning.glue.features])
    arrays, notes = cache.get_or_build(key, build)

An entry is one safetensors file, NAME-KEY.safetensors. The key is the sha256 of everything that decides the features:
the bytes of the input files, the settings, the vocabulary, and the source of the code that builds them. Entries are
written atomically and checked by sha256 when they are read; a damaged entry is logged and built again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bert.files import atomic_path, lock, sha256_of_file
from bert.tokenization.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
Arrays = dict[str, np.ndarray]
Notes = dict[str, Any]  # values for JSON: counts of truncated and skipped examples ...

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class CacheKey:
    """The name of an entry: a readable part, and the sha256 of everything that decides its content."""

    name: str
    sha256: str

    def file_name(self) -> str:
        return f"{self.name}-{self.sha256[:32]}.safetensors"


class FeatureCache:
    """A folder of entries; without a folder nothing is cached.

    Args:
        directory: made when the first entry is written; None: build every time.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory

    def key(
        self,
        name: str,
        *,
        files: Sequence[Path],
        vocabulary: Vocabulary,
        settings: Mapping[str, Any],
        code: Sequence[ModuleType],
    ) -> CacheKey:
        """The key of features built from `files` by the modules in `code`.

        Args:
            name: for readers, e.g. "squad-train"; letters, digits, dots, dashes and underscores.
            settings: everything else that the features depend on, as values for JSON.
            code: the modules that build the features; a changed program must not read features of the old one.
        """
        if not name or not all(character.isalnum() or character in "-_." for character in name):
            raise ValueError(f"cache entry name {name!r} must be letters, digits, dots, dashes and underscores")
        digest = hashlib.sha256()
        description = {
            "format": _FORMAT_VERSION,
            "files": [sha256_of_file(path) for path in files],
            "code": [sha256_of_file(Path(str(module.__file__))) for module in code],
            "vocabulary": vocabulary.sha256,
            "settings": dict(settings),
        }
        digest.update(json.dumps(description, sort_keys=True, ensure_ascii=True).encode())
        return CacheKey(name, digest.hexdigest())

    def get_or_build(self, key: CacheKey, build: Callable[[], tuple[Arrays, Notes]]) -> tuple[Arrays, Notes]:
        """The arrays and notes of the entry; built and written if there is no valid entry.

        Ranks and runs that ask at the same time wait for the first to build. If the
        folder cannot be written, the run continues with features that are built and not cached.
        """
        if self.directory is None:
            return build()
        path = self.directory / key.file_name()
        with self._locked(path):
            found = self._read(path, key)
            if found is not None:
                logger.info(f"features from {path}")
                return found
            arrays, notes = build()
            self._write(path, key, arrays, notes)
        return arrays, notes

    def _read(self, path: Path, key: CacheKey) -> tuple[Arrays, Notes] | None:
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="np") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}
            if metadata.get("key") != key.sha256 or metadata.get("sha256") != _digest(arrays, metadata["notes"]):
                raise ValueError("its contents do not have the sha256 it was written with")
            return arrays, json.loads(metadata["notes"])
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            logger.info(f"{path} is damaged ({error}): building the features again")
            return None

    def _write(self, path: Path, key: CacheKey, arrays: Arrays, notes: Notes) -> None:
        text = json.dumps(notes, sort_keys=True)
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        metadata = {"key": key.sha256, "notes": text, "sha256": _digest(contiguous, text)}
        try:
            with atomic_path(path) as temporary:
                save_file(contiguous, temporary, metadata=metadata)
        except (OSError, SafetensorError) as error:
            logger.info(
                f"the features are not kept: {path} cannot be written ({error}); free some space, or give "
                "another --cache-dir"
            )

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Let one process of this machine build an entry; where files cannot be locked, several may build the same."""
        descriptor = None
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
            lock(descriptor, math.inf)
        try:
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)


def readable(text: str) -> str:
    """A user's file name as part of a key's name: characters that are not allowed there become dashes."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in text)


def fingerprint(arrays: Mapping[str, np.ndarray]) -> str:
    """sha256 of features: equal for a set that is built again, different for another set or other settings."""
    return _digest(arrays, "")


def _digest(arrays: Mapping[str, np.ndarray], notes: str) -> str:
    """sha256 over names, dtypes, shapes and bytes of the arrays, and the notes."""
    digest = hashlib.sha256(notes.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()
