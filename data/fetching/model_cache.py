"""Published models by name, from the Hugging Face hub or PaddleNLP's server to a cache: fetched once, verified at every
use.

$BERT_CACHE/models/OWNER/NAME[@REVISION]/    default: ~/.cache/bert-on-paddle
    model.json        Listing: source, revision, licence, and the checksum of each file
    checksums.json    sha256 of the files for which the server states none, recorded when they were fetched
    config.json, vocab.txt, model.safetensors ...

huggingface_hub tells which files a model has. It reads the environment: HF_ENDPOINT (a mirror), HF_HUB_OFFLINE,
HF_TOKEN (for private and gated models), HF_HOME and HF_HUB_CACHE. The files themselves are fetched by `transfer`:
version 0.25 loses up to 10 MB at a dropped connection, ends at an answer 429 or 503, and checks neither checksums nor
what a server sends for a range.
"""

import os
import re
import shutil
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from huggingface_hub import HfApi, configure_http_backend, constants, get_token, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RevisionNotFoundError
from pydantic import TypeAdapter, ValidationError

from bert.config.architecture import MODEL_TYPES
from bert.files import atomic_path, json_of, write_atomically
from bert.interpreter import shell_command
from bert.reporting.progress import megabytes
from bert.tokenization.vocabulary_files import vocabulary_beside, vocabulary_copy
from data.fetching import transfer
from data.fetching.published_models import GOOGLE, PADDLENLP, WEIGHT_FILES, ModelName, pin_of, revision_of
from data.fetching.transfer import DownloadError, HttpsSession, Refused, Remote, cache_folder, digest_of, fetch

LISTING_FILE = "model.json"
CONFIGS = ("config.json", "bert_config.json")
_VOCABULARIES = ("vocab.txt", "tokenizer.json")
_OPTIONAL = ("tokenizer_config.json", "labels.json", "task.json", "question_answering.json")
_COMMIT = re.compile("[0-9a-f]{40}")
_ATTEMPTS = 3  # to reach the hub: a machine without network hears of it within seconds
_LARGEST, _LARGEST_TEXT = 1 << 40, 64 << 20  # bytes of weights, of other files whose size is not stated


@dataclass(frozen=True)
class ListedFile:
    """A file of a published model; `checksum` as `Remote.checksum`, None where the hub states none."""

    checksum: str | None = None
    num_bytes: int | None = None


@dataclass(frozen=True)
class Listing:
    """The files of a model that are used, as a hub has them at one revision."""

    name: str
    source: str  # where the files are from, for people
    revision: str  # the commit; "" on a server that has none
    licence: str | None  # as the hub states it
    gated: bool  # the owner gives access on request only
    files: dict[str, ListedFile]

    def needed(self, weights: bool) -> list[str]:
        """The names of the files, with or without the weights."""
        return [name for name in self.files if weights or not _is_weights(name)]


_LISTING = TypeAdapter(Listing)


def model_folder(model: ModelName) -> Path:
    revision = f"@{model.revision.replace('/', '-')}" if model.revision else ""
    return cache_folder() / "models" / model.owner.replace("/", "--") / f"{model.name.replace('/', '--')}{revision}"


def fetch_model(model: ModelName, *, weights: bool = True, folder: Path | None = None) -> Listing:
    """Bring a model's files (without `weights` the small ones alone) to `folder` (default: `model_folder`), verified;
    what is there is not fetched again."""
    folder = folder or model_folder(model)
    listing = read_listing(folder) or _list(model)
    missing = [name for name in listing.needed(weights) if not (folder / name).is_file()]
    if missing or vocabulary_beside(folder) is None:
        _complete(model, listing, folder, missing)
    for name in listing.needed(weights):
        status = (folder / name).stat()
        _verify(folder / name, listing.files[name], status.st_size, status.st_mtime_ns)
    return listing


@cache
def _verify(path: Path, file: ListedFile, num_bytes: int, mtime_ns: int) -> None:
    """Check a file against its checksum, once in a process as long as its size and time are the same."""
    fetch(Remote((), file.checksum, file.num_bytes), path)


def read_listing(folder: Path) -> Listing | None:
    """The content of model.json; None without it."""
    path = folder / LISTING_FILE
    if not path.is_file():
        return None
    try:
        return _LISTING.validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise DownloadError(f"{path} is damaged ({problem}); remove {folder}, then start again") from None


