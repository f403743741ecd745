"""Downloads a file over HTTP: resumed after failures, verified, and named only when complete.

What libraries lack is here: asking for the rest of a partial file, `.NAME.part`, which Wikipedia's dumps need, because
their mirrors drop long transfers; several addresses; locks; refusing wrong answers.
"""

import errno
import hashlib
import logging
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from bert.files import sync, waiting_lock
from bert.reporting.progress import megabytes, progress

ATTEMPTS = 6  # in a row without a new byte; urllib3 pauses for 0, 2, 4, 8 and 16 s, or as long as the server asks
TIMEOUT_SECONDS = 60.0
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
_LONGEST_WAIT_SECONDS = 60  # that a server may ask for
_DIGESTS = {"sha256": 64, "sha1": 40, "git-sha1": 40, "md5": 32}
_CHUNK_BYTES, _MOST_BYTES = 1 << 18, 1 << 40
_SPARE_BYTES = 64 << 20  # of the disk, kept free
logging.getLogger("urllib3").setLevel(logging.ERROR)  # its warnings of further attempts have signed addresses


class DownloadError(ValueError):
    """A download failed; the message gives the reason and the remedy."""


class HttpsSession(requests.Session):
    """HTTP session that retries failed requests for a while, and follows redirections from https only to https."""

    def __init__(self, attempts: int = 3) -> None:
        super().__init__()
        self.max_redirects = 10
        retry = Retry(
            attempts - 1,
            status_forcelist=_TRANSIENT,
            allowed_methods=None,
            backoff_factor=1,
            retry_after_max=_LONGEST_WAIT_SECONDS,
        )
        for scheme in ("http://", "https://"):
            self.mount(scheme, HTTPAdapter(max_retries=retry))

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        return super().send(request, **{**options, "timeout": options.get("timeout") or TIMEOUT_SECONDS})

    def get_redirect_target(self, response: requests.Response) -> str | None:
        target = super().get_redirect_target(response)
        if target and response.url.startswith("https:") and urlsplit(urljoin(response.url, target)).scheme != "https":
            raise requests.exceptions.InvalidSchema(
                f"redirected from https to {target}, which anyone on the network can change"
            )
        return target


def fetch(target: Path, urls: Sequence[str], checksum: str | None = None, num_bytes: int | None = None) -> Path:
    """Download a file from the first address that has it, unless it exists; returns its path.

    Args:
        checksum: "sha256:...", sha1 or md5; with it a partial file is resumed, and the file is verified, also if it is
            there already.

    Raises:
        DownloadError: no address gives the file, and `target` then does not exist; or an existing `target` differs.
    """
    for url in urls:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError(f"url={url!r} must begin with https:// or http:// and a host")
    if checksum is not None:
        check_checksum(checksum)
    if not target.exists():
        with waiting_lock(target.with_name(f".{target.name}.lock"), f"process that is fetching {target}"):
            if not target.exists():  # from the process that was waited for
                return _download(target, urls, checksum, num_bytes)
    if checksum is not None and not has_checksum(target, checksum):
        raise DownloadError(
            f"{target}: is there, but is not the file whose checksum is {checksum}; it was damaged or belongs to "
            "something else: remove it and start again"
        )
    return target


def _download(target: Path, urls: Sequence[str], checksum: str | None, num_bytes: int | None) -> Path:
    part, problems = target.with_name(f".{target.name}.part"), []
    for url in urls:
        try:
            _complete(url, part, num_bytes, resumes=checksum is not None)
            if checksum is None or has_checksum(part, checksum):
                return part.replace(target)
            part.unlink()
            problems.append(f"  {url}: the file received is not the one whose checksum is {checksum}; it was deleted")
        except requests.RequestException as error:
            problems.append(f"  {url}: {reason_of(error)}")
    how = "resumes the download" if checksum else "starts it again (no checksum is published to resume it by)"
    message = [f"{target.name}: could not be downloaded:", *problems]
    raise DownloadError("\n".join([*message, f"  Check the network and the addresses; the same command {how}"]))


