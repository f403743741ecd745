"""BERT on Paddle as an installed package, `bert_on_paddle`: the public functions of `bert.api`. See README.md here.

This folder is `bert_on_paddle` once installed. In a wheel bert/, data/ and the entry points lie inside it, and setup.py
has written `bert_on_paddle.bert` for `bert` in their imports. An editable install imports the checkout as `bert`.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert.api import (
        Server,
        classify,
        convert,
        encode,
        export,
        fill_mask,
        load_model,
        predict,
        pretrain,
        report,
        rerank,
        search,
        serve,
    )

__all__ = [
    "Server",
    "__version__",
    "classify",
    "convert",
    "encode",
    "export",
    "fill_mask",
    "load_model",
    "predict",
    "pretrain",
    "report",
    "rerank",
    "search",
    "serve",
]

_HERE = Path(__file__).resolve().parent
if not (_HERE / "bert").is_dir():  # an editable install
    sys.path.append(str(_HERE.parents[1]))


def __getattr__(name: str) -> Any:
    """Import a function at its first use, because a console command does not need them."""
    if name == "__version__":
        from bert import __version__ as value
    elif name in __all__:
        from bert import api

        value = getattr(api, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
