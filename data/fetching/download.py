"""Downloads files; a file gets its final name when it is complete and verified.

A known checksum is verified. If none is known, the sha256 of the first download is written to checksums.json beside the
file, and every later download must have the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from bert.files import write_atomically
from bert.reporting.progress import megabytes
from data.fetching.transfer import PATIENT, DownloadError, Partial, Patience, Refused, Remote, check_checksum, transfer

CHECKSUMS_NAME = "checksums.json"
_SLOW_BYTES = 1 << 30


@dataclass(frozen=True)
class Fetched:
    """The file, its sha256, and what verified it: "published checksum", "recorded checksum" or "nothing yet"."""

    path: Path
    sha256: str
    verified_by: str


def digests_of(path: Path, *algorithms: str) -> list[str]:
    """Hexadecimal digests of a file, read once; "git-sha1" is git's hash of a file with this content."""
    digests = {name: hashlib.new(name.removeprefix("git-")) for name in algorithms}
    if "git-sha1" in digests:
        digests["git-sha1"].update(b"blob %d\0" % path.stat().st_size)
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            for digest in digests.values():
                digest.update(data)
    return [digests[name].hexdigest() for name in algorithms]


def fetch(remote: Remote, target: Path, patience: Patience = PATIENT) -> Fetched:
    """Download the file to `target` from the first address that works, unless a verified file is there already.

    Raises:
        DownloadError: no address gives the file; `target` then does not exist.
    """
    if target.exists():
        fetched = _verified(remote, target, target)
        if fetched is None:
            raise DownloadError(
                f"{target}: is there, but is not the file whose checksum is "
                f"{remote.checksum or 'recorded in ' + CHECKSUMS_NAME}; it was damaged or belongs to "
                "something else: remove it and start again"
            )
        return fetched
    target.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    with Partial(target) as partial, requests.Session() as session:
        session.max_redirects = patience.max_redirects
        session.headers["User-Agent"] = "bert-on-paddle"
        for url in remote.urls:
            for fresh in (False, True):
                try:
                    transfer(session, url, remote, partial, patience)
                except Refused as error:
                    reasons.append(f"{url}: {error}")
                    break
                fetched = _verified(remote, partial.path, target)
                if fetched is not None:
                    os.replace(partial.path, target)
                    partial.forget()
                    _record(target, fetched, url)
                    return Fetched(target, fetched.sha256, fetched.verified_by)
                was_resumed = partial.resumed
                partial.clear()
                if fresh or not was_resumed:
                    reasons.append(
                        f"{url}: the file received is not the one whose checksum is "
                        f"{remote.checksum or 'recorded in ' + CHECKSUMS_NAME}; it was deleted"
                    )
                    break
        partial.forget_if_empty()
    raise DownloadError(
        f"{target.name}: could not be downloaded:\n  "
        + "\n  ".join(reasons)
        + "\nCheck the network and the addresses; the same command resumes the download"
    )


def _verified(remote: Remote, path: Path, target: Path) -> Fetched | None:
    """The file at `path`, or None if its size or checksum is wrong."""
    if remote.num_bytes not in (None, path.stat().st_size):
        return None
    if path.stat().st_size > _SLOW_BYTES:
        print(f"verifying {target.name}, {megabytes(path.stat().st_size)}", file=sys.stderr, flush=True)
    algorithm, wanted = check_checksum(remote.checksum) if remote.checksum else ("sha256", "")
    sha256, found = digests_of(path, "sha256", algorithm)
    if wanted:
        return Fetched(path, sha256, "published checksum") if found == wanted else None
    recorded = _recorded(target.parent).get(target.name)
    if recorded is None:
        return Fetched(path, sha256, "nothing yet")
    return Fetched(path, sha256, "recorded checksum") if recorded["sha256"] == sha256 else None


def _recorded(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / CHECKSUMS_NAME
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_bytes())
        for record in content.values():
            check_checksum("sha256:" + record["sha256"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DownloadError(
            f"{path}: is damaged ({error}); it holds the checksums of the files beside it: remove it; "
            "it is then made again"
        ) from error
    return content


def _record(target: Path, fetched: Fetched, url: str) -> None:
    facts = {"sha256": fetched.sha256, "num_bytes": target.stat().st_size, "url": url}
    content = {**_recorded(target.parent), target.name: facts}
    write_atomically(target.parent / CHECKSUMS_NAME, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
