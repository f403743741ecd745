"""What a pre-training on own text remembers between its starts: OUTPUT_DIR/own_text.json."""

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bert.files import read_json, write_atomically
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.length import Length
from bert.own_text.plan import TextPlan

_VERSION = 2
_TICK_SECONDS = 10.0  # a start that is killed loses so much of its count at most


@dataclasses.dataclass
class TextRecord:
    """The facts, the decisions and the times of a run.

    Attributes:
        data: what decided the data (`corpus.data_facts`).
        expected_updates: that the time of the first start was expected to allow, from which the shares of the schedule
            are counted.
        length: what the latest start asked for; None: no training was started.
        finished: the length with which the training was finished; None: it is not.
        seconds_used: by all starts, without the time between them.
    """

    text: TextFacts
    machine: MachineFacts
    speeds: dict[str, float]
    plan: TextPlan
    data: dict[str, Any]
    expected_updates: int | None = None
    length: Length | None = None
    finished: Length | None = None
    seconds_used: float = 0.0
    version: int = _VERSION

    def __post_init__(self) -> None:
        self._start: float | None = None  # of the start that is running, in seconds of a clock that never goes back
        self._writing = threading.Lock()

    def save(self, output_dir: Path) -> None:
        with self._writing:
            content = json.dumps({**dataclasses.asdict(self), "seconds_used": self.used()}, indent=1, default=str)
            record_file(output_dir).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(record_file(output_dir), (content + "\n").encode())

    def used(self) -> float:
        """Seconds of all starts until now."""
        return self.seconds_used + (0.0 if self._start is None else time.monotonic() - self._start)

    @contextlib.contextmanager
    def clock(self, output_dir: Path, begun: float) -> Iterator[None]:
        """Count the seconds of a start since `begun` (time.monotonic), and keep the count in the file."""
        self._start, ended = begun, threading.Event()

        def tick() -> None:
            while not ended.wait(_TICK_SECONDS):
                with contextlib.suppress(OSError):  # a full disk is reported by what needs it
                    self.save(output_dir)

        self.save(output_dir)
        ticking = threading.Thread(target=tick, daemon=True)
        ticking.start()
        try:
            yield
        finally:
            ended.set()
            ticking.join()
            self.seconds_used, self._start = self.used(), None
            self.save(output_dir)


def record_file(output_dir: Path) -> Path:
    return output_dir / "own_text.json"


def read_record(output_dir: Path) -> TextRecord | None:
    """The record of the run in a folder; None without one."""
    file = record_file(output_dir)
    if not file.exists():
        return None
    content = read_json(file)
    other = f"pass another --output-dir, with --from-pretrained-params {output_dir} to continue its model"
    if (version := content.get("version", 1)) != _VERSION and "speeds" in content:
        was = "an earlier version, which trained in two phases" if version == 1 else f"version {version}"
        raise ValueError(f"{file} is of {was}; {other}")
    if "plan" in content and "normalization" not in content["plan"]:  # of an earlier version
        content["plan"]["normalization"] = {"lowercase": content.get("data", {}).get("lowercase", True)}
    try:
        return TypeAdapter(TextRecord).validate_python(content)
    except ValueError:
        raise ValueError(f"{file} is damaged; restore it, or {other}") from None
