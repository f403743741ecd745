"""Resumable transfer of one file over HTTP: survives dropped connections and killed processes.

The bytes received are in `.NAME.part`. The next attempt asks for the rest, on condition that the server's file is still
the same (If-Range with its ETag or date). If the server ignores this, the transfer starts again from the first byte.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import requests
import urllib3

from bert.files import lock, read_json, sync, write_atomically
from bert.reporting.progress import megabytes, progress

_CHUNK_BYTES = 1 << 18
_DIGESTS = {"sha256": 64, "sha1": 40, "git-sha1": 40, "md5": 32}
_SPARE_BYTES = 64 << 20  # of the disk, kept free
_TRANSIENT = frozenset((408, 425, 429, 500, 502, 503, 504))
_LONGEST_WAIT_SECONDS = 300.0  # that a server may ask for


class DownloadError(ValueError):
    """A file could not be downloaded; the message gives the reason and the remedy."""


class _Dropped(Exception):
    """The transfer ended too early; another attempt, `wait_seconds` later at the soonest, may get the rest."""

    def __init__(self, reason: str, wait_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


class Refused(Exception):
    """This address does not have the wanted file; another address may have it.

    Attributes:
        status: the HTTP status of the answer; None: there was no answer, or its content was wrong.
        headers: those of the answer.
    """

    def __init__(self, reason: str, status: int | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers or {}


@dataclass(frozen=True)
class Remote:
    """A file on the internet.

    Attributes:
        urls: addresses of the same file, tried in order.
        checksum: "sha256:..." (or sha1, md5; git-sha1 is git's hash of the content), None if nobody published one.
        num_bytes: its size, if known.
        max_bytes: a larger answer is refused.
        token: sent as a bearer token to the addresses, and not to other hosts that they redirect to.
    """

    urls: tuple[str, ...]
    checksum: str | None = None
    num_bytes: int | None = None
    max_bytes: int = 1 << 40
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for url in self.urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError(f"url={url!r} must begin with https:// or http:// and a host")
        if self.checksum is not None:
            check_checksum(self.checksum)


@dataclass(frozen=True)
class Patience:
    """Limits of retries: `attempts` in a row without a new byte; waits double from first_wait_seconds to 60 s."""

    attempts: int = 6
    timeout_seconds: float = 60.0
    first_wait_seconds: float = 1.0
    max_redirects: int = 10
    sleep: Callable[[float], None] = time.sleep


PATIENT = Patience()


def check_checksum(checksum: str) -> tuple[str, str]:
    """("sha256", hexadecimal digits) of "sha256:..."; ValueError if it is not of that form."""
    algorithm, _, digits = checksum.partition(":")
    if len(digits) != _DIGESTS.get(algorithm) or not re.fullmatch("[0-9a-f]+", digits):
        raise ValueError(
            f"checksum={checksum!r} must be sha256:, sha1:, git-sha1: or md5: and 64, 40, 40 or 32 lower-case "
            "hexadecimal digits"
        )
    return algorithm, digits


class Partial:
    """The partial file, locked against other processes, and a file beside it with address, validator and size."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f".{target.name}.part")
        self._state_path = target.with_name(f".{target.name}.part.json")
        self.resumed = False

    def __enter__(self) -> Partial:
        self.file: BinaryIO = open(self.path, "a+b")
        try:
            lock(self.file)
        except BlockingIOError as error:
            self.file.close()
            raise DownloadError(f"{self.path}: another process is downloading this file; wait for it") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def size(self) -> int:
        self.file.flush()
        return os.fstat(self.file.fileno()).st_size

    def state(self) -> dict[str, Any]:
        """{"url", "validator", "total"}, or {} if nothing is known."""
        return read_json(self._state_path)

    def begin(self, url: str, validator: str | None, total: int | None, have: int) -> None:
        """Resume after `have` bytes of the file at url."""
        self.resumed = have > 0
        self.file.truncate(have)
        self.file.seek(have)
        state = {"url": url, "validator": validator, "total": total}
        if state != self.state():
            write_atomically(self._state_path, json.dumps(state).encode())

    def clear(self) -> None:
        self.file.truncate(0)
        self.forget()

    def forget(self) -> None:
        self._state_path.unlink(missing_ok=True)

    def forget_if_empty(self) -> None:
        if not self.size():
            self.path.unlink(missing_ok=True)
            self.forget()


def transfer(session: requests.Session, url: str, remote: Remote, partial: Partial, patience: Patience) -> None:
    """Bring the partial file to its full length, over as many attempts as make progress."""
    failures, wait, most = 0, patience.first_wait_seconds, partial.size()
    while True:
        try:
            return _attempt(session, url, remote, partial, patience)
        except requests.TooManyRedirects as error:
            raise Refused(f"redirected more than {patience.max_redirects} times in a row") from error
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
            raise Refused(str(error)) from error
        except (_Dropped, requests.RequestException, urllib3.exceptions.HTTPError) as error:
            if partial.size() > most:
                failures, wait, most = 0, patience.first_wait_seconds, partial.size()
            failures += 1
            if failures >= patience.attempts:
                received = megabytes(partial.size())
                raise Refused(
                    f"{failures} attempts in a row brought nothing new after {received}: {_short(error)}"
                ) from error
            pause = max(wait, getattr(error, "wait_seconds", 0.0))
            print(
                f"{url}: {_short(error)}; {megabytes(partial.size())} received, next attempt in {pause:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            patience.sleep(pause)
            wait = min(60.0, 2 * wait)


def _short(error: Exception) -> str:
    """The reason of a failed connection without the objects that requests and urllib3 print around it."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return str(reason).rpartition("): ")[2] if reason else str(error)


def _attempt(session: requests.Session, url: str, remote: Remote, partial: Partial, patience: Patience) -> None:
    headers = {"Accept-Encoding": "identity", **_condition(url, remote, partial)}
    if remote.token:
        headers["Authorization"] = f"Bearer {remote.token}"
    with session.get(url, headers=headers, stream=True, timeout=patience.timeout_seconds) as response:
        _check_status(response, url)
        have, total = _extent(response, remote, partial)
        if have is None:
            return
        partial.begin(url, response.headers.get("ETag") or response.headers.get("Last-Modified"), total, have)
        room = shutil.disk_usage(partial.path.parent).free - _SPARE_BYTES
        if total is not None and total - have > room:
            raise DownloadError(
                f"{partial.path.parent}: {megabytes(total - have)} are missing, and the disk has "
                f"room for {megabytes(max(0, room))}; free some, or choose another folder"
            )
        _receive(response, url, total, have, remote, partial)


def _condition(url: str, remote: Remote, partial: Partial) -> dict[str, str]:
    """The Range headers for the missing bytes; empty if the partial file may belong to another version of the file."""
    have, state = partial.size(), partial.state()
    validator = state.get("validator") if state.get("url") == url else None
    strong = validator if validator and not validator.startswith("W/") else None
    if not have or not (strong or remote.checksum):
        return {}
    return {"Range": f"bytes={have}-", **({"If-Range": strong} if strong else {})}


def _check_status(response: requests.Response, url: str) -> None:
    if urlsplit(url).scheme == "https" and urlsplit(response.url).scheme != "https":
        raise Refused(f"redirected from https to {response.url}, which anyone on the network can change")
    status = response.status_code
    if status in _TRANSIENT:
        raise _Dropped(f"the server answered {status} {response.reason}", _wait_asked_for(response))
    if status not in (200, 206, 416):
        raise Refused(f"the server answered {status} {response.reason}", status, response.headers)
    if status == 416:
        return
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml"):  # some servers send one instead of an error
        raise Refused("the server sent an HTML page instead of the file (a notice or a login, say)")
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    packed = encoding in ("gzip", "x-gzip") and urlsplit(url).path.endswith(".gz")  # the file is a gzip file
    if encoding not in ("", "identity") and not packed:
        raise Refused(f"the server sent Content-Encoding {encoding}, which was not asked for")


def _wait_asked_for(response: requests.Response) -> float:
    """Seconds of the Retry-After header; 0 without it, or where it is a date."""
    asked = response.headers.get("Retry-After", "").strip()
    seconds = float(asked) if asked.isdecimal() else 0.0
    if seconds > _LONGEST_WAIT_SECONDS:
        raise Refused(f"the server asks to wait {seconds:.0f} seconds; start again then", response.status_code)
    return seconds


def _extent(response: requests.Response, remote: Remote, partial: Partial) -> tuple[int | None, int | None]:
    """(bytes to keep, total size if known); (None, size) if nothing is missing."""
    have = partial.size()
    if response.status_code == 416:
        known = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("Content-Range", ""))
        sizes = {have, int(known[1]) if known else None, remote.num_bytes or have, partial.state().get("total") or have}
        if sizes == {have}:
            return None, have
        partial.clear()
        raise _Dropped(f"the server has no bytes after {have}; starting again from the first")
    if response.status_code == 206:
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", response.headers.get("Content-Range", ""))
        if not found or int(found[1]) != have or partial.state().get("total") not in (None, int(found[3])):
            partial.clear()
            raise _Dropped(
                f"asked for the bytes from {have} on, the server sent "
                f"{response.headers.get('Content-Range')!r}; starting again from the first"
            )
        total: int | None = int(found[3])
    else:
        length = response.headers.get("Content-Length", "")
        have, total = 0, int(length) if length.isdigit() else None
    wanted = remote.num_bytes
    if total is not None and (total > remote.max_bytes or wanted not in (None, total)):
        limit = f"be {wanted}" if wanted is not None else f"have at most {remote.max_bytes}"
        raise Refused(f"the file has {total} bytes and must {limit}")
    return have, total


def _receive(
    response: requests.Response, url: str, total: int | None, have: int, remote: Remote, partial: Partial
) -> None:
    limit = remote.max_bytes if remote.num_bytes is None else remote.num_bytes
    size = have
    with progress(urlsplit(url).path.rpartition("/")[2] or url, total, done=have) as meter:
        while data := response.raw.read1(_CHUNK_BYTES, decode_content=False):
            size += len(data)
            if size > limit:
                partial.clear()
                raise Refused(f"the server sends more than the {limit} bytes that the file may have")
            partial.file.write(data)
            meter.update(len(data))
    partial.file.flush()
    sync(partial.path)
    if total is not None and size != total:
        raise _Dropped(f"the connection ended after {size} of {total} bytes")