def _complete(url: str, part: Path, num_bytes: int | None, resumes: bool) -> None:
    """Download the missing part of a partial file, or all of it if the parts could not be verified."""
    failures = most = 0
    with HttpsSession(ATTEMPTS) as session:
        while problem := _receive(session, url, part, num_bytes, resumes):
            size = part.stat().st_size if part.exists() else 0
            failures, most = (0, size) if size > most else (failures + 1, most)
            if failures == ATTEMPTS:
                what = f"{failures} attempts in a row brought nothing new after {megabytes(most)}: {problem}"
                raise requests.ConnectionError(what)
            print(f"{url}: {problem}; asking for the rest", file=sys.stderr, flush=True)
            sleep(failures)
    sync(part)


def _receive(session: requests.Session, url: str, part: Path, num_bytes: int | None, resumes: bool) -> str:
    """Request the missing bytes once; returns the reason if the file is still incomplete, otherwise ""."""
    size = part.stat().st_size if resumes and part.exists() else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={size}-"} if size else {})}
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as response:
        if size and response.status_code == 416:  # nothing is missing, or it is another file: its checksum decides
            return ""
        _check_answer(response)
        if response.status_code != 206:
            size = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
            part.unlink(missing_ok=True)
            return "the server sent other bytes than were asked for"
        length = response.headers.get("Content-Length", "")
        total = size + int(length) if length.isdigit() else None
        if total is not None and num_bytes not in (None, total):
            raise requests.RequestException(f"the file has {total} bytes and must have {num_bytes}")
        _check_room(part.parent, (total or 0) - size)
        name = urlsplit(url).path.rpartition("/")[2] or url
        with open(part, "ab" if size else "wb") as file, progress(name, total, done=size) as meter:
            try:
                while data := response.raw.read1(_CHUNK_BYTES, decode_content=False):
                    size += len(data)
                    if size > (num_bytes or _MOST_BYTES):
                        file.truncate(0)
                        raise requests.RequestException(f"the server sends more than {num_bytes} bytes")
                    file.write(data)
                    meter.update(len(data))
            except urllib3.exceptions.HTTPError as error:
                return str(error.args[0])
    return "" if total in (None, size) else f"the connection ended after {size} of {total} bytes"


def _check_room(folder: Path, num_bytes: int) -> None:
    """Raise the OSError of a full disk before the disk is full."""
    room = max(0, shutil.disk_usage(folder).free - _SPARE_BYTES)
    if num_bytes > room:
        problem = f"{megabytes(num_bytes)} are missing, and the disk has room for {megabytes(room)}"
        raise OSError(errno.ENOSPC, problem, str(folder))


def _check_answer(response: requests.Response) -> None:
    if response.status_code not in (200, 206):
        raise requests.RequestException(f"the server answered {response.status_code} {response.reason}")
    if "html" in response.headers.get("Content-Type", "").lower():  # some servers send one instead of an error
        raise requests.RequestException("the server sent an HTML page instead of the file (a notice or a login, say)")
    if (encoding := response.headers.get("Content-Encoding") or "identity") != "identity":
        raise requests.RequestException(f"the server sent Content-Encoding {encoding}, which was not asked for")


def check_checksum(checksum: str) -> tuple[str, str]:
    """Split "sha256:..." into ("sha256", hexadecimal digits); ValueError for another form."""
    algorithm, _, digits = checksum.partition(":")
    if len(digits) != _DIGESTS.get(algorithm) or not re.fullmatch("[0-9a-f]+", digits):
        raise ValueError(
            f"checksum={checksum!r} must be sha256:, sha1:, git-sha1: or md5: and 64, 40, 40 or 32 lower-case "
            "hexadecimal digits"
        )
    return algorithm, digits


def has_checksum(path: Path, checksum: str) -> bool:
    """Whether a file has a checksum such as "sha256:..."; "git-sha1" is git's hash of its content."""
    algorithm, digits = check_checksum(checksum)
    digest = hashlib.new(algorithm.removeprefix("git-"))
    if algorithm == "git-sha1":
        digest.update(b"blob %d\0" % path.stat().st_size)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest() == digits


def reason_of(error: BaseException) -> str:
    """The reason of a failed connection, without the object texts of requests and urllib3."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return str(reason).rpartition("): ")[2] if reason else str(error)
