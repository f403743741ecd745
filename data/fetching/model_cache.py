"""Published models by name, in a cache: fetched once, verified at every use, by one process at a time.

$BERT_CACHE/models/OWNER/NAME[@REVISION]/    default: ~/.cache/bert-on-paddle
    model.json        Listing: source, revision, licence, and the checksum of each file
    checksums.json    sha256 of each file, recorded when it was fetched
    config.json, vocab.txt, model.safetensors ...
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from bert.files import write_atomically
from bert.reporting.progress import megabytes
from bert.tokenization.vocabulary import Vocabulary
from data.fetching import hugging_face
from data.fetching.download import fetch
from data.fetching.model_listing import CONFIGS, ListedFile, Listing, is_weights, size_limit
from data.fetching.paddlenlp_models import MODELS as PADDLENLP
from data.fetching.places import cache_folder, one_at_a_time
from data.fetching.published_models import ModelName, pin_of
from data.fetching.transfer import PATIENT, DownloadError, Patience, Remote

LISTING_FILE = "model.json"
_FIRST_ATTEMPTS = 3  # to reach the hub: a machine without network hears of it within seconds
_verified: set[tuple[str, int, int]] = set()  # files that this process has hashed: path, bytes, time of change


def model_folder(model: ModelName) -> Path:
    """Where the cache keeps a model."""
    revision = f"@{model.revision.replace('/', '-')}" if model.revision else ""
    return cache_folder() / "models" / model.owner.replace("/", "--") / f"{model.name.replace('/', '--')}{revision}"


def fetch_model(
    model: ModelName, *, weights: bool = True, folder: Path | None = None, patience: Patience = PATIENT
) -> Listing:
    """Bring a model's files to `folder` (default: `model_folder`), verified; what is there is not fetched again.

    Args:
        weights: False fetches only the description, the vocabulary and other small files.
    Raises:
        DownloadError: offline, no such model, no access, a damaged file; the message has the remedy.
        OSError: the cache cannot be written.
    """
    folder = folder or model_folder(model)
    listing = read_listing(folder)
    if listing is None or not _is_complete(listing, folder, weights):
        with one_at_a_time(folder, str(model)):
            listing = _complete(model, folder, weights, patience)
    _verify(listing, folder, weights)
    return listing


def _complete(model: ModelName, folder: Path, weights: bool, patience: Patience) -> Listing:
    """Fetch what is missing; the description comes before the weights and decides whether they are fetched."""
    listing = read_listing(folder)
    if listing is None or not all(_is_reachable(listing.files[name]) for name in _missing(listing, folder, weights)):
        listing = _list(model, patience)
    write_atomically(folder / LISTING_FILE, listing.to_json().encode())
    for name, text in listing.texts.items():
        write_atomically(folder / name, text.encode())
    missing = _missing(listing, folder, weights)
    if hugging_face.is_offline() and not all(_is_local(listing.files[name]) for name in missing):
        are = "is" if len(missing) == 1 else "are"
        raise _offline(model, f"{', '.join(missing)} of {model} {are} not in {folder}")
    for name in (name for name in missing if not is_weights(name)):
        _fetch_file(listing, name, folder, patience)
    _check_description(listing, folder)
    if "vocab.txt" not in listing.files:
        vocabulary = Vocabulary.from_tokenizer_json(folder / "tokenizer.json")
        write_atomically(folder / "vocab.txt", vocabulary.file_content())
    missing_weights = [name for name in missing if is_weights(name)]
    _announce(listing, missing_weights, folder)
    for name in missing_weights:
        _fetch_file(listing, name, folder, patience)
    return listing


def read_listing(folder: Path) -> Listing | None:
    """The content of model.json; None without it.

    Raises:
        DownloadError: it is damaged.
    """
    path = folder / LISTING_FILE
    if not path.is_file():
        return None
    try:
        return Listing.from_json(json.loads(path.read_bytes()))
    except (ValueError, KeyError, TypeError) as error:
        raise DownloadError(f"{path} is damaged ({error}); remove {folder}, then start again") from None


def _list(model: ModelName, patience: Patience) -> Listing:
    """What the hub, or Hugging Face's own cache, has of a model."""
    if model.is_paddlenlp:
        if hugging_face.is_offline():
            raise _offline(model, f"{model} is not in {model_folder(model)}")
        return _list_paddlenlp(model)
    offline = hugging_face.is_offline()
    if (listing := hugging_face.cached_by_hugging_face(model, any_revision=offline)) is not None:
        return listing
    if offline:
        raise _offline(model, f"{model} is not in {model_folder(model)} or Hugging Face's cache")
    try:
        return hugging_face.list_model(model, replace(patience, attempts=min(_FIRST_ATTEMPTS, patience.attempts)))
    except hugging_face.Unreachable as error:
        raise DownloadError(f"{model} is not in {model_folder(model)}, and {error}; {_elsewhere(model)}") from None


