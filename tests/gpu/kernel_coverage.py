"""Finds the operators of a program that the installed Paddle has no kernel for. Nothing is executed.

Paddle looks a kernel up when it runs an operator: by its place and by the type of its data. A program can therefore be
built with operators that would end the run. The registry of the GPU wheel can be read without a GPU.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from bert.config.architecture import BertConfig, FusedKernels
from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings
from bert.runtime.paddle_api import core, static
from tests.gpu.program_record import dtype_of

# They run as they are: control flow, set-up of NCCL, an edge between operators.
WITHOUT_KERNELS = ("feed", "fetch", "conditional_block", "c_gen_nccl_id", "c_comm_init", "depend")
# They look at no data: one kernel serves all types.
OF_ANY_TYPE = ("nop", "c_sync_calc_stream", "c_sync_comm_stream")
# Operators that read several floating types at once, and how their kernels are written for it.
OF_SEVERAL_TYPES = {
    "layer_norm": "scale and bias in float32 or in the type of x",
    "layer_norm_grad": "scale and bias in float32 or in the type of x",
    "lamb": "master weights and moments in float32",
    "adamw": "master weights and moments in float32",
    "flash_attn_grad": "softmax_lse is float32, whatever its variable says",
    "check_finite_and_unscale": "the loss scale in float32",
    "check_finite_and_unscale_grad": "the loss scale in float32",
    "update_loss_scaling": "the loss scale in float32",
    "c_sync_calc_stream": "reads nothing",
    "c_sync_comm_stream": "reads nothing",
}
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_CPP_TYPES = {"float": "float32", "double": "float64", "int": "int32", "int64_t": "int64", "uint8_t": "uint8"}


def missing_kernels(program: static.Program, device: str) -> list[str]:
    """Return a line for each kind of operator that could not run on `device` (cpu | gpu), with its number of uses."""
    found: Counter[str] = Counter()
    for block in program.blocks:
        for operator in block.ops:
            if operator.type not in WITHOUT_KERNELS and (problem := _problem(operator, block, device)):
                found[problem] += 1
    return [f"{problem} x {count}" for problem, count in sorted(found.items())]


def _problem(operator, block, device: str) -> str:
    place = "cpu" if operator.has_attr("op_device") and operator.attr("op_device") == "cpu" else device
    places = {place}
    if place == "cpu" and operator.has_attr("use_mkldnn") and operator.attr("use_mkldnn"):
        places.add("onednn")  # the plain kernels serve the types that oneDNN lacks
    registered = {dtype for where, dtype in registered_kernels(operator.type) if where in places}
    if not registered:
        return f"{operator.type}: no kernel on {place}"
    if operator.type in OF_ANY_TYPE:
        return ""
    read = _types(operator.input_arg_names, block) or _types(operator.output_arg_names, block)
    floats = read & set(_FLOATS)
    if len(floats) > 1 and operator.type not in OF_SEVERAL_TYPES:
        return f"{operator.type}: reads {' and '.join(sorted(floats))} at once"
    if lacking := sorted((floats or read) - registered):
        return f"{operator.type}: no kernel on {place} for {' or '.join(lacking)}, only {', '.join(sorted(registered))}"
    return ""


def _types(names: list[str], block) -> set[str]:
    variables = [block._find_var_recursive(name) for name in names]
    return {dtype for variable in variables if variable is not None and (dtype := dtype_of(variable))}


@lru_cache(maxsize=None)
def registered_kernels(operator: str) -> frozenset[tuple[str, str]]:
    """Return (place, dtype) of every kernel of an operator, such as ("gpu", "float16").

    Without those for strided tensors, which Paddle's executor of static programs does not take.
    """
    phi, all_kinds = _registries()
    found = {
        (match[1].lower(), match[2])
        for text in phi.get(core._get_phi_kernel_name(operator), ())
        if "STRIDED" not in text and (match := re.fullmatch(r"\((\w+), .*, (\w+)\)", text))
    }
    for text in all_kinds.get(operator, ()):
        match = re.search(r"data_type\[(?:::paddle::platform::)?([^\]]+)\].*place\[Place\((\w+)", text)
        if match and "MKLDNN" not in text and "STRIDED" not in text:
            found.add((match[2], _CPP_TYPES.get(match[1], match[1])))
    return frozenset(found)


@lru_cache(maxsize=1)
def _registries() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    return core._get_registered_phi_kernels("all"), core._get_all_register_op_kernels("all")


_SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
MODEL = BertConfig(vocab_size=64, max_position_embeddings=32, **_SIZES)
PRECISIONS = {
    "float32": PrecisionSettings(),
    "float16": PrecisionSettings(amp=True),
    "float16, fixed loss scale": PrecisionSettings(amp=True, use_dynamic_loss_scaling=False),
    "bfloat16": PrecisionSettings(amp=True, amp_dtype="bfloat16"),
}
KERNELS = [FusedKernels(*map(bool, flags)) for flags in itertools.product((0, 1), repeat=4)]
FEW_KERNELS = [kernels for kernels in KERNELS if kernels.linear == kernels.dropout_add == kernels.attention]
FINE_TUNING = ("QuestionAnswering", "SequenceClassification", "SequenceRegression", "TokenClassification")


def combinations() -> Iterator[tuple[str, str, str, FusedKernels]]:
    """Yield (objective, optimizer, precision, kernels): all kernels for pre-training, all or none for the other
    objectives.

    LAMB accumulates over two micro-steps, AdamW updates after each.
    """
    objectives = [("Pretraining", "Lamb", KERNELS), ("MaskedLM", "Lamb", FEW_KERNELS)]
    objectives += [(name, "AdamW", FEW_KERNELS) for name in ("Pretraining", *FINE_TUNING)]
    for (objective, optimizer, sets), precision in itertools.product(objectives, PRECISIONS):
        for kernels in sets:
            if PRECISIONS[precision].amp or not kernels.attention:  # others are refused
                yield objective, optimizer, precision, kernels


def named(objective: str, optimizer: str, precision: str, kernels: FusedKernels) -> str:
    used = [name for name in ("linear", "dropout_add", "attention", "unpad") if getattr(kernels, name)]
    return f"{objective}, {optimizer}, {precision}, {' + '.join(used) or 'plain'}"


def missing(group: Any, device: str) -> dict[str, list[str]]:
    """Map each combination to its operators without a kernel, each after the kind of program.

    Args:
        group: the ranks that the programs are built for.
    """
    return {
        named(*combination): [
            f"{kind}: {problem}"
            for kind, program in _programs(group, *combination)
            for problem in missing_kernels(program, device)
        ]
        for combination in combinations()
    }


def _programs(
    group: Any, objective_name: str, optimizer: str, precision_name: str, kernels: FusedKernels
) -> Iterator[tuple[str, Any]]:
    from bert.model import objectives
    from program import build_evaluation_program, build_prediction_program, build_training_program

    precision = PRECISIONS[precision_name]
    objective = getattr(objectives, f"{objective_name}Objective")(MODEL, True, kernels)
    settings = (objective, OptimizerSettings(optimizer=optimizer), precision, group)
    steps = {"gradient_accumulation_steps": 2 if optimizer == "Lamb" else 1, "num_scheduled_steps": 10}
    training = build_training_program(*settings, **steps)
    prediction = build_prediction_program(objective, precision)
    yield "training", training.main
    yield "start-up", training.startup
    yield "evaluation", build_evaluation_program(objective, precision).main
    yield "prediction", prediction.main
    yield "start-up of prediction", prediction.startup
