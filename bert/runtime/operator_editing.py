"""Edits the operators of a built program: inserts, replaces and removes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert.runtime.paddle_api import core, framework, static

Names = Mapping[str, str | Sequence[str]]  # an operator's inputs or outputs: parameter -> variables


class BlockEditor:
    """Edits the operators of a program's global block. `finish` must be called after the last edit.

    Operators are written as descriptions, because gradients' have no Python function.
    """

    def __init__(self, program: static.Program) -> None:
        self.block = program.global_block()
        self._made = 0

    def operators(self, *types: str) -> list:
        """All operators of these types, in program order."""
        return [operator for operator in self.block.ops if operator.type in types]

    def shape(self, name: str) -> list[int]:
        return list(self.block.var(name).shape)

    def is_wanted(self, operator: Any, parameter: str) -> bool:
        """Whether an operator writes this output; unwanted gradients are absent or named @EMPTY@."""
        names = operator.output(parameter) if parameter in operator.output_names else []
        return bool(names) and names[0] != core.empty_var_name()

    def temporary(self, kind: str, shape: Sequence[int], dtype: Any = "float32") -> str:
        """Declare a temporary variable; returns its name."""
        while self.block.has_var(name := f"edited.{self._made}.{kind}"):
            self._made += 1
        self.block.create_var(name=name, shape=list(shape), dtype=dtype, stop_gradient=True)
        return name

    def insert_before(self, operator: Any, kind: str, inputs: Names, outputs: Names, **attributes: Any) -> None:
        """Insert an operator before `operator`, with its role (forward, backward, update)."""
        index = self.block.ops.index(operator)
        description = self.block.desc._insert_op(index)
        _describe(description, kind, inputs, outputs, {**attributes, "op_role": operator.attr("op_role")})
        self.block.ops.insert(index, framework.Operator(self.block, description))

    def compute(
        self,
        operator: Any,
        kind: str,
        inputs: Names,
        name: str,
        shape: Sequence[int],
        dtype: Any = "float32",
        out: str = "Out",
        /,
        **attributes: Any,
    ) -> str:
        """Insert an operator before `operator`; returns its output, a new temporary."""
        result = self.temporary(name, shape, dtype)
        self.insert_before(operator, kind, inputs, {out: result}, **attributes)
        return result

    def reshape(self, operator: Any, source: str, shape: Sequence[int], out: str | None = None) -> tuple[str, str]:
        """Insert a reshape before `operator`; returns the reshaped variable and the variable of the old shape.

        They share memory if nothing else reads `source` later.
        """
        dtype = self.block.var(source).dtype
        made = out or self.temporary("reshaped", shape, dtype)
        old = self.temporary("shape", [0, *self.shape(source)], dtype)
        self.insert_before(operator, "reshape2", {"X": source}, {"Out": made, "XShape": old}, shape=list(shape))
        return made, old

    def replace(self, operator: Any, kind: str, inputs: Names, outputs: Names, **attributes: Any) -> None:
        """Replace `operator` by an operator of another type in the same place."""
        role = operator.attr("op_role")
        operator.desc.copy_from(core.OpDesc())
        _describe(operator.desc, kind, inputs, outputs, {**attributes, "op_role": role})

    def copy_before(self, operator: Any, original: Any) -> Any:
        """Insert a copy of `original` before `operator`, with its role."""
        index = self.block.ops.index(operator)
        description = self.block.desc._insert_op(index)
        description.copy_from(original.desc)
        description._set_attr("op_role", operator.attr("op_role"))
        self.block.ops.insert(index, framework.Operator(self.block, description))
        return self.block.ops[index]

    def remove(self, operator: Any) -> None:
        self.block._remove_op(self.block.ops.index(operator), sync=False)

    def finish(self) -> None:
        self.block._sync_with_cpp()


def _describe(description: Any, kind: str, inputs: Names, outputs: Names, attributes: Mapping[str, Any]) -> None:
    description.set_type(kind)
    for parameter, names in inputs.items():
        description.set_input(parameter, [names] if isinstance(names, str) else list(names))
    for parameter, names in outputs.items():
        description.set_output(parameter, [names] if isinstance(names, str) else list(names))
    for name, value in attributes.items():
        set_attribute(description, name, value)
    description.check_attrs()  # adds the defaults


def set_attribute(description: Any, name: str, value: Any) -> None:
    """Set an attribute in an operator's description, with the right type for unknown flags."""
    if isinstance(value, bool):
        description._set_bool_attr(name, value)
    else:
        description._set_attr(name, value)
