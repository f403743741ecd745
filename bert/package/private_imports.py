"""Imports of `bert`, `data` and `program` as parts of `bert_on_paddle`, so that a program may have modules so named.

The code imports absolutely (`from data.text import readers`). Under `bert_on_paddle` its modules get builtins whose
`__import__` looks for those names in `bert_on_paddle`; nothing is added to `sys.path`, and no generic name to
`sys.modules`. The source and its byte code are the same under both names.
"""

import builtins
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

PACKAGE = __name__.rpartition(".")[0]
OWN = ("bert", "data", "program")


def private_import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """`__import__` of our modules."""
    top = name.partition(".")[0]
    if level or top not in OWN:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    module = builtins.__import__(f"{PACKAGE}.{name}", globals, locals, fromlist or ("",), 0)
    return module if fromlist else sys.modules[f"{PACKAGE}.{top}"]


_BUILTINS = {**vars(builtins), "__import__": private_import}


class PrivateLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = _BUILTINS
        super().exec_module(module)


class PrivateFinder(MetaPathFinder):
    """Finds the modules below `bert_on_paddle`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parts = fullname.split(".")
        if len(parts) < 2 or parts[0] != PACKAGE or parts[1] not in OWN:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = PrivateLoader(fullname, spec.loader.path)
        return spec


def install() -> None:
    if not any(isinstance(finder, PrivateFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PrivateFinder())
