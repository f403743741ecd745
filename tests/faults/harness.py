"""What a row of the fault matrix is, how its trials are counted, and how the outcome is shown.

A row injects a fault many times. A trial survives when what is required of it holds, and is lost otherwise; a row that
loses one fails. Every row names a way to break what protects it (`breaks`, see `sabotage`): run like that it must lose,
or it proves nothing.
"""

import json
import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.benchmarks.processes import markdown
from tests.faults import sabotage

SHOWN_LOSSES = 5


class Trials:
    """The trials of one run of a row.

    Attributes:
        count: how many are wanted; a row with a fixed list of cases may make fewer in a small run, never in a full one.
        folder: empty, for the row's files.
        random: seeded by the row's number, so that a failure can be repeated.
        one_loss: end at the first loss.
    """

    def __init__(self, count: int, folder: Path, seed: int, full: bool = False, one_loss: bool = False):
        self.count, self.folder, self.random, self.full = count, folder, random.Random(seed), full
        self.one_loss = one_loss
        self.tried, self.losses, self.notes = 0, [], []  # type: int, list[str], list[str]

    @contextmanager
    def trial(self, name: object, weight: int = 1) -> Iterator[None]:
        """One trial, or `weight` of them that are judged together: lost if the block raises."""
        self.tried += weight
        try:
            yield
        except Exception as error:  # a loss, whatever it is
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            self.losses += [f"{name}: {text} ({Path(where.filename).name}:{where.lineno})"] * weight
            if self.one_loss:
                raise

    def note(self, text: str) -> None:
        """What a reader of the table should know of this run."""
        if text not in self.notes:
            self.notes.append(text)

    def folders(self) -> Iterator[tuple[int, Path]]:
        """Number and folder of each trial; the folder goes with the next one."""
        for number in range(self.count):
            yield number, self.folder / f"trial{number}"
            shutil.rmtree(self.folder / f"trial{number}", ignore_errors=True)

    def cannot_run(self, needs: str) -> None:
        self.note(f"not run: needs {needs}")
        self.tried = 1

    def cases(self, cases: Sequence) -> list:
        """All of a fixed list, or a random part of it in a small run."""
        return list(cases) if self.full else self.random.sample(list(cases), min(self.count, len(cases)))


@dataclass(frozen=True)
class Row:
    """A line of the fault matrix."""

    number: int
    fault: str
    required: str
    run: Callable[[Trials], None]
    counts: tuple[int, int]  # trials of a small and of a full run
    breaks: tuple[str, ...]  # names in `PROTECTIONS`; with any of them the row must lose


@dataclass
class Outcome:
    number: int
    fault: str
    tried: int
    survived: int
    lost: int
    seconds: float
    notes: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)


def run_row(row: Row, full: bool = False, broken: str | None = None, count: int | None = None) -> Outcome:
    """Run a row in a folder of its own; an error outside of a trial is a loss too. `broken`: one loss ends it."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"fault{row.number}-") as folder, sabotage.disabled(broken):
        count = count or row.counts[full]
        trials = Trials(count, Path(folder), 1000 + row.number, full, one_loss=broken is not None)
        try:
            row.run(trials)
        except Exception as error:
            trials.tried += 1
            trials.losses.append("".join(traceback.format_exception(error))[-1500:])
    if trials.tried == 0:
        trials.losses.append("nothing was tried")
    lost = len(trials.losses)
    counts, seconds = (trials.tried, max(trials.tried - lost, 0), lost), round(time.monotonic() - begin, 1)
    return Outcome(row.number, row.fault, *counts, seconds, trials.notes, trials.losses[:SHOWN_LOSSES])


def line(outcome: Outcome) -> str:
    """Of the console: `row  5: tried 2000  survived 2000  lost 0     12.3 s  bit flip in a checkpoint`."""
    return (
        f"row {outcome.number:2}: tried {outcome.tried:5}  survived {outcome.survived:5}  lost {outcome.lost:3}  "
        f"{outcome.seconds:7.1f} s  {outcome.fault}"
    )


def write_report(path: Path, outcomes: Sequence[Outcome]) -> None:
    """`path`.json and `path`.md; rows of an earlier report that were not run now are kept."""
    found = {outcome.number: outcome for outcome in outcomes}
    file = path.with_suffix(".json")
    if file.exists():
        for entry in json.loads(file.read_text())["rows"]:
            found.setdefault(entry["number"], Outcome(**entry))
    ordered = [found[number] for number in sorted(found)]
    path.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"rows": [asdict(outcome) for outcome in ordered]}, indent=1) + "\n")
    rows = [
        (o.number, o.fault, *(f"{n:,.0f}" for n in (o.tried, o.survived, o.lost, o.seconds)), "; ".join(o.notes))
        for o in ordered
    ]
    table = markdown(("#", "fault", "tried", "survived", "lost", "seconds", "note"), rows)
    path.with_suffix(".md").write_text(f"{table}\n")
