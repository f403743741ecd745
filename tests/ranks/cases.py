"""Cases that run on all ranks under `python -m paddle.distributed.launch`; results are written as files.

    python -m paddle.distributed.launch --nproc_per_node 2 tests/ranks/cases.py OUTPUT_DIR [CASE ...]

Each case writes OUTPUT_DIR/<case>.npz (rank 0's final parameters) and OUTPUT_DIR/<case>.<rank>.json.
"""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import bert  # noqa: F401, I001 - before Paddle, whichever module loads it
import zlib

import numpy as np
from tests.gpu.half_precision import of_gpu
from tests.support import runs, tiny
from tests.vectors import test_contrastive, test_reranking

from bert.config.optimizer_settings import PrecisionSettings
from bert.runtime.distributed import finalize, group_from_environment
from bert.samples.global_batches import GlobalBatch
from bert.training.interruption import SECONDS_BETWEEN_LOOKS, StopOnAnyRank, StopRequest
from bert.reporting.logs import Log
from bert.model.optimization import COUNTERS
from bert.training.device_guards import RankGuard, RanksDiffer
from bert.training.saving import Checkpoints
from bert.training.trainer import Trainer

NUM_UPDATES = 5
GLOBAL_BATCH = 24
BFLOAT16 = PrecisionSettings(amp=True, amp_dtype="bfloat16")
LOW_SCALE = PrecisionSettings(amp=True, scale_loss=2.0**12)

FLEETS, FLEETS_AMP = {"fleet_strategies": "amp,gradient_merge"}, {"fleet_strategies": "amp"}

# name -> (precision, optimizer, micro-steps of an update on each rank): each precision, optimizer and number once
EQUALITY_CASES = {
    "float32_2_passes": (tiny.FLOAT32, tiny.STEADY_LAMB, 2),
    "float16_3_passes": (tiny.FLOAT16, tiny.STEADY_LAMB, 3),
    "adamw_1_pass": (tiny.FLOAT32, tiny.STEADY_ADAMW, 1),
    "fleet_float16_2_passes": (tiny.FLOAT16, tiny.STEADY_LAMB.model_copy(update=FLEETS), 2),
}
OVERFLOW_CASES = {
    "overflow_float32_2_passes": (tiny.FLOAT32, tiny.LAMB, 2),
    "overflow_float16_fleet_amp_2_passes": (tiny.FLOAT16, tiny.LAMB.model_copy(update=FLEETS_AMP), 2),
    "overflow_float16_of_gpu_2_passes": (LOW_SCALE, tiny.LAMB, 2),
    "overflow_bfloat16_of_gpu": (BFLOAT16, tiny.LAMB, 1),
}


def share(step: int, micro_steps: int, group) -> list[dict]:
    """Return this rank's micro-batches of the global batch of update `step`."""
    pieces = tiny.feeds(tiny.random_batch(step, GLOBAL_BATCH), micro_steps * group.world_size)
    return pieces[group.rank :: group.world_size]


def checksum(tensors: dict) -> int:
    return zlib.crc32(b"".join(tensors[name].tobytes() for name in sorted(tensors)))


def equality(group, precision, optimizer, micro_steps) -> tuple[dict, dict]:
    # A seed of its own for each rank: only the broadcast in the startup program makes their weights equal.
    session = tiny.Session(
        group=group, precision=precision, optimizer=optimizer, micro_steps=micro_steps, seed=3 + group.rank
    )
    start = checksum(session.parameters())
    for step in range(NUM_UPDATES):
        session.update(share(step, micro_steps, group))
    end = checksum(session.parameters()), checksum(session.optimizer_state())
    return {"start": start, "end": end}, session.parameters()


def overflow(group, precision, optimizer, micro_steps) -> tuple[dict, dict]:
    """Make update 1 overflow in the first micro-batch of the last rank only."""
    session = tiny.Session(group=group, precision=precision, optimizer=optimizer, micro_steps=micro_steps)
    history = []
    for step in range(3):
        mine = share(step, micro_steps, group)
        if step == 1 and group.rank == group.world_size - 1:
            mine[0] = tiny.overflowing(mine[0])
        session.update(mine)
        history.append(
            {
                "parameters": checksum(session.parameters()),
                "optimizer_state": checksum(session.optimizer_state()),
                "counters": [int(session.value(name)) for name in COUNTERS],
                "loss_scale": session.value(session.program.loss_scale) if session.program.loss_scale else None,
                "learning_rate": session.value("learning_rate"),
            }
        )
    return {"history": history}, session.parameters()


