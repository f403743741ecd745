"""Speeds up a built program on CPU: each operator gets the fastest kernel with the same result.

The pass goes over the program after everything else and changes no variable that outlives a run.

What is left above 2% of an update of BERT-mini (32 x 128 tokens, one thread of a Zen 5 core, bfloat16, milliseconds of
550 on a busy machine; memory gives 40 GB/s to large tensors, the cache 70-110), and why it takes longer than its bytes:
    matrix products 330: arithmetic, at 360-460 GFLOP/s. Attention's gradients (32) are MKL's, in float32.
    AdamW 25: 28 bytes of each of 11.2 million parameters need 8. One operator of Paddle's, seven streams at once; three
        quarters are the word embeddings, so one flat buffer would not change it.
    affine_channel 17: the cross-entropy's two sweeps over 640 x 30,522 logits need 8; see `_replace_loss`.
    gelu_grad 15: erf and exp are computed, 14 million times.
    elementwise products 15: dropout's factors and clipped gradients, as fast as memory.
    cast 14: weights, activations and gradients to bfloat16, as fast as memory.
"""

import os
from functools import partial
from typing import Any

from bert.runtime.cpu_linear import (
    computes_bfloat16,
    fold_biases,
    forward_gradients_of_additions,
    use_bfloat16_products,
)
from bert.runtime.operator_editing import BlockEditor, set_attribute
from bert.runtime.paddle_api import core, paddle, static


def replace_layer_norm_gradients(editor: BlockEditor) -> None:
    """Replace `layer_norm_grad` operators over the last axis that compute all gradients."""
    for operator in editor.operators("layer_norm_grad"):
        is_last_axis = operator.attr("begin_norm_axis") == len(editor.shape(operator.input("X")[0])) - 1
        if is_last_axis and all(editor.is_wanted(operator, f"{name}@GRAD") for name in ("X", "Scale")):
            _replace_layer_norm_gradient(editor, operator)


def _replace_layer_norm_gradient(editor: BlockEditor, operator: Any) -> None:
    """Replace one operator: x and gradients [..., h]; mean and variance [rows]; scale and bias [h]."""
    x, mean, variance, scale, gradient = (
        operator.input(name)[0] for name in ("X", "Mean", "Variance", "Scale", "Y@GRAD")
    )
    hidden, insert = editor.shape(x)[-1], partial(editor.compute, operator)

    def sum_over_rows(values: str, result: str) -> None:
        total = insert("matmul_v2", {"X": ones, "Y": values}, "total", [1, hidden], trans_x=False, trans_y=False)
        editor.reshape(operator, total, [hidden], result)

    table = [1, -1, hidden]  # rows as the channels of one image
    values, original = editor.reshape(operator, x, table)
    gradients, _ = editor.reshape(operator, gradient, table)
    mean, variance = (editor.reshape(operator, name, [-1])[0] for name in (mean, variance))  # oneDNN's are [b, s]
    shifted = insert("scale", {"X": variance}, "variance", [-1], scale=1.0, bias=float(operator.attr("epsilon")))
    inverse = insert("rsqrt", {"X": shifted}, "inverse_deviation", [-1])
    product = insert("elementwise_mul", {"X": mean, "Y": inverse}, "product", [-1], axis=-1)
    offset = insert("scale", {"X": product}, "offset", [-1], scale=-1.0, bias=0.0)
    ones = insert("fill_any_like", {"X": mean}, "ones", [-1], value=1.0, dtype=-1)
    zeros = insert("fill_any_like", {"X": scale}, "zeros", [hidden], value=0.0, dtype=-1)

    rows = {"X": values, "Scale": inverse, "Bias": offset}
    normalised = insert("affine_channel", rows, "normalised", table, data_layout="NCHW")
    weighted = insert("elementwise_mul", {"X": normalised, "Y": gradients}, "weighted", table, axis=-1)
    sum_over_rows(weighted, operator.output("Scale@GRAD")[0])
    if editor.is_wanted(operator, "Bias@GRAD"):
        sum_over_rows(gradients, operator.output("Bias@GRAD")[0])

    columns = {"X": gradients, "Scale": scale, "Bias": zeros}
    scaled = insert("affine_channel", columns, "scaled", table, data_layout="NHWC")
    inputs = {"X": values, "Y@GRAD": scaled, "Scale": ones, "Bias": ones, "SavedMean": mean, "SavedVariance": inverse}
    attributes = {"data_layout": "NCHW", "epsilon": 1e-5, "momentum": 0.9}
    attributes |= {"is_test": False, "use_global_stats": False, "trainable_statistics": False}
    result = insert("batch_norm_grad", inputs, "gradient", table, "float32", "X@GRAD", **attributes)
    outputs = {"X@GRAD": operator.output("X@GRAD")[0]}
    editor.replace(operator, "reshape2_grad", {"XShape": original, "Out@GRAD": result}, outputs)


