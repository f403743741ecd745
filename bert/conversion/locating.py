"""Finds the weights that a path or the name of a published model stands for, and their format.

resolve("results/phase2")         the path, if anything is there
resolve("bert-base-uncased")      the folder of the cache with that model (`data.fetching.model_cache`)
"""

import difflib
from functools import partial
from pathlib import Path

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints.chosen_weights import chosen_weights, is_incomplete_step
from bert.checkpoints.directories import VerifiedCheckpoint
from bert.conversion.untrusted_files import ConversionError, regular_file
from bert.conversion.usage import LINEAR_MODEL_FILE
from bert.interpreter import shell_command
from data.fetching.published_models import WEIGHT_FILES, ModelName, known_names, parse_name

_OF_PREFIXES = (".index", ".pdparams")  # TensorFlow's and Paddle's users name checkpoints without their suffixes
_QUICKSTART = ("results", "quickstart")  # of the first training of most users
_MISSPELT = 0.8  # similarity of a folder that does not have the rest of a path
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"


_BY_SUFFIX = {
    "*.safetensors": "safetensors",
    "*.pdparams": "paddle",
    "*.index": "tensorflow",
    "*.pt": "torch",
    "*.pth": "torch",
    "*.bin": "torch",
}


def locate(source: Path | VerifiedCheckpoint, notes: list[str]) -> tuple[Path, str]:
    """Find the weights that `source` names: a file, a directory, or the prefix of a TensorFlow checkpoint.

    Returns:
        A file, an index of shards, or the .index of a TensorFlow bundle; its container: "safetensors", "torch",
        "paddle" or "tensorflow".
    """
    if isinstance(source, VerifiedCheckpoint):
        return _choose(source.directory, notes)
    path = source
    if not path.is_dir():
        return _file(path)
    if (path / checkpoint_files.MANIFEST).exists() or not _candidates(path) or is_incomplete_step(path):
        choice = chosen_weights(path)
        notes += choice.notes()
        path = choice.path
    return _choose(path, notes)


def _candidates(folder: Path) -> list[tuple[Path, str]]:
    """Candidate weights (file, container): files with a library's usual name, otherwise all others."""
    named = [(folder / name, container) for name, container in WEIGHT_FILES.items() if (folder / name).is_file()]
    if named:
        return named
    others = [(path, container) for pattern, container in _BY_SUFFIX.items() for path in sorted(folder.glob(pattern))]
    return [
        (path, container)
        for path, container in others
        if path.is_file() and not path.name.endswith(checkpoint_files.TRAINING_ONLY)
    ]


def _choose(folder: Path, notes: list[str]) -> tuple[Path, str]:
    if (folder / LINEAR_MODEL_FILE).is_file():
        raise ConversionError(
            f"{folder} holds a kept baseline, which has no network to train, convert or export; use it as it is with "
            "run_predict.py, the Python functions or the server, or name another model here"
        )
    candidates = _candidates(folder)
    if not candidates:
        names = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
        raise ConversionError(
            f"{folder} holds no weights of a known format (*.safetensors, pytorch_model.bin, "
            f"*.pdparams, *.index of TensorFlow; it holds: {names}); name the file itself"
        )
    first, container = candidates[0]
    alike = [path.name for path, _ in candidates if path.suffix == first.suffix]
    if len(alike) > 1 and first.name not in WEIGHT_FILES:
        raise ConversionError(
            f"{folder} holds several files of weights ({', '.join(alike[:5])}); name the one you mean"
        )
    if others := [path.name for path, other in candidates if other != container]:
        notes.append(f"{folder} also holds {', '.join(others)}, not read: {first.name} is taken")
    return first, container


