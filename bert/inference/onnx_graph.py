"""Builds a BERT as an ONNX graph (opset 17) from its parameters, without tracing and without Paddle.

The `onnx` package writes the file. Any runtime of opset 17 runs it (ONNX Runtime since 1.12). paddle2onnx 2.1, the
pinned PaddleNLP's dependency, refuses Paddle 2.6.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion import tensor_layout
from bert.conversion.raw_tensors import ConversionError
from bert.conversion.writing import Model
from bert.inference.serving import INPUTS, ONNX_FILE, outputs_of

OPSET, IR_VERSION = 17, 8
_MASKED_SCORE = -1e4  # as bert.model.modeling adds it
_LARGEST = 2_000_000_000  # bytes in one protocol buffer


class _Graph:
    """Nodes in their order, and constants by name. Every method returns the name of its result."""

    def __init__(self, parameters: Mapping[str, np.ndarray], config: BertConfig, onnx: Any):
        self.parameters, self.config, self.onnx = parameters, config, onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        result = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [result], **attributes))
        return result

    def parameter(self, name: str) -> str:
        self.constants[name] = self.parameters[name]
        return name

    def constant(self, value: Any, dtype: str) -> str:
        array = np.array(value, dtype)
        name = f"{dtype}_{'_'.join(map(str, array.reshape(-1).tolist()))}_{array.ndim}"
        self.constants[name] = array
        return name

    def number(self, value: float) -> str:
        return self.constant(value, "float32")

    def linear(self, x: str, name: str) -> str:
        product = self.node("MatMul", x, self.parameter(f"{name}.weight"))
        return self.node("Add", product, self.parameter(f"{name}.bias"))

    def norm(self, x: str, name: str) -> str:
        scale, bias = self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias")
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=self.config.layer_norm_eps)

    def activation(self, x: str) -> str:
        if self.config.hidden_act == "relu":
            return self.node("Relu", x)
        if self.config.hidden_act == "gelu":
            inner = self.node("Erf", self.node("Mul", x, self.number(math.sqrt(0.5))))
        else:
            cube = self.node("Mul", self.node("Mul", x, x), x)
            cubic = self.node("Add", x, self.node("Mul", cube, self.number(0.044715)))
            inner = self.node("Tanh", self.node("Mul", cubic, self.number(math.sqrt(2 / math.pi))))
        half = self.node("Mul", x, self.number(0.5))
        return self.node("Mul", half, self.node("Add", inner, self.number(1.0)))

    # -- BERT

    def embeddings(self) -> str:
        """[b, s, hidden]."""
        prefix = "bert.embeddings"
        words = self.node("Gather", self.parameter(f"{prefix}.word_embeddings.weight"), "input_ids")
        types = self.node("Gather", self.parameter(f"{prefix}.token_type_embeddings.weight"), "token_type_ids")
        zero, one, two = (self.constant([number], "int64") for number in (0, 1, 2))
        length = self.node("Slice", self.node("Shape", "input_ids"), one, two)
        positions = self.node("Slice", self.parameter(f"{prefix}.position_embeddings.weight"), zero, length, zero)
        summed = self.node("Add", self.node("Add", words, types), positions)
        return self.norm(summed, f"{prefix}.LayerNorm")

    def score_bias(self) -> str:
        """[b, 1, 1, s]: 0 for tokens, -10,000 for padding."""
        mask = self.node("Cast", "attention_mask", to=self.onnx.TensorProto.FLOAT)
        padded = self.node("Sub", self.number(1.0), mask)
        bias = self.node("Mul", padded, self.number(_MASKED_SCORE))
        return self.node("Unsqueeze", bias, self.constant([1, 2], "int64"))

    def heads(self, x: str, name: str, order: Sequence[int]) -> str:
        """A projection of [b, s, hidden], split into heads and transposed."""
        shape = self.constant([0, 0, self.config.num_attention_heads, self.config.head_size()], "int64")
        return self.node("Transpose", self.node("Reshape", self.linear(x, name), shape), perm=order)

    def layer(self, hidden: str, bias: str, index: int) -> str:
        prefix = f"bert.encoder.layer.{index}"
        query = self.heads(hidden, f"{prefix}.attention.self.query", (0, 2, 1, 3))
        query = self.node("Mul", query, self.number(1 / math.sqrt(self.config.head_size())))
        key = self.heads(hidden, f"{prefix}.attention.self.key", (0, 2, 3, 1))
        value = self.heads(hidden, f"{prefix}.attention.self.value", (0, 2, 1, 3))
        scores = self.node("Add", self.node("MatMul", query, key), bias)
        context = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        context = self.node("Transpose", context, perm=(0, 2, 1, 3))
        context = self.node("Reshape", context, self.constant([0, 0, self.config.hidden_size], "int64"))
        attended = self.linear(context, f"{prefix}.attention.output.dense")
        hidden = self.norm(self.node("Add", hidden, attended), f"{prefix}.attention.output.LayerNorm")
        expanded = self.activation(self.linear(hidden, f"{prefix}.intermediate.dense"))
        output = self.linear(expanded, f"{prefix}.output.dense")
        return self.norm(self.node("Add", hidden, output), f"{prefix}.output.LayerNorm")

    def pooled(self, hidden: str) -> str:
        first = self.node("Gather", hidden, self.constant(0, "int64"), axis=1)
        return self.node("Tanh", self.linear(first, "bert.pooler.dense"))


def onnx_package() -> Any:
    """The `onnx` package.

    Raises:
        ConversionError: it is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise ConversionError(
            "--format onnx needs the onnx package, which is not installed; pip install -r requirements-export.txt"
        ) from None
    return onnx


