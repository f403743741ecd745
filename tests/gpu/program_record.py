"""Describes a program's operators and memory without executing it.

A program is built for any batch (dimensions of -1). `bound_shapes` fixes the inputs' shapes and infers those of every
operator. `walk` then follows the executor, which allocates an operator's outputs before it runs it and frees a variable
after its last reader. So the program of eight GPUs can be measured on a laptop.
"""

import difflib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert.runtime.paddle_api import core, static

BYTES = dict.fromkeys(("bool", "uint8", "int8"), 1) | dict.fromkeys(("float16", "bfloat16"), 2)
BYTES |= dict.fromkeys(("int32", "float32"), 4) | dict.fromkeys(("int64", "float64"), 8)
BACKWARD, OPTIMIZE = 1, 2  # bits of the attribute op_role
_NO_DATA = ("feed", "fetch")


def dtype_of(variable) -> str | None:
    """Return `float32`, ...; None for variables that are no tensors (the scopes of a conditional block)."""
    try:
        return str(variable.dtype).split(".")[-1].lower()
    except RuntimeError:
        return None


def role_of(operator) -> int:
    return operator.attr("op_role") if operator.has_attr("op_role") else 0


def bound_shapes(program: static.Program, inputs: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of the program when its inputs have the given shapes.

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

    def shape_of(name: str) -> tuple[int, ...]:
        return tuple(block._find_var_recursive(name).shape)

    def set_shape(slot: str, shape: list[int]) -> None:
        block._find_var_recursive(operator.output(slot)[0]).desc.set_shape(shape)

    if operator.type == "coalesce_tensor":  # one buffer, of which the outputs are parts
        set_shape("FusedOutput", [sum(math.prod(shape_of(name)) for name in operator.output("Output"))])
    if operator.type == "shape":
        values[operator.output("Out")[0]] = list(shape_of(operator.input("Input")[0]))
    elif operator.type == "flash_attn":  # its softmax is not stored, only the normaliser of each row
        batch, length, heads, _ = shape_of(operator.input("q")[0])
        set_shape("softmax_lse", [batch, heads, length])
        set_shape("softmax", [0])
    elif operator.type == "flash_attn_unpadded":
        heads, sequences = shape_of(operator.input("q")[0])[1], shape_of(operator.input("cu_seqlens_q")[0])[0] - 1
        set_shape("softmax_lse", [sequences, heads, operator.attr("max_seqlen_q")])
        set_shape("softmax", [0])
    elif operator.type == "slice" and operator.input("Input")[0] in values:
        start, end = operator.attr("starts")[0], operator.attr("ends")[0]
        values[operator.output("Out")[0]] = values[operator.input("Input")[0]][start:end]
    for name in operator.output_arg_names:
        variable = block._find_var_recursive(name)
        if variable is None or dtype_of(variable) is None or -1 not in variable.shape or _is_shape_only(name, operator):
            continue
        shape = list(variable.shape)
        if operator.type == "slice":
            source = shape_of(operator.input("Input")[0])
            for place, axis in enumerate(operator.attr("axes")):
                start, end = (
                    values[names[place]][0] if (names := operator.input(f"{side}TensorList")) else static_ends[place]
                    for side, static_ends in (("Starts", operator.attr("starts")), ("Ends", operator.attr("ends")))
                )
                shape[axis] = len(range(source[axis])[start:end])
        elif operator.type == "reshape2" and shape.count(-1) == 1:
            known = math.prod(size for size in shape if size != -1)
            shape[shape.index(-1)] = math.prod(shape_of(operator.input("X")[0])) // known
        elif "@GRAD" in name:
            shape = list(shape_of(name.split("@GRAD")[0]))
        if -1 in shape:
            raise ValueError(
                f"{operator.type} -> {name} {list(variable.shape)}: this shape does not follow from the "
                "given inputs; teach tests/gpu/program_record.py the rule of this operator"
            )
        variable.desc.set_shape(shape)


def _is_shape_only(name: str, operator) -> bool:
    """Tell whether a variable is an XShape: it carries a shape to the backward pass, and no data."""
    return "XShape" in operator.output_names and name in operator.output("XShape")


def tensor_bytes(program: static.Program, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the bytes of every variable; 0 for parts of a `FusedOutput`, which holds their data."""
    result = {}
    for block in program.blocks:
        slots = [(op, slot) for op in block.ops for slot in ("XShape", "FusedOutput") if slot in op.output_names]
        empty = {name for operator, slot in slots for name in operator.output(slot)}
        for variable in block.vars.values():
            dtype = dtype_of(variable)
            holds_nothing = dtype is None or variable.name in empty or variable.name in _NO_DATA
            result[variable.name] = 0 if holds_nothing else math.prod(shapes[variable.name]) * BYTES[str(dtype)]
    return result


@dataclass(frozen=True)
class Moment:
    """Describes one operator's execution in a micro-step that also updates."""

    operator: str
    role: int
    live_bytes: int  # temporaries alive while it runs


def walk(program: static.Program, sizes: dict[str, int]) -> Iterator[Moment]:
    """Yield the temporaries alive at each operator, in the order of execution, sub-blocks included.

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
    """Return the variables whose data an operator needs: the gradient of an addition reads only its terms' shapes."""
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


Facts = dict[str, str | int | list[str]]
Record = dict[str, Facts]

_HALF_PRECISION, _FLOATS = ("float16", "bfloat16"), ("float16", "bfloat16", "float32", "float64")
_LOSS_SCALING = ("check_finite_and_unscale", "update_loss_scaling")
# Operators that make the host wait for the device.
_HOST_WAITS = ("c_sync_calc_stream", "c_sync_comm_stream", "memcpy", "memcpy_d2h", "where_index", "masked_select")
_CONDITIONAL = "conditional_block"
_FUSED = ("fused_", "flash_attn")


def record(program, inputs: Mapping[str, tuple[int, ...]]) -> Record:
    """Return the facts of a TrainingProgram whose inputs have these shapes, by section.

    Raises:
        ValueError: shapes that do not follow from `inputs`.
    """
    main = program.main
    shapes = bound_shapes(main, dict(inputs))
    sizes = tensor_bytes(main, shapes)
    operators = [(_part(operator, block), operator, block) for block in main.blocks for operator in block.ops]
    result: Record = {"inputs": _inputs(main, shapes)}
    for part in ("forward", "backward", "update"):
        result[part] = _computation((op, block) for where, op, block in operators if where == part)
    result["casts"] = _casts(operators, sizes, set(program.parameters))
    result["communication"] = _communication(operators, shapes)
    result["order of the update"] = {"operators": run_lengths([_label(*pair) for pair in _update_in_order(main)])}
    result["loss scaling"] = _loss_scaling(program, operators, shapes)
    result["skipped update"] = _skipped_update(program, operators)
    result["fused operators"] = _counted(op.type for _, op, _ in operators if op.type.startswith(_FUSED))
    waits = (f"{where}: {op.type}" for where, op, block in operators if waits_for_device(op, block))
    result["the host waits"] = _counted(waits)
    result["startup"] = _counted(operator.type for operator in program.startup.global_block().ops)
    result["memory in MB"] = memory(program, sizes)
    return result


def _counted(labels: Iterable[str]) -> Facts:
    return dict(sorted(Counter(labels).items()))


def waits_for_device(operator, block) -> bool:
    """Tell whether the host waits for the device at this operator."""
    if operator.type == "cumsum":  # Thrust's scan, which a tensor of one axis takes, ends with a wait
        return operator.attr("flatten") or len(block._find_var_recursive(operator.input("X")[0]).shape) == 1
    return operator.type in _HOST_WAITS


def record_forward(main, inputs: Mapping[str, tuple[int, ...]], parameters: Sequence[str]) -> dict[str, Any]:
    """Return the facts of an evaluation or a prediction, without backward, whose inputs have these shapes."""
    sizes = tensor_bytes(main, bound_shapes(main, dict(inputs)))
    operators = [("forward", operator, main.global_block()) for operator in main.global_block().ops]
    peak = max(moment.live_bytes for moment in walk(main, sizes))
    casts = _casts(operators, sizes, set(parameters))
    return {
        **_computation((op, block) for _, op, block in operators),
        **{name.replace("forward: ", "cast "): text for name, text in casts.items()},
        "temporaries at the worst moment": f"{_megabytes(peak)} MB",
    }


def memory(program, sizes: Mapping[str, int]) -> Facts:
    """Return the memory of one rank in MB (10^6 bytes): persistent variables, and a micro-step's most temporaries."""
    persistable = {variable.name for variable in program.main.list_vars() if variable.persistable}
    half = {variable.name for variable in program.main.list_vars() if dtype_of(variable) in _HALF_PRECISION}
    buffers = [op for op in program.startup.global_block().ops if op.type == "coalesce_tensor"]
    parts = {name for operator in buffers for name in operator.output("Output")}
    groups = {
        "parameters": set(program.parameters),
        "half-precision copies of parameters": persistable & half,
        "optimizer moments": set(program.optimizer_state.values()),
        "accumulated gradients": {name for name in persistable if name.endswith("@GradientMerge")} - parts,
    }
    groups["other persistables"] = persistable - set().union(parts, *groups.values())
    total = {kind: sum(sizes.get(name, 0) for name in names) for kind, names in groups.items()}
    moments = list(walk(program.main, dict(sizes)))
    worst = max(moments, key=lambda moment: moment.live_bytes)
    kept = next(moment.live_bytes for moment in moments if moment.role & BACKWARD)  # at the end of forward
    return {
        **{kind: _megabytes(size) for kind, size in total.items()},
        "activations kept for the backward pass": _megabytes(kept),
        "temporaries at the worst moment": _megabytes(worst.live_bytes),
        "worst moment": f"{worst.operator} ({'backward' if worst.role & BACKWARD else 'forward'})",
        "total at the worst moment": _megabytes(sum(total.values()) + worst.live_bytes),
    }


def differences(expected: Record, found: Record, name: str = "record") -> str:
    """Return a unified diff, section by section; empty when the records agree."""
    lines: list[str] = []
    for section in dict.fromkeys([*expected, *found]):
        before, after = (
            [line for key, value in part.get(section, {}).items() for line in _lines(key, value)]
            for part in (expected, found)
        )
        diff = difflib.unified_diff(
            before, after, f"{name}, {section}: recorded", f"{name}, {section}: built now", n=1, lineterm=""
        )
        lines += diff
    return "\n".join(lines)


def dump(facts: Record) -> str:
    """Return the record as JSON, a fact a line."""
    return json.dumps(facts, indent=1) + "\n"


def run_lengths(labels: Sequence[str], longest_pattern: int = 3) -> list[str]:
    """`a a b c b c d` -> `a x 2`, `(b, c) x 2`, `d`: repeated patterns of up to `longest_pattern` labels, greedily."""
    result, start = [], 0
    while start < len(labels):
        length, times = max(
            ((n, _repetitions(labels, start, n)) for n in range(1, longest_pattern + 1)),
            key=lambda pair: (pair[0] * pair[1] if pair[1] > 1 else 1, -pair[0]),
        )
        pattern = labels[start : start + length]
        if times == 1:
            length, pattern = 1, pattern[:1]
        text = pattern[0] if len(pattern) == 1 else f"({', '.join(pattern)})"
        result.append(text if times == 1 else f"{text} x {times}")
        start += length * times
    return result


def _repetitions(labels: Sequence[str], start: int, length: int) -> int:
    pattern, times = labels[start : start + length], 1
    while labels[start + times * length : start + (times + 1) * length] == pattern:
        times += 1
    return times


def _part(operator, block) -> str:
    """Return forward, backward or update: operators in the conditional block count as update, whatever their role."""
    role = role_of(operator)
    if block.idx > 0 or role & OPTIMIZE:
        return "update"
    return "backward" if role & BACKWARD else "forward"


def _update_in_order(main) -> list[tuple]:
    """Return (operator, block) of the operators that run once per update, and all collectives, in their order."""
    result = []
    for operator in main.global_block().ops:
        if operator.has_attr("sub_block"):
            inner = main.block(operator.attr("sub_block").id)
            result += [(inside, inner) for inside in inner.ops]
        elif _part(operator, main.global_block()) == "update" or operator.type.startswith(("c_", "coalesce")):
            result.append((operator, main.global_block()))
    return result


def _input_types(operator, block) -> str:
    """Return the floating types an operator reads, such as `float16` or `float16+float32`; `` when it reads none."""
    variables = [block._find_var_recursive(name) for name in operator.input_arg_names]
    types = {dtype_of(variable) for variable in variables if variable is not None}
    return "+".join(name for name in _FLOATS if name in types)


def _label(operator, block) -> str:
    types = _input_types(operator, block) if operator.type != _CONDITIONAL else ""
    return f"{operator.type} {types}".strip()


def _inputs(main, shapes) -> Facts:
    """Return the shape, type and bytes of each input of a micro-step."""
    fed = {variable.name: str(dtype_of(variable)) for variable in main.global_block().vars.values() if variable.is_data}
    lines = {name: f"{' x '.join(map(str, shapes[name]))} {dtype}" for name, dtype in sorted(fed.items())}
    return {**lines, "bytes": sum(math.prod(shapes[name]) * BYTES[dtype] for name, dtype in fed.items())}


def _computation(operators: Iterable) -> Facts:
    return _counted(_label(operator, block) for operator, block in operators if operator.type != "cast")


def _casts(operators, sizes, parameters: set[str]) -> Facts:
    """Return number and megabytes of casts, by part, types and whether a parameter (or its gradient) is cast."""
    counts: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for where, operator, block in operators:
        if operator.type != "cast":
            continue
        (source,), (target,) = operator.input("X"), operator.output("Out")
        before, after = (dtype_of(block._find_var_recursive(name)) for name in (source, target))
        if before not in _FLOATS or after not in _FLOATS:
            continue
        of_parameter = any(name.split("@")[0].split(".cast_")[0] in parameters for name in (source, target))
        key = f"{where}: {before} to {after}, {'parameters' if of_parameter else 'activations'}"
        counts[key] += 1
        moved[key] += sizes[source] + sizes[target]
    return {key: f"{counts[key]}, {_megabytes(moved[key])} MB" for key in sorted(counts)}


def _communication(operators, shapes) -> Facts:
    """Return the collectives by part, ring and dtype: their number and the bytes that they reduce."""
    counts: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for where, operator, block in operators:
        is_collective = operator.type.startswith("c_") and not operator.type.startswith(("c_sync", "c_wait"))
        if is_collective and operator.input_names and operator.has_attr("ring_id"):
            key = f"{where}: {_label(operator, block)}, ring {operator.attr('ring_id')}"
            counts[key] += 1
            sent[key] += sum(
                math.prod(shapes[name]) * BYTES[str(dtype_of(block._find_var_recursive(name)))]
                for name in operator.input("X")
            )
    return {key: f"{counts[key]}, {_megabytes(sent[key])} MB" for key in sorted(counts)}


def _loss_scaling(program, operators, shapes) -> Facts:
    makers = [op for op in program.startup.global_block().ops if op.output_arg_names == [program.loss_scale]]
    read = {(name, block) for where, op, block in operators if where == "backward" for name in op.input_arg_names}
    parameters = {parameter.name for parameter in program.main.all_parameters()}
    # The loss scale goes through these: 2^16 does not fit into float16. A bias of one number is no part of that way.
    scalars = {
        name
        for name, block in read
        if "@GRAD" in name
        and name.partition("@GRAD")[0].partition(".cast_")[0] not in parameters
        and (variable := block._find_var_recursive(name)) is not None
        and dtype_of(variable) in _HALF_PRECISION
        and shapes[name] in ((), (1,))
    }
    return {
        **_counted(f"{where}: {op.type}" for where, op, _ in operators if op.type in _LOSS_SCALING),
        "initial scale": int(makers[0].attr("value")) if makers else "none",
        "gradients of scalars in a short type": sorted(scalars),
    }


def _skipped_update(program, operators) -> Facts:
    """Return where the flag that skips an update is, and the beta powers that it holds: on the host or on the card.

    AdamW's kernel reads the flag on the host and then does nothing at all. LAMB's reads it on the card, so what it must
    hold has to be there too.
    """
    placed = [op for op in program.startup.global_block().ops if op.has_attr("op_device")]
    made_on_host = {name for op in placed if op.attr("op_device") == "cpu" for name in op.output_arg_names}
    copied = {name for _, op, _ in operators if op.type in ("memcpy", "memcpy_d2h") for name in op.output_arg_names}
    where, places = {True: "host", False: "card"}, []
    for _, operator, _ in operators:
        if operator.type in ("lamb", "adamw"):
            flag = operator.input("SkipUpdate")
            powers = {where[name in made_on_host] for slot in ("Beta1Pow", "Beta2Pow") for name in operator.input(slot)}
            place = where[flag[0] in copied] if flag else "none"
            places.append(f"{operator.type}: flag on {place}, beta powers on {' and '.join(sorted(powers))}")
    return _counted(places)


def _megabytes(num_bytes: float) -> int:
    return round(num_bytes / 1e6)


def _lines(key: str, value) -> list[str]:
    return [f"{key}: {entry}" for entry in value] if isinstance(value, list) else [f"{key}: {value}"]
