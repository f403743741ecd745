"""Our static program on a task of the benchmark; see measuring.py. With `--weights` it only writes the initial ones."""

import itertools
import json
import sys

from tests.benchmarks.measuring import Task, measure, task_of_command_line

SEED = 12


def main(task: Task, write_weights: bool) -> None:
    import numpy as np

    from bert.config.training_settings import BertConfig, OptimizerSettings, PrecisionSettings
    from bert.model.objectives import PretrainingObjective
    from bert.model.optimization import Schedule, load_schedule
    from bert.runtime.distributed import Group, initialize
    from bert.runtime.hardware import measured_gemm_tflops
    from bert.runtime.paddle_api import place_of, read_variable, set_cpu_threads, static
    from program import build_evaluation_program, build_training_program

    group = Group(0, 1, "cpu")
    set_cpu_threads(task.threads)
    initialize(group)
    objective = PretrainingObjective(BertConfig(**task.model), fuse_mha=True)
    optimizer = OptimizerSettings(
        optimizer="AdamW",
        learning_rate=task.learning_rate,
        epsilon=task.epsilon,
        weight_decay=task.weight_decay,
        max_grad_norm=task.max_grad_norm,
    )
    program = build_training_program(
        objective,
        optimizer,
        PrecisionSettings(),
        group,
        gradient_accumulation_steps=1,
        num_scheduled_steps=1,
        seed=SEED,
    )
    executor, scope = static.Executor(place_of("cpu")), static.global_scope()
    executor.run(program.startup)
    load_schedule(scope, Schedule(task.learning_rate, 0, 1), place_of("cpu"))
    if write_weights:
        np.savez(task.folder / "weights.npz", **{name: read_variable(scope, name) for name in program.parameters})
        print(json.dumps({"parameters": len(program.parameters)}))
        return
    evaluation = build_evaluation_program(objective)

    def evaluate(batch: dict) -> float:
        (metrics,) = executor.run(evaluation.main, feed=batch, fetch_list=[evaluation.metrics])
        return float(metrics[1])

    keys = itertools.count()

    def train(batch: dict) -> None:
        program.dropout.draw(scope, place_of("cpu"), batch, np.uint64(next(keys)))
        executor.run(program.main, feed=batch)

    measure(task, train, evaluate, measured_gemm_tflops(executor))


if __name__ == "__main__":
    main(task_of_command_line(), "--weights" in sys.argv)
