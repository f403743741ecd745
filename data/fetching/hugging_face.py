"""The Hugging Face hub by huggingface_hub: which files a model has and what verifies them; models in its own cache.

huggingface_hub reads the environment: HF_ENDPOINT (a mirror), HF_HUB_OFFLINE, HF_TOKEN (for private and gated models),
HF_HOME and HF_HUB_CACHE. The files themselves are fetched by `transfer`: version 0.25 loses up to 10 MB at a dropped
connection, ends at an answer 429 or 503, and checks neither checksums nor what a server sends for a range.
"""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from huggingface_hub import HfApi, configure_http_backend, constants, get_token, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RevisionNotFoundError
from huggingface_hub.hf_api import ModelInfo

from data.fetching import transfer
from data.fetching.published_models import GOOGLE, ModelName, pin_of, revision_of
from data.fetching.transfer import DownloadError, HttpsSession, Refused, digest_of, patiently

_WEIGHTS = (  # the first that is there is taken: formats that cannot hold code first
    "model.safetensors",
    "model.safetensors.index.json",
    "model_state.pdparams",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
CONFIGS = ("config.json", "bert_config.json")
_VOCABULARIES = ("vocab.txt", "tokenizer.json")
_OPTIONAL = ("tokenizer_config.json", "labels.json", "task.json", "question_answering.json")
_COMMIT = re.compile("[0-9a-f]{40}")
_ATTEMPTS = 3  # to reach the hub: a machine without network hears of it within seconds


class Unreachable(DownloadError):
    """No answer from a hub: no network, or the server is down."""


@dataclass(frozen=True)
class ListedFile:
    """A file of a published model; `checksum` as `Remote.checksum`, None where the hub states none."""

    checksum: str | None = None
    num_bytes: int | None = None


@dataclass(frozen=True)
class Listing:
    """The files of a model that are used, as a hub has them at one revision.

    Attributes:
        source: where the files are from, for people.
        revision: the commit; "" on a server that has none.
        licence: as the hub states it; None if it does not.
        gated: the owner gives access on request only.
    """

    name: str
    source: str
    revision: str
    licence: str | None
    gated: bool
    files: dict[str, ListedFile]


def is_weights(name: str) -> bool:
    return name.startswith(("model", "pytorch_model"))


def is_offline() -> bool:
    return constants.HF_HUB_OFFLINE


def token() -> str | None:
    """HF_TOKEN, or that of `huggingface-cli login`."""
    return get_token()


def page(model: ModelName) -> str:
    return f"{constants.ENDPOINT}/{model.repository}"


def needed_files(available: Collection[str], source: str) -> list[str]:
    """The files to fetch: description, vocabulary and settings of the tokenizer, weights in the best format.

    Raises:
        DownloadError: the model has no description, no WordPiece vocabulary, or no weights of a known format.
    """
    names = {name for name in available if "/" not in name}  # nothing of a hub leaves the model's folder
    config = [name for name in CONFIGS if name in names][:1]
    vocabulary = [name for name in _VOCABULARIES if name in names][:1]
    weights = [name for name in _WEIGHTS if name in names][:1]
    if weights and weights[0].endswith(".index.json"):
        stem, suffix = weights[0].removesuffix(".index.json").rsplit(".", 1)
        weights += sorted(name for name in names if name.startswith(f"{stem}-") and name.endswith(f".{suffix}"))
    for kind, chosen, readable in (
        ("description", config, CONFIGS),
        ("vocabulary", vocabulary, _VOCABULARIES),
        ("weights", weights, _WEIGHTS),
    ):
        if not chosen:
            raise DownloadError(
                f"{source} has no {kind} that can be read ({' or '.join(readable)}); it has "
                f"{', '.join(sorted(names)[:12]) or 'nothing'}: choose another model"
            )
    return [*config, *vocabulary, *(name for name in _OPTIONAL if name in names), *weights]


def address(model: ModelName, revision: str, name: str) -> str:
    return f"{page(model)}/resolve/{revision}/{quote(name)}"


def list_model(model: ModelName) -> Listing:
    """Ask the hub for a model's files at its revision.

    Raises:
        Unreachable: no answer.
        DownloadError: no such model or revision, no access, or files that cannot be used.
    """
    revision = revision_of(model)
    hub = constants.ENDPOINT
    configure_http_backend(HttpsSession)
    try:
        info = patiently(
            f"{hub}, {model}",
            lambda: HfApi(endpoint=hub).model_info(
                model.repository, revision=revision, files_metadata=True, timeout=transfer.TIMEOUT_SECONDS
            ),
            attempts=_ATTEMPTS,
        )
    except Refused as error:
        raise Unreachable(f"{hub} cannot be reached ({error})") from None
    except RevisionNotFoundError:
        raise DownloadError(f"{hub} has no revision {revision} of {model.repository}; check what follows @") from None
    except GatedRepoError:
        raise DownloadError(f"{model} is gated, and your account has no access: ask for it at {page(model)}") from None
    except (HfHubHTTPError, HFValidationError):  # 401, too, for a model that does not exist
        private = "your HF_TOKEN gives no access to it" if token() else "it is private: then set HF_TOKEN"
        raise DownloadError(f"{hub} has no model {model.repository}, or {private}; check the name") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DownloadError(
            f"{hub} does not answer as the Hugging Face hub does ({error}); check HF_ENDPOINT"
        ) from None
    return _listing(model, info)


def _listing(model: ModelName, info: ModelInfo) -> Listing:
    revision, commit = revision_of(model), info.sha or ""
    if not _COMMIT.fullmatch(commit) or (_COMMIT.fullmatch(revision) and commit != revision):
        raise DownloadError(
            f"{constants.ENDPOINT}: asked for {revision} of {model}, it describes {commit!r}; check HF_ENDPOINT"
        )
    if info.gated and not token():
        raise DownloadError(
            f"{model} is gated: accept its terms at {page(model)}, then set HF_TOKEN to a token of your account"
        )
    files = {}
    for file in info.siblings or []:
        stored, num_bytes = (f"sha256:{file.lfs.sha256}", file.lfs.size) if file.lfs else (None, file.size)
        checksum = stored or (f"git-sha1:{file.blob_id}" if file.blob_id else None)
        files[file.rfilename] = ListedFile(checksum, num_bytes)
    licence = info.card_data.license if info.card_data else None
    return _needed(model, files, Listing(str(model), page(model), commit, licence, bool(info.gated), {}))


def snapshot_folder(model: ModelName, revision: str) -> Path | None:
    """The folder of huggingface_hub's own cache with a model's files at a revision."""
    repositories = (model.repository, model.name) if model.owner == GOOGLE else (model.repository,)
    paths = (
        try_to_load_from_cache(repository, name, revision=revision) for repository in repositories for name in CONFIGS
    )
    return next((Path(path).parent for path in paths if isinstance(path, str)), None)


def list_snapshot(model: ModelName) -> Listing | None:
    """A complete model of huggingface_hub's own cache; None if it is not there.

    The cache names a file by its sha256, or git's sha1, which verifies it. Offline, the newest that was downloaded is
    taken where the pinned revision was not.
    """
    for revision in (revision_of(model), *(["main"] if is_offline() else [])):
        folder = snapshot_folder(model, revision)
        if folder is not None:
            files = {}
            for path in filter(Path.is_file, folder.iterdir()):
                blob = path.resolve().name
                kind = {64: "sha256", 40: "git-sha1"}.get(len(blob)) if re.fullmatch("[0-9a-f]+", blob) else None
                checksum = f"{kind}:{blob}" if kind else f"sha256:{digest_of(path)}"
                files[path.name] = ListedFile(checksum, path.stat().st_size)
            with suppress(DownloadError):  # not complete
                return _needed(model, files, Listing(str(model), str(folder), folder.name, None, False, {}))
    return None


def _needed(model: ModelName, files: dict[str, ListedFile], listing: Listing) -> Listing:
    """The listing with those of the files that are used; their checksums must be the pinned ones."""
    pin = pin_of(model)
    pinned = pin.files if pin and pin.revision == listing.revision else {}
    for name in needed_files(files, listing.source):
        file = files[name]
        if name in pinned:
            sha256, num_bytes = pinned[name]
            checksum = f"sha256:{sha256}"
            is_other = (file.checksum or "").startswith("sha256:") and file.checksum != checksum
            if is_other or file.num_bytes not in (None, num_bytes):
                raise DownloadError(
                    f"{listing.source}: {name} of {model} is not the file that is pinned ({checksum}); do not use this "
                    "server, or name another revision: NAME@REVISION"
                )
            file = ListedFile(checksum, num_bytes)
        listing.files[name] = file
    return listing
