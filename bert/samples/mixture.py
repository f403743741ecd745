"""Training shards of several folders, mixed: mixture.json in the folder that a training reads.

    {"mixes": [{"samples": {".": 9000, "replay": 1000}, "from_pass": 0, "from_update": 0}, ...]}

A folder is named by its path below that of the file, "." is that one itself. A pass (an epoch) takes so many samples of
each: more than there are by reading the folder again, fewer by continuing in the next pass. One mix is written. Earlier
versions added samples to a run that had begun: a later mix counts from its pass on, which begins with the global batch
`from_update`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import TypeAdapter

from bert.files import json_of, write_atomically

MIXTURE_NAME = "mixture.json"
Key = TypeVar("Key")


@dataclass(frozen=True)
class Mix:
    """Samples that a pass takes, by folder."""

    samples: dict[str, int]
    from_pass: int = 0
    from_update: int = 0

    def total(self) -> int:
        return sum(self.samples.values())


_MIXES = TypeAdapter(tuple[Mix, ...])


def read_mixture(directory: Path) -> tuple[Mix, ...] | None:
    """The mixes, the first one first; None without the file. ValueError if it is damaged."""
    path = directory / MIXTURE_NAME
    if not path.exists():
        return None
    try:
        mixes = _MIXES.validate_python(json_of(path.read_bytes())["mixes"])
        if not mixes or any(min(mix.samples.values()) < 0 or mix.total() < 1 for mix in mixes):
            raise ValueError("no samples")
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: not a description of mixed shards ({reason}); restore it, or start anew") from None
    return mixes


def write_mixture(directory: Path, mixes: Iterable[Mix]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"mixes": [asdict(mix) for mix in mixes]}, indent=1)
    write_atomically(directory / MIXTURE_NAME, (content + "\n").encode())


def folders_of(mixes: Sequence[Mix]) -> tuple[str, ...]:
    """The folders in the order in which they were added."""
    return tuple(dict.fromkeys(name for mix in mixes for name in mix.samples))


def shares(counts: Mapping[Key, int], total: int) -> dict[Key, int]:
    """`total` in proportion to the counts, whole numbers by largest remainders."""
    sizes = np.array(list(counts.values()), np.int64)
    taken, remainders = np.divmod(sizes * total, max(1, int(sizes.sum())))
    taken[np.argsort(-remainders, kind="stable")[: total - int(taken.sum())]] += 1
    return dict(zip(counts, taken.tolist(), strict=True))
