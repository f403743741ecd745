"""A kept index: a folder of segments, and a manifest that says which of them count.

manifest.json        format, generation, model, number of passages, segments
sources-N.json       the files that were read: path, size and time of change
mean.npy             if the model was not trained for search: the mean that is subtracted from all vectors
segment-*            see bert/search/segments.py

Every change writes new files, flushes them to the disk, and then replaces the manifest. A process that is killed leaves
the old index or the new one; files that no manifest names are removed at the next change or the next start. Several
processes may have the index open: a change takes the lock of the folder, and a search reads a new manifest first.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from uuid import uuid4

import numpy as np

from bert.arrays.vectors import unit
from bert.files import atomic_path, only_writer, read_json, write_atomically
from bert.search.manifest import MANIFEST, MEAN, IndexModel, Manifest, Source, read_manifest, write_manifest
from bert.search.segments import (
    MAKE_AGAIN,
    Passage,
    Segment,
    UnusableIndexError,
    read_array,
    write_deleted,
    write_joined,
    write_segment,
)
from bert.search.snapshot import Snapshot

_OWN_FILES = ("segment-*", "sources-*.json", MEAN, ".*.tmp")
_MANY, _LARGEST = 8, 1 << 18  # segments of similar size that are joined; most passages of a joined segment


@dataclass
class Change:
    """One change of an index: passages to delete, then passages to add.

    Attributes:
        vectors: float32 [passages, width].
        ids, sources: ids and files whose passages are deleted. A passage added without a file replaces all passages
            with its id. A passage of a file replaces only passages added without a file, as two files can have one id.
        read: the state of each file after the change, by name; None if the file is gone.
    """

    passages: Sequence[Passage] = ()
    vectors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    ids: Sequence[str] = ()
    sources: Sequence[str] = ()
    read: Mapping[str, Source | None] = field(default_factory=dict)


class SearchIndex:
    """An index in a folder, open for search and for changes.

    Attributes:
        snapshot: the passages as they are now.
    """

    snapshot: Snapshot
    _manifest: Manifest

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stamp: tuple[int, int] | None = None
        self.refresh()
        with suppress(ValueError), only_writer(folder):  # another process that writes will do it
            self._remove_unnamed()

    @classmethod
    def create(cls, folder: Path, model: IndexModel) -> "SearchIndex":
        """Create an empty index. ValueError if the folder has files already."""
        folder.mkdir(parents=True, exist_ok=True)
        with only_writer(folder):
            if (folder / MANIFEST).exists():
                raise ValueError(f"{folder} is an index already; name another folder")
            if others := sorted(path.name for path in folder.iterdir() if not path.name.endswith(".tmp")):
                raise ValueError(f"{folder} has files that are no index ({others[0]}); name a new folder")
            write_manifest(folder, Manifest(model, uuid4().hex))
        return cls(folder)

    @property
    def model(self) -> IndexModel:
        return self._manifest.model

    @property
    def generation(self) -> int:
        """The number of changes so far."""
        return self._manifest.generation

    def num_bytes(self) -> int:
        """The size of all files that the manifest names, in bytes."""
        names = self._manifest.files(self.snapshot.segments)
        return sum((self.folder / name).stat().st_size for name in names if (self.folder / name).exists())

    def require_model(self, model: IndexModel) -> None:
        """Raise ValueError if the index was made by another model, or with other settings such as the longest text."""
        if self.model == replace(model, name=self.model.name):
            return
        if self.model.fingerprint != model.fingerprint:
            different = f"its vectors were made by {self.model.name} (or that model has changed), not by {model.name}"
        else:
            names = [one.name for one in fields(model) if getattr(self.model, one.name) != getattr(model, one.name)]
            different = ", ".join(f"{name}={getattr(self.model, name)}, not {getattr(model, name)}" for name in names)
        raise UnusableIndexError(f"{self.folder}: {different}; name that model, or make an index in another folder")

    def refresh(self) -> Snapshot:
        """Read the manifest again if it has changed, also by another process; returns the present passages."""
        path = self.folder / MANIFEST
        for attempt in range(10):
            try:
                stat = path.stat()
                stamp = stat.st_ino, stat.st_mtime_ns
                if stamp != self._stamp:
                    self._open(read_manifest(path))
                    self._stamp = stamp
                return self.snapshot
            except FileNotFoundError as error:  # a segment that was joined with others since the manifest was read
                if attempt == 9 or not path.exists():
                    missing = error.filename or error
                    raise UnusableIndexError(f"{self.folder} is no whole index ({missing}); {MAKE_AGAIN}") from None
        raise AssertionError

    def _open(self, manifest: Manifest) -> None:
        is_same = self._stamp is not None and manifest.identity == self._manifest.identity
        known = {segment.name: segment for segment in self.snapshot.segments} if is_same else {}
        segments = []
        for name, deleted in manifest.segments:
            segment = known.get(name) or Segment(self.folder, name, manifest.model.width)
            segments.append(segment.with_deleted(deleted))
        self._manifest, self.snapshot = manifest, Snapshot(segments)

    def sources(self) -> dict[str, Source]:
        """The files that were read into the index, by name."""
        if not self._manifest.sources:
            return {}
        return {name: Source(**values) for name, values in read_json(self.folder / self._manifest.sources).items()}

    def units(self, vectors: np.ndarray) -> np.ndarray:
        """Normalise vectors as the index compares them: subtract the kept mean, if any, then scale to length 1."""
        return _units(vectors, self._mean())

    def _mean(self) -> np.ndarray:
        if not self._manifest.has_mean:
            return np.zeros(1, np.float32)
        try:
            return read_array(self.folder / MEAN, (self.model.width,))
        except FileNotFoundError:
            raise UnusableIndexError(f"{self.folder / MEAN} is missing; {MAKE_AGAIN}") from None

    def _keep_mean(self, vectors: np.ndarray) -> np.ndarray:
        """Write the mean of the first vectors, which is then subtracted from all vectors."""
        mean = vectors.mean(0, dtype=np.float64).astype(np.float32)
        with atomic_path(self.folder / MEAN) as temporary, open(temporary, "wb") as file:
            np.save(file, mean)
        return mean

    def unknown_ids(self, ids: Sequence[str]) -> list[str]:
        """The ids in `ids` that no passage has; deleted passages do not count."""
        snapshot = self.refresh()
        masks = snapshot.having_ids(ids)
        known = set[str]()
        for segment, mask in zip(snapshot.segments, masks, strict=True):
            known |= {*segment.column("id").filter(mask & segment.live).to_pylist()}
        return [one for one in ids if one not in known]

    def apply(self, change: Change) -> int:
        """Apply a change and write it to the disk; returns the number of deleted passages.

        Raises:
            ValueError: another process has written to the index for two seconds.
        """
        with self._changing():
            number, deleted = self._manifest.generation + 1, 0
            segments = list[Segment]()
            for segment, is_replaced in zip(self.snapshot.segments, self._replaced(change), strict=True):
                live = segment.live & ~is_replaced
                fewer = int(segment.live.sum() - live.sum())
                deleted += fewer
                if fewer and live.any():
                    segment = segment.with_deleted(write_deleted(self.folder, segment, live, number))
                segments += [segment] if live.any() else []
            manifest = self._manifest
            if change.passages:
                mean = self._mean()
                if self.model.is_centred and not manifest.has_mean:
                    mean, manifest = self._keep_mean(change.vectors), replace(manifest, has_mean=True)
                write_segment(self.folder, f"{number:06d}", change.passages, _units(change.vectors, mean))
                segments.append(Segment(self.folder, f"{number:06d}", self.model.width))
            if change.read:
                manifest = replace(manifest, sources=self._write_sources(change.read, number))
            if change.passages or change.read or deleted:
                self._replace(manifest, segments)
            if change.passages:
                self._join_small()
        return deleted

    def _replaced(self, change: Change) -> list[np.ndarray]:
        """Masks of the passages that a change deletes: bool [size] for each segment."""
        ids = [*change.ids, *(passage.id for passage in change.passages if not passage.source)]
        ids_of_files = [passage.id for passage in change.passages if passage.source]
        by_id, by_source = self.snapshot.having_ids(ids), self.snapshot.of_sources(change.sources)
        masks = [first | second for first, second in zip(by_id, by_source, strict=True)]
        if ids_of_files:
            by_id, added = self.snapshot.having_ids(ids_of_files), self.snapshot.of_sources([""])
            masks = [mask | (one & other) for mask, one, other in zip(masks, by_id, added, strict=True)]
        return masks

    def _write_sources(self, read: Mapping[str, Source | None], number: int) -> str:
        sources = {**self.sources(), **read}
        content = {name: asdict(source) for name, source in sources.items() if source is not None}
        write_atomically(self.folder / f"sources-{number:06d}.json", json.dumps(content, ensure_ascii=False).encode())
        return f"sources-{number:06d}.json"

    def _join_small(self) -> None:
        """Join segments of similar size when there are `_MANY`, so that an index has at most some dozens."""
        while group := _group_to_join([int(segment.live.sum()) for segment in self.snapshot.segments]):
            segments, number = self.snapshot.segments, self._manifest.generation + 1
            write_joined(self.folder, f"{number:06d}", [segments[place] for place in group])
            joined = Segment(self.folder, f"{number:06d}", self.model.width)
            others = [segment for place, segment in enumerate(segments) if place not in group]
            self._replace(self._manifest, [*others[: group[0]], joined, *others[group[0] :]])

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with only_writer(self.folder):
            self.refresh()
            yield

    def _replace(self, manifest: Manifest, segments: Sequence[Segment]) -> None:
        """Replace the manifest after all its files are written; then remove files that it does not name."""
        names = tuple((segment.name, segment.deleted) for segment in segments)
        number = sum(int(segment.live.sum()) for segment in segments)
        manifest = replace(manifest, generation=manifest.generation + 1, segments=names, num_passages=number)
        write_manifest(self.folder, manifest)
        self._manifest, self.snapshot = manifest, Snapshot(segments)
        stat = (self.folder / MANIFEST).stat()
        self._stamp = stat.st_ino, stat.st_mtime_ns
        self._remove_unnamed()

    def _remove_unnamed(self) -> None:
        """Remove index files that the manifest does not name. The caller must hold the lock."""
        self.refresh()
        named = self._manifest.files(self.snapshot.segments)
        for pattern in _OWN_FILES:
            for path in self.folder.glob(pattern):
                if path.name not in named:
                    path.unlink(missing_ok=True)


def _units(vectors: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return unit(vectors - mean).astype(np.float32)


def _group_to_join(sizes: Sequence[int]) -> list[int]:
    """Places of `_MANY` segments of one size class (1 to 7 passages, 8 to 63, ...); [] if no class has so many."""
    classes: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        classes.setdefault((size.bit_length() - 1) // 3, []).append(place)
    for places in classes.values():
        group = places[:_MANY]
        if len(group) == _MANY and sum(sizes[place] for place in group) <= _LARGEST:
            return group
    return []
