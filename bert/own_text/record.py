"""What a pre-training on own text remembers between its starts: the facts of its plan, its steps, the time it used."""

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert.files import read_json, write_atomically
from bert.own_text.facts import MachineFacts, TextFacts, Wishes
from bert.own_text.plan import Speeds

_SIGNS_OF_LIFE = ("phase*/progress.json", "phase*/metrics.jsonl", "data/prepared.json")


@dataclasses.dataclass
class TextRecord:
    """OUTPUT_DIR/own_text.json.

    Attributes:
        hours, epochs: that the latest start asked for.
        data: what decided the data (`corpus.data_facts`).
        first: what decides the plan: hours, epochs, max_steps (by phase), device and ranks that the first start asked
            for.
        steps: of the phases whose training was started.
        seconds_used: by all starts that ended.
        begun: time of the start that is running, or that was killed; None: none is.
    """

    file: Path
    text: TextFacts
    machine: MachineFacts
    speeds: Speeds
    hours: float | None
    epochs: float | None
    model: str | None
    first: dict[str, Any]
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    steps: dict[int, int] = dataclasses.field(default_factory=dict)
    seconds_used: float = 0.0
    begun: float | None = None

    def begin(self, now: float) -> None:
        """Start the clock at `now`. Of a start that was killed, the time until its last sign of life counts."""
        if self.begun is not None:
            files = [path for pattern in _SIGNS_OF_LIFE for path in self.file.parent.glob(pattern)]
            last = max((path.stat().st_mtime for path in files), default=self.begun)
            self.seconds_used += max(0.0, last - self.begun)
        self.begun = now
        self.save()

    def end(self) -> None:
        self.seconds_used, self.begun = self.used(), None
        self.save()

    def used(self) -> float:
        """Seconds of all starts until now."""
        return self.seconds_used + (time.time() - self.begun if self.begun is not None else 0.0)

    def save(self) -> None:
        content = {
            **{
                name: getattr(self, name)
                for name in ("hours", "epochs", "model", "first", "data", "seconds_used", "begun")
            },
            "text": dataclasses.asdict(self.text),
            "machine": dataclasses.asdict(self.machine),
            "speeds": [[name, phase, speed] for (name, phase), speed in self.speeds.items()],
            "steps": {str(phase): steps for phase, steps in self.steps.items()},
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.file, (json.dumps(content, indent=1) + "\n").encode())


def _max_steps(wishes: Wishes) -> dict[str, Any]:
    return {str(phase): wishes.setting(phase, "max_steps") for phase in wishes.phases}


def as_first_asked(wishes: Wishes, record: TextRecord) -> Wishes:
    """The wishes with the length and the model of the run's first start, which decided the plan."""
    first = record.first
    settings = {name: value for name, value in wishes.settings.items() if name != "max_steps"}
    phases = {
        phase: {**wishes.phase_settings.get(phase, {}), "max_steps": first["max_steps"].get(str(phase))}
        for phase in wishes.phases
    }
    return dataclasses.replace(
        wishes,
        hours=first["hours"],
        epochs=first["epochs"],
        model=record.model,
        settings=settings,
        phase_settings=phases,
    )


def on_first_devices(wishes: Wishes, record: TextRecord) -> Wishes:
    """The wishes with the device and the ranks that the run's first start asked for."""
    if "num_processes" not in record.first:  # of a version that did not note them
        return wishes
    settings = {name: value for name, value in wishes.settings.items() if name != "device"}
    if record.first["device"] is not None:
        settings["device"] = record.first["device"]
    return dataclasses.replace(wishes, num_processes=record.first["num_processes"], settings=settings)


def without_batch(wishes: Wishes, model: str) -> Wishes:
    """The wishes for one model without a global batch, which may not be divisible by the devices of now."""

    def rest(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if name != "global_batch_size"}

    phases = {phase: rest(settings) for phase, settings in wishes.phase_settings.items()}
    return dataclasses.replace(wishes, model=model, settings=rest(wishes.settings), phase_settings=phases)


def record_file(output_dir: Path) -> Path:
    return output_dir / "own_text.json"


def new_record(
    output_dir: Path, text: TextFacts, machine: MachineFacts, speeds: Speeds, wishes: Wishes, before: TextRecord | None
) -> TextRecord:
    """The record of a plan that was made anew; the time that was used before stays."""
    first = {
        "hours": wishes.hours,
        "epochs": wishes.epochs,
        "max_steps": _max_steps(wishes),
        "device": wishes.setting(1, "device"),
        "num_processes": wishes.num_processes,
    }
    record = TextRecord(
        record_file(output_dir), text, machine, speeds, wishes.hours, wishes.epochs, wishes.model, first
    )
    if before is not None:
        record.seconds_used, record.begun = before.seconds_used, before.begun
    return record


def read_record(output_dir: Path) -> TextRecord | None:
    """The record of the run in a folder; None without one."""
    file = record_file(output_dir)
    if not file.exists():
        return None
    content: Mapping[str, Any] = read_json(file)
    try:
        return TextRecord(
            file,
            TextFacts(**content["text"]),
            MachineFacts(**content["machine"]),
            {(name, phase): speed for name, phase, speed in content["speeds"]},
            content["hours"],
            content["epochs"],
            content["model"],
            content["first"],
            content.get("data", {}),
            {int(phase): steps for phase, steps in content["steps"].items()},
            content["seconds_used"],
            content["begun"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is damaged ({error}); delete it, or pass another --output-dir") from None
