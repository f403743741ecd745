"""Recomputation of encoder layers in the backward pass, which saves memory (Chen et al., 2016).

The pass goes over the finished program, so it knows nothing of precision, accumulation or kernels. Paddle's
RecomputeOptimizer draws other random numbers for dropout the second time, and its gradients are silently of another
loss. Here both draw them from one seed, which the host feeds; on CPU both read one mask.
"""

import re

from bert.runtime.operator_editing import BlockEditor
from bert.runtime.paddle_api import core, paddle, static

_LAYER = re.compile(r"\.layers?\.(\d+)\.")  # in the name of a parameter, or of its copy in half precision
_BACKWARD = int(core.op_proto_and_checker_maker.OpRole.Backward)
_SEEDS = {"dropout": "Seed", "fused_dropout_add": "seed_tensor"}
# Not computed again: its time grows with the square of the length, what it keeps does not.
_KEPT = ("flash_attn", "flash_attn_unpadded")
_INTEGERS = (paddle.int32, paddle.int64)  # shapes, and places in the pool of masks


def recompute_layers(main: static.Program) -> tuple[str, ...]:
    """Recompute all layers but the last; returns the seed variables of their dropout.

    Args:
        main: with backward.
    """
    editor = BlockEditor(main)
    operators = list(editor.block.ops)
    backward = next(index for index, operator in enumerate(operators) if operator.attr("op_role") & _BACKWARD)
    starts: dict[str, int] = {}
    for index, operator in enumerate(operators[:backward]):
        if operator.type != "conditional_block":  # the block that makes half-precision copies
            for match in filter(None, map(_LAYER.search, operator.input_arg_names)):
                starts.setdefault(match[1], index)
    ends, seeds = list(starts.values())[1:], list[str]()
    for start, end in zip(starts.values(), ends, strict=False):
        seeds += _recompute(editor, operators[start:end], operators[end:backward], operators[backward:])
    editor.finish()
    return tuple(seeds)


def _recompute(editor: BlockEditor, layer: list, forward: list, backward: list) -> list[str]:
    """Recompute one layer; `forward` and `backward` are the operators after it."""
    block = editor.block
    stored = {name for operator in forward for name in operator.input_arg_names}
    for operator in layer:
        shapes = operator.output("XShape") if "XShape" in operator.output_names else []
        stored |= set(operator.output_arg_names if operator.type in _KEPT else shapes)
        stored |= {name for name in operator.output_arg_names if block.var(name).dtype in _INTEGERS}
    inside = {name for operator in layer for name in operator.output_arg_names} - stored
    wanted = {name for operator in backward for name in operator.input_arg_names} & inside
    again = []
    for operator in reversed(layer):
        if wanted & set(operator.output_arg_names):
            wanted |= set(operator.input_arg_names) & inside
            again.append(operator)
    readers = [operator for operator in backward if wanted & set(operator.input_arg_names)]
    seeds = [_feed_seed(editor, operator) for operator in again if operator.type in _SEEDS]
    _wait_for_backward(editor, readers[0], backward, layer)
    names = {name: _again(editor, name) for operator in again for name in operator.output_arg_names}
    for operator in reversed(again):
        copy = editor.copy_before(readers[0], operator)
        for name in wanted:
            copy.desc._rename_input(name, names[name])
        for name in operator.output_arg_names:
            copy.desc._rename_output(name, names[name])
    for operator in readers:
        for name in wanted & set(operator.input_arg_names):
            operator.desc._rename_input(name, names[name])
    return seeds


def _again(editor: BlockEditor, name: str) -> str:
    variable = editor.block.var(name)
    again = editor.block.create_var(
        name=f"{name}.again", shape=variable.shape, dtype=variable.dtype, stop_gradient=True
    )
    return again.name


def _feed_seed(editor: BlockEditor, dropout) -> str:
    """Give an operator a seed that the host writes before each micro-step; returns its variable, int32 [1]."""
    (name,) = [f"{output}.seed" for output in dropout.output_arg_names[:1]]
    editor.block.create_var(name=name, shape=[1], dtype="int32", persistable=True, stop_gradient=True)
    dropout.desc.set_input(_SEEDS[dropout.type], [name])
    return name


def _wait_for_backward(editor: BlockEditor, reader, backward: list, layer: list) -> None:
    """Prevent the executor from recomputing a layer before the gradient of its output exists.

    The operator computes nothing; what it seems to write are the inputs of the layer.
    """
    before = {name for operator in backward[: backward.index(reader)] for name in operator.output_arg_names}
    gradients = [name for op in backward[backward.index(reader) :] for name in op.input_arg_names if name in before]
    made = {name for operator in layer for name in operator.output_arg_names}
    inputs = {name for op in layer for name in op.input_arg_names if name not in made}
    inputs = {name for name in inputs if not editor.block.var(name).persistable}
    editor.insert_before(reader, "nop", {"X": gradients[:1]}, {"Out": sorted(inputs)})
