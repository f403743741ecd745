"""Linear layers on CPU: fuses biases into matrix products, and removes additions of gradients.

oneDNN's matrix product in float32 is as fast as MKL's (230 GFLOP/s on one Zen 5 core) and adds a row to its result
while that is in registers. The model adds a bias as ones @ bias, which makes its gradient a matrix product; as three
operators that moves five tensors of the result's size through memory, which took 12% of a training step of BERT-mini in
bfloat16. So is what hides padded keys added to attention's scores (32 x 4 x 128 x 128: 2.0 + 6.6 ms, together 1.3).
The gradient of an addition of tensors of one shape is the gradient of the sum, which Paddle copies.
"""

from collections import defaultdict
from typing import Any

from bert.runtime.operator_editing import BlockEditor
from bert.runtime.paddle_api import core, paddle

_REPLACED = ("matmul_v2", "fused_matmul", "matmul_v2_grad")
_BFLOAT16 = {"use_mkldnn": True, "mkldnn_data_type": "bfloat16", "force_fp32_output": True}


def computes_bfloat16() -> bool:
    """Whether this wheel and processor multiply bfloat16 faster than float32 (AVX512-BF16 or AMX)."""
    return core.is_compiled_with_mkldnn() and core.supports_bfloat16_fast_performance()


def use_bfloat16_products(editor: BlockEditor) -> None:
    """Compute the products of linear layers, and their gradients, from bfloat16 inputs."""
    casts = _Casts(editor)
    for operator in list(editor.block.ops):
        written = operator.output_arg_names  # before it is replaced
        if operator.type in _REPLACED and is_linear(editor, operator):
            replace = _replace_gradient if operator.type == "matmul_v2_grad" else _replace_product
            replace(editor, operator, casts)
        casts.forget(written)


class _Casts:
    """bfloat16 copies of variables, unchanged and as matrices [rows, last axis], each made before its first use."""

    def __init__(self, editor: BlockEditor) -> None:
        self._editor = editor
        self._copies: dict[str, str] = {}
        self._matrices: dict[str, str] = {}

    def copy(self, operator: Any, name: str) -> str:
        if name not in self._copies:
            copy = ("bfloat16", self._editor.shape(name), paddle.bfloat16)
            types = {"in_dtype": int(paddle.float32), "out_dtype": int(paddle.bfloat16)}
            self._copies[name] = self._editor.compute(operator, "cast", {"X": name}, *copy, use_mkldnn=True, **types)
        return self._copies[name]

    def matrix(self, operator: Any, name: str) -> str:
        shape, copy = self._editor.shape(name), self.copy(operator, name)
        if len(shape) == 2:
            return copy
        if name not in self._matrices:
            self._matrices[name], _ = self._editor.reshape(operator, copy, [-1, shape[-1]])
        return self._matrices[name]

    def forget(self, names: list[str]) -> None:
        """Drop the copies of variables that an operator writes."""
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
    """Replace the gradient of Out = X @ Y or X @ Y^T, with X [..., k] and Out [..., n]."""
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


# oneDNN takes longer to look up its kernel than a smaller product (two classes, ones @ bias) takes, and so does a cast.
SMALLEST_SIDE = 32
_ACTIVATIONS = {False: "gelu_erf", True: "gelu_tanh"}  # by the attribute `approximate` of gelu


def is_linear(editor: BlockEditor, product: Any) -> bool:
    """Whether a product, or its gradient, is of float32 rows [..., k] and a matrix of profitable size."""
    x, y = (editor.block.var(product.input(name)[0]) for name in ("X", "Y"))
    is_linear = len(y.shape) == 2 and len(x.shape) >= 2 and not product.attr("trans_x")
    return is_linear and x.dtype == y.dtype == paddle.float32 and min(y.shape) >= SMALLEST_SIDE


class _Uses:
    """The operators that write and read each variable of a block, and variables used by other blocks."""

    def __init__(self, editor: BlockEditor) -> None:
        self.writers: dict[str, list] = defaultdict(list)
        self.readers: dict[str, list] = defaultdict(list)
        for operator in editor.block.ops:
            for name in operator.output_arg_names:
                self.writers[name].append(operator)
            for name in operator.input_arg_names:
                self.readers[name].append(operator)
        other_blocks = [block for block in editor.block.program.blocks if block.idx != editor.block.idx]
        self.elsewhere = {
            name for block in other_blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)
        }

    def only_writer(self, name: str, kind: str) -> Any:
        """The only operator that writes a variable, if it has this type; otherwise None."""
        writers = self.writers[name]
        return writers[0] if len(writers) == 1 and writers[0].type == kind else None


