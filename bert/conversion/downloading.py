"""Finds the weights that a path or the name of a published model means; models by name are fetched into a cache.

resolve("results/phase2")         the path, if anything is there
resolve("bert-base-uncased")      the folder of the cache with that model (`data.fetching.model_cache`)
"""

import difflib
from pathlib import Path

from bert.conversion.locating import is_there
from bert.conversion.raw_tensors import ConversionError
from data.fetching.model_cache import fetch_model, model_folder
from data.fetching.published_models import ModelName, known_names, parse_name

_WEIGHT_SUFFIXES = (
    ".safetensors",
    ".pdparams",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".index",
    ".json",
    ".npz",
    ".gz",
    ".zip",
)
_OWN_FOLDERS = ("results", "data", "tmp", "checkpoints", "output")  # never the owner of a model, though missing here


def resolve(source: str | Path, *, weights: bool = True) -> Path:
    """The path if it exists, otherwise the cache's folder of the published model of that name, fetched if necessary.

    Args:
        source: a path wins over a name.
        weights: False fetches only the description, the vocabulary and the tokenizer's settings.
    Raises:
        ConversionError: neither a path nor a name.
        DownloadError (both ValueError): the model cannot be fetched, or is no BERT.
    """
    path = Path(source).expanduser()
    if str(source) and is_there(path):
        return path
    model = published_model(source)
    if model is None:
        raise ConversionError(_not_there(str(source)))
    fetch_model(model, weights=weights)
    return model_folder(model)


def published_model(source: str | Path) -> ModelName | None:
    """The published model that a source which does not exist names; None if it can only be a path."""
    text = str(source)
    first, slash, _ = text.partition("/")
    is_path = text.startswith((".", "~", "/")) or text.endswith(_WEIGHT_SUFFIXES)
    if is_path or (slash and (Path(first).exists() or first in _OWN_FOLDERS)):
        return None
    is_near_miss = slash and any(len(close.parts) == len(Path(text).parts) for close in _close_paths(Path(text)))
    return None if is_near_miss else parse_name(text)


def _not_there(source: str) -> str:
    matches = [*map(str, _close_paths(Path(source).expanduser())), *difflib.get_close_matches(source, known_names(), 3)]
    hint = f"did you mean {' or '.join(matches[:3])}? Or " if source and matches else ""
    return (
        f"{source or repr(source)} does not exist; {hint}name a checkpoint directory, a file of weights, or a "
        "published model: bert-base-uncased, or OWNER/NAME of the Hugging Face hub"
    )


def _close_paths(path: Path) -> list[Path]:
    """Paths that exist and differ from a missing one in the spelling of its first missing part."""
    parent = next((folder for folder in path.parents if folder.is_dir()), None)
    if parent is None:
        return []
    missing, *rest = path.relative_to(parent).parts or ("",)
    try:
        names = [entry.name for entry in parent.iterdir()]
    except OSError:
        return []
    found = [parent / name for name in difflib.get_close_matches(missing, names, 3)]
    return [one.joinpath(*rest) if one.joinpath(*rest).exists() else one for one in found]
