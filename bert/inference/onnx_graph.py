"""Builds a BERT as an ONNX graph (opset 17) from its parameters, without tracing and without Paddle.

The `onnx` package writes the file. Any runtime of opset 17 runs it (ONNX Runtime since 1.12). paddle2onnx 2.1, the
pinned PaddleNLP's dependency, refuses Paddle 2.6.

Padding costs almost nothing: the T real tokens of a batch are gathered into [T, hidden] at the start, and only the
attention scores are computed on padded sequences. What a classifier of texts does not need, the last layer's work on
all but the first token, is left out. Queries, keys and values are one matrix product.
"""

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion import tensor_layout
from bert.conversion.model import Model
from bert.conversion.model_description import VectorForm, read_usage
from bert.conversion.raw_tensors import ConversionError
from bert.inference.export_files import INPUTS, NO_TOKEN_TYPES, missing_package, outputs_of

OPSET, IR_VERSION = 17, 8
_MASKED_SCORE = -1e4  # as bert.model.modeling adds it
_ONNX_PACKAGES = {"onnx": "", "onnxruntime": "checks what was exported and ", "ml_dtypes": "onnxruntime imports and "}
_OPENVINO_PACKAGES = {"onnx": "", "openvino": "", "nncf": "quantises and "}
_LARGEST = 2_000_000_000  # bytes in one protocol buffer


