"""Downloads published models by name to a cache: fetched once, verified at every use.

huggingface_hub has the hub's models in its own cache, or in $BERT_CACHE/hub if BERT_CACHE is set. It names a file by
its sha256 or git's sha1, which verifies it here: version 0.25 compares sizes alone. It reads HF_ENDPOINT (a mirror),
HF_HUB_OFFLINE, HF_TOKEN (for private and gated models), HF_HOME and HF_HUB_CACHE.

PaddleNLP's models are in $BERT_CACHE/models/paddlenlp/NAME (default: ~/.cache/bert-on-paddle), with the sha256 of the
first download in model.json. Models that earlier versions put into $BERT_CACHE/models are used too.
"""

import json
import os
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import requests
from huggingface_hub import (
    HfApi,
    configure_http_backend,
    constants,
    errors,
    get_token,
    hf_hub_download,
    try_to_load_from_cache,
)

from bert.config.architecture import MODEL_TYPES
from bert.files import json_of, read_json, sha256_of_file, write_atomically
from bert.interpreter import shell_command
from bert.reporting.progress import megabytes
from data.fetching.places import cache_folder
from data.fetching.published_models import GOOGLE, PADDLENLP, WEIGHT_FILES, ModelName, pin_of, revision_of
from data.fetching.transfer import (
    ATTEMPTS,
    TIMEOUT_SECONDS,
    DownloadError,
    HttpsSession,
    fetch,
    has_checksum,
    reason_of,
)

LISTING_FILE = "model.json"
CONFIGS = ("config.json", "bert_config.json")
_VOCABULARIES = ("vocab.txt", "tokenizer.json")
_OPTIONAL = ("tokenizer_config.json", "labels.json", "task.json", "question_answering.json")
_COMMIT = re.compile("[0-9a-f]{40}")


def fetch_model(model: ModelName, *, weights: bool = True) -> Path:
    """The verified folder of a model's files (only small ones without `weights`); cached files are reused."""
    folder = cached_model(model, weights)
    if folder is None:
        if constants.HF_HUB_OFFLINE:
            raise DownloadError(
                f"{model} is not in {_cache_of(model)}, and HF_HUB_OFFLINE forbids downloads; unset it, or "
                f"{_elsewhere(model)}"
            )
        folder = _fetch_from_paddlenlp(model, weights) if model.is_paddlenlp else _fetch_from_hub(model, weights)
    listed = _checksums(folder)
    for name in used_names(os.listdir(folder), str(folder), weights):
        _verify(folder / name, listed.get(name))
    return folder


def cached_model(model: ModelName, weights: bool = True) -> Path | None:
    """The cache folder that has all files of a model, found without asking a hub."""
    folders = [_own_folder(model)]
    if not model.is_paddlenlp:
        repositories = (model.repository, model.name) if model.owner == GOOGLE else (model.repository,)
        revisions = dict.fromkeys((revision_of(model), *(["main"] if constants.HF_HUB_OFFLINE else [])))
        for place in dict.fromkeys((_hub_cache(), Path(constants.HF_HUB_CACHE))):
            descriptions = [
                try_to_load_from_cache(repository, name, cache_dir=place, revision=revision)
                for revision in revisions
                for repository in repositories
                for name in CONFIGS
            ]
            folders += [Path(path).parent for path in descriptions if isinstance(path, str)]
    return next((folder for folder in folders if _is_complete(folder, weights)), None)


def _own_folder(model: ModelName) -> Path:
    revision = f"@{model.revision.replace('/', '-')}" if model.revision else ""
    return cache_folder() / "models" / model.owner.replace("/", "--") / f"{model.name.replace('/', '--')}{revision}"


def _hub_cache() -> Path:
    return cache_folder() / "hub" if os.environ.get("BERT_CACHE") else Path(constants.HF_HUB_CACHE)


def _cache_of(model: ModelName) -> Path:
    return _own_folder(model) if model.is_paddlenlp else _hub_cache()


def _checksums(folder: Path) -> dict[str, str]:
    """Checksums of files at their first download, name -> checksum; empty without a list."""
    try:
        return {name: str(file["checksum"]) for name, file in read_json(folder / LISTING_FILE).get("files", {}).items()}
    except (KeyError, TypeError, AttributeError):
        raise DownloadError(f"{folder / LISTING_FILE} is damaged; remove {folder}, then start again") from None


