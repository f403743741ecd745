"""Downloads one file over HTTP: resumed after dropped connections and killed processes, verified, under its final name
only when it is complete.

The bytes received are in `.NAME.part`, and the next attempt asks for the rest. If the server sends all of it instead,
the transfer starts again from the first byte. A known checksum is verified. Without one, every attempt starts from the
first byte, the sha256 of the first download is recorded in checksums.json beside the file, and every later download
must have the same.
"""

import hashlib
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from bert.files import json_of, lock, sync, write_atomically
from bert.reporting.progress import megabytes, progress

T = TypeVar("T")

CHECKSUMS_NAME = "checksums.json"
ATTEMPTS = 6  # in a row without a new byte
TIMEOUT_SECONDS = 60.0
_TRANSIENT = frozenset((408, 425, 429, 500, 502, 503, 504))
_LONGEST_WAIT_SECONDS = 300  # that a server may ask for
_LONGEST_PAUSE_SECONDS = 60.0  # pauses between attempts double up to this
_CHUNK_BYTES = 1 << 18
_DIGESTS = {"sha256": 64, "sha1": 40, "git-sha1": 40, "md5": 32}
_PASSING = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.HTTPError,
)
_SLOW_BYTES = 1 << 30
_SPARE_BYTES = 64 << 20  # of the disk, kept free


class DownloadError(ValueError):
    """A file could not be downloaded; the message gives the reason and the remedy."""


