"""The facts and decisions of a pre-training on the user's text, stored in the record of its job."""

import dataclasses
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bert.jobs.record import JobRecord
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.length import Length
from bert.own_text.plan import TextPlan
from bert.reporting.job_file import job_file

RECORD_NAME = "own_text"  # among the facts of the record
_VERSION = 2


@dataclasses.dataclass
class TextRecord:
    """The facts and decisions of a run.

    Attributes:
        data: what decided the data (`corpus.data_facts`).
        expected_updates: that the time of the first start was expected to allow, from which the shares of the schedule
            are counted.
        length: what the latest start asked for; None: no training was started.
        finished: the length with which the training was finished; None: it is not.
        slowness: of the machine at this start, by what the data took; None: as it was measured.
    """

    text: TextFacts
    machine: MachineFacts
    speeds: dict[str, float]
    plan: TextPlan
    data: dict[str, Any]
    expected_updates: int | None = None
    length: Length | None = None
    finished: Length | None = None
    version: int = _VERSION

    def __post_init__(self) -> None:
        self.slowness: float | None = None

    def current_slowness(self) -> float:
        return self.text.slowness if self.slowness is None else self.slowness

    def keep_in(self, record: JobRecord) -> None:
        """Put these facts into the record of the job, which the job saves."""
        record.facts[RECORD_NAME] = dataclasses.asdict(self)

    def save(self, record: JobRecord) -> None:
        self.keep_in(record)
        record.save()


def read_record(record: JobRecord, output_dir: Path) -> TextRecord | None:
    """Read the facts and decisions from the job's record; None before the first plan."""
    content = record.facts.get(RECORD_NAME)
    if content is None:
        return None
    other = f"pass another --output-dir, with --from-pretrained-params {output_dir} to continue its model"
    place = job_file(output_dir)
    if isinstance(content, dict) and (version := content.get("version", 1)) != _VERSION and "speeds" in content:
        was = "an earlier version, which trained in two phases" if version == 1 else f"version {version}"
        raise ValueError(f"{place} is of {was}; {other}")
    try:
        if "plan" in content and "normalization" not in content["plan"]:  # of an earlier version
            content["plan"]["normalization"] = {"lowercase": content.get("data", {}).get("lowercase", True)}
        return TypeAdapter(TextRecord).validate_python(content)
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"{place} is damaged; restore it, or {other}") from None