def write_onnx(folder: Path, model: Model) -> None:
    """Write model.onnx: int64 [batch, sequence] inputs, float32 outputs as `outputs_of` names them.

    Raises:
        ConversionError: the onnx package is not installed; the model does not fit into one file.
    """
    onnx = onnx_package()
    parameters = tensor_layout.strip_vocabulary(model.parameters, model.config.vocab_size, [])
    if sum(array.nbytes for array in parameters.values()) > _LARGEST:
        raise ConversionError("the model has more than 2 GB, which one ONNX file cannot hold; use paddle-inference")
    graph = _Graph(parameters, model.config, onnx)
    hidden, bias = graph.embeddings(), graph.score_bias()
    for index in range(model.config.num_hidden_layers):
        hidden = graph.layer(hidden, bias, index)
    outputs = outputs_of(model.task, model.has_pooler())
    for name, source in zip(outputs, _results(graph, model.task, hidden, outputs), strict=True):
        graph.nodes.append(onnx.helper.make_node("Identity", [source], [name]))
    onnx.save(_model(graph, outputs, onnx), folder / ONNX_FILE)


def _results(graph: _Graph, task: str, hidden: str, outputs: Mapping[str, tuple]) -> list[str]:
    if task == "encoder":
        return [hidden, *([graph.pooled(hidden)] if "pooler_output" in outputs else [])]
    if task == "question-answering":
        logits = graph.linear(hidden, "qa_outputs")
        return [graph.node("Gather", logits, graph.constant(index, "int64"), axis=2) for index in (0, 1)]
    return [graph.linear(graph.pooled(hidden) if task == "sequence-classification" else hidden, "classifier")]


def _model(graph: _Graph, outputs: Mapping[str, tuple], onnx: Any) -> Any:
    helper, kinds = onnx.helper, onnx.TensorProto
    num_labels = len(graph.parameters.get("classifier.bias", ()))
    sizes = {"s": "sequence", "hidden": graph.config.hidden_size, "labels": num_labels}
    inputs = [helper.make_tensor_value_info(name, kinds.INT64, ["batch", "sequence"]) for name in INPUTS]
    results = [
        helper.make_tensor_value_info(name, kinds.FLOAT, ["batch", *(sizes[size] for size in shape)])
        for name, shape in outputs.items()
    ]
    constants = [
        onnx.numpy_helper.from_array(np.require(array, requirements="C"), name)
        for name, array in graph.constants.items()
    ]
    body = helper.make_graph(graph.nodes, "bert", inputs, results, constants)
    built = helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="bert-on-paddle")
    built.ir_version = IR_VERSION
    onnx.checker.check_model(built, full_check=True)
    return built
