"""Prints the operators of the quickstart's programs that this processor has no kernel for, as a line of JSON."""

import json

from bert.config.training_settings import PrecisionSettings
from bert.model.objectives import PretrainingObjective
from bert.pretraining.recipes import RECIPES
from bert.runtime.distributed import Group, initialize
from program import build_evaluation_program, build_training_program
from tests.gpu.kernel_coverage import missing_kernels

PRECISIONS = {
    "float32": PrecisionSettings(),
    "float16": PrecisionSettings(amp=True),
    "bfloat16": PrecisionSettings(amp=True, amp_dtype="bfloat16"),
}


def main() -> None:
    config, group = RECIPES["quickstart_phase1"](), Group(0, 1, "cpu")
    initialize(group)
    objective, found = PretrainingObjective(config.model, fuse_mha=True), {}
    for name, precision in PRECISIONS.items():
        program = build_training_program(
            objective, config.optimizer, precision, group, gradient_accumulation_steps=2, num_scheduled_steps=20
        )
        found[f"training in {name}"] = missing_kernels(program.main, "cpu")
        found[f"start-up in {name}"] = missing_kernels(program.startup, "cpu")
        found[f"evaluation in {name}"] = missing_kernels(build_evaluation_program(objective, precision).main, "cpu")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
