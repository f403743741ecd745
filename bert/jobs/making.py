"""Steps that make data by commands of data/, and the record of how the data were made."""

import itertools
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bert.files import read_json, waiting_lock
from bert.jobs.job import Execution, Step
from bert.samples.manifest import MANIFEST_NAME

REPORT_NAME = "report.json"  # ends a folder of imported text
_RECORD = "prepared.json"
Run = Callable[[Sequence[str]], int]  # runs a command, returns its exit code


class Products:
    """The products in a data folder and the commands that made them, in order; stored in FOLDER/prepared.json.

    The record lies beside the data, which several jobs may share. A product is there already if the same command made
    it. If a product is made again, it and all later products are removed first. A product that is a folder (shards,
    imported text) is recorded by the file that ends it, and removed as a whole.

    Args:
        source: identifies what the first command reads; with another one everything is made again.
    """

    def __init__(self, folder: Path, source: str = "") -> None:
        self._file, self._source = folder / _RECORD, source

    def has(self, product: Path, command: Sequence[str]) -> bool:
        return product.exists() and read_json(self._file).get(str(product)) == self._words(command)

    def make(self, title: str, command: Sequence[str], product: Path, run: Run) -> int:
        """Make a product unless it exists; returns the command's exit code, 0 if the product exists."""
        if self.has(product, command):
            return 0
        done: dict[str, list[str]] = read_json(self._file)
        print(title, flush=True)
        stale = list(itertools.dropwhile(lambda path: path != str(product), done))
        for path in {*stale, str(product)}:
            done.pop(path, None)
            _remove(Path(path))
        if code := run(command):
            return code
        if not product.exists():
            raise ValueError(f"{product} should exist after `{' '.join(command)}`, and does not; report this")
        self._file.parent.mkdir(parents=True, exist_ok=True)
        record = {**done, str(product): self._words(command)}
        self._file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        return 0

    def _words(self, command: Sequence[str]) -> list[str]:
        """The arguments of a command without the interpreter, whose path may change."""
        return [word for word in command if word != sys.executable] + ([self._source] if self._source else [])


def _remove(product: Path) -> None:
    if product.name in (MANIFEST_NAME, REPORT_NAME):
        shutil.rmtree(product.parent, ignore_errors=True)
    else:
        product.unlink(missing_ok=True)


@dataclass(frozen=True)
class Make(Step):
    """The step that makes a product in a data folder, while it holds the folder's lock.

    Attributes:
        command: the words of a command of data/.
        made: the file that it leaves; of a folder, the file that ends it.
        folder: of the data.
    """

    doing: str
    command: tuple[str, ...]
    made: Path
    folder: Path

    @property
    def title(self) -> str:
        return self.doing

    @property
    def product(self) -> Path:
        return self.made

    def is_done(self, execution: Execution) -> bool:
        return Products(self.folder).has(self.made, self.command)

    def run(self, execution: Execution) -> int:
        with waiting_lock(self.folder / ".lock", f"start that makes the data in {self.folder}"):
            return Products(self.folder).make(self.doing, self.command, self.made, execution.command)
