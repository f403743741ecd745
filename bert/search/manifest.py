"""The manifest of an index: which files count, whose vectors they have, and which files were read into it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bert.files import json_of, sync, write_atomically
from bert.search.segments import MAKE_AGAIN, Segment, UnusableIndexError

MANIFEST, FORMAT = "manifest.json", 1  # the format is raised when files or `words_of` change
MEAN = "mean.npy"


@dataclass(frozen=True)
class IndexModel:
    """What made the vectors of an index; another model's have nothing to do with them."""

    name: str
    fingerprint: str
    max_seq_length: int
    width: int
    query_prefix: str = ""
    passage_prefix: str = ""
    is_centred: bool = False  # it was not trained for search: vectors are compared without their mean


@dataclass(frozen=True)
class Source:
    """A file that was read: its path, size and time of change, and how many of its documents are in the index.

    Attributes:
        form: the settings that it was read with.
    """

    path: str
    size: int
    changed: int  # in nanoseconds
    documents: int = 0
    is_whole: bool = True
    form: str = ""

    def is_of(self, other: "Source | None") -> bool:
        """Whether the other is of the same state of the file, read with the same settings."""
        if other is None:
            return False
        return (self.size, self.changed, self.form) == (other.size, other.changed, other.form)


@dataclass(frozen=True)
class Manifest:
    """What an index is made of.

    Attributes:
        identity: drawn when the index is made: segments of one that is made anew in the same folder have equal names.
    """

    model: IndexModel
    identity: str = ""
    generation: int = 0
    num_passages: int = 0
    segments: tuple[tuple[str, str], ...] = ()  # names, and their files of deletions
    sources: str = ""  # the file of sources
    has_mean: bool = False
    format: int = FORMAT

    def files(self, segments: Sequence[Segment]) -> set[str]:
        """The files that count."""
        named = {name for segment in segments for name in segment.files()}
        return named | ({self.sources} if self.sources else set()) | ({MEAN} if self.has_mean else set())


def is_index(path: Path) -> bool:
    """Whether a path is the folder of an index."""
    return (path / MANIFEST).is_file()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    sync(folder)  # the names of the new files
    content = json.dumps(asdict(manifest), ensure_ascii=False, indent=1) + "\n"
    write_atomically(folder / MANIFEST, content.encode())
    sync(folder)


def read_manifest(path: Path) -> Manifest:
    """ValueError if it is damaged or of a later format."""
    content = path.read_bytes()
    try:
        values: dict[str, Any] = json_of(content)
        if (form := values.get("format", FORMAT)) != FORMAT:
            raise ValueError(f"its format is {form}, not {FORMAT}")
        segments = tuple((str(name), str(deleted)) for name, deleted in values["segments"])
        return Manifest(**{**values, "segments": segments, "model": IndexModel(**values["model"])})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnusableIndexError(f"{path} cannot be read ({error}); {MAKE_AGAIN}") from None
