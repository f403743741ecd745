"""The Hugging Face hub: which files a model has and what verifies them; models in that library's own cache.

The environment variables are those of huggingface_hub: HF_ENDPOINT (a mirror), HF_HUB_OFFLINE, HF_TOKEN (for private
and gated models), HF_HOME and HF_HUB_CACHE. That library, which `tokenizers` installs, is not used: version 0.25 does
not check a download against the sha256 that the hub states, an answer 429 or 503 ends it, and PaddleNLP's models, like
all other data here, need `transfer` in any case.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from bert.files import sha256_of_file
from data.fetching.model_listing import ListedFile, Listing, needed_files
from data.fetching.published_models import ModelName, pin_of, revision_of
from data.fetching.transfer import DownloadError, Partial, Patience, Refused, Remote, transfer

_ENDPOINT = "https://huggingface.co"
_LARGEST_ANSWER = 64 << 20
_SCHEME = "hf://"
_YES = ("1", "ON", "YES", "TRUE")


class Unreachable(DownloadError):
    """No answer from a hub: no network, or the server is down."""


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or _ENDPOINT


def token() -> str | None:
    return os.environ.get("HF_TOKEN", "").strip() or None


def address(url: str) -> tuple[str, str | None]:
    """The address of a listed file, and the token to send: of the hub's files at HF_ENDPOINT, with HF_TOKEN."""
    path = url.removeprefix(_SCHEME)
    return (url, None) if path == url else (f"{endpoint()}/{path}", token())


def is_offline() -> bool:
    """Whether the user forbids downloads."""
    return any(os.environ.get(name, "").upper() in _YES for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def list_model(model: ModelName, patience: Patience) -> Listing:
    """Ask the hub for a model's files at its revision.

    Raises:
        Unreachable: no answer.
        DownloadError: no such model or revision, no access, or files that cannot be used.
    """
    revision = revision_of(model)
    url = f"{endpoint()}/api/models/{model.repository}/revision/{quote(revision, safe='')}?blobs=true"
    answer = _answer(url, model, patience)
    try:
        commit = answer["sha"]
        if not re.fullmatch("[0-9a-f]{40}", commit):
            raise ValueError(f"its commit is {commit!r}")
        if re.fullmatch("[0-9a-f]{40}", revision) and commit != revision:
            raise ValueError(f"asked for {revision}, it describes {commit}")
        files = {entry["rfilename"]: _file(model, commit, entry) for entry in answer["siblings"]}
    except (KeyError, TypeError, ValueError) as error:
        raise DownloadError(
            f"{endpoint()} does not answer as the Hugging Face hub does ({error}); check HF_ENDPOINT"
        ) from None
    gated = bool(answer.get("gated"))
    if gated and not token():
        raise DownloadError(
            f"{model} is gated: accept its terms at {endpoint()}/{model.repository}, then set HF_TOKEN to a token of "
            "your account"
        )
    needed = needed_files(files, f"{endpoint()}/{model.repository}")
    licence = (answer.get("cardData") or {}).get("license")
    return Listing(
        str(model), f"{endpoint()}/{model.repository}", commit, licence, gated, {name: files[name] for name in needed}
    )


def _answer(url: str, model: ModelName, patience: Patience) -> dict[str, Any]:
    remote = Remote((url,), max_bytes=_LARGEST_ANSWER, token=token())
    with (
        tempfile.TemporaryDirectory() as folder,
        Partial(Path(folder, "answer")) as partial,
        requests.Session() as session,
    ):
        session.headers["User-Agent"] = "bert-on-paddle"
        try:
            transfer(session, url, remote, partial, patience)
        except Refused as error:
            raise _explained(error, model) from None
        try:
            found = json.loads(partial.path.read_bytes())
        except ValueError:
            found = None
    if not isinstance(found, dict):
        raise DownloadError(f"{url} did not answer with JSON; check HF_ENDPOINT and the proxy")
    return found


def _explained(error: Refused, model: ModelName) -> DownloadError:
    code = error.headers.get("X-Error-Code", "")
    if error.status is None:
        return Unreachable(f"{endpoint()} cannot be reached ({error})")
    if code == "RevisionNotFound":
        return DownloadError(
            f"{endpoint()} has no revision {revision_of(model)} of {model.repository}; check what follows @"
        )
    if code == "GatedRepo":
        return DownloadError(
            f"{model} is gated, and your account has no access: ask for it at {endpoint()}/{model.repository}"
        )
    if error.status in (401, 403, 404):  # the hub answers 401 for a model that does not exist, too
        private = "your HF_TOKEN gives no access to it" if token() else "it is private: then set HF_TOKEN"
        return DownloadError(f"{endpoint()} has no model {model.repository}, or {private}; check the name")
    return DownloadError(f"{model}: {endpoint()}: {error}")


def _file(model: ModelName, commit: str, entry: dict[str, Any]) -> ListedFile:
    """A file with the checksum that the hub states, or the pinned one, which must be the same."""
    name = str(entry["rfilename"])
    stored = entry.get("lfs") or {}
    checksum = f"sha256:{stored['sha256']}" if stored.get("sha256") else None
    if checksum is None and entry.get("blobId"):
        checksum = f"git-sha1:{entry['blobId']}"
    num_bytes = stored.get("size", entry.get("size"))
    pin = pin_of(model)
    if pin and name in pin.files:
        sha256, pinned_bytes = pin.files[name]
        if num_bytes not in (None, pinned_bytes) or (stored.get("sha256") not in (None, sha256)):
            raise DownloadError(
                f"{endpoint()}: {name} of {model} is not the file that is pinned (sha256 {sha256}); do not use this "
                "server, or name another revision: NAME@REVISION"
            )
        checksum, num_bytes = f"sha256:{sha256}", pinned_bytes
    return ListedFile(f"{_SCHEME}{model.repository}/resolve/{commit}/{quote(name)}", checksum, num_bytes)


def cached_by_hugging_face(model: ModelName, *, any_revision: bool = False) -> Listing | None:
    """The files of a complete model in huggingface_hub's cache; None if it is not there.

    The cache names a file by its sha256, or git's sha1, which verifies it.

    Args:
        any_revision: also take the newest that was downloaded, where the pinned revision was not.
    """
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for repository in (model.repository, model.name) if model.owner == "google-bert" else (model.repository,):
        folder = cache / f"models--{repository.replace('/', '--')}"
        wanted = revision_of(model)
        for revision in (wanted, *(["main"] if any_revision else [])):
            reference = folder / "refs" / revision
            commit = reference.read_text().strip() if reference.is_file() else revision
            if (listing := _snapshot(model, folder / "snapshots" / commit, commit)) is not None:
                return listing
    return None


def _snapshot(model: ModelName, folder: Path, commit: str) -> Listing | None:
    there = {path.name: path.resolve() for path in folder.iterdir() if path.is_file()} if folder.is_dir() else {}
    try:
        needed = needed_files(there, str(folder))
    except DownloadError:
        return None
    pin = pin_of(model)
    files = {}
    for name in needed:
        blob = there[name].name
        known = {64: f"sha256:{blob}", 40: f"git-sha1:{blob}"} if re.fullmatch("[0-9a-f]+", blob) else {}
        checksum = known.get(len(blob))
        if pin and pin.revision == commit and name in pin.files:
            checksum = f"sha256:{pin.files[name][0]}"
        checksum = checksum or f"sha256:{sha256_of_file(there[name])}"
        files[name] = ListedFile(str(there[name]), checksum, there[name].stat().st_size)
    return Listing(str(model), str(folder), commit, None, False, files)
