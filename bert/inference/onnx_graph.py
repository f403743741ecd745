"""Builds a BERT as an ONNX graph (opset 17) from its parameters, without tracing and without Paddle.

The `onnx` package writes the file. Any runtime of opset 17 runs it (ONNX Runtime since 1.12). paddle2onnx 2.1, the
pinned PaddleNLP's dependency, refuses Paddle 2.6.

Padding costs almost nothing: the T real tokens of a batch are gathered into [T, hidden] at the start, and only the
attention scores are computed on padded sequences. What a classifier of texts does not need, the last layer's work on
all but the first token, is left out. Queries, keys and values are one matrix product.
"""

import importlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion import tensor_layout
from bert.conversion.converting import Model
from bert.conversion.raw_tensors import ConversionError
from bert.inference.export_files import INPUTS, outputs_of
from bert.interpreter import install_command

OPSET, IR_VERSION = 17, 8
_MASKED_SCORE = -1e4  # as bert.model.modeling adds it
_LARGEST = 2_000_000_000  # bytes in one protocol buffer


class _Nodes:
    """Nodes in their order, and constants by name. Every method returns the name of its result."""

    def __init__(self, parameters: Mapping[str, np.ndarray], onnx: Any):
        self.parameters, self.onnx = parameters, onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.named(f"{kind.lower()}_{len(self.nodes)}", kind, *inputs, **attributes)

    def named(self, name: str, kind: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def parameter(self, name: str) -> str:
        self.constants[name] = self.parameters[name]
        return name

    def joined(self, names: list[str], name: str) -> str:
        """Parameters side by side, as one of their own."""
        self.constants[name] = np.concatenate([self.parameters[part] for part in names], axis=-1)
        return name

    def constant(self, value: Any, dtype: str) -> str:
        array = np.array(value, dtype)
        name = f"{dtype}_{'_'.join(map(str, array.reshape(-1).tolist()))}_{array.ndim}"
        self.constants[name] = array
        return name

    def number(self, value: float) -> str:
        return self.constant(value, "float32")

    def integers(self, *values: int) -> str:
        return self.constant(values, "int64")

    def linear(self, x: str, name: str, weight: str, bias: str) -> str:
        return self.node("Add", self.named(name, "MatMul", x, weight), bias)

    def dense(self, x: str, name: str) -> str:
        return self.linear(x, name, self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias"))


class _Graph(_Nodes):
    """BERT on the real tokens of a batch of b sequences of s places.

    Attributes:
        real: int64 [T]: places of the real tokens among the b * s. The first place of a sequence always counts, so
            that a row of padding alone has an output.
        token_of: int64 [b * s]: the token at a place; at padding, the last token before it.
        first: int64 [b]: the first tokens of the sequences.
        mask: float32 [b, 1, 1, s]: 0 for tokens, -10,000 for padding.
    """

    def __init__(self, parameters: Mapping[str, np.ndarray], config: BertConfig, onnx: Any):
        super().__init__(parameters, onnx)
        self.config = config
        all_, shape = self.integers(-1), self.node("Shape", "input_ids")
        self.shape = shape
        zero, one, two = (self.integers(number) for number in (0, 1, 2))
        length = self.node("Slice", shape, one, two)
        given = self.node("Cast", "attention_mask", to=onnx.TensorProto.FLOAT)
        padding = self.node("Mul", self.node("Sub", self.number(1.0), given), self.number(_MASKED_SCORE))
        self.mask = self.node("Unsqueeze", padding, self.integers(1, 2))
        columns = self.node(
            "Range", self.constant(0, "int64"), self.node("Squeeze", length, zero), self.constant(1, "int64")
        )
        is_first = self.node("Equal", columns, zero)
        is_token = self.node("Or", self.node("Cast", "attention_mask", to=onnx.TensorProto.BOOL), is_first)
        is_token = self.node("Reshape", is_token, all_)
        self.real = self.node("Reshape", self.node("NonZero", is_token), all_)
        counted = self.node("Cast", is_token, to=onnx.TensorProto.INT64)
        self.token_of = self.node("Sub", self.node("CumSum", counted, self.constant(0, "int64")), one)
        places = self.node("Reshape", self.token_of, self.shape)
        self.first = self.node("Gather", places, self.constant(0, "int64"), axis=1)
        self.columns = self.node("Mod", self.real, length)

    def norm(self, x: str, name: str) -> str:
        scale, bias = self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias")
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=self.config.layer_norm_eps)

    def activation(self, x: str) -> str:
        if self.config.hidden_act == "relu":
            return self.node("Relu", x)
        if self.config.hidden_act == "gelu":  # in the form that ONNX Runtime makes one operator of
            inner = self.node("Erf", self.node("Div", x, self.number(math.sqrt(2))))
            return self.node("Mul", self.node("Mul", x, self.node("Add", inner, self.number(1.0))), self.number(0.5))
        cube = self.node("Mul", self.node("Mul", x, x), x)
        cubic = self.node("Add", x, self.node("Mul", cube, self.number(0.044715)))
        inner = self.node("Tanh", self.node("Mul", cubic, self.number(math.sqrt(2 / math.pi))))
        return self.node("Mul", self.node("Mul", x, self.number(0.5)), self.node("Add", inner, self.number(1.0)))

    def tokens_of(self, name: str) -> str:
        """An input at the real tokens, int64 [T]."""
        return self.node("Gather", self.node("Reshape", name, self.integers(-1)), self.real, axis=0)

    def embeddings(self) -> str:
        """[T, hidden]."""
        prefix = "bert.embeddings"
        parts = (
            ("word_embeddings", self.tokens_of("input_ids")),
            ("token_type_embeddings", self.tokens_of("token_type_ids")),
            ("position_embeddings", self.columns),
        )
        words, types, positions = (
            self.named(f"{prefix}.{name}", "Gather", self.parameter(f"{prefix}.{name}.weight"), rows)
            for name, rows in parts
        )
        return self.norm(self.node("Add", self.node("Add", words, types), positions), f"{prefix}.LayerNorm")

    def padded(self, x: str) -> str:
        """[T, n] -> [b * s, n]."""
        return self.node("Gather", x, self.token_of, axis=0)

    def heads(self, x: str, parts: int) -> str:
        """[T, parts * hidden] -> [parts, b, heads, s, head_size]."""
        sizes = self.integers(parts, self.config.num_attention_heads, self.config.head_size())
        split = self.node("Reshape", self.padded(x), self.node("Concat", self.shape, sizes, axis=0))
        return self.node("Transpose", split, perm=(2, 0, 3, 1, 4))

    def projected(self, x: str, prefix: str, names: tuple[str, ...]) -> str:
        """Some of query, key and value, side by side."""
        layers = [f"{prefix}.attention.self.{name}" for name in names]
        joined = f"{prefix}.attention.self.{'_'.join(names)}"
        weight, bias = (
            self.joined([f"{layer}.{part}" for layer in layers], f"{joined}.{part}") for part in ("weight", "bias")
        )
        return self.linear(x, joined, weight, bias)

    def attention(self, hidden: str, prefix: str, first_only: bool) -> str:
        """Context vectors [T, hidden]; with first_only of the first tokens, [b, hidden]."""
        size = self.config.hidden_size
        if first_only:
            keyed = self.heads(self.projected(hidden, prefix, ("key", "value")), 2)
            query = self.projected(self.node("Gather", hidden, self.first, axis=0), prefix, ("query",))
            shape = self.integers(-1, self.config.num_attention_heads, 1, self.config.head_size())
            query, key, value = self.node("Reshape", query, shape), self.part(keyed, 0), self.part(keyed, 1)
        else:
            split = self.heads(self.projected(hidden, prefix, ("query", "key", "value")), 3)
            query, key, value = (self.part(split, index) for index in range(3))
        query = self.node("Mul", query, self.number(1 / math.sqrt(self.config.head_size())))
        scores = self.node("MatMul", query, self.node("Transpose", key, perm=(0, 1, 3, 2)))
        probabilities = self.node("Softmax", self.node("Add", scores, self.mask), axis=-1)
        context = self.node("Transpose", self.node("MatMul", probabilities, value), perm=(0, 2, 1, 3))
        context = self.node("Reshape", context, self.integers(-1, size))
        return context if first_only else self.node("Gather", context, self.real, axis=0)

    def part(self, x: str, index: int) -> str:
        return self.node("Gather", x, self.constant(index, "int64"), axis=0)

    def layer(self, hidden: str, index: int, first_only: bool = False) -> str:
        """[T, hidden] -> [T, hidden]; with first_only -> [b, hidden] of the first tokens."""
        prefix = f"bert.encoder.layer.{index}"
        attended = self.dense(self.attention(hidden, prefix, first_only), f"{prefix}.attention.output.dense")
        if first_only:
            hidden = self.node("Gather", hidden, self.first, axis=0)
        hidden = self.norm(self.node("Add", hidden, attended), f"{prefix}.attention.output.LayerNorm")
        expanded = self.activation(self.dense(hidden, f"{prefix}.intermediate.dense"))
        output = self.dense(expanded, f"{prefix}.output.dense")
        return self.norm(self.node("Add", hidden, output), f"{prefix}.output.LayerNorm")

    def pooled(self, first: str) -> str:
        return self.node("Tanh", self.dense(first, "bert.pooler.dense"))

    def at_places(self, x: str, width: int) -> str:
        """[T, width] -> [b, s, width]."""
        return self.node("Reshape", self.padded(x), self.node("Concat", self.shape, self.integers(width), axis=0))


def onnx_package(name: str = "onnx", purpose: str = "") -> Any:
    """A package that exports to ONNX need; `purpose` is what it does there.

    Raises:
        ConversionError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConversionError(
            f"--format onnx needs the {name} package, which {purpose}is not installed; {install_command('onnx')}"
        ) from None


def write_onnx(file: Path, model: Model) -> None:
    """Write an ONNX file: int64 [batch, sequence] inputs, float32 outputs as `outputs_of` names them.

    At padding an output has the values of the last token before it.

    Raises:
        ConversionError: the onnx package is not installed; the model does not fit into one file.
    """
    onnx = onnx_package()
    parameters = tensor_layout.strip_vocabulary(model.parameters, model.config.vocab_size, [])
    if sum(array.nbytes for array in parameters.values()) > _LARGEST:
        raise ConversionError("the model has more than 2 GB, which one ONNX file cannot hold; use paddle-inference")
    graph, layers = _Graph(parameters, model.config, onnx), model.config.num_hidden_layers
    hidden = graph.embeddings()
    for index in range(layers):
        hidden = graph.layer(hidden, index, model.task == "sequence-classification" and index == layers - 1)
    outputs = outputs_of(model.task, model.has_pooler())
    for name, source in zip(outputs, _results(graph, model.task, hidden, outputs), strict=True):
        graph.nodes.append(onnx.helper.make_node("Identity", [source], [name], name=name))
    onnx.save(_model(graph, outputs, onnx), file)


def _results(graph: _Graph, task: str, hidden: str, outputs: Mapping[str, tuple]) -> list[str]:
    if task == "encoder":
        states = graph.at_places(hidden, graph.config.hidden_size)
        first = graph.node("Gather", hidden, graph.first, axis=0)
        return [states, *([graph.pooled(first)] if "pooler_output" in outputs else [])]
    if task == "question-answering":
        logits = graph.at_places(graph.dense(hidden, "qa_outputs"), 2)
        return [graph.node("Gather", logits, graph.constant(index, "int64"), axis=2) for index in (0, 1)]
    if task == "sequence-classification":
        return [graph.dense(graph.pooled(hidden), "classifier")]
    return [graph.at_places(graph.dense(hidden, "classifier"), len(graph.parameters["classifier.bias"]))]


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