def drift(group) -> tuple[dict, dict]:
    """Return the guard's errors, by both of its ways: equal ranks pass, then one rank loses a bit of a parameter."""
    session = tiny.Session(group=group)
    device = session.device()
    devices = {"error": device, "error_on_device": replace(device, group=replace(group, device="gpu"))}
    for each in devices.values():
        RankGuard(session.program, each, 1).check(0)
    name = "bert.encoder.layer.1.output.dense.weight"
    if group.rank == group.world_size - 1:
        value = session.read(name)
        value.view("uint32").reshape(-1)[17] ^= 1
        session.write(name, value)
    errors = dict.fromkeys(devices)
    for key, each in devices.items():
        try:
            RankGuard(session.program, each, 1).after_update(7)
        except RanksDiffer as error:
            errors[key] = str(error)
    return errors, session.parameters()


def trainer(group, as_on_gpus: bool = False) -> tuple[dict, dict]:
    """Run a training that only rank 1 is asked to stop, in update 5; rank 0 logs.

    as_on_gpus: the ranks look for it only now and then: every third update, as rank 0 has measured.
    """
    config = _config(group, "trainer_as_on_gpus", log_freq=100) if as_on_gpus else _config(group, "trainer")
    session = tiny.Session(group=group, micro_steps=2)
    device = session.device()
    stop, saved = StopRequest(), []

    def batches():
        for step in range(tiny.NUM_STEPS):
            if step == 4 and group.rank == group.world_size - 1:
                stop.signal_name = "SIGTERM"
            yield GlobalBatch(step, 0, map(tiny.micro_batch, share(step, 2, group)))

    log = Log(config.stage_dir(), None, total_steps=tiny.NUM_STEPS) if group.is_main else Log()
    checkpoints = mock.MagicMock(spec=Checkpoints)
    checkpoints.save.side_effect = lambda step, epoch, state: saved.append(step)
    looks = StopOnAnyRank(stop, replace(group, device="gpu") if as_on_gpus else group, device.collective)
    looks.measured(SECONDS_BETWEEN_LOOKS / (3.5 if group.is_main else 7.5))
    with mock.patch("bert.training.trainer.StopOnAnyRank", lambda *_: looks):
        leg = (log, stop, runs.fresh_progress(config), tiny.NUM_STEPS, checkpoints, None)
        outcome = Trainer(session.program, device, tiny.task_of(config), *leg).run(lambda step: batches())
    return {
        "step": outcome.step,
        "saved": saved,
        "interrupted_by": outcome.interrupted_by,
        "sequences": outcome.totals.sequences,
        "metrics": outcome.metrics,
    }, session.parameters()


def _config(group, name: str, **changes):
    directory = OUTPUT / f"{name}-{group.rank}"
    directory.mkdir(parents=True, exist_ok=True)
    return tiny.pretraining_config(
        directory, batch_size=GLOBAL_BATCH // group.world_size // 2, gradient_merge_steps=2, **changes
    )


def contrastive(group) -> tuple[dict, dict]:
    """Make an update of two micro-batches a rank, whose negatives are the texts of all ranks."""
    done = test_contrastive.update(2, group=group)
    return {"losses": done.losses}, done.moments


def reranking(group) -> tuple[dict, dict]:
    """Make an update of two micro-batches a rank, of whole groups."""
    session, sums = test_reranking.update(2, group=group)
    return {"sums": sums}, test_reranking.parameters(session)


CASES = {
    **{name: lambda group, case=case: equality(group, *case) for name, case in EQUALITY_CASES.items()},
    **{name: lambda group, case=case: overflow(group, *case) for name, case in OVERFLOW_CASES.items()},
    "contrastive": contrastive,
    "reranking": reranking,
    "drift": drift,
    "trainer": trainer,
    "trainer_as_on_gpus": lambda group: trainer(group, as_on_gpus=True),
}
OUTPUT = Path(sys.argv[1] if len(sys.argv) > 1 else ".")


def main() -> None:
    group = group_from_environment("cpu")
    tiny.join(group)
    for name in sys.argv[2:] or list(CASES):
        with of_gpu() if "of_gpu" in name else nullcontext():
            result, parameters = CASES[name](group)
        (OUTPUT / f"{name}.{group.rank}.json").write_text(json.dumps(result))
        if group.is_main:
            np.savez(OUTPUT / f"{name}.npz", **parameters)
    finalize(group)


if __name__ == "__main__":
    main()
