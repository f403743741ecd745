"""Where downloaded files go, and from which mirror they come."""

import os
from pathlib import Path
from typing import Annotated

from bert.config.flags import Flag

Mirrors = Annotated[tuple[str, ...], Flag(placeholder="URL", is_repeatable=True)]  # the field of a command's settings


def cache_folder() -> Path:
    """BERT_CACHE, or bert-on-paddle in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bert-on-paddle"
    return Path(os.environ.get("BERT_CACHE") or default).expanduser().absolute()


def data_folder() -> Path:
    """Where the fine-tuning sets are: BERT_PREP_WORKING_DIR/download, without that variable in the cache."""
    data = os.environ.get("BERT_PREP_WORKING_DIR")
    return Path(data).expanduser().absolute() / "download" if data else cache_folder() / "data"


def mirrors() -> list[str] | None:
    """BERT_DATA_MIRROR, the URL of a folder with the files of all sets, instead of the published addresses."""
    mirror = os.environ.get("BERT_DATA_MIRROR")
    return [mirror] if mirror else None
