"""Mixtures of training shards from several folders: mixture.json in the folder that a training reads.

    {"mixes": [{"samples": {".": 9000, "replay": 1000}}]}

A folder is named by its path relative to the file's folder, which is ".". A pass (an epoch) takes so many samples of
each: more than there are by reading the folder again, fewer by continuing in the next pass.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import NonNegativeInt, TypeAdapter

from bert.files import json_of, write_atomically

MIXTURE_NAME = "mixture.json"
Key = TypeVar("Key")
_SAMPLES = TypeAdapter(dict[str, NonNegativeInt])


def read_mixture(directory: Path) -> dict[str, int] | None:
    """Number of samples of each folder in a pass; None without the file, ValueError if it is damaged."""
    path = directory / MIXTURE_NAME
    if not path.exists():
        return None
    try:
        mixes = json_of(path.read_bytes())["mixes"]
        if len(mixes) != 1:  # earlier versions added samples to a run that had begun
            raise ValueError(f"{len(mixes)} mixes instead of one")
        samples = _SAMPLES.validate_python(mixes[0]["samples"])
        if not any(samples.values()):
            raise ValueError("no samples")
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: not a description of mixed shards ({reason}); restore it, or start again") from None
    return samples


def write_mixture(directory: Path, samples: Mapping[str, int]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"mixes": [{"samples": dict(samples)}]}, indent=1)
    write_atomically(directory / MIXTURE_NAME, (content + "\n").encode())


def shares(counts: Mapping[Key, int], total: int) -> dict[Key, int]:
    """Divide `total` in proportion to the counts, in whole numbers by largest remainders."""
    whole = max(1, sum(counts.values()))
    taken = {key: count * total // whole for key, count in counts.items()}
    by_remainder = sorted(counts, key=lambda key: -(counts[key] * total % whole))
    for key in by_remainder[: total - sum(taken.values())]:
        taken[key] += 1
    return taken
