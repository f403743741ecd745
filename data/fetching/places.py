"""Folders for downloaded files, and the mirror to download from."""

import os
from pathlib import Path
from typing import Annotated

from bert.config.flags import Flag

Mirrors = Annotated[tuple[str, ...], Flag(placeholder="URL", is_repeatable=True)]  # the field of a command's settings


def cache_folder() -> Path:
    """The cache: BERT_CACHE, or bert-on-paddle in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bert-on-paddle"
    return Path(os.environ.get("BERT_CACHE") or default).expanduser().absolute()


def data_folder() -> Path:
    """Folder of the fine-tuning sets: BERT_PREP_WORKING_DIR/download, otherwise in the cache."""
    data = os.environ.get("BERT_PREP_WORKING_DIR")
    return Path(data).expanduser().absolute() / "download" if data else cache_folder() / "data"


def mirrors() -> list[str] | None:
    """URL of a folder with the files of all sets, to use instead of the published addresses (BERT_DATA_MIRROR)."""
    mirror = os.environ.get("BERT_DATA_MIRROR")
    return [mirror] if mirror else None