def _file(path: Path) -> tuple[Path, str]:
    """A candidate (file, container), recognised by its first bytes; a TensorFlow prefix becomes its .index."""
    path = _existing(path) or path
    if not path.exists():
        raise ConversionError(f"{path} does not exist; name a checkpoint directory or a file of weights")
    if path.suffix == ".index":
        return path, "tensorflow"
    if ".data-0" in path.name:
        return _file(path.with_name(path.name.split(".data-0")[0]))
    if is_index(path):
        return path, "torch" if path.name.startswith("pytorch") else "safetensors"
    size = regular_file(path)
    with open(path, "rb") as file:
        start = file.read(16)
    if start.startswith(_ZIP):
        return path, "torch"
    if start.startswith(_PICKLE):
        return path, "torch" if b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" in start else "paddle"
    if len(start) > 8 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") < size:
        return path, "safetensors"
    raise ConversionError(
        f"{path} is not a weights file of a known kind (it begins with {start[:8]!r}); name a .safetensors, PyTorch's "
        ".bin or .pt, Paddle's .pdparams or TensorFlow's .index"
    )


def _existing(path: Path) -> Path | None:
    """The path with this name, or this name plus a suffix, that exists."""
    names = [path.with_name(path.name + suffix) for suffix in _OF_PREFIXES if path.name]
    return path if path.exists() else next(filter(Path.is_file, names), None)


def is_index(path: Path) -> bool:
    """Whether a file is an index that lists the shards of a checkpoint."""
    return path.name.endswith(".index.json")


_SUFFIXES = (".safetensors", ".pdparams", ".bin", ".pt", ".pth", ".ckpt", ".index", ".json", ".npz", ".gz", ".zip")
_OWN_FOLDERS = ("results", "data", "tmp", "checkpoints", "output")  # never the owner of a model, though missing here


def resolve(source: str | Path, *, weights: bool = True) -> Path:
    """The path if it exists, otherwise the cached folder of the published model with that name, fetched if necessary.

    Without `weights` only the description, the vocabulary and the tokenizer's settings are fetched. Raises ValueError:
    neither a path nor a name (ConversionError), or the model cannot be fetched (DownloadError).
    """
    path = Path(source).expanduser()
    if str(source) and _existing(path):
        return path
    model = published_model(source)
    if model is None:
        raise ConversionError(_not_there(str(source)))
    from data.fetching.model_cache import fetch_model  # loads huggingface_hub

    return fetch_model(model, weights=weights)


def published_model(source: str | Path) -> ModelName | None:
    """The published model that a missing path may name; None if it can only be a path."""
    text = str(source)
    first, slash, _ = text.partition("/")
    is_path = text.startswith((".", "~", "/")) or text.endswith(_SUFFIXES)
    if is_path or (slash and (Path(first).exists() or first in _OWN_FOLDERS)):
        return None
    is_near_miss = slash and any(len(close.parts) == len(Path(text).parts) for close in _close_paths(Path(text)))
    return None if is_near_miss else parse_name(text)


def _not_there(source: str) -> str:
    names = known_names() if source.count("/") < 2 else ()  # else it can only be a path
    matches = [*map(str, _close_paths(Path(source).expanduser())), *difflib.get_close_matches(source, names, 3)]
    hint = f"did you mean {' or '.join(matches[:3])}? Or " if source and matches else ""
    if Path(source).parts[:2] == _QUICKSTART:
        hint = f"`{shell_command('scripts/run_pretraining.sh')}` makes results/quickstart. Or "
    return (
        f"{source or repr(source)} does not exist; {hint}name a checkpoint directory, a file of weights, or a "
        "published model: bert-base-uncased, or OWNER/NAME of the Hugging Face hub"
    )


def _close_paths(path: Path) -> list[Path]:
    """Existing paths whose spelling is close to the first missing part of a path."""
    parent = next((folder for folder in path.parents if folder.is_dir()), None)
    if parent is None:
        return []
    missing, *rest = path.relative_to(parent).parts or ("",)
    try:
        names = [entry.name for entry in parent.iterdir()]
    except OSError:
        return []
    matches = [parent / name for name in difflib.get_close_matches(missing, names, 3)]
    whole = [match.joinpath(*rest) for match in matches if match.joinpath(*rest).exists()]
    is_misspelt = partial(difflib.get_close_matches, missing, cutoff=_MISSPELT)
    return whole or [match for match in matches if is_misspelt([match.name])]