def forward_gradients_of_additions(editor: BlockEditor) -> None:
    """Read the gradient of a sum x + y directly, in place of equal gradients of x and y."""
    uses = _Uses(editor)
    for operator in editor.operators("elementwise_add_grad"):
        (total,) = operator.input("Out@GRAD")
        wanted = [side for side in ("X", "Y") if editor.is_wanted(operator, f"{side}@GRAD")]
        gradients = [operator.output(f"{side}@GRAD")[0] for side in wanted]
        # A gradient of another shape is a sum.
        is_copied = all(editor.shape(operator.input(side)[0]) == editor.shape(total) for side in wanted)
        if not is_copied or not all(_is_private(editor, uses, name) for name in (*gradients, total)):
            continue
        for name in gradients:
            for reader in uses.readers.pop(name, []):
                reader.desc._rename_input(name, total)
                uses.readers[total].append(reader)
        uses.readers[total].remove(operator)
        editor.remove(operator)


def _is_private(editor: BlockEditor, uses: _Uses, name: str) -> bool:
    """Whether a gradient is written once and has no name used outside; updates read parameters' gradients."""
    forward = name.partition("@GRAD")[0]
    is_parameter = editor.block.has_var(forward) and editor.block.var(forward).persistable
    return len(uses.writers[name]) == 1 and not is_parameter and name not in uses.elsewhere


def fold_biases(editor: BlockEditor) -> None:
    """Fuse x @ w + bias into one operator, with gelu if nothing else reads the sum, and biases of scores."""
    uses, ones = _Uses(editor), set[str]()
    for addition in editor.operators("elementwise_add"):
        product = _matrix_product(uses, addition.input("X")[0])
        bias = _addend(editor, uses, addition, product) if product else None
        if bias is not None:
            ones |= _fold(editor, uses, product, addition, bias)
    _remove_unread_ones(editor, ones)


def _matrix_product(uses: _Uses, name: str) -> Any:
    """The matrix product whose result has only this reader; otherwise None."""
    is_inner = len(uses.readers[name]) == 1 and name not in uses.elsewhere
    return uses.only_writer(name, "matmul_v2") if is_inner else None


def _addend(editor: BlockEditor, uses: _Uses, addition: Any, product: Any) -> str | None:
    """The variable that can be added inside a product: a bias, or the bias of attention scores; otherwise None."""
    if is_linear(editor, product):
        return _bias_of(editor, uses, addition)
    shapes = [editor.shape(name) for name in (*product.input("X"), *product.input("Y"), *addition.input("Y"))]
    is_mask = all(len(shape) == 4 for shape in shapes) and shapes[-1][1:3] == [1, 1] and not product.attr("trans_x")
    is_float32 = all(editor.block.var(name).dtype == paddle.float32 for name in product.input_arg_names)
    return addition.input("Y")[0] if is_mask and is_float32 else None


def _bias_of(editor: BlockEditor, uses: _Uses, addition: Any) -> str | None:
    """The variable [n] or [1, n] that an addition adds to each row; otherwise None."""
    name, width = addition.input("Y")[0], editor.shape(addition.output("Out")[0])[-1]
    if editor.shape(name) == [width] and addition.attr("axis") in (-1, len(editor.shape(addition.input("X")[0])) - 1):
        return name
    outer = _matrix_product(uses, name)  # ones @ bias
    if outer is None or editor.shape(outer.input("Y")[0]) != [1, width]:
        return None
    return outer.input("Y")[0] if uses.only_writer(outer.input("X")[0], "fill_any_like") else None


def _fold(editor: BlockEditor, uses: _Uses, product: Any, addition: Any, bias: str) -> set[str]:
    """Replace product, addition and gelu by one operator; returns the `ones` variable of a removed ones @ bias."""
    out, activation, last = addition.output("Out")[0], "", addition
    readers = uses.readers[out]
    if len(readers) == 1 and readers[0].type == "gelu" and out not in uses.elsewhere:
        last = readers[0]
        activation, out = _ACTIVATIONS[bool(last.attr("approximate"))], last.output("Out")[0]
    rank, shape = len(editor.shape(product.input("X")[0])), editor.shape(bias)
    if len(shape) != rank:
        bias, _ = editor.reshape(addition, bias, [1] * (rank - 1) + [shape[-1]])
    broadcast = uses.only_writer(addition.input("Y")[0], "matmul_v2")
    ones = set(broadcast.input("X")) if broadcast is not None else set()
    inputs = {"X": product.input("X"), "Y": product.input("Y"), "ResidualData": bias}
    attributes = {"trans_x": False, "trans_y": product.attr("trans_y"), "fuse_activation": activation}
    editor.replace(last, "fused_matmul", inputs, {"Out": out}, use_mkldnn=True, **attributes)
    for operator in (product, broadcast, addition):
        if operator is not None and operator is not last:
            editor.remove(operator)
    return ones


def _remove_unread_ones(editor: BlockEditor, names: set[str]) -> None:
    """Remove the operators that make these `ones` variables, if no gradient reads them."""
    for _ in range(2):  # the ones, then the column that has their shape
        uses, columns = _Uses(editor), set()
        for name in names:
            if not uses.readers[name] and name not in uses.elsewhere:
                (operator,) = uses.writers[name]
                columns |= {column for column in operator.input_arg_names if uses.only_writer(column, "slice")}
                editor.remove(operator)
        names = columns
