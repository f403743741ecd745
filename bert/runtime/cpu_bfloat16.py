"""Matrix products of linear layers in bfloat16 on CPU, with sums and results in float32.

Paddle's CPU wheel casts nothing under mixed precision, but holds oneDNN's matrix product in bfloat16: 330-590 GFLOP/s
on one Zen 5 core (AVX512-BF16), where float32 runs at 160-245. It has no fast gradient, so the gradients of x @ w are
written as products of their own: dx = dy @ w^T and dw = x^T @ dy, of matrices. A tensor is cast once for all products
that read it; weights once in a micro-step, which takes 2% of its products' time at 4,096 tokens and 8% at 1,024.
"""

from typing import Any

from bert.runtime.cpu_linear import is_linear
from bert.runtime.operator_editing import BlockEditor
from bert.runtime.paddle_api import core, paddle

_REPLACED = ("matmul_v2", "fused_matmul", "matmul_v2_grad")
_BFLOAT16 = {"use_mkldnn": True, "mkldnn_data_type": "bfloat16", "force_fp32_output": True}


def computes_bfloat16() -> bool:
    """Whether this wheel and processor multiply bfloat16 faster than float32 (AVX512-BF16 or AMX)."""
    return core.is_compiled_with_mkldnn() and core.supports_bfloat16_fast_performance()


def use_bfloat16_products(editor: BlockEditor) -> int:
    """Compute the linear layers' products and their gradients from bfloat16 inputs -> how many were replaced."""
    casts, replaced = _Casts(editor), 0
    for operator in list(editor.block.ops):
        written = operator.output_arg_names  # before it is replaced
        if operator.type in _REPLACED and is_linear(editor, operator):
            replace = _replace_gradient if operator.type == "matmul_v2_grad" else _replace_product
            replace(editor, operator, casts)
            replaced += 1
        casts.forget(written)
    return replaced


class _Casts:
    """bfloat16 copies of variables, as they are and as matrices [rows, last axis], each made where it is first read."""

    def __init__(self, editor: BlockEditor) -> None:
        self._editor = editor
        self._copies: dict[str, str] = {}
        self._matrices: dict[str, str] = {}

    def copy(self, operator: Any, name: str) -> str:
        if name not in self._copies:
            made = self._editor.temporary("bfloat16", self._editor.shape(name), paddle.bfloat16)
            types = {"in_dtype": int(paddle.float32), "out_dtype": int(paddle.bfloat16)}
            self._editor.insert_before(operator, "cast", {"X": name}, {"Out": made}, use_mkldnn=True, **types)
            self._copies[name] = made
        return self._copies[name]

    def matrix(self, operator: Any, name: str) -> str:
        shape, copy = self._editor.shape(name), self.copy(operator, name)
        if len(shape) == 2:
            return copy
        if name not in self._matrices:
            self._matrices[name], _ = self._editor.reshape(operator, copy, [-1, shape[-1]])
        return self._matrices[name]

    def forget(self, names: list[str]) -> None:
        """Drop the copies of variables that are written."""
        for name in names:
            self._copies.pop(name, None)
            self._matrices.pop(name, None)


def _replace_product(editor: BlockEditor, operator: Any, casts: _Casts) -> None:
    inputs = {name: casts.copy(operator, operator.input(name)[0]) for name in operator.input_names}
    flags = {"trans_x": False, "trans_y": operator.attr("trans_y")}
    if operator.type == "fused_matmul":
        flags["fuse_activation"] = operator.attr("fuse_activation")
    editor.replace(operator, operator.type, inputs, {"Out": operator.output("Out")[0]}, **flags, **_BFLOAT16)


def _replace_gradient(editor: BlockEditor, operator: Any, casts: _Casts) -> None:
    """Out = X @ Y or X @ Y^T, X [..., k], Out [..., n]."""
    x, y, gradient = (operator.input(name)[0] for name in ("X", "Y", "Out@GRAD"))
    transposed = operator.attr("trans_y")
    if editor.is_wanted(operator, "X@GRAD"):
        inputs = {"X": casts.copy(operator, gradient), "Y": casts.copy(operator, y)}
        outputs = {"Out": operator.output("X@GRAD")[0]}
        flags = {"trans_x": False, "trans_y": not transposed}
        editor.insert_before(operator, "matmul_v2", inputs, outputs, **flags, **_BFLOAT16)
    if editor.is_wanted(operator, "Y@GRAD"):
        rows = [casts.matrix(operator, name) for name in (x, gradient)]
        inputs = dict(zip(("X", "Y"), reversed(rows) if transposed else rows, strict=True))
        outputs = {"Out": operator.output("Y@GRAD")[0]}
        editor.insert_before(operator, "matmul_v2", inputs, outputs, trans_x=True, trans_y=False, **_BFLOAT16)
    editor.remove(operator)
