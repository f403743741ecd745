"""The state of the training loop in a checkpoint, of this version and of the first."""

import json
import math
from dataclasses import asdict

import pytest

from bert.checkpoints.progress import DecayState, LoopState, Totals


def written_and_read(state: LoopState) -> LoopState:
    return LoopState.read(json.loads(json.dumps(asdict(state))))


def test_the_state_of_a_run_that_has_not_begun():
    assert asdict(LoopState()) == {
        "version": 2,
        "spikes": {"losses": [], "pending": (None, 0.0, 0.0), "skipped_batches": []},
        "divergence": {"first": None, "above": 0},
        "evaluations": {
            "before": None,
            "metrics_before": {},
            "best": None,
            "last": None,
            "since_best": 0,
            "above": 0,
            "ends_with_best": False,
        },
        "totals": dict.fromkeys(("sequences", "tokens", "flops", "seconds", "rank_seconds", "total_seconds"), 0.0),
        "warmup_steps": None,
        "started_from": None,
        "decay": None,
        "fitting": 1.0,
    }


def test_every_part_of_the_state_survives_a_checkpoint():
    state = LoopState(totals=Totals(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), warmup_steps=7, started_from="weights", fitting=0.5)
    state.spikes.losses, state.spikes.pending = [3.0], (5, 2.0, 1.0)
    state.spikes.skipped_batches = [(4, 6)]
    state.divergence.first, state.divergence.above = 9.5, 3
    state.evaluations.before, state.evaluations.metrics_before = 2.0, {"eval_f1": 1.0}
    state.evaluations.best, state.evaluations.last = (4, 4.0), (6, 5.0)
    state.evaluations.since_best, state.evaluations.above, state.evaluations.ends_with_best = 2, 1, True
    state.decay = DecayState(8, 10, 9, 7, 0.01)
    assert written_and_read(state) == state and written_and_read(LoopState()) == LoopState()


def test_the_state_of_version_1_is_read():
    """Checkpoints of version 1 held a plain dictionary: the state was not typed yet."""
    carried = {
        "losses": [3.0, 2.5],
        "pending": [54, 4.0, 4.0],
        "skipped_batches": [[5, 7]],
        "totals": {"sequences": 12.0, "later": 1},
        "divergence": {"first": 9.0, "above": 2},
        "held_out": {"before": None, "best": [4, 4.0], "last": [6, math.inf], "since_best": 1, "above": 1},
        "warmup_steps": 2,
        "started_from": "weights",
    }
    state = LoopState.read(carried)
    assert state == written_and_read(state)
    assert (state.spikes.losses, state.spikes.pending, state.spikes.skipped_batches) == (
        [3.0, 2.5],
        (54, 4.0, 4.0),
        [(5, 7)],
    )
    assert (state.divergence.first, state.divergence.above, state.totals.sequences) == (9.0, 2, 12.0)
    assert (state.evaluations.best, state.evaluations.last) == ((4, 4.0), (6, math.inf))
    assert (state.evaluations.since_best, state.warmup_steps, state.started_from) == (1, 2, "weights")
    assert LoopState.read({}) == LoopState()
    with pytest.raises(ValueError, match="version 3, this program reads 2"):
        LoopState.read({"version": 3})