SMALLEST_VOCABULARY = 1024  # below, the number of operators costs more than the elements


def replace_cross_entropies(editor: BlockEditor) -> None:
    """Replace cross-entropies, and comparisons of arg-max with labels, over large vocabularies.

    Where nothing is trained the arg-max stays, which counts no tie as correct: held-out accuracies are exact.
    """
    largest: dict[str, str] = {}  # logits -> their rows' largest, computed before the first operator that reads it
    trains = bool(editor.operators("softmax_with_cross_entropy_grad"))
    comparisons = {operator.input("X")[0]: operator for operator in editor.operators("equal")}
    for operator in editor.operators("softmax_with_cross_entropy", "arg_max"):
        if operator.type == "softmax_with_cross_entropy":
            if _is_large(editor, operator.input("Logits")[0]) and not operator.attr("soft_label"):
                _replace_loss(editor, operator, largest)
            continue
        comparison = comparisons.get(operator.output("Out")[0])
        if trains and comparison is not None and _is_large(editor, operator.input("X")[0]):
            _replace_comparison(editor, operator, comparison, largest)


def _is_large(editor: BlockEditor, logits: str) -> bool:
    shape = editor.shape(logits)
    return len(shape) == 2 and shape[1] >= SMALLEST_VOCABULARY and editor.block.var(logits).dtype == paddle.float32


def _row_maxima(editor: BlockEditor, operator: Any, logits: str, known: dict[str, str]) -> str:
    """Maximum of each row of logits [n, vocabulary]: float32 [n]."""
    if logits not in known:
        flags = {"dim": [-1], "keep_dim": False, "reduce_all": False, "use_mkldnn": True}
        known[logits] = editor.compute(operator, "reduce_max", {"X": logits}, "largest", [-1], **flags)
    return known[logits]


def _elements_at_labels(editor: BlockEditor, operator: Any, table: str, labels: str) -> str:
    """The element at the label in each row of a table: [n, 1]. (`index_sample` would copy the table.)"""
    inputs = {"Input": table, "Index": labels}
    return editor.compute(operator, "take_along_axis", inputs, "chosen", [-1, 1], "float32", "Result", Axis=1)


def _replace_loss(editor: BlockEditor, operator: Any, largest: dict[str, str]) -> None:
    """Replace a cross-entropy by log(sum(exp(z))) - z[label], where z = logits - max; logits [n, vocabulary]."""
    logits, labels = operator.input("Logits")[0], operator.input("Label")[0]
    softmax, loss = operator.output("Softmax")[0], operator.output("Loss")[0]
    vocabulary, insert = editor.shape(logits)[1], partial(editor.compute, operator)

    def scaled_rows(values: str, scale: str, bias: str, out: str) -> None:
        """Compute values * scale[:, None] + bias[:, None]; tables are [n, vocabulary]."""
        table, _ = editor.reshape(operator, values, [1, -1, vocabulary])
        inputs = {"X": table, "Scale": scale, "Bias": bias}
        result = insert("affine_channel", inputs, "table", [1, -1, vocabulary], data_layout="NCHW")
        editor.reshape(operator, result, [-1, vocabulary], out)

    maximum = _row_maxima(editor, operator, logits, largest)
    ones = insert("fill_any_like", {"X": maximum}, "ones", [-1], value=1.0, dtype=-1)
    zeros = insert("fill_any_like", {"X": maximum}, "zeros", [-1], value=0.0, dtype=-1)
    negative = insert("scale", {"X": maximum}, "negative", [-1], scale=-1.0, bias=0.0)
    shifted = editor.temporary("shifted", [-1, vocabulary])
    scaled_rows(logits, ones, negative, shifted)
    chosen = _elements_at_labels(editor, operator, shifted, labels)
    powers = insert("exp", {"X": shifted}, "powers", [-1, vocabulary], use_mkldnn=True)
    ones_of_columns = {"shape": [vocabulary], "value": 1.0, "dtype": int(paddle.float32)}
    columns = insert("fill_constant", {}, "columns", [vocabulary], **ones_of_columns)
    total = insert("matmul_v2", {"X": powers, "Y": columns}, "total", [-1], trans_x=False, trans_y=False)
    scaled_rows(powers, insert("reciprocal", {"X": total}, "inverse", [-1]), zeros, softmax)
    logarithm = insert("log", {"X": total}, "logarithm", [-1])
    column, _ = editor.reshape(operator, logarithm, [-1, 1])
    editor.replace(operator, "elementwise_sub", {"X": column, "Y": chosen}, {"Out": loss}, axis=-1)


