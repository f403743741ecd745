"""The sources of a training on the user's text: --text PATH ..., --text NAME=WEIGHT:PATH, --replay PATH ..."""

import dataclasses
import glob
import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

REPLAY = "replay"  # the name of the source of general text
REPLAY_SHARE = 0.1
_NAMED = re.compile(r"(?P<name>[A-Za-z][\w-]*)=(?P<weight>[^:/]*):(?P<path>.+)")
_TOLERANCE = 1e-3  # of the sum of the weights
_PARTS = 1_000_000  # that shares are counted in, where a folder's samples are only weights


@dataclasses.dataclass(frozen=True)
class TextSource:
    """Files that form one source of text.

    Attributes:
        name: "" of the only one.
        share: of the samples that are trained on.
    """

    name: str
    paths: tuple[Path, ...]
    share: float = 1.0

    def folder(self) -> str:
        """Name of its folder inside the shards' folder, as a mixture names it."""
        return self.name or "."

    def words(self) -> list[str]:
        """The command-line arguments that name it, with absolute paths."""
        prefix = f"{self.name}={self.share:g}:" if self.name else ""
        return [f"{prefix}{os.path.abspath(path)}" for path in self.paths]

    def group_by(self, asked: str | None) -> str | None:
        """Column or folder that groups the documents; None for general text (--replay)."""
        return None if self.name == REPLAY else asked


def read_sources(
    text: Sequence[str], replay: Sequence[str] | None, replay_share: float | None
) -> tuple[TextSource, ...]:
    """The sources, with the general text last; ValueError for a contradiction."""
    if "" in text or "" in (replay or ()):
        raise ValueError("--text names no file or folder (an empty word); is a variable not set?")
    weighted = {word: match for word in text if (match := _NAMED.fullmatch(word)) and not Path(word).exists()}
    sources = [TextSource("", _paths(text))]
    if weighted and (plain := [word for word in text if word not in weighted]):
        raise ValueError(f"text={plain[0]} has no weight, the others have; pass --text NAME=WEIGHT:PATH for each")
    if weighted:
        sources = _weighted([(word, weighted[word]) for word in text])
    if replay is not None:
        share = REPLAY_SHARE if replay_share is None else replay_share
        sources = [dataclasses.replace(source, share=source.share * (1 - share)) for source in sources]
        sources.append(TextSource(REPLAY, _paths(replay), share))
    elif replay_share is not None:
        raise ValueError(f"replay_share={replay_share} is a share of --replay PATH; pass it too, or drop it")
    _refuse_shared_files(sources)
    return tuple(sources)


def _weighted(words: Sequence[tuple[str, re.Match[str]]]) -> list[TextSource]:
    sources: list[TextSource] = []
    for word, found in words:
        weight, name, (path,) = _number(found["weight"]), found["name"], _paths([found["path"]])
        if not 0 < weight <= 1:
            raise ValueError(f"text={word}: the weight {found['weight']!r} must be above 0 and at most 1")
        if name in (REPLAY, *(source.name for source in sources)):
            used = "means something else here" if name == REPLAY else "is used twice"
            raise ValueError(f"text={word}: the name {name} {used}; pass another")
        if not path.exists():
            raise ValueError(f"text={word}: no such file or folder: {path}")
        sources.append(TextSource(name, (path,), weight))
    if abs((total := sum(source.share for source in sources)) - 1) > _TOLERANCE:
        listed = " + ".join(f"{source.name}={source.share:g}" for source in sources)
        raise ValueError(f"text: the weights {listed} are {total:g} together and must be 1; change them")
    return [dataclasses.replace(source, share=source.share / total) for source in sources]


def _paths(words: Sequence[str]) -> tuple[Path, ...]:
    return tuple(Path(word).expanduser() for word in words)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _refuse_shared_files(sources: Sequence[TextSource]) -> None:
    """Refuse files in two sources: their text could be both trained on and held out."""
    for one, other in itertools.permutations(sources, 2):
        for path, place in itertools.product(one.paths, other.paths):
            if path.resolve() in (place.resolve(), *place.resolve().parents):
                raise ValueError(
                    f"{other.name or 'text'}={place} lies in {one.name or 'text'}={path}; give each source "
                    "files of its own"
                )


def quoted_words(words: Sequence[str | Path]) -> str:
    """The arguments of a command line, quoted for a shell.

    Files that are all of a folder, or all with the suffix of the first, become the pattern that lists them.
    """
    quoted = list[str]()
    for folder, group in itertools.groupby(map(str, words), lambda one: os.path.isfile(one) and os.path.dirname(one)):
        files, place = list(group), os.path.join(folder or "", "")
        for suffix in (os.path.splitext(files[0])[1], "") if len(files) > 1 else ():
            if sorted(files) == sorted(glob.glob(f"{glob.escape(place)}*{suffix}")):
                quoted.append(f"{shlex.quote(place) if place else ''}*{suffix}")
                break
        else:
            quoted += map(shlex.quote, files)
    return " ".join(quoted)


def refuse_shared_groups(group_by: str | None, groups: Mapping[str, set[str]]) -> None:
    """Refuse groups that are in several sources, because each source is split by itself."""
    for (one, of_one), (other, of_other) in itertools.combinations(groups.items(), 2):
        if shared := len(of_one & of_other):
            raise ValueError(
                f"group_by={group_by}: {shared:,} groups are in the sources {one} and {other}, each of which is "
                "divided by itself, so that they could be on both sides; give the files with these groups to one source"
            )


def pass_over(sources: Sequence[TextSource], counts: Mapping[str, int]) -> dict[str, int]:
    """Samples of each folder in one pass: the text without --replay once, or by the sources' weights.

    Args:
        counts: samples of each source.
    """
    own = [source for source in sources if source.name != REPLAY]
    total = sum(counts[source.name] for source in own) / sum(source.share for source in own)
    return {source.folder(): round(total * source.share) for source in sources}


def held_out_mix(sources: Sequence[TextSource]) -> dict[str, int]:
    """Weights of the sources in the held-out loss: as in training; general text has none."""
    return {source.folder(): 0 if source.name == REPLAY else round(_PARTS * source.share) for source in sources}
