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
    """The model that made the vectors of an index; vectors of another model cannot be compared with them."""

    name: str
    fingerprint: str
    max_seq_length: int
    width: int
    query_prefix: str = ""
    passage_prefix: str = ""
    is_centred: bool = False  # not trained for search: the mean of the vectors is subtracted


@dataclass(frozen=True)
class Source:
    """A file that was read into the index: its path, size, modification time, and number of documents read.

    Attributes:
        form: the settings that it was read with.
    """

    path: str
    size: int
    changed: int  # modification time in nanoseconds
    documents: int = 0
    is_whole: bool = True
    form: str = ""

    def is_of(self, other: "Source | None") -> bool:
        """Whether both records have the same size, modification time and settings."""
        if other is None:
            return False
        return (self.size, self.changed, self.form) == (other.size, other.changed, other.form)


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json: model, segments, and files that were read.

    Attributes:
        identity: drawn at random for each new index. If an index is deleted and another one made in its folder, both
            have segments of equal names, and the identity tells them apart.
    """

    model: IndexModel
    identity: str = ""
    generation: int = 0
    num_passages: int = 0
    segments: tuple[tuple[str, str], ...] = ()  # (name, file of deletions) of each segment
    sources: str = ""  # name of the file that lists the files that were read
    has_mean: bool = False
    format: int = FORMAT

    def files(self, segments: Sequence[Segment]) -> set[str]:
        """Names of all files of the index but the manifest itself."""
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
    """Read manifest.json. ValueError if it is damaged or of another format."""
    content = path.read_bytes()
    try:
        values: dict[str, Any] = json_of(content)
        if (form := values.get("format", FORMAT)) != FORMAT:
            raise ValueError(f"its format is {form}, not {FORMAT}")
        segments = tuple((str(name), str(deleted)) for name, deleted in values["segments"])
        return Manifest(**{**values, "segments": segments, "model": IndexModel(**values["model"])})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnusableIndexError(f"{path} cannot be read ({error}); {MAKE_AGAIN}") from None
