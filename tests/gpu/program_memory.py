"""Computes the memory of a program from its operators: shapes for given inputs, and the lifetime of each variable.

A program is built for any batch (dimensions of -1). `bound_shapes` fixes the inputs' shapes and infers those of every
operator. `walk` then follows the executor, which allocates an operator's outputs before it runs it and frees a variable
after its last reader. Nothing is executed, so the program of eight GPUs can be measured on a laptop.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from bert.runtime.paddle_api import core, static

BYTES = dict.fromkeys(("bool", "uint8", "int8"), 1) | dict.fromkeys(("float16", "bfloat16"), 2)
BYTES |= dict.fromkeys(("int32", "float32"), 4) | dict.fromkeys(("int64", "float64"), 8)
BACKWARD, OPTIMIZE = 1, 2  # bits of the attribute op_role
_NO_DATA = ("feed", "fetch")


def dtype_of(variable) -> str | None:
    """`float32`, ...; None for variables that are no tensors (the scopes of a conditional block)."""
    try:
        return str(variable.dtype).split(".")[-1].lower()
    except RuntimeError:
        return None


def role_of(operator) -> int:
    return operator.attr("op_role") if operator.has_attr("op_role") else 0


def bound_shapes(program: static.Program, inputs: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of the program when its inputs have the given shapes.

    Raises:
        ValueError: an operator whose output shape does not follow from these inputs.
    """
    program = program.clone()
    for name, shape in inputs.items():
        program.global_block().var(name).desc.set_shape(shape)
    for block in program.blocks:
        values: dict[str, list[int]] = {}  # integers that are computed from shapes, such as the sequence length
        for operator in block.ops:
            if operator.has_attr("sub_block"):
                continue
            operator.desc.infer_shape(block.desc)
            _complete(operator, block, values)
    return {
        variable.name: tuple(variable.shape)
        for block in program.blocks
        for variable in block.vars.values()
        if dtype_of(variable) is not None
    }


def _complete(operator, block, values: dict[str, list[int]]) -> None:
    """Fill in the sizes that Paddle does not know at compile time because they depend on a tensor's value."""
    shape_of = lambda name: tuple(block._find_var_recursive(name).shape)  # noqa: E731
    if operator.type == "coalesce_tensor":  # one buffer, of which the outputs are parts
        total = sum(math.prod(shape_of(name)) for name in operator.output("Output"))
        block._find_var_recursive(operator.output("FusedOutput")[0]).desc.set_shape([total])
    if operator.type == "shape":
        values[operator.output("Out")[0]] = list(shape_of(operator.input("Input")[0]))
    elif operator.type == "flash_attn":  # its softmax is not stored, only the normaliser of each row
        batch, length, heads, _ = shape_of(operator.input("q")[0])
        block._find_var_recursive(operator.output("softmax_lse")[0]).desc.set_shape([batch, heads, length])
        block._find_var_recursive(operator.output("softmax")[0]).desc.set_shape([0])
    elif operator.type == "flash_attn_unpadded":
        heads, sequences = shape_of(operator.input("q")[0])[1], shape_of(operator.input("cu_seqlens_q")[0])[0] - 1
        normalisers = [sequences, heads, operator.attr("max_seqlen_q")]
        block._find_var_recursive(operator.output("softmax_lse")[0]).desc.set_shape(normalisers)
        block._find_var_recursive(operator.output("softmax")[0]).desc.set_shape([0])
    elif operator.type == "slice" and operator.input("Input")[0] in values:
        start, end = operator.attr("starts")[0], operator.attr("ends")[0]
        values[operator.output("Out")[0]] = values[operator.input("Input")[0]][start:end]
    for name in operator.output_arg_names:
        variable = block._find_var_recursive(name)
        if variable is None or dtype_of(variable) is None or -1 not in variable.shape or _is_shape_only(name, operator):
            continue
        shape = list(variable.shape)
        if operator.type == "slice":
            given = shape_of(operator.input("Input")[0])
            for place, axis in enumerate(operator.attr("axes")):
                start, end = (
                    values[operator.input(f"{side}TensorList")[place]][0]
                    if operator.input(f"{side}TensorList")
                    else operator.attr(side.lower())[place]
                    for side in ("Starts", "Ends")
                )
                shape[axis] = len(range(given[axis])[start:end])
        elif operator.type == "reshape2" and shape.count(-1) == 1:
            known = math.prod(size for size in shape if size != -1)
            shape[shape.index(-1)] = math.prod(shape_of(operator.input("X")[0])) // known
        elif "@GRAD" in name:
            shape = list(shape_of(name.split("@GRAD")[0]))
        if -1 in shape:
            raise ValueError(
                f"{operator.type} -> {name} {list(variable.shape)}: this shape does not follow from the "
                "given inputs; teach tests/gpu/program_memory.py the rule of this operator"
            )
        variable.desc.set_shape(shape)


