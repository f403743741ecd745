"""BERT on Paddle as an installed package, `bert_on_paddle`: the public functions of `bert.api`. See README.md here.

This folder is `bert_on_paddle` once installed; in a wheel bert/, data/ and the entry points lie inside it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert.api import answer, encode, evaluate, fill_mask, load, predict, train

__all__ = ["__version__", "answer", "encode", "evaluate", "fill_mask", "load", "predict", "train"]

_HERE = Path(__file__).resolve().parent
CODE = _HERE if (_HERE / "bert").is_dir() else _HERE.parents[1]  # the parent of bert/, data/ and program.py

if __name__ == "bert_on_paddle":
    if CODE != _HERE:
        __path__.append(str(CODE))
    from bert_on_paddle import private_imports

    private_imports.install()


def __getattr__(name: str) -> Any:
    """The functions are imported when they are first used: a console command does not need them."""
    if name == "__version__":
        from bert_on_paddle.bert import __version__ as value
    elif name in __all__:
        from bert_on_paddle.bert import api

        value = getattr(api, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