class Dropped(requests.ConnectionError):
    """The transfer ended too early; another attempt, `wait_seconds` later at the soonest, may get the rest."""

    def __init__(self, reason: str, wait_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


class Refused(Exception):
    """This address does not have the wanted file; another address may have it."""


@dataclass(frozen=True)
class Remote:
    urls: tuple[str, ...]  # addresses of the same file, tried in order
    checksum: str | None = None  # "sha256:..." (or sha1, md5; git-sha1 is git's hash), None if nobody published one
    num_bytes: int | None = None
    max_bytes: int = 1 << 40  # a larger answer is refused
    token: str | None = field(default=None, repr=False)  # not sent to other hosts, to which the addresses redirect

    def __post_init__(self) -> None:
        for url in self.urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError(f"url={url!r} must begin with https:// or http:// and a host")
        if self.checksum is not None:
            check_checksum(self.checksum)

    def checksum_text(self) -> str:
        return self.checksum or f"recorded in {CHECKSUMS_NAME}"


class HttpsSession(requests.Session):
    """A session that does not follow a redirection from https to anything else, and for which a server that is
    overloaded is a dropped connection."""

    def __init__(self) -> None:
        super().__init__()
        self.max_redirects = 10
        self.headers["User-Agent"] = "bert-on-paddle"

    def get_redirect_target(self, response: requests.Response) -> str | None:
        target = super().get_redirect_target(response)
        if target and response.url.startswith("https:") and urlsplit(urljoin(response.url, target)).scheme != "https":
            raise requests.exceptions.InvalidSchema(
                f"redirected from https to {target}, which anyone on the network can change"
            )
        return target

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        options["timeout"] = options.get("timeout") or _LONGEST_WAIT_SECONDS
        response = super().send(request, **options)
        if response.status_code in _TRANSIENT:
            retry_after = response.headers.get("Retry-After", "").strip()  # seconds, or a date, which is not read
            seconds = float(retry_after) if retry_after.isdecimal() else 0.0
            if seconds > _LONGEST_WAIT_SECONDS:
                raise Refused(f"the server asks to wait {seconds:.0f} seconds; start again then")
            raise Dropped(f"the server answered {response.status_code} {response.reason}", seconds)
        return response


@contextmanager
def exclusive(path: Path) -> Iterator[BinaryIO]:
    """Open a file that one process has at a time; others wait. It is removed when it is left empty.

    Without locks (some NFS), go on. A lock is a file, because NFS has no locks for folders.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = open(path, "a+b")
        try:
            lock(file)
        except BlockingIOError:
            print(f"waiting for another process that is fetching {path}", file=sys.stderr, flush=True)
            lock(file, math.inf)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                break
        file.close()  # the process that had it has renamed or removed it
    with file:
        try:
            yield file
        finally:
            if not _size(file):
                path.unlink(missing_ok=True)


def check_checksum(checksum: str) -> tuple[str, str]:
    """("sha256", hexadecimal digits) of "sha256:..."; ValueError if it is not of that form."""
    algorithm, _, digits = checksum.partition(":")
    if len(digits) != _DIGESTS.get(algorithm) or not re.fullmatch("[0-9a-f]+", digits):
        raise ValueError(
            f"checksum={checksum!r} must be sha256:, sha1:, git-sha1: or md5: and 64, 40, 40 or 32 lower-case "
            "hexadecimal digits"
        )
    return algorithm, digits


def digest_of(path: Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file; "git-sha1" is git's hash of a file with this content."""
    digest = hashlib.new(algorithm.removeprefix("git-"))
    if algorithm == "git-sha1":
        digest.update(b"blob %d\0" % path.stat().st_size)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def fetch(remote: Remote, target: Path) -> str:
    """Download the file to `target` from the first address that works, unless a verified file is there already.

    Returns:
        What verified it: "published checksum", "recorded checksum" or "nothing yet".
    Raises:
        DownloadError: no address gives the file; `target` then does not exist.
    """
    if not target.exists():
        with exclusive(target.with_name(f".{target.name}.part")) as part, HttpsSession() as session:
            if not target.exists():  # from the process that was waited for
                return _download(session, remote, part, target)
    if verified_by := _verified_by(remote, target, target):
        return verified_by
    raise DownloadError(
        f"{target}: is there, but is not the file whose checksum is {remote.checksum_text()}; it was damaged or "
        "belongs to something else: remove it and start again"
    )


def fetch_pinned(path: Path, pin: tuple[str, int], folders: Sequence[str]) -> Path:
    """Fetch a file, whose sha256 and size are known, from the first of several folders of the web that has its name."""
    sha256, num_bytes = pin
    fetch(Remote(tuple(f"{folder.rstrip('/')}/{path.name}" for folder in folders), f"sha256:{sha256}", num_bytes), path)
    return path


def _download(session: requests.Session, remote: Remote, part: BinaryIO, target: Path) -> str:
    problems = []
    for url in remote.urls:
        try:
            verified_by = _fetch_from(session, url, remote, part, target)
        except Refused as error:
            problems.append(f"  {url}: {error}")
            continue
        os.replace(part.name, target)
        if verified_by == "nothing yet":
            _record(target, url)
        return verified_by
    lines = [f"{target.name}: could not be downloaded:", *problems]
    how = "resumes the download" if remote.checksum else "starts it again (no checksum is published to resume it by)"
    raise DownloadError("\n".join([*lines, f"Check the network and the addresses; the same command {how}"]))


def _fetch_from(session: requests.Session, url: str, remote: Remote, part: BinaryIO, target: Path) -> str:
    """What verifies the file from one address; a resumed one with a wrong checksum is fetched once more as a whole."""
    while True:
        is_resumed = _size(part) > 0
        patiently(url, lambda: _attempt(session, url, remote, part), lambda: _size(part))
        if verified_by := _verified_by(remote, Path(part.name), target):
            return verified_by
        part.truncate(0)
        if not is_resumed:
            raise Refused(
                f"the file received is not the one whose checksum is {remote.checksum_text()}; it was deleted"
            )


def _size(part: BinaryIO) -> int:
    part.flush()
    return os.fstat(part.fileno()).st_size


def _attempt(session: requests.Session, url: str, remote: Remote, part: BinaryIO) -> None:
    """Receive what is missing. Without a checksum that is everything: the server's file may be another by now."""
    size = _size(part) if remote.checksum else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={size}-"} if size else {})}
    if remote.token:
        headers["Authorization"] = f"Bearer {remote.token}"
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as response:
        if size and response.status_code == 416:  # nothing is missing, or it is another file: its checksum decides
            return
        _check_answer(response, url)
        size, total = _extent(response, size, part)
        limit = remote.num_bytes or remote.max_bytes
        if total is not None and (total > limit or remote.num_bytes not in (None, total)):
            rule = f"be {limit}" if remote.num_bytes else f"have at most {limit}"
            raise Refused(f"the file has {total} bytes and must {rule}")
        _check_room(Path(part.name).parent, (total or 0) - size)
        with progress(urlsplit(url).path.rpartition("/")[2] or url, total, done=size) as meter:
            while data := response.raw.read1(_CHUNK_BYTES, decode_content=False):
                size += len(data)
                if size > limit:
                    part.truncate(0)
                    raise Refused(f"the server sends more than the {limit} bytes that the file may have")
                part.write(data)
                meter.update(len(data))
        part.flush()
        sync(part.name)
        if total is not None and size != total:
            raise Dropped(f"the connection ended after {size} of {total} bytes")


def _check_answer(response: requests.Response, url: str) -> None:
    if response.status_code not in (200, 206):
        raise Refused(f"the server answered {response.status_code} {response.reason}")
    if "html" in response.headers.get("Content-Type", "").lower():  # some servers send one instead of an error
        raise Refused("the server sent an HTML page instead of the file (a notice or a login, say)")
    encoding = response.headers.get("Content-Encoding") or "identity"
    is_own = "gzip" in encoding and urlsplit(url).path.endswith(".gz")  # the file is a gzip file
    if encoding != "identity" and not is_own:
        raise Refused(f"the server sent Content-Encoding {encoding}, which was not asked for")


def _extent(response: requests.Response, size: int, part: BinaryIO) -> tuple[int, int | None]:
    """(bytes to keep, total size if known); the partial file is emptied unless the answer continues it."""
    content_range = response.headers.get("Content-Range", "")
    if response.status_code == 206 and (match := re.fullmatch(rf"bytes {size}-\d+/(\d+)", content_range)):
        return size, int(match[1])
    part.truncate(0)
    if response.status_code == 206:
        raise Dropped(f"asked for the bytes from {size} on, the server sent {content_range!r}; starting again")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _check_room(folder: Path, num_bytes: int) -> None:
    room = shutil.disk_usage(folder).free - _SPARE_BYTES
    if num_bytes > room:
        raise DownloadError(
            f"{folder}: {megabytes(num_bytes)} are missing, and the disk has "
            f"room for {megabytes(max(0, room))}; free some, or choose another folder"
        )


def _verified_by(remote: Remote, path: Path, target: Path) -> str | None:
    """What verifies the content at `path` as that of `target`; None if its size or checksum is wrong."""
    size = path.stat().st_size
    if remote.num_bytes not in (None, size):
        return None
    if size > _SLOW_BYTES:
        print(f"verifying {target.name}, {megabytes(size)}", file=sys.stderr, flush=True)
    if remote.checksum:
        algorithm, digits = check_checksum(remote.checksum)
        return "published checksum" if digest_of(path, algorithm) == digits else None
    record = _recorded(target.parent).get(target.name)
    if record is None:
        return "nothing yet"
    return "recorded checksum" if digest_of(path) == record["sha256"] else None


def _recorded(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / CHECKSUMS_NAME
    if not path.exists():
        return {}
    try:
        records = json_of(path.read_bytes())
        for record in records.values():
            check_checksum("sha256:" + record["sha256"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DownloadError(
            f"{path}: is damaged ({error}); it holds the checksums of the files beside it: remove it; "
            "it is then made again"
        ) from error
    return records


def _record(target: Path, url: str) -> None:
    record = {"sha256": digest_of(target), "num_bytes": target.stat().st_size, "url": url}
    records = {**_recorded(target.parent), target.name: record}
    write_atomically(target.parent / CHECKSUMS_NAME, (json.dumps(records, indent=1, sort_keys=True) + "\n").encode())


def patiently(
    what: str, attempt: Callable[[], T], received: Callable[[], int] = lambda: 0, attempts: int | None = None
) -> T:
    """The result of an attempt over a network, which is repeated after a pause until `attempts` (default: ATTEMPTS) in
    a row have received nothing.

    Raises:
        Refused: the last reason.
    """
    failures, most = 0, received()
    while True:
        try:
            return attempt()
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.TooManyRedirects) as error:
            raise Refused(str(error)) from error
        except _PASSING as error:
            size = received()
            failures = 1 if size > most else failures + 1
            most = max(most, size)
            if failures >= (attempts or ATTEMPTS):
                raise Refused(
                    f"{failures} attempts in a row brought nothing new after {megabytes(size)}: {_reason(error)}"
                ) from error
            pause = max(min(2.0 ** (failures - 1), _LONGEST_PAUSE_SECONDS), getattr(error, "wait_seconds", 0.0))
            print(
                f"{what}: {_reason(error)}; {megabytes(size)} received, next attempt in {pause:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            sleep(pause)


def _reason(error: Exception) -> str:
    """The reason of a failed connection without the objects that requests and urllib3 print around it."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return str(reason).rpartition("): ")[2] if reason else str(error)


# ---- places -------------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """BERT_CACHE, or bert-on-paddle in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bert-on-paddle"
    return Path(os.environ.get("BERT_CACHE") or default).expanduser().absolute()


def data_folder() -> Path:
    """Where the fine-tuning sets are: BERT_PREP_WORKING_DIR/download, without that variable in the cache."""
    data = os.environ.get("BERT_PREP_WORKING_DIR")
    return Path(data).expanduser().absolute() / "download" if data else cache_folder() / "data"


def mirrors() -> list[str] | None:
    """BERT_DATA_MIRROR, the URL of a folder with the files of all sets, instead of the published addresses."""
    mirror = os.environ.get("BERT_DATA_MIRROR")
    return [mirror] if mirror else None
