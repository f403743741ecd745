"""`python -m tests.faults.checkpoint_times [MODEL]`: how long a save keeps the training waiting, and how long it takes.

Initialises a model with LAMB's state, makes no update, saves it three times beside each other, then once without a
thread. Needs some 4 times the size of the checkpoint in memory (BERT-large: 4 GB) and twice on the disk.
"""

import sys
import tempfile
import time
from pathlib import Path

import bert  # noqa: F401 - before Paddle, whichever module loads it
from bert.checkpoints.writer import CheckpointWriter
from bert.config.architecture import BUILT_IN_MODELS
from bert.model.objectives import PretrainingObjective
from bert.training import training_run as running
from bert.training.saving import Checkpoints
from tests.support import tiny
from tests.support.runs import fresh_progress


def main(model: str = "bert-large-uncased") -> None:
    tiny.join(tiny.ONE_RANK)
    with tempfile.TemporaryDirectory() as folder:
        config = tiny.pretraining_config(Path(folder), model=BUILT_IN_MODELS[model], keep_checkpoints=1)
        program, device = running.build(config, PretrainingObjective(config.model), tiny.ONE_RANK)
        for asynchronous in (True, False):
            with CheckpointWriter(asynchronous) as writer:
                keeper = Checkpoints(config, program, device, fresh_progress(config), writer)
                for step in range(1, 4 if asynchronous else 2):
                    begin = time.perf_counter()
                    keeper.save(step, 0, {})
                    waited = time.perf_counter() - begin
                    writer.finish()
                    (times,) = writer.check()
                    size = sum(path.stat().st_size for path in (config.checkpoint_dir() / str(step)).iterdir())
                    print(
                        f"{'in the background' if asynchronous else 'in line':17}: {size / 1e9:.2f} GB, the update "
                        f"waited {waited:.2f} s (copy {times.copy_seconds:.2f} s), writing took "
                        f"{times.write_seconds:.2f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main(*sys.argv[1:])