class _Graph:
    """BERT on the real tokens of a batch of b sequences of s places. Every method returns the name of its result.

    Attributes:
        real: int64 [T]: places of the real tokens among the b * s. The first place of a sequence always counts, so
            that a row of padding alone has an output.
        columns: int64 [T]: places of the real tokens in their sequences.
        token_of: int64 [b * s]: the token at a place; at padding, the last token before it.
        first: int64 [b]: the first tokens of the sequences.
        mask: float32 [b, 1, 1, s]: 0 for tokens, -10,000 for padding.
    """

    def __init__(self, parameters: Mapping[str, np.ndarray], config: BertConfig, onnx: Any):
        self.parameters, self.config, self.onnx = parameters, config, onnx
        self.inputs = INPUTS if config.has_token_types() else NO_TOKEN_TYPES
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        types = onnx.TensorProto
        zero, one, two, none = (self.integers(number) for number in (0, 1, 2, -1))
        self.shape = self.node("Shape", "input_ids")
        length = self.node("Slice", self.shape, one, two)
        padding = self.node("Sub", self.number(1.0), self.node("Cast", "attention_mask", to=types.FLOAT))
        self.mask = self.node("Unsqueeze", self.node("Mul", padding, self.number(_MASKED_SCORE)), self.integers(1, 2))
        columns = self.node("Range", self.index(0), self.node("Squeeze", length, zero), self.index(1))
        is_token = self.node("Cast", "attention_mask", to=types.BOOL)
        is_token = self.node("Reshape", self.node("Or", is_token, self.node("Equal", columns, zero)), none)
        self.real = self.node("Reshape", self.node("NonZero", is_token), none)
        self.columns = self.node("Mod", self.real, length)
        tokens = self.node("CumSum", self.node("Cast", is_token, to=types.INT64), self.index(0))
        self.token_of = self.node("Sub", tokens, one)
        self.first = self.part(self.node("Reshape", self.token_of, self.shape), 0, axis=1)

    def node(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def parameter(self, *names: str, name: str = "") -> str:
        """One parameter, or several side by side."""
        self.constants[name or names[0]] = np.concatenate([self.parameters[part] for part in names], axis=-1)
        return name or names[0]

    def constant(self, value: Any, dtype: str) -> str:
        array = np.array(value, dtype)
        name = f"{dtype}_{'_'.join(map(str, array.reshape(-1).tolist()))}_{array.ndim}"
        self.constants[name] = array
        return name

    def number(self, value: float) -> str:
        return self.constant(value, "float32")

    def index(self, value: int) -> str:
        return self.constant(value, "int64")

    def integers(self, *values: int) -> str:
        return self.constant(values, "int64")

    def part(self, x: str, index: int, axis: int = 0) -> str:
        return self.node("Gather", x, self.index(index), axis=axis)

    def dense(self, x: str, *names: str) -> str:
        """A linear layer, or several of one input side by side."""
        joined = "_".join([names[0], *(name.rpartition(".")[2] for name in names[1:])])
        weight, bias = (
            self.parameter(*(f"{name}.{part}" for name in names), name=f"{joined}.{part}")
            for part in ("weight", "bias")
        )
        return self.node("Add", self.node("MatMul", x, weight, name=joined), bias)

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

    def embeddings(self) -> str:
        """[T, hidden]."""
        parts = {
            f"{kind}_embeddings": self.node("Gather", self.node("Reshape", name, self.integers(-1)), self.real, axis=0)
            for kind, name in (("word", "input_ids"), ("token_type", "token_type_ids"))  # int64 [T] each
            if name in self.inputs
        }
        parts["position_embeddings"] = self.columns
        vectors = []
        for name, rows in parts.items():
            table = f"bert.embeddings.{name}"
            vectors.append(self.node("Gather", self.parameter(f"{table}.weight"), rows, name=table))
        if len(vectors) == 2:  # the one type that every token has
            vectors.insert(1, self.parameter("bert.embeddings.token_type_embeddings.weight"))
        total = self.node("Add", self.node("Add", vectors[0], vectors[1]), vectors[2])
        return self.norm(total, "bert.embeddings.LayerNorm")

    def padded(self, x: str) -> str:
        """[T, n] -> [b * s, n]."""
        return self.node("Gather", x, self.token_of, axis=0)

    def at_places(self, x: str, *sizes: int) -> str:
        """[T, n] -> [b, s, *sizes], whose product is n."""
        return self.node("Reshape", self.padded(x), self.node("Concat", self.shape, self.integers(*sizes), axis=0))

    def attention(self, hidden: str, prefix: str, first_only: bool) -> str:
        """Context vectors [T, hidden]; with first_only of the first tokens, [b, hidden]."""
        num_heads, head_size = self.config.num_attention_heads, self.config.head_size()
        names = [f"{prefix}.attention.self.{name}" for name in ("query", "key", "value")]
        together = names[1:] if first_only else names
        projected = self.at_places(self.dense(hidden, *together), len(together), num_heads, head_size)
        split = self.node("Transpose", projected, perm=(2, 0, 3, 1, 4))  # [parts, b, heads, s, head_size]
        if first_only:
            query = self.dense(self.node("Gather", hidden, self.first, axis=0), names[0])
            query = self.node("Reshape", query, self.integers(-1, num_heads, 1, head_size))
        else:
            query = self.part(split, 0)
        key, value = (self.part(split, len(together) - 2 + index) for index in (0, 1))
        query = self.node("Mul", query, self.number(1 / math.sqrt(head_size)))
        scores = self.node("MatMul", query, self.node("Transpose", key, perm=(0, 1, 3, 2)))
        probabilities = self.node("Softmax", self.node("Add", scores, self.mask), axis=-1)
        context = self.node("Transpose", self.node("MatMul", probabilities, value), perm=(0, 2, 1, 3))
        context = self.node("Reshape", context, self.integers(-1, self.config.hidden_size))
        return context if first_only else self.node("Gather", context, self.real, axis=0)

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

    def sentence_vectors(self, hidden: str, states: str, form: VectorForm) -> str:
        """[b, hidden], of the states of tokens, [T, hidden], and of places, [b, s, hidden]."""
        vectors = self.node("Gather", hidden, self.first, axis=0)
        if form.pooling == "mean":
            mask = self.node("Cast", "attention_mask", to=self.onnx.TensorProto.FLOAT)
            number = self.node("Max", self.node("ReduceSum", mask, self.integers(1), keepdims=1), self.number(1.0))
            weights = self.node("Unsqueeze", self.node("Div", mask, number), self.integers(1))  # [b, 1, s]
            vectors = self.node("Squeeze", self.node("MatMul", weights, states), self.integers(1))
        lengths = self.node("Max", self.node("ReduceL2", vectors, axes=(-1,), keepdims=1), self.number(1e-12))
        return self.node("Div", vectors, lengths) if form.normalize else vectors

    def pooled(self, first: str) -> str:
        return self.node("Tanh", self.dense(first, "bert.pooler.dense"))


def require_packages(to_format: str, precision: str) -> None:
    """Refuse an export to ONNX, Triton or OpenVINO without the packages that it needs."""
    extra, packages = "onnx", _ONNX_PACKAGES
    if to_format == "openvino":
        extra, packages = "openvino", _OPENVINO_PACKAGES
    for name, purpose in packages.items():
        if name == "nncf" and precision != "int8":
            continue
        if importlib.util.find_spec(name) is None:
            raise ConversionError(missing_package(f"--format {to_format}", name, extra, purpose))


def write_onnx(file: Path, model: Model) -> None:
    """Write an ONNX file: int64 [batch, sequence] inputs, float32 outputs as `outputs_of` names them.

    At padding an output has the values of the last token before it.
    """
    import onnx

    parameters = tensor_layout.strip_vocabulary(model.parameters, model.config.vocab_size, [])
    if sum(array.nbytes for array in parameters.values()) > _LARGEST:
        raise ConversionError("the model has more than 2 GB, which one ONNX file cannot hold; use paddle-inference")
    graph, layers = _Graph(parameters, model.config, onnx), model.config.num_hidden_layers
    hidden = graph.embeddings()
    for index in range(layers):
        hidden = graph.layer(hidden, index, model.task == "sequence-classification" and index == layers - 1)
    form = read_usage(model.folder).vectors
    outputs = outputs_of(model.task, model.has_pooler(), form)
    for name, source in zip(outputs, _results(graph, model.task, hidden, form), strict=True):
        graph.node("Identity", source, name=name)
    onnx.save(_model(graph, outputs, onnx), file)


def _results(graph: _Graph, task: str, hidden: str, form: VectorForm | None) -> list[str]:
    """The outputs in the order of `outputs_of`."""
    if task == "encoder":
        states = graph.at_places(hidden, graph.config.hidden_size)
        if form is not None:
            return [graph.sentence_vectors(hidden, states, form)]
        has_pooler = "bert.pooler.dense.weight" in graph.parameters
        return [states, *([graph.pooled(graph.node("Gather", hidden, graph.first, axis=0))] if has_pooler else [])]
    if task == "question-answering":
        logits = graph.at_places(graph.dense(hidden, "qa_outputs"), 2)
        return [graph.part(logits, index, axis=2) for index in (0, 1)]
    if task == "sequence-classification":
        return [graph.dense(graph.pooled(hidden), "classifier")]
    return [graph.at_places(graph.dense(hidden, "classifier"), len(graph.parameters["classifier.bias"]))]


def _model(graph: _Graph, outputs: Mapping[str, tuple], onnx: Any) -> Any:
    helper, kinds = onnx.helper, onnx.TensorProto
    num_labels = len(graph.parameters.get("classifier.bias", ()))
    sizes = {"s": "sequence", "hidden": graph.config.hidden_size, "labels": num_labels}
    inputs = [helper.make_tensor_value_info(name, kinds.INT64, ["batch", "sequence"]) for name in graph.inputs]
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
