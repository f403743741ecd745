"""Our static program on a task of the benchmark; see measuring.py.

Arguments after the task's folder: `--bfloat16` for mixed precision, `--padded` to compute on padding too, `--weights`
to write the initial weights only, `--profile` to print operators instead.
"""

import argparse
import itertools
import json

from tests.benchmarks.measuring import Feed, Task, measure, task_of_command_line

SEED = 12


def objective_of(task: Task, padded: bool):
    from bert.config.architecture import FusedKernels
    from bert.config.training_settings import BertConfig
    from bert.model import objectives

    kinds = {
        "pretraining": objectives.PretrainingObjective,
        "question-answering": objectives.QuestionAnsweringObjective,
        "classification": objectives.SequenceClassificationObjective,
    }
    return kinds[task.objective](BertConfig(**task.model), fuse_mha=True, kernels=FusedKernels(unpad=not padded))


def main(task: Task, arguments: argparse.Namespace) -> None:
    import numpy as np

    from bert.config.training_settings import OptimizerSettings, PrecisionSettings
    from bert.model.optimization import Schedule, load_schedule
    from bert.runtime.distributed import Group, initialize
    from bert.runtime.hardware import measured_gemm_tflops
    from bert.runtime.paddle_api import place_of, read_variable, set_cpu_threads, static
    from bert.samples.packing import pack
    from program import build_evaluation_program, build_training_program
    from tests.benchmarks.profile import print_profile

    group, place = Group(0, 1, "cpu"), place_of("cpu")
    set_cpu_threads(task.threads)
    initialize(group)
    objective = objective_of(task, arguments.padded)
    optimizer = OptimizerSettings(
        optimizer="AdamW",
        learning_rate=task.learning_rate,
        epsilon=task.epsilon,
        weight_decay=task.weight_decay,
        max_grad_norm=task.max_grad_norm,
    )
    precision = PrecisionSettings(amp=arguments.bfloat16, amp_dtype="bfloat16")
    program = build_training_program(
        objective, optimizer, precision, group, gradient_accumulation_steps=1, num_scheduled_steps=1, seed=SEED
    )
    executor, scope = static.Executor(place), static.global_scope()
    executor.run(program.startup)
    load_schedule(scope, Schedule(task.learning_rate, 0, 1), place)
    if arguments.weights:
        np.savez(task.folder / "weights.npz", **{name: read_variable(scope, name) for name in program.parameters})
        print(json.dumps({"parameters": len(program.parameters)}))
        return
    evaluation, packing, keys = build_evaluation_program(objective, precision), objective.packing(), itertools.count()

    def fed(batch: Feed) -> Feed:
        return batch if packing is None else pack(batch, packing)

    def train(batch: Feed) -> None:
        feed = fed(batch)
        program.dropout.draw(scope, place, feed, np.uint64(next(keys)))
        executor.run(program.main, feed=feed)

    def evaluate(batch: Feed) -> float:
        (metrics,) = executor.run(evaluation.main, feed=fed(batch), fetch_list=[evaluation.metrics])
        return float(metrics[1])

    if arguments.profile:
        print_profile(train, task.batches, task.warmup_steps)
    else:
        measure(task, train, evaluate, measured_gemm_tflops(executor))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    for flag in ("bfloat16", "padded", "weights", "profile"):
        parser.add_argument(f"--{flag}", action="store_true")
    main(task_of_command_line(), parser.parse_args())
