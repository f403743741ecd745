"""Finds the files below a folder; links and special files are followed, left out or named."""

import os
from collections.abc import Callable
from pathlib import Path

from bert.files import shown
from data.text.findings import Findings


def _raise(error: OSError) -> None:
    raise error


def files_below(
    folder: Path,
    findings: Findings,
    hidden: bool = True,
    follow_links: bool = True,
    on_error: Callable[[OSError], None] = _raise,
) -> list[Path]:
    """The files below a folder, sorted; links to folders are followed, and each folder is read once.

    Args:
        findings: counts what is left out.
        hidden: whether hidden files and everything below hidden folders are included; otherwise they are not counted.
        follow_links: whether links out of the folder are included; otherwise they are named.
        on_error: gets the error of a folder that cannot be listed.
    """
    files: list[Path] = []
    visited: set[str] = set()
    waiting = [folder]
    top = os.path.realpath(folder)

    def is_left_out(path: str) -> bool:
        target = None if follow_links else _target_outside(path, top)
        if target is None:
            return False
        reason = f"is a link out of the folder, to {shown(target)}; pass --follow-links to read it"
        findings.leave_out("links out of the folder left out", path, reason)
        return True

    while waiting:  # a folder is visited before links to it
        for root, folders, names in os.walk(waiting.pop(0), onerror=on_error):
            folders[:] = sorted(name for name in folders if hidden or not name.startswith("."))
            real = os.path.realpath(root)
            if real in visited:
                findings.counts["links to folders that were read already"] += 1
                folders.clear()
                continue
            visited.add(real)
            links = [os.path.join(root, name) for name in folders if os.path.islink(os.path.join(root, name))]
            waiting += [Path(link) for link in links if not is_left_out(link)]
            for name in sorted(name for name in names if hidden or not name.startswith(".")):
                path = Path(root, name)
                if is_left_out(os.path.join(root, name)):
                    continue
                if os.path.isfile(path):
                    files.append(path)
                else:
                    reason = "is a broken link, a pipe or a device"
                    findings.leave_out("broken links, pipes and devices left out", path, reason)
    return sorted(files)


def _target_outside(path: str, top: str) -> str | None:
    """Target of a link, if it exists and is not below `top`; None for other paths."""
    if not os.path.islink(path):
        return None
    target = os.path.realpath(path)
    is_below = os.path.commonpath((top, target)) == top
    return None if is_below or not os.path.exists(target) else target
