"""One rank of the check `nccl`: sums a tensor over all ranks and times it; rank 0 writes result.json beside FILE.

python -m paddle.distributed.launch ... tests/gpu/selftest/all_reduce.py --config FILE, a JSON file with the `device`.
"""

import json
import sys
import time
from pathlib import Path

import bert  # noqa: F401 - before Paddle
from bert.config.optimizer_settings import PrecisionSettings
from bert.model.objectives import PretrainingObjective
from bert.parent_death import end_with_launcher
from bert.pretraining.recipes import RECIPES
from bert.runtime.distributed import append_sum, finalize, fit_to_gloo, group_from_environment, initialize
from bert.runtime.paddle_api import paddle, place_of, static
from program import build_training_program

NUMBERS = {"gpu": 2**26, "cpu": 2**20}  # float32, 256 MiB: a fifth of the gradients of BERT-large
TIMES = 10


def main(request: Path) -> None:
    end_with_launcher()
    group = group_from_environment(json.loads(request.read_text())["device"])
    initialize(group)
    config, executor = RECIPES["quickstart_phase1"](), static.Executor(place_of(group.device))
    objective = PretrainingObjective(config.model)
    training = build_training_program(
        objective, config.optimizer, PrecisionSettings(), group, gradient_accumulation_steps=1, num_scheduled_steps=10
    )
    executor.run(training.startup)  # makes NCCL's communicator, as in a training
    program, numbers = static.Program(), NUMBERS[group.device]
    with static.program_guard(program, static.Program()):
        total = paddle.full([numbers], group.rank + 1.0, "float32")
        for _ in range(TIMES):
            append_sum(program.global_block(), total)
            total = total / group.world_size  # after the first sum, the mean of the ranks' numbers
        ends = paddle.stack([total.min(), total.max()])
    fit_to_gloo(program, group)
    for _ in range(2):  # the first run warms up
        begin = time.perf_counter()
        values = executor.run(program, fetch_list=[ends])[0]
        seconds = (time.perf_counter() - begin) / TIMES
    finalize(group)
    figures = {"least": float(values[0]), "largest": float(values[1]), "expected": (group.world_size + 1) / 2}
    figures |= {"ranks": group.world_size, "bytes": 4 * numbers, "seconds": seconds}
    if group.is_main:
        request.with_name("result.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[sys.argv.index("--config") + 1]))