def _replace_comparison(editor: BlockEditor, arg_max: Any, comparison: Any, largest: dict[str, str]) -> None:
    """Replace arg-max == label by logits[label] >= largest; only rows with equal maxima can differ."""
    logits, labels = arg_max.input("X")[0], comparison.input("Y")[0]
    maximum = _row_maxima(editor, arg_max, logits, largest)
    column, _ = editor.reshape(comparison, labels, [-1, 1])
    chosen = _elements_at_labels(editor, comparison, logits, column)
    row, _ = editor.reshape(comparison, chosen, [-1])
    outputs = {"Out": comparison.output("Out")[0]}
    editor.replace(comparison, "greater_equal", {"X": row, "Y": maximum}, outputs, axis=-1)
    editor.remove(arg_max)


# oneDNN's kernels that are faster than Paddle's own, on one thread of a Zen 5 core, [4,096, 1,024], milliseconds:
# gelu 3.9 -> 2.1, its gradient 8.9 -> 3.2 (tanh form 2.8 -> 2.7 and 5.6 -> 3.1), layer_norm 1.8 -> 1.5 ([4,096, 256]
# 0.48 -> 0.19). softmax 3.9 -> 4.6; but of rows shorter than 128, as attention's mostly are, Paddle's takes 12 to 15 ns
# an element on a Xeon of 2.5 GHz and oneDNN's 3 to 4 (longer 2.8 to 4.4 and 2.3 to 4.0). Not softmax_grad (1.5% of an
# update, but all layers' results stay in memory), tanh and elementwise operators; oneDNN's gradient of a matrix product
# takes twice as long as MKL's, and crashes where one of the two is not wanted, as FLAGS_use_mkldnn=1 would.
ONEDNN_OPERATORS = ("gelu", "gelu_grad", "layer_norm", "softmax")


_MOST_KERNELS = 64  # of a run of the network about 10 differ


def keep_few_kernels() -> None:
    """Let oneDNN cache 64 compiled kernels, not 1,024; call it before the first operator runs.

    Each shape of a batch has kernels of its own. With texts of mixed lengths a process grew by 48 to 74 MB until it had
    1,024 of them; with 64 it grows by 3 to 18 MB, at the same CPU time (20.6 to 22.2 s against 20.8 to 21.4 s for 300
    batches of up to 32 texts, 4 layers of 256). A training has few shapes.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_MOST_KERNELS))


def use_cpu_kernels(program: static.Program, *, bfloat16: bool = False, onednn: bool = True) -> None:
    """Choose the kernels of a program on a CPU; does nothing if the wheel has CUDA or no oneDNN.

    Args:
        bfloat16: compute the products of linear layers in it, where the processor can.
        onednn: use its kernels. Paddle frees what they compute at the end of a run only, if others read it.
    """
    if core.is_compiled_with_cuda() or not core.is_compiled_with_mkldnn():
        return
    editor = BlockEditor(program)
    replace_layer_norm_gradients(editor)
    if onednn:
        replace_cross_entropies(editor)
    forward_gradients_of_additions(editor)
    if onednn:
        fold_biases(editor)
        if bfloat16 and computes_bfloat16():
            use_bfloat16_products(editor)
        for operator in editor.operators(*ONEDNN_OPERATORS):
            set_attribute(operator.desc, "use_mkldnn", True)
    editor.finish()
