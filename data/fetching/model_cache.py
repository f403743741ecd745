"""Published models by name, in a cache: fetched once, verified at every use, by one process at a time.

$BERT_CACHE/models/OWNER/NAME[@REVISION]/    default: ~/.cache/bert-on-paddle
    model.json        Listing: source, revision, licence, and the checksum of each file
    checksums.json    sha256 of the files for which the server states none, recorded when they were fetched
    config.json, vocab.txt, model.safetensors ...
"""

import json
import os
import shutil
import sys
from contextlib import nullcontext
from dataclasses import asdict
from functools import cache
from pathlib import Path

from bert.files import atomic_path, write_atomically
from bert.interpreter import shell_command
from bert.reporting.progress import megabytes
from bert.tokenization.vocabulary import Vocabulary
from data.fetching import hugging_face
from data.fetching.hugging_face import CONFIGS, ListedFile, Listing, is_weights
from data.fetching.paddlenlp_models import MODELS as PADDLENLP
from data.fetching.places import cache_folder, one_at_a_time
from data.fetching.published_models import GOOGLE, ModelName, pin_of
from data.fetching.transfer import DownloadError, Remote, fetch

LISTING_FILE = "model.json"
_LARGEST_TEXT = 64 << 20  # of a file that is not weights and whose size is not stated


def model_folder(model: ModelName) -> Path:
    """Where the cache keeps a model."""
    revision = f"@{model.revision.replace('/', '-')}" if model.revision else ""
    return cache_folder() / "models" / model.owner.replace("/", "--") / f"{model.name.replace('/', '--')}{revision}"


def fetch_model(model: ModelName, *, weights: bool = True, folder: Path | None = None) -> Listing:
    """Bring a model's files to `folder` (default: `model_folder`), verified; what is there is not fetched again.

    Args:
        weights: False fetches only the description, the vocabulary and other small files.
        folder: one that no other process writes to.
    Raises:
        DownloadError: offline, no such model, no access, a damaged file; the message has the remedy.
        OSError: the cache cannot be written.
    """
    target = folder or model_folder(model)
    listing = read_listing(target)
    if listing is None or not all((target / name).is_file() for name in ("vocab.txt", *_names(listing, weights))):
        listing = listing or _list(model)  # before the folder is made
        with nullcontext() if folder else one_at_a_time(target, str(model)):
            listing = read_listing(target) or listing  # of a process that was faster
            _complete(model, listing, target, weights)
    for name in _names(listing, weights):
        path = target / name
        _verify(path, listing.files[name], path.stat().st_size, path.stat().st_mtime_ns)
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
        values = json.loads(path.read_bytes())
        files = {name: ListedFile(file["checksum"], file["num_bytes"]) for name, file in values["files"].items()}
        fields = {name: values[name] for name in ("name", "source", "revision", "licence", "gated")}
        return Listing(**fields, files=files)
    except (ValueError, KeyError, TypeError) as error:
        raise DownloadError(f"{path} is damaged ({error}); remove {folder}, then start again") from None


@cache
def _verify(path: Path, file: ListedFile, num_bytes: int, mtime_ns: int) -> None:
    """Check a file against its checksum, once in a process as long as its size and time are the same."""
    fetch(Remote((), file.checksum, file.num_bytes), path)


def _list(model: ModelName) -> Listing:
    """What the hub, or Hugging Face's own cache, has of a model."""
    if not model.is_paddlenlp and (listing := hugging_face.list_snapshot(model)):
        return listing
    if hugging_face.is_offline():
        raise _offline(model, f"{model} is not in {model_folder(model)} or Hugging Face's cache")
    if model.is_paddlenlp:
        return _list_paddlenlp(model)
    try:
        return hugging_face.list_model(model)
    except hugging_face.Unreachable as error:
        raise DownloadError(f"{model} is not in {model_folder(model)}, and {error}; {_elsewhere(model)}") from None


def _list_paddlenlp(model: ModelName) -> Listing:
    addresses = PADDLENLP[model.name].addresses()
    files = {name: ListedFile() for name in addresses}
    google = pin_of(ModelName(GOOGLE, model.name))
    if google and "vocab.txt" in google.files:
        sha256, num_bytes = google.files["vocab.txt"]
        files["vocab.txt"] = ListedFile(f"sha256:{sha256}", num_bytes)
    return Listing(str(model), addresses["model_state.pdparams"].rpartition("/")[0], "", None, False, files)


def _names(listing: Listing, weights: bool) -> list[str]:
    return [name for name in listing.files if weights or not is_weights(name)]


def _complete(model: ModelName, listing: Listing, folder: Path, weights: bool) -> None:
    """Fetch what is missing; the description comes before the weights and decides whether they are fetched."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in _names(listing, weights) if not (folder / name).is_file()]
    snapshot = None if model.is_paddlenlp else hugging_face.snapshot_folder(model, listing.revision)
    cached = {name: snapshot / name for name in missing if snapshot and (snapshot / name).is_file()}
    away = [name for name in missing if name not in cached]
    if away and hugging_face.is_offline():
        raise _offline(model, f"{', '.join(away)} of {model} {'is' if len(away) == 1 else 'are'} not in {folder}")
    write_atomically(folder / LISTING_FILE, (json.dumps(asdict(listing), indent=1) + "\n").encode())
    if model.is_paddlenlp:
        for name, text in PADDLENLP[model.name].texts().items():
            write_atomically(folder / name, text.encode())
    for name in missing:
        if not is_weights(name):
            _bring(model, listing, name, folder, cached.get(name))
    _check_description(listing, folder)
    if not (folder / "vocab.txt").is_file():
        vocabulary = Vocabulary.from_tokenizer_json(folder / "tokenizer.json")
        write_atomically(folder / "vocab.txt", vocabulary.file_content())
    large = [name for name in missing if is_weights(name)]
    if large:
        num_bytes = sum(listing.files[name].num_bytes or 0 for name in large)
        size = f", {megabytes(num_bytes)}" if num_bytes else ""
        print(f"fetching {model} from {listing.source} to {folder}{size}", file=sys.stderr, flush=True)
    for name in large:
        _bring(model, listing, name, folder, cached.get(name))


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
        url, token = hugging_face.address(model, listing.revision, name), hugging_face.token()
    limit = 1 << 40 if is_weights(name) else _LARGEST_TEXT
    try:
        fetch(Remote((url,), file.checksum, file.num_bytes, limit, token), target)
    except DownloadError as error:
        access = f"; {model} is gated: ask for access at {listing.source}" if listing.gated else ""
        raise DownloadError(f"{error}{access}") from None


def _offline(model: ModelName, what: str) -> DownloadError:
    return DownloadError(f"{what}, and HF_HUB_OFFLINE forbids downloads; unset it, or {_elsewhere(model)}")


def _elsewhere(model: ModelName) -> str:
    return (
        f"on a machine with network run `{shell_command('data.download_model', str(model), '--output-dir', 'DIR')}`, "
        "copy DIR here and "
        "name DIR instead"
    )
