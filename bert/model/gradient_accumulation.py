"""Gradient accumulation in one buffer per type of data.

Paddle's own accumulation scales, sums over ranks, unscales, clips and clears the gradient of each parameter by an
operator of its own. Here the accumulated gradients are parts of one buffer, and each of these is one operator on the
buffer. Only the sums of a micro-step and the updates remain one operator per parameter.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from bert.runtime.paddle_api import core, paddle, static

# Bytes to which each part of a buffer is aligned: CUDA's kernels read aligned addresses in wide words.
ALIGNMENT = 256
_BACKWARD = core.op_proto_and_checker_maker.OpRole.Backward


class AccumulatedGradients(paddle.incubate.optimizer.GradientMergeOptimizer):
    """An optimizer that accumulates gradients over micro-steps and updates after the last of them.

    `inner_optimizer` (which `amp.decorate` may have made) gets each buffer as if it were the gradient of one parameter;
    `guarded`, the `_GuardedUpdate` inside, updates every parameter by its part. Fleet sums the buffers over the ranks.

    Attributes:
        buffers: name of each buffer -> the names of its parts.
    """

    def __init__(self, inner_optimizer: Any, guarded: Any, num_micro_steps: int) -> None:
        super().__init__(inner_optimizer, num_micro_steps, avg=True)
        self._guarded = guarded
        self._learning_rate = guarded._learning_rate  # Fleet asks an optimizer for both
        self._learning_rate_map = guarded._learning_rate_map
        self.buffers: dict[str, list[str]] = {}

    def apply_gradients(self, params_grads):
        block = static.default_main_program().global_block()
        is_last = self._get_gm_cond_var(block)
        groups = defaultdict(list)
        for parameter, gradient in params_grads:
            self._remove_op_role_var(parameter, gradient)
            groups[str(parameter.dtype).split(".")[-1].lower()].append((parameter, gradient))
        merged = {}
        for dtype, pairs in groups.items():
            buffer, parts = _create_buffer(f"{dtype}@GradientMerge", [parameter for parameter, _ in pairs])
            self.buffers[buffer.name] = [part.name for part in parts]
            for (_, gradient), part in zip(pairs, parts, strict=True):
                inputs, attributes = {"X": gradient, "Y": part}, {"axis": -1, "op_role": _BACKWARD}
                block.append_op(type="elementwise_add", inputs=inputs, outputs={"Out": part}, attrs=attributes)
            # Fleet finds by this operator what to sum over the ranks.
            self._add_gm_op_role_var(order(block, parts, [buffer]), pairs[0][0], buffer, is_last)
            merged[buffer.name] = list(zip([parameter for parameter, _ in pairs], parts, strict=True))
        self._guarded.parts_of = merged
        pairs = [(parts[0][0], block.var(name)) for name, parts in merged.items()]
        static.nn.cond(is_last, true_fn=lambda: self._update(pairs), false_fn=None)
        return self._optimize_ops

    def _update(self, pairs) -> None:
        """Append the operators of the update; `pairs` are (a parameter, buffer)."""
        program, block = static.default_main_program(), static.default_main_program().current_block()
        block._set_forward_block_idx(program.current_block_idx)
        for _, buffer in pairs:
            scale = {"scale": 1.0 / self.k_steps, "bias": 0.0, "bias_after_scale": False}
            buffer.op = block.append_op(type="scale", inputs={"X": buffer}, outputs={"Out": buffer}, attrs=scale)
            # Fleet sums over the ranks after the last operator of this role.
            buffer.op._set_attr("op_role", _BACKWARD)
            buffer.block = block
        self._optimize_ops = self.inner_optimizer.apply_gradients(pairs)
        with program._optimized_guard([]):
            for _, buffer in pairs:
                parts = [part for _, part in self._guarded.parts_of[buffer.name]]
                order(block, [buffer], [*parts, buffer])
                paddle.tensor.fill_constant(buffer.shape, buffer.dtype, 0.0, out=buffer)


def order(block, before: Sequence, after: Sequence):
    """Append an operator that computes nothing and makes the executor wait: it reads `before` and writes `after`.

    The executor orders operators by the names of their variables, and does not know that a buffer and its parts are the
    same memory.
    """
    return block.append_op(type="nop", inputs={"X": list(before)}, outputs={"Out": list(after)})


def _create_buffer(name: str, parameters: Sequence) -> tuple[Any, list]:
    """The variables of a buffer and of its parts, one for each parameter, zero at the start."""
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