def _is_complete(folder: Path, weights: bool) -> bool:
    try:
        there = [path.name for path in folder.iterdir() if path.is_file()]  # not a link whose file was removed
        names = used_names(there, str(folder), weights)
        indices = [json_of((folder / name).read_bytes()) for name in names if name.endswith(".index.json")]
        return all((folder / name).is_file() for index in indices for name in index["weight_map"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def used_names(available: Collection[str], source: str, weights: bool = True) -> list[str]:
    """Names of the files to use: description, vocabulary, tokenizer settings, then weights in the best format.

    Raises:
        DownloadError: one of them is not there.
    """
    names = sorted(name for name in available if "/" not in name)  # nothing of a hub leaves the model's folder
    chosen = [name for name in _OPTIONAL if name in names]
    for kind, readable in (("description", CONFIGS), ("vocabulary", _VOCABULARIES), ("weights", tuple(WEIGHT_FILES))):
        if kind == "weights" and not weights:
            break
        first = next((name for name in readable if name in names), None)
        if first is None:
            raise DownloadError(
                f"{source} has no {kind} that can be read ({' or '.join(readable)}); it has "
                f"{', '.join(names[:12]) or 'nothing'}: choose another model"
            )
        if first.endswith(".index.json"):
            stem, suffix = first.removesuffix(".index.json").rsplit(".", 1)
            chosen += [name for name in names if name.startswith(f"{stem}-") and name.endswith(f".{suffix}")]
        chosen.append(first)
    return chosen


def _verify(path: Path, checksum: str | None = None) -> None:
    """Verify a file against a checksum, by default the checksum in the name of huggingface_hub's file."""
    status, blob = path.stat(), path.resolve()
    if checksum is None and path.is_symlink() and re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", blob.name):
        checksum = f"{'sha256' if len(blob.name) == 64 else 'git-sha1'}:{blob.name}"
    if checksum and not _is_sound(blob, checksum, status.st_size, status.st_mtime_ns):
        raise DownloadError(
            f"{path} is not the file whose checksum is {checksum}; remove {blob}, then start again, or name another "
            "revision: NAME@REVISION"
        )


@cache
def _is_sound(path: Path, checksum: str, num_bytes: int, mtime_ns: int) -> bool:
    """Whether a file has its checksum; cached in this process while its size and time are the same."""
    return has_checksum(path, checksum)


def _check_description(path: Path, model: ModelName) -> None:
    """Refuse a network other than BERT before its weights are fetched."""
    try:
        kind = json_of(path.read_bytes()).get("model_type", "bert")
    except (ValueError, AttributeError) as error:
        raise DownloadError(f"{path} of {model} does not describe a model ({error}); choose another") from None
    if kind not in MODEL_TYPES:
        raise DownloadError(
            f"{model} is of the type {kind!r}, which is not read here; choose a model whose config.json has a "
            f"model_type of {', '.join(MODEL_TYPES)}"
        )


def _elsewhere(model: ModelName) -> str:
    fetching = shell_command("data.download_model", str(model), "--output-dir", "DIR")
    return f"on a machine with network run `{fetching}`, copy DIR here and name DIR instead"


# ---- PaddleNLP's server ----------------------------------------------------------------------------------------------


def _fetch_from_paddlenlp(model: ModelName, weights: bool) -> Path:
    folder, published = _own_folder(model), PADDLENLP[model.name]
    listed = _checksums(folder)
    google = pin_of(ModelName(GOOGLE, model.name))
    pinned = google.files if google else {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in published.texts().items():
        write_atomically(folder / name, text.encode())
    for name, url in published.addresses().items():
        if name == "vocab.txt" or weights:
            checksum = f"sha256:{pinned[name][0]}" if name in pinned else listed.get(name)
            fetch(folder / name, [url], checksum)
            listed[name] = checksum or f"sha256:{sha256_of_file(folder / name)}"
    files = {name: {"checksum": checksum} for name, checksum in listed.items()}
    listing = json.dumps({"name": str(model), "files": files}, indent=1) + "\n"
    write_atomically(folder / LISTING_FILE, listing.encode())
    return folder


# ---- the Hugging Face hub --------------------------------------------------------------------------------------------


def _fetch_from_hub(model: ModelName, weights: bool) -> Path:
    hub, revision, page = constants.ENDPOINT, revision_of(model), f"{constants.ENDPOINT}/{model.repository}"
    configure_http_backend(HttpsSession)
    try:
        with _errors_in_one_line(model, page):
            info = HfApi(endpoint=hub).model_info(
                model.repository, revision=revision, files_metadata=True, timeout=TIMEOUT_SECONDS
            )
    except requests.exceptions.ChunkedEncodingError as error:
        raise _unreachable(model, error) from None
    commit = info.sha or ""
    if not _COMMIT.fullmatch(commit) or (_COMMIT.fullmatch(revision) and commit != revision):
        raise DownloadError(f"{hub}: asked for {revision} of {model}, it describes {commit!r}; check HF_ENDPOINT")
    if info.gated and not get_token():
        raise DownloadError(
            f"{model} is gated: accept its terms at {page}, then set HF_TOKEN to a token of your account"
        )
    sizes = {file.rfilename: file.lfs.size if file.lfs else file.size or 0 for file in info.siblings or []}
    texts, names = used_names(sizes, page, weights=False), used_names(sizes, page, weights)
    for name in texts:
        path = _download(model, page, name, revision, commit)
        if name in CONFIGS:
            _check_description(path, model)
    if large := names[len(texts) :]:
        size = megabytes(sum(sizes[name] for name in large))
        print(f"fetching {model} from {page} to {_hub_cache()}, {size}", file=sys.stderr, flush=True)
    for name in large:
        path = _download(model, page, name, revision, commit)
    return path.parent


def _download(model: ModelName, page: str, name: str, revision: str, commit: str) -> Path:
    """Fetch one file to huggingface_hub's cache and verify it, also against its pin."""
    for attempt in range(ATTEMPTS):
        try:
            with _errors_in_one_line(model, page):
                options = {"revision": revision, "cache_dir": _hub_cache(), "endpoint": constants.ENDPOINT}
                path = Path(hf_hub_download(model.repository, name, **options))
            break
        except requests.exceptions.ChunkedEncodingError as error:  # a dropped connection: ask for the rest
            if attempt == ATTEMPTS - 1:
                raise _unreachable(model, error) from None
    if path.parent.name != commit:
        raise DownloadError(f"{model} has changed while it was fetched; start again")
    pin = pin_of(model)
    pinned = pin.files.get(name) if pin and pin.revision == commit else None
    try:
        _verify(path)
        _verify(path, f"sha256:{pinned[0]}" if pinned else None)
    except DownloadError:
        path.resolve().unlink()  # the same command must not find it
        path.unlink()
        raise
    return path


@contextmanager
def _errors_in_one_line(model: ModelName, page: str) -> Iterator[None]:
    """Context manager: errors of huggingface_hub become one line with the remedy."""
    hub, revision = constants.ENDPOINT, revision_of(model)
    try:
        yield
    except requests.exceptions.ChunkedEncodingError:
        raise
    except errors.RevisionNotFoundError:
        raise DownloadError(f"{hub} has no revision {revision} of {model.repository}; check what follows @") from None
    except errors.GatedRepoError:
        raise DownloadError(f"{model} is gated, and your account has no access: ask for it at {page}") from None
    except requests.exceptions.JSONDecodeError:  # such as a page to log in
        raise DownloadError(
            f"{hub} does not answer as the Hugging Face hub does (no JSON); check HF_ENDPOINT"
        ) from None
    except (requests.RequestException, errors.LocalEntryNotFoundError) as error:
        cause = (error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else None) or error
        if getattr(getattr(cause, "response", None), "status_code", None) not in (401, 404):
            raise _unreachable(model, cause) from None
        # 401, too, for a model that does not exist
        private = "your HF_TOKEN gives no access to it" if get_token() else "it is private: then set HF_TOKEN"
        raise DownloadError(f"{hub} has no model {model.repository}, or {private}; check the name") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DownloadError(
            f"{hub} does not answer as the Hugging Face hub does ({error}); check HF_ENDPOINT"
        ) from None


def _unreachable(model: ModelName, reason: BaseException) -> DownloadError:
    return DownloadError(
        f"{model} is not in {_cache_of(model)}, and {constants.ENDPOINT} cannot be reached ({reason_of(reason)}); the "
        f"same command resumes; or {_elsewhere(model)}"
    )
