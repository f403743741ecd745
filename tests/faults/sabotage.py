"""Disables one protection of the product, to show that the row of the fault matrix which relies on it then loses.

A protection that was renamed is an error, so that it cannot stay enabled unnoticed. Replacements apply in this process,
in the forked trainings and in the pytest processes of a row (through BERT_BROKEN).
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any

from tests.faults.protections import PROTECTIONS

VARIABLE = "BERT_BROKEN"
_PRODUCT = ("bert", "data", "program", "run_pretraining")
_FOR_GOOD = contextlib.ExitStack()  # never closed


@dataclass(frozen=True)
class Replacement:
    """`real`, an attribute of the module or class `owner`, is replaced by `broken`.

    A function is also replaced in the modules that imported it from `owner`, if `owner` defines it.
    """

    owner: Any
    real: Any
    broken: Any

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        places = self.places()
        for owner, name, value in places:
            setattr(owner, name, staticmethod(self.broken) if isinstance(value, staticmethod) else self.broken)
        try:
            yield
        finally:
            for owner, name, value in places:
                setattr(owner, name, value)

    def places(self) -> list[tuple[Any, str, Any]]:
        """(module or class, attribute, value) of every place that holds `real`."""
        found = self._held_by(self.owner)
        assert found, f"{self.owner.__name__} has no attribute that is {self.real}"
        if getattr(self.real, "__module__", "") == self.owner.__name__:
            for module in [module for name, module in sys.modules.items() if name.split(".")[0] in _PRODUCT]:
                found += self._held_by(module) if module is not self.owner else []
        return found

    def _held_by(self, owner: Any) -> list[tuple[Any, str, Any]]:
        return [(owner, name, value) for name, value in vars(owner).items() if self._is_real(value)]

    def _is_real(self, value: Any) -> bool:
        return value is self.real or (isinstance(value, staticmethod) and value.__func__ is self.real)


def replacements(name: str) -> list[Replacement]:
    """What disables the protection `name`."""
    result = []
    for target, broken in PROTECTIONS[name].items():
        module, _, path = target.partition(":")
        outer, _, attribute = path.rpartition(".")
        owner = attrgetter(outer)(import_module(module)) if outer else import_module(module)
        real = getattr(owner, attribute)
        result.append(Replacement(owner, real, broken(real)))
    return result


@contextlib.contextmanager
def disabled(name: str | None) -> Iterator[None]:
    """Without the protection `name`, here and in processes started meanwhile; None changes nothing."""
    if name is None:
        yield
        return
    before = os.environ.get(VARIABLE)
    with contextlib.ExitStack() as stack:
        for replacement in replacements(name):
            stack.enter_context(replacement.applied())
        os.environ[VARIABLE] = name
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def disable_for_good(name: str) -> None:
    """In a process that was made for it."""
    if name:
        for replacement in replacements(name):
            _FOR_GOOD.enter_context(replacement.applied())
