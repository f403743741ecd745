"""Rows about time and about all files that are read: a long run that uses no more at its end, and fuzzed readers."""

import io
import json
import os
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from unittest import mock

from bert import REPOSITORY
from tests.faults.harness import Row, Trials


def fuzzed_readers(trials: Trials) -> None:
    """What it finds is kept in results/faults/fuzzed."""
    words = [sys.executable, "-m", "tests.faults.fuzzing", str(trials.count), str(trials.folder), "inf"]
    words += ["settings"] if trials.one_loss else []
    ended = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    assert ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr[-500:]}"
    for line in (json.loads(text) for text in ended.stdout.splitlines() if text.startswith("{")):  # others: libraries
        trials.tried += line.get("tried", 0)
        with trials.trial(line["reader"], weight="finding" in line):
            assert "finding" not in line, f"{line['finding']}: {keep(line)}"


def keep(found: dict[str, str]) -> Path:
    kept = REPOSITORY / "results/faults/fuzzed" / f"{found['reader']} {Path(found['file']).name}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(Path(found["file"]).read_bytes())
    return kept


def used(folder: Path) -> dict[str, int]:
    """What this process and the folder of a run hold: megabytes, descriptors, threads, files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "MB": pages * os.sysconf("SC_PAGE_SIZE") >> 20,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "files": sum(path.is_file() for path in folder.rglob("*")),
    }


def a_week_of_updates(trials: Trials) -> None:
    """The loop with its logs, guards, evaluations and checkpoints; few of the updates run the network."""
    from bert.reporting.logs import Log
    from bert.training.feeding import Feeding
    from tests.support import runs, tiny

    updates, calls, real = trials.count, count(), Feeding.run
    batch = next(tiny.updates(0))
    micro_batches = list(batch.micro_batches)
    freq = updates // 100
    config = tiny.pretraining_config(
        trials.folder, log_freq=freq, eval_freq=freq, num_steps_per_checkpoint=updates // 20, max_steps=updates
    )
    seen: list[dict[str, int]] = []

    def evaluate(step: int) -> dict[str, float]:
        seen.append(used(trials.folder))
        return {"eval_masked_lm_loss": 1.0}

    def same(step: int, micro_steps: int = 1, change: object = None):
        for number in count(step):
            yield type(batch)(number, 0, iter(micro_batches))

    def run(self: Feeding, feed: dict) -> None:
        if next(calls) % max(50, updates // 2000) == 0:
            real(self, feed)

    with mock.patch.object(Feeding, "run", run), mock.patch.object(tiny, "updates", same):
        log = Log(trials.folder / "logs", total_steps=updates, stream=io.StringIO())
        runs.run(config, updates, log=log, evaluate=evaluate, early_stopping=0)
        log.close()
    early, late = ({name: max(use[name] for use in part) for name in seen[0]} for part in (seen[20:50], seen[60:]))
    for name, allowed in {"MB": 16, "descriptors": 2, "threads": 1, "files": 8}.items():
        with trials.trial(f"{name}, of {updates:,} updates"):
            assert late[name] <= early[name] + allowed, f"{early[name]} in the first half, {late[name]} in the second"
    with trials.trial("rows of the logs"):
        rows = (trials.folder / "logs/metrics.jsonl").read_text().splitlines()
        assert len(rows) <= 2 * updates // freq + 2, len(rows)
    trials.note(f"{updates:,} updates; first half {early}, second half {late}")


ROWS = [
    Row(
        37,
        "changed files of every kind that is read: weights, shards, text, tables, settings, vocabularies",
        "read, or an error that names the file; 10 s, 20 times the file and 200 MB",
        fuzzed_readers,
        (40, 2000),
        ("files may ask for anything",),
    ),
    Row(
        38,
        "a week of updates",
        "memory, descriptors, threads, files and rows of logs do not grow",
        a_week_of_updates,
        (3000, 1_000_000),
        ("logs keep what they have written",),
    ),
]