def _complete(model: ModelName, listing: Listing, folder: Path, missing: list[str]) -> None:
    """Fetch what is missing; the description comes before the weights and decides whether they are fetched."""
    cached = {name: _cached(model, name, listing.revision) for name in missing}
    absent = [name for name, path in cached.items() if path is None]
    if absent and constants.HF_HUB_OFFLINE:
        raise _offline(model, f"{', '.join(absent)} of {model} {'is' if len(absent) == 1 else 'are'} not in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / LISTING_FILE, _LISTING.dump_json(listing, indent=1) + b"\n")
    if model.is_paddlenlp:
        for name, text in PADDLENLP[model.name].texts().items():
            write_atomically(folder / name, text.encode())
    for name in missing:
        if not _is_weights(name):
            _bring(model, listing, name, folder, cached[name])
    _check_description(listing, folder)
    if not (folder / "vocab.txt").is_file():
        name, content = vocabulary_copy(folder / "tokenizer.json")
        write_atomically(folder / name, content)
    if large := [name for name in missing if _is_weights(name)]:
        num_bytes = sum(listing.files[name].num_bytes or 0 for name in large)
        size = f", {megabytes(num_bytes)}" if num_bytes else ""
        print(f"fetching {model} from {listing.source} to {folder}{size}", file=sys.stderr, flush=True)
    for name in large:
        _bring(model, listing, name, folder, cached[name])


def _check_description(listing: Listing, folder: Path) -> None:
    """Refuse another network than BERT, before its weights are fetched."""
    path = next(folder / name for name in CONFIGS if (folder / name).is_file())
    try:
        kind = json_of(path.read_bytes()).get("model_type", "bert")
    except (ValueError, AttributeError) as error:
        raise DownloadError(f"{path} of {listing.source} does not describe a model ({error}); choose another") from None
    if kind not in MODEL_TYPES:
        raise DownloadError(
            f"{listing.name} is of the type {kind!r}, which is not read here; choose a model whose config.json has a "
            f"model_type of {', '.join(MODEL_TYPES)}"
        )


def _bring(model: ModelName, listing: Listing, name: str, folder: Path, cached: Path | None) -> None:
    """Fetch a file, or take it from Hugging Face's cache: a second name for it, or a copy where the disk is another."""
    file, target = listing.files[name], folder / name
    if cached:
        fetch(Remote((), file.checksum, file.num_bytes), cached.resolve())  # verifies it
        with atomic_path(target) as partial:
            try:
                os.link(cached.resolve(), partial)
            except OSError:
                shutil.copyfile(cached, partial)
        return
    if model.is_paddlenlp:
        url, token = PADDLENLP[model.name].addresses()[name], None
    else:
        url, token = f"{_page(model)}/resolve/{listing.revision}/{quote(name)}", get_token()
    try:
        largest = _LARGEST if _is_weights(name) else _LARGEST_TEXT
        fetch(Remote((url,), file.checksum, file.num_bytes, largest, token), target)
    except DownloadError as error:
        access = f"; {model} is gated: ask for access at {listing.source}" if listing.gated else ""
        raise DownloadError(f"{error}{access}") from None


def _offline(model: ModelName, what: str) -> DownloadError:
    return DownloadError(f"{what}, and HF_HUB_OFFLINE forbids downloads; unset it, or {_elsewhere(model)}")


def _elsewhere(model: ModelName) -> str:
    fetching = shell_command("data.download_model", str(model), "--output-dir", "DIR")
    return f"on a machine with network run `{fetching}`, copy DIR here and name DIR instead"


# ---- listings --------------------------------------------------------------------------------------------------------


def _is_weights(name: str) -> bool:
    return name.startswith(("model", "pytorch_model"))


def _page(model: ModelName) -> str:
    return f"{constants.ENDPOINT}/{model.repository}"


def _list(model: ModelName) -> Listing:
    """What Hugging Face's own cache, the hub or PaddleNLP's server has of a model."""
    if not model.is_paddlenlp and (listing := _list_cached(model)):
        return listing
    if constants.HF_HUB_OFFLINE:
        raise _offline(model, f"{model} is not in {model_folder(model)} or Hugging Face's cache")
    return _list_paddlenlp(model) if model.is_paddlenlp else _list_hub(model)


def _list_paddlenlp(model: ModelName) -> Listing:
    addresses = PADDLENLP[model.name].addresses()
    files = {name: ListedFile() for name in addresses}
    google = pin_of(ModelName(GOOGLE, model.name))
    if google and "vocab.txt" in google.files:
        sha256, num_bytes = google.files["vocab.txt"]
        files["vocab.txt"] = ListedFile(f"sha256:{sha256}", num_bytes)
    return Listing(str(model), addresses["model_state.pdparams"].rpartition("/")[0], "", None, False, files)


def _list_hub(model: ModelName) -> Listing:
    """Ask the hub for a model's files at its revision."""
    hub, revision, page = constants.ENDPOINT, revision_of(model), _page(model)
    configure_http_backend(HttpsSession)
    try:
        info = transfer.patiently(
            f"{hub}, {model}",
            lambda: HfApi(endpoint=hub).model_info(
                model.repository, revision=revision, files_metadata=True, timeout=transfer.TIMEOUT_SECONDS
            ),
            attempts=_ATTEMPTS,
        )
    except Refused as error:
        raise DownloadError(
            f"{model} is not in {model_folder(model)}, and {hub} cannot be reached ({error}); {_elsewhere(model)}"
        ) from None
    except RevisionNotFoundError:
        raise DownloadError(f"{hub} has no revision {revision} of {model.repository}; check what follows @") from None
    except GatedRepoError:
        raise DownloadError(f"{model} is gated, and your account has no access: ask for it at {page}") from None
    except (HfHubHTTPError, HFValidationError):  # 401, too, for a model that does not exist
        private = "your HF_TOKEN gives no access to it" if get_token() else "it is private: then set HF_TOKEN"
        raise DownloadError(f"{hub} has no model {model.repository}, or {private}; check the name") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DownloadError(
            f"{hub} does not answer as the Hugging Face hub does ({error}); check HF_ENDPOINT"
        ) from None
    commit = info.sha or ""
    if not _COMMIT.fullmatch(commit) or (_COMMIT.fullmatch(revision) and commit != revision):
        raise DownloadError(f"{hub}: asked for {revision} of {model}, it describes {commit!r}; check HF_ENDPOINT")
    if info.gated and not get_token():
        raise DownloadError(
            f"{model} is gated: accept its terms at {page}, then set HF_TOKEN to a token of your account"
        )
    files = {}
    for file in info.siblings or []:
        stored, num_bytes = (f"sha256:{file.lfs.sha256}", file.lfs.size) if file.lfs else (None, file.size)
        checksum = stored or (f"git-sha1:{file.blob_id}" if file.blob_id else None)
        files[file.rfilename] = ListedFile(checksum, num_bytes)
    licence = info.card_data.license if info.card_data else None
    return Listing(str(model), page, commit, licence, bool(info.gated), _used(model, files, page, commit))


def _cached(model: ModelName, name: str, revision: str) -> Path | None:
    """A file of a model in huggingface_hub's own cache."""
    if model.is_paddlenlp:
        return None
    repositories = (model.repository, model.name) if model.owner == GOOGLE else (model.repository,)
    paths = (try_to_load_from_cache(repository, name, revision=revision) for repository in repositories)
    return next((Path(path) for path in paths if isinstance(path, str)), None)


def _list_cached(model: ModelName) -> Listing | None:
    """A complete model of huggingface_hub's own cache; None if it is not there.

    The cache names a file by its sha256, or git's sha1, which verifies it. Offline, the newest that was downloaded is
    taken where the pinned revision was not.
    """
    revisions = (revision_of(model), *(["main"] if constants.HF_HUB_OFFLINE else []))
    configs = (_cached(model, name, revision) for revision in revisions for name in CONFIGS)
    if (config := next(filter(None, configs), None)) is None:
        return None
    files = {}
    for path in filter(Path.is_file, config.parent.iterdir()):
        blob = path.resolve().name
        kind = {64: "sha256", 40: "git-sha1"}.get(len(blob)) if re.fullmatch("[0-9a-f]+", blob) else None
        files[path.name] = ListedFile(f"{kind}:{blob}" if kind else f"sha256:{digest_of(path)}", path.stat().st_size)
    source, revision = str(config.parent), config.parent.name
    try:
        return Listing(str(model), source, revision, None, False, _used(model, files, source, revision))
    except DownloadError:  # not complete
        return None


def _used(model: ModelName, files: dict[str, ListedFile], source: str, revision: str) -> dict[str, ListedFile]:
    """Those of a model's files that are used; the checksums must be the pinned ones."""
    pin = pin_of(model)
    pinned = pin.files if pin and pin.revision == revision else {}
    used = {name: files[name] for name in _used_names(files, source)}
    for name in used.keys() & pinned.keys():
        file, pinned_file = used[name], ListedFile(f"sha256:{pinned[name][0]}", pinned[name][1])
        is_other = (file.checksum or "").startswith("sha256:") and file.checksum != pinned_file.checksum
        if is_other or file.num_bytes not in (None, pinned_file.num_bytes):
            raise DownloadError(
                f"{source}: {name} of {model} is not the file that is pinned ({pinned_file.checksum}); do not use this "
                "server, or name another revision: NAME@REVISION"
            )
        used[name] = pinned_file
    return used


def _used_names(available: Collection[str], source: str) -> list[str]:
    """The files to fetch: description, vocabulary and settings of the tokenizer, weights in the best format."""
    names = sorted(name for name in available if "/" not in name)  # nothing of a hub leaves the model's folder
    chosen = []
    for kind, readable in (("description", CONFIGS), ("vocabulary", _VOCABULARIES), ("weights", WEIGHT_FILES)):
        first = next((name for name in readable if name in names), None)
        if first is None:
            raise DownloadError(
                f"{source} has no {kind} that can be read ({' or '.join(readable)}); it has "
                f"{', '.join(names[:12]) or 'nothing'}: choose another model"
            )
        chosen.append(first)
    *texts, weights = chosen
    stem, suffix = weights.removesuffix(".index.json").rsplit(".", 1)
    shards = [name for name in names if name.startswith(f"{stem}-") and name.endswith(f".{suffix}")]
    optional = [name for name in _OPTIONAL if name in names]
    return [*texts, *optional, weights, *(shards if weights.endswith(".index.json") else [])]
