"""Replaces paths of NVIDIA's container image, which its documents use, on machines without the image."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert import REPOSITORY
from bert.config.architecture import BUILT_IN_MODELS

_CHECKOUT = Path("/workspace/bert")
_DESCRIPTIONS = ("bert_configs", "/workspace/bert/bert_configs")  # folders of model descriptions
_VOCABULARIES = Path("vocab")  # holds NAME-vocab.txt


def built_in_model(config_file: Path) -> str | None:
    """The built-in model that stands for a model description in NVIDIA's image; None for any other file."""
    if str(config_file.parent) not in _DESCRIPTIONS or config_file.exists():
        return None
    name = f"bert-{config_file.stem}-uncased" if config_file.stem in ("base", "large") else config_file.stem
    return name if name in BUILT_IN_MODELS else None


def with_own_vocabulary(values: Mapping[str, Any], has_weights: bool) -> dict[str, Any]:
    """Replace a vocabulary path of NVIDIA's image by the vocabulary of the weights, or by the downloaded file."""
    path = Path(str(values.get("vocab_file")))
    if path.parent != _VOCABULARIES or not path.name.endswith("-vocab.txt") or path.exists():
        return dict(values)
    downloaded = Path(os.environ.get("BERT_PREP_WORKING_DIR", "."), path)  # by data.download_vocabulary
    others = {name: value for name, value in values.items() if name != "vocab_file"}
    return others if has_weights and not downloaded.exists() else {**others, "vocab_file": downloaded}


def own_checkout(code_dir: Path) -> Path:
    """This checkout, if `code_dir` is the code folder of NVIDIA's image and does not exist; otherwise `code_dir`."""
    return REPOSITORY if code_dir == _CHECKOUT and not code_dir.exists() else code_dir