def _list_paddlenlp(model: ModelName) -> Listing:
    known = PADDLENLP[model.name]
    files = {name: ListedFile(url) for name, url in known.addresses().items()}
    google = pin_of(ModelName("google-bert", model.name))
    if google and "vocab.txt" in google.files:
        sha256, num_bytes = google.files["vocab.txt"]
        files["vocab.txt"] = ListedFile(files["vocab.txt"].url, f"sha256:{sha256}", num_bytes)
    source = files["model_state.pdparams"].url.rpartition("/")[0]
    return Listing(str(model), source, "", None, False, files, known.texts())


def _offline(model: ModelName, what: str) -> DownloadError:
    return DownloadError(f"{what}, and HF_HUB_OFFLINE forbids downloads; unset it, or {_elsewhere(model)}")


def _elsewhere(model: ModelName) -> str:
    return (
        f"on a machine with network run `python -m data.download_model {model} --output-dir DIR`, copy DIR here and "
        "name DIR instead"
    )


def _wanted(listing: Listing, weights: bool) -> list[str]:
    return list(listing.files) if weights else listing.small_files()


def _missing(listing: Listing, folder: Path, weights: bool) -> list[str]:
    return [name for name in _wanted(listing, weights) if not (folder / name).is_file()]


def _is_complete(listing: Listing, folder: Path, weights: bool) -> bool:
    made = (*listing.texts, "vocab.txt")
    return not _missing(listing, folder, weights) and all((folder / name).is_file() for name in made)


def _announce(listing: Listing, missing: list[str], folder: Path) -> None:
    if not missing:
        return
    sizes = [listing.files[name].num_bytes for name in missing]
    size = f", {megabytes(sum(size or 0 for size in sizes))}" if all(sizes) else ""
    print(f"fetching {listing.name} from {listing.source} to {folder}{size}", file=sys.stderr, flush=True)


def _check_description(listing: Listing, folder: Path) -> None:
    """Refuse another network than BERT, before its weights are fetched."""
    path = next(folder / name for name in CONFIGS if (folder / name).is_file())
    try:
        kind = json.loads(path.read_bytes()).get("model_type", "bert")
    except (ValueError, AttributeError) as error:
        raise DownloadError(f"{path} of {listing.source} does not describe a model ({error}); choose another") from None
    if kind != "bert":
        raise DownloadError(
            f"{listing.name} is of the type {kind!r}, and only BERT is read here; choose a model whose config.json has "
            '"model_type": "bert"'
        )


def _is_local(file: ListedFile) -> bool:
    return "://" not in file.url


def _is_reachable(file: ListedFile) -> bool:
    return not _is_local(file) or Path(file.url).is_file()


def _fetch_file(listing: Listing, name: str, folder: Path, patience: Patience) -> None:
    file, target = listing.files[name], folder / name
    if _is_local(file):
        return _take(Path(file.url), target)
    url, token = hugging_face.address(file.url)
    try:
        fetch(Remote((url,), file.checksum, file.num_bytes, size_limit(name), token=token), target, patience)
    except DownloadError as error:
        access = f"; {listing.name} is gated: ask for access at {listing.source}" if listing.gated else ""
        raise DownloadError(f"{error}{access}") from None


def _take(source: Path, target: Path) -> None:
    """Take a file of Hugging Face's cache: a second name for it, or a copy where the disk is another one."""
    partial = target.with_name(f".{target.name}.taken")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        shutil.copyfile(source, partial)
    os.replace(partial, target)


def _verify(listing: Listing, folder: Path, weights: bool) -> None:
    """Check the files against their checksums, each once in a process.

    Raises:
        DownloadError: a file is damaged; one that was taken from Hugging Face's cache is removed again.
    """
    for name in _wanted(listing, weights):
        path, file = folder / name, listing.files[name]
        state = path.stat()
        key = (str(path), state.st_size, state.st_mtime_ns)
        if key in _verified:
            continue
        try:
            fetch(Remote((), file.checksum, file.num_bytes), path)
        except DownloadError as error:
            if not _is_local(file):
                raise
            path.unlink()
            raise DownloadError(f"{error}; it is from {file.url}, which is damaged too: remove that first") from None
        _verified.add(key)