def _is_shape_only(name: str, operator) -> bool:
    """XShape carries the shape of a reshaped tensor to the backward pass, and no data."""
    return "XShape" in operator.output_names and name in operator.output("XShape")


def tensor_bytes(program: static.Program, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Bytes of every variable; 0 for those without data of their own (`FusedOutput` holds that of its parts)."""
    result = {}
    for block in program.blocks:
        empty = {
            name
            for operator in block.ops
            for slot in ("XShape", "FusedOutput")
            if slot in operator.output_names
            for name in operator.output(slot)
        }
        for variable in block.vars.values():
            dtype = dtype_of(variable)
            holds_nothing = dtype is None or variable.name in empty or variable.name in _NO_DATA
            result[variable.name] = 0 if holds_nothing else math.prod(shapes[variable.name]) * BYTES[str(dtype)]
    return result


@dataclass(frozen=True)
class Moment:
    """One operator's execution in a micro-step that also updates."""

    operator: str
    role: int
    live_bytes: int  # temporaries alive while it runs


def walk(program: static.Program, sizes: dict[str, int]) -> Iterator[Moment]:
    """Temporaries alive at each operator, in the order of execution, sub-blocks included.

    Persistable variables do not count. Operators that only change a shape do copy: Paddle 2.6's executor shares no
    memory between their input and output.
    """
    order = list(_in_order(program.global_block(), program))
    block_vars = [variable for block in program.blocks for variable in block.vars.values()]
    persistable = {variable.name for variable in block_vars if variable.persistable}
    last = {name: index for index, operator in enumerate(order) for name in _read_or_written(operator)}
    alive: set[str] = set()
    live_bytes = 0
    for index, operator in enumerate(order):
        names = _read_or_written(operator) - persistable
        live_bytes += sum(sizes.get(name, 0) for name in names - alive)
        alive |= names
        yield Moment(operator.type, role_of(operator), live_bytes)
        finished = {name for name in names if last[name] == index}
        live_bytes -= sum(sizes.get(name, 0) for name in finished)
        alive -= finished


def _read_or_written(operator) -> set[str]:
    """Variables whose data an operator needs: the gradient of an addition, say, reads only the shapes of its terms."""
    inputs = {slot: operator.input(slot) for slot in operator.input_names}
    outputs = {slot: operator.output(slot) for slot in operator.output_names}
    attributes = {name: operator.attr(name) for name in operator.attr_names}
    shape_only = core.infer_no_need_buffer_slots(operator.type, inputs, outputs, attributes)
    return {
        name for slots in (inputs, outputs) for slot, names in slots.items() if slot not in shape_only for name in names
    } - {"@EMPTY@"}


def _in_order(block, program) -> Iterator:
    for operator in block.ops:
        if operator.has_attr("sub_block"):
            yield from _in_order(program.block(operator.attr("sub_block").id), program)
        yield operator
