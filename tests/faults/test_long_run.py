"""A simulated week of updates uses no more resources at its end (row 38 of the fault matrix in tests/README.md)."""

import io
import os
import threading
from itertools import count
from pathlib import Path

import pytest

from bert.reporting.logs import Log
from bert.training.feeding import Feeding
from tests.support import runs, tiny
from tests.support.full_counts import times


def used(folder: Path) -> dict[str, int]:
    """Return the resources that this process and the folder of a run hold."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "MB": pages * os.sysconf("SC_PAGE_SIZE") >> 20,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "files": sum(len(names) for _, _, names in os.walk(folder)),  # checkpoints are pruned meanwhile
    }


@pytest.mark.nightly
@pytest.mark.long
def test_a_week_of_updates_grows_nothing(tmp_path, monkeypatch):
    """The loop runs with its logs, guards, evaluations and checkpoints; few of the updates run the network."""
    updates, calls, real = times(3000, 1_000_000), count(), Feeding.run
    batch = next(tiny.updates(0))
    micro_batches, freq, seen = list(batch.micro_batches), updates // 100, list[dict[str, int]]()
    config = tiny.pretraining_config(
        tmp_path, log_freq=freq, eval_freq=freq, num_steps_per_checkpoint=updates // 20, max_steps=updates
    )

    def evaluate(step: int) -> dict[str, float]:
        seen.append(used(tmp_path))
        return {"eval_masked_lm_loss": 1.0}

    def same(step: int, micro_steps: int = 1, change: object = None):
        for number in count(step):
            yield type(batch)(number, 0, iter(micro_batches))

    def run(self: Feeding, feed: dict) -> None:
        if next(calls) % max(50, updates // 2000) == 0:
            real(self, feed)

    monkeypatch.setattr(Feeding, "run", run)
    monkeypatch.setattr(tiny, "updates", same)
    log = Log(tmp_path / "logs", total_steps=updates, stream=io.StringIO())
    runs.run(config, updates, log=log, evaluate=evaluate, early_stopping=0)
    log.close()
    early, late = ({name: max(use[name] for use in part) for name in seen[0]} for part in (seen[20:50], seen[60:]))
    grown = {name: late[name] - early[name] for name in early}
    assert all(grown[name] <= most for name, most in {"MB": 16, "descriptors": 2, "threads": 1, "files": 8}.items()), (
        f"{grown} more in the second half of {updates:,} updates"
    )
    rows = (tmp_path / "logs/metrics.jsonl").read_text().splitlines()
    assert len(rows) <= 2 * updates // freq + 2, len(rows)
