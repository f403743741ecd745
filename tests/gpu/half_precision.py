"""Runs a GPU's half-precision program on a CPU, with every 16-bit tensor rounded.

Inside `of_gpu` the builders of `program` make programs as with the GPU wheel, casts included. Each variable of 16 bits
becomes one of float32, whose values are rounded after the operator that writes it: to the nearest, ties away from zero.
A GPU differs from that in ties, in the order of sums inside a kernel, and in what Tensor Cores keep between products.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import program
from bert.model import modeling
from bert.runtime.operator_editing import set_attribute
from bert.runtime.paddle_api import core, framework, paddle, static
from tests.support import tiny

_HALF = (paddle.float16, paddle.bfloat16)
# These copy values, which are rounded already; the block's operators are visited themselves.
_EXACT = frozenset(
    "reshape2 reshape2_grad transpose2 transpose2_grad slice unbind concat concat_grad assign unsqueeze2 squeeze2 "
    "unsqueeze2_grad squeeze2_grad stack gather share_data nop coalesce_tensor conditional_block".split()
)


@dataclass(frozen=True)
class Rounding:
    """A place where a program rounds."""

    operator: str
    exact: str  # variable before, and
    rounded: str  # after it


@contextlib.contextmanager
def of_gpu(roundings: list[Rounding] | None = None) -> Iterator[None]:
    """Build programs as for a GPU, rounded; `roundings` gets the roundings of the next program."""

    def supported(dtype):
        return "GPU", set(), core.op_supported_infos("CPU", core.VarDesc.VarType.FP16)[0]

    def emulate(main: static.Program, *, bfloat16: bool = False, onednn: bool = True) -> None:
        found = round_half_precision(main)
        if roundings is not None:
            roundings[:] = found

    with (
        mock.patch("paddle.static.amp.fp16_lists._get_sys_unsupported_list", supported),
        mock.patch.object(modeling, "core", mock.Mock(is_compiled_with_cuda=lambda: True)),
        mock.patch.object(program, "use_cpu_kernels", emulate),
        mock.patch.object(tiny, "build", program.build_training_program),  # without its cache
    ):
        yield


def round_half_precision(main: static.Program) -> list[Rounding]:
    """Turn 16-bit variables into float32 and round the values that are written to them."""
    types = {}
    for block in main.blocks:
        for name, variable in block.vars.items():
            if variable.type == core.VarDesc.VarType.LOD_TENSOR and variable.dtype in _HALF:
                types[name] = variable.dtype
                variable.desc.set_dtype(paddle.float32)
    roundings = []
    for block in main.blocks:
        for index, operator in reversed(list(enumerate(block.ops))):
            _compute_in_float32(operator, types)
            if operator.type not in _EXACT:
                outputs = [name for name in dict.fromkeys(operator.output_arg_names) if name in types]
                made = [_round(block, index, operator, name, types[name]) for name in outputs]
                roundings += made if block.idx == 0 else []  # what a conditional block computes cannot be fetched
        block._sync_with_cpp()
    return roundings[::-1]


def _compute_in_float32(operator, types: dict) -> None:
    for name in ("in_dtype", "out_dtype", "dtype"):
        if operator.has_attr(name) and operator.attr(name) in map(int, _HALF):
            operator._set_attr(name, int(paddle.float32))
    if operator.type == "coalesce_tensor" and types.keys() & {*operator.output_arg_names}:
        operator._set_attr("user_defined_size_of_dtype", 4)
        operator._set_attr("align_size", 2 * operator.attr("align_size"))


def _round(block, index: int, operator, name: str, dtype) -> Rounding:
    """Insert after `operator` a rounding of its output. Paddle's casts on a CPU truncate: t(x + (x - t(x))) rounds."""
    shape, exact = block._find_var_recursive(name).shape, name
    if name not in operator.input_arg_names:
        exact = f"{name}.exact"
        operator.desc._rename_output(name, exact)
    cut, rest, moved = (f"{name}.{kind}" for kind in ("cut", "rest", "moved"))
    for new in (exact, cut, rest, moved):
        if not block.has_var(new):
            block.create_var(name=new, shape=shape, dtype=paddle.float32, stop_gradient=True)
    for new in (f"{cut}.half", f"{moved}.half"):
        block.create_var(name=new, shape=shape, dtype=dtype, stop_gradient=True)
    half, single = int(dtype), int(paddle.float32)
    steps = (
        ("cast", {"X": exact}, f"{cut}.half", {"in_dtype": single, "out_dtype": half}),
        ("cast", {"X": f"{cut}.half"}, cut, {"in_dtype": half, "out_dtype": single}),
        ("elementwise_sub", {"X": exact, "Y": cut}, rest, {"axis": -1}),
        ("elementwise_add", {"X": exact, "Y": rest}, moved, {"axis": -1}),
        ("cast", {"X": moved}, f"{moved}.half", {"in_dtype": single, "out_dtype": half}),
        ("cast", {"X": f"{moved}.half"}, name, {"in_dtype": half, "out_dtype": single}),
    )
    for place, (kind, inputs, output, attributes) in enumerate(steps, index + 1):
        description = block.desc._insert_op(place)
        description.set_type(kind)
        for slot, variable in inputs.items():
            description.set_input(slot, [variable])
        description.set_output("Out", [output])
        for key, value in (attributes | {"op_role": operator.attr("op_role")}).items():
            set_attribute(description, key, value)
        description.check_attrs()
        block.ops.insert(place, framework.Operator(block, description))
    return Rounding(operator.type, exact, name)
