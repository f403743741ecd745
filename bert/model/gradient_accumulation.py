"""Gradient accumulation in one buffer, and half-precision copies of parameters shared by its micro-steps.

Paddle's own accumulation scales, sums over ranks, unscales, clips and clears the gradient of each parameter by an
operator of its own. Here the accumulated gradients are parts of one buffer, and each of these is one operator on the
buffer. Only the sums of a micro-step and the updates remain one operator per parameter.
"""

import math
from collections.abc import Sequence
from typing import Any

from bert.runtime.operator_editing import BlockEditor
from bert.runtime.paddle_api import core, paddle, static

# Bytes to which each part of a buffer is aligned: CUDA's kernels read aligned addresses in wide words.
ALIGNMENT = 256
MICRO_STEPS = "gradient_merge_k"  # Paddle's variable, on the host
FACTOR = "gradient_merge_factor"
_BACKWARD = core.op_proto_and_checker_maker.OpRole.Backward


class AccumulatedGradients(paddle.incubate.optimizer.GradientMergeOptimizer):
    """An optimizer that accumulates gradients over micro-steps and updates after the last of them.

    `inner_optimizer` (which `amp.decorate` may have made) gets the buffer as if it were the gradient of one parameter;
    `guarded`, the `_GuardedUpdate` inside, updates every parameter by its part. Fleet sums the buffer over the ranks.
    If `varies`, the number is that in the variable MICRO_STEPS before an update, and FACTOR is one divided by it.
    """

    def __init__(self, inner_optimizer: Any, guarded: Any, num_micro_steps: int, varies: bool = False) -> None:
        super().__init__(inner_optimizer, num_micro_steps, avg=True)
        self._varies = varies
        self._guarded = guarded
        self._learning_rate = guarded._learning_rate  # Fleet asks an optimizer for both
        self._learning_rate_map = guarded._learning_rate_map

    def apply_gradients(self, params_grads):
        block = static.default_main_program().global_block()
        is_last = self._get_gm_cond_var(block)
        for parameter, gradient in params_grads:
            self._remove_op_role_var(parameter, gradient)
        parameters = [parameter for parameter, _ in params_grads]
        buffer, parts = _create_buffer("float32@GradientMerge", parameters)
        for (_, gradient), part in zip(params_grads, parts, strict=True):
            inputs, attributes = {"X": gradient, "Y": part}, {"axis": -1, "op_role": _BACKWARD}
            block.append_op(type="elementwise_add", inputs=inputs, outputs={"Out": part}, attrs=attributes)
        # Fleet finds by this operator what to sum over the ranks.
        self._add_gm_op_role_var(order(block, parts, [buffer]), parameters[0], buffer, is_last)
        self._guarded.parts = list(zip(parameters, parts, strict=True))
        static.nn.cond(is_last, true_fn=lambda: self._update(parameters[0], buffer, parts), false_fn=None)
        return self._optimize_ops

    def _update(self, parameter, buffer, parts) -> None:
        """Append the operators of the update; the parts of the buffer are the gradients."""
        program, block = static.default_main_program(), static.default_main_program().current_block()
        block._set_forward_block_idx(program.current_block_idx)
        share, outputs = 1.0 / self.k_steps, {"Out": buffer}
        if self._varies:
            factor = static.create_global_var([1], share, "float32", persistable=True, name=FACTOR)
            inputs = {"X": buffer, "Y": factor}
            buffer.op = block.append_op(type="elementwise_mul", inputs=inputs, outputs=outputs, attrs={"axis": -1})
        else:
            scale = {"scale": share, "bias": 0.0, "bias_after_scale": False}
            buffer.op = block.append_op(type="scale", inputs={"X": buffer}, outputs=outputs, attrs=scale)
        # Fleet sums over the ranks after the last operator of this role.
        buffer.op._set_attr("op_role", _BACKWARD)
        buffer.block = block
        self._optimize_ops = self.inner_optimizer.apply_gradients([(parameter, buffer)])
        with program._optimized_guard([]):
            order(block, [buffer], [*parts, buffer])
            paddle.tensor.fill_constant(buffer.shape, buffer.dtype, 0.0, out=buffer)


def order(block, before: Sequence, after: Sequence):
    """Append an operator that only makes the executor wait: it reads `before` and writes `after`.

    The executor orders operators by the names of their variables, and does not know that a buffer and its parts are the
    same memory.
    """
    return block.append_op(type="nop", inputs={"X": list(before)}, outputs={"Out": list(after)})


def _create_buffer(name: str, parameters: Sequence) -> tuple[Any, list]:
    """Variables of a buffer and of its parts, one for each parameter; initially zero."""
    dtype, sizes = parameters[0].dtype, [math.prod(parameter.shape) for parameter in parameters]
    width = core.size_of_dtype(dtype)
    total = sum(-(-size * width // ALIGNMENT) * ALIGNMENT // width for size in sizes)
    shapes = {name: [total]} | {f"{p.name}@GRAD@GradientMerge": p.shape for p in parameters}
    blocks = [program.global_block() for program in (static.default_startup_program(), static.default_main_program())]
    (buffer, *parts), in_main = (
        [block.create_var(name=key, shape=shape, dtype=dtype, persistable=True) for key, shape in shapes.items()]
        for block in blocks
    )
    blocks[0].append_op(
        type="coalesce_tensor",
        inputs={"Input": parts},
        outputs={"Output": parts, "FusedOutput": buffer},
        attrs={
            "dtype": dtype,
            "set_constant": True,
            "constant": 0.0,
            "use_align": True,
            "align_size": ALIGNMENT,
            "user_defined_size_of_dtype": width,
            "concated_shapes": [size for p in parameters for size in p.shape],
            "concated_ranks": [len(p.shape) for p in parameters],
        },
    )
    return in_main[0], in_main[1:]


def cast_parameters_once(main: static.Program) -> None:
    """Cast parameters to half precision in the first micro-step of an update; later ones use the copies.

    As every update begins with them, nothing else has to keep the copies equal to the parameters: neither a checkpoint
    that is restored nor weights that are written.

    Args:
        main: with backward and AccumulatedGradients.
    """
    editor, names = BlockEditor(main), {parameter.name for parameter in main.all_parameters()}
    casts = [operator for operator in editor.operators("cast") if operator.input("X")[0] in names]
    if not casts:
        return
    parameters = [editor.block.var(cast.input("X")[0]) for cast in casts]
    copies = [editor.block.var(cast.output("Out")[0]) for cast in casts]
    once = main._create_block(parent_idx=0)
    for parameter, copy in zip(parameters, copies, strict=True):
        types = {"in_dtype": parameter.dtype, "out_dtype": copy.dtype}
        once.append_op(type="cast", inputs={"X": parameter}, outputs={"Out": copy}, attrs=types)
        copy.persistable = True
    main._rollback()
    for cast in casts:
        editor.remove(cast)
    block, is_first = editor.block, editor.temporary("is_first", [1], "bool")
    scope = block.create_var(type=core.VarDesc.VarType.STEP_SCOPES)
    counters = {"X": "gradient_merge_step", "Y": "gradient_merge_zero"}  # on the host, as the condition of the update
    block._insert_op(0, type="equal", inputs=counters, outputs={"Out": is_first}, attrs={"op_device": "cpu"})
    block._insert_op(
        1,
        type="conditional_block",
        inputs={"Cond": is_first, "Input": parameters},
        outputs={"Out": copies, "Scope": scope},
        attrs={"sub_block": once, "is_scalar_condition": True},
    )
    editor.finish()
