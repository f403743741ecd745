"""Lists the files below a folder, following links; each folder is read once, an unreadable one is an error."""

import os
from collections import Counter
from pathlib import Path


def files_below(folder: Path, counts: Counter, hidden: bool = True, others: list[Path] | None = None) -> list[Path]:
    """The files below a folder, sorted; links to folders are followed, and each folder is read once.

    Without `hidden`, hidden files and everything below hidden folders are left out. Broken links, pipes and devices are
    counted, or appended to `others`.

    Raises:
        OSError: a folder cannot be read.
    """
    files: list[Path] = []
    seen: set[str] = set()
    waiting = [folder]
    while waiting:  # a folder is visited before links to it
        for root, names, names_of_files in os.walk(waiting.pop(0), onerror=_raise):
            if not hidden:
                names[:], names_of_files = (
                    [name for name in found if not name.startswith(".")] for found in (names, names_of_files)
                )
            names.sort()
            real = os.path.realpath(root)
            if real in seen:
                counts["links to folders that were read already"] += 1
                names.clear()
                continue
            seen.add(real)
            waiting += [Path(root, name) for name in names if os.path.islink(os.path.join(root, name))]
            found = [Path(root, name) for name in names_of_files if os.path.isfile(os.path.join(root, name))]
            files += found
            strange = sorted({Path(root, name) for name in names_of_files}.difference(found))
            if others is not None:
                others += strange
            elif strange:
                counts["broken links, pipes and devices left out"] += len(strange)
    return sorted(files)


def _raise(error: OSError) -> None:
    raise error
