"""Builds a BERT or ModernBERT as an ONNX graph (opset 17) from its parameters, without tracing and without Paddle.

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
from bert.conversion import vocabulary_padding
from bert.conversion.model import Model
from bert.conversion.task_file import read_usage
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import Usage, VectorForm
from bert.inference.export_files import INPUTS, NO_TOKEN_TYPES, missing_package, outputs_of
from bert.model.head_specs import DECODER_BIAS, TOKEN_WEIGHTS

OPSET, IR_VERSION = 17, 8
_LAYER = "bert.encoder.layer.{}"
_MASKED_SCORE = -1e4  # as bert.model.modeling adds it
_ONNX_PACKAGES = {"onnx": "", "onnxruntime": "checks what was exported and ", "ml_dtypes": "onnxruntime imports and "}
_OPENVINO_PACKAGES = {"onnx": "", "openvino": "", "nncf": "quantises and "}
_LARGEST = 2_000_000_000  # bytes in one protocol buffer


class _Graph:
    """Builds a BERT that computes on the T real tokens of b sequences of s places. Methods return names of results.

    Attributes:
        real: int64 [T]: places of the real tokens among all b * s places. The first place of a sequence always counts
            as real, so that a row of padding alone has an output.
        places: int64 [s]: 0, 1, ..., s - 1.
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
        self.places = columns = self.node("Range", self.index(0), self.node("Squeeze", length, zero), self.index(1))
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
        """Add a parameter, or several that are concatenated along the last axis."""
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
        """Add a linear layer, or several layers with the same input as one product; with a bias if they have one."""
        joined = "_".join([names[0], *(name.rpartition(".")[2] for name in names[1:])])
        weight, *bias = (
            self.parameter(*(f"{name}.{part}" for name in names), name=f"{joined}.{part}")
            for part in ("weight", "bias")
            if f"{names[0]}.{part}" in self.parameters
        )
        product = self.node("MatMul", x, weight, name=joined)
        return self.node("Add", product, *bias) if bias else product

    def norm(self, x: str, name: str) -> str:
        parts = [self.parameter(full) for part in ("weight", "bias") if (full := f"{name}.{part}") in self.parameters]
        return self.node("LayerNormalization", x, *parts, axis=-1, epsilon=self.config.layer_norm_eps)

    def activation(self, x: str) -> str:
        if self.config.hidden_act == "relu":
            return self.node("Relu", x)
        if self.config.hidden_act == "gelu":  # in the form that ONNX Runtime fuses to one operator
            inner = self.node("Erf", self.node("Div", x, self.number(math.sqrt(2))))
            return self.node("Mul", self.node("Mul", x, self.node("Add", inner, self.number(1.0))), self.number(0.5))
        cube = self.node("Mul", self.node("Mul", x, x), x)
        cubic = self.node("Add", x, self.node("Mul", cube, self.number(0.044715)))
        inner = self.node("Tanh", self.node("Mul", cubic, self.number(math.sqrt(2 / math.pi))))
        return self.node("Mul", self.node("Mul", x, self.number(0.5)), self.node("Add", inner, self.number(1.0)))

    def real_tokens(self, name: str) -> str:
        """Gather the values of an input at the real tokens, int64 [T]."""
        return self.node("Gather", self.node("Reshape", name, self.integers(-1)), self.real, axis=0)

    def embeddings(self) -> str:
        """Add the embeddings of the real tokens, [T, hidden]."""
        parts = {
            f"{kind}_embeddings": self.real_tokens(name)
            for kind, name in (("word", "input_ids"), ("token_type", "token_type_ids"))
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
        """Scatter token rows to all places, [T, n] -> [b * s, n]."""
        return self.node("Gather", x, self.token_of, axis=0)

    def at_places(self, x: str, *sizes: int) -> str:
        """Scatter token rows to all places and reshape, [T, n] -> [b, s, *sizes]; the product of `sizes` is n."""
        return self.node("Reshape", self.padded(x), self.node("Concat", self.shape, self.integers(*sizes), axis=0))

    def at_positions(self, x: str, index: int) -> str:
        """Add positions to queries or keys, [b, heads, s, head_size]; BERT has positions in its embeddings already."""
        return x

    def scores_mask(self, index: int, first_only: bool) -> str:
        """The mask that is added to the attention scores of a layer, [b, 1, 1 or s, s]."""
        return self.mask

    def attention(self, hidden: str, index: int, first_only: bool) -> str:
        """Add self-attention: context vectors, [T, hidden]; with first_only of the first tokens, [b, hidden]."""
        num_heads, head_size = self.config.num_attention_heads, self.config.head_size()
        names = [f"{_LAYER.format(index)}.attention.self.{name}" for name in ("query", "key", "value")]
        together = names[1:] if first_only else names
        projected = self.at_places(self.dense(hidden, *together), len(together), num_heads, head_size)
        split = self.node("Transpose", projected, perm=(2, 0, 3, 1, 4))  # [parts, b, heads, s, head_size]
        if first_only:  # at position 0
            query = self.dense(self.first_states(hidden), names[0])
            query = self.node("Reshape", query, self.integers(-1, num_heads, 1, head_size))
        else:
            query = self.at_positions(self.part(split, 0), index)
        key, value = self.at_positions(self.part(split, len(together) - 2), index), self.part(split, len(together) - 1)
        query = self.node("Mul", query, self.number(1 / math.sqrt(head_size)))
        scores = self.node("MatMul", query, self.node("Transpose", key, perm=(0, 1, 3, 2)))
        probabilities = self.node("Softmax", self.node("Add", scores, self.scores_mask(index, first_only)), axis=-1)
        context = self.node("Transpose", self.node("MatMul", probabilities, value), perm=(0, 2, 1, 3))
        context = self.node("Reshape", context, self.integers(-1, self.config.hidden_size))
        return context if first_only else self.node("Gather", context, self.real, axis=0)

    def layer(self, hidden: str, index: int, first_only: bool = False) -> str:
        """Add a transformer layer, [T, hidden] -> [T, hidden]; with first_only -> first tokens, [b, hidden]."""
        prefix = _LAYER.format(index)
        attended = self.dense(self.attention(hidden, index, first_only), f"{prefix}.attention.output.dense")
        if first_only:
            hidden = self.first_states(hidden)
        hidden = self.norm(self.node("Add", hidden, attended), f"{prefix}.attention.output.LayerNorm")
        expanded = self.activation(self.dense(hidden, f"{prefix}.intermediate.dense"))
        output = self.dense(expanded, f"{prefix}.output.dense")
        return self.norm(self.node("Add", hidden, output), f"{prefix}.output.LayerNorm")

    def encode(self, first_only: bool) -> str:
        """Add the encoder: the last layer's states, [T, hidden]; with first_only of the first tokens, [b, hidden]."""
        hidden, last = self.embeddings(), self.config.num_hidden_layers - 1
        for index in range(last + 1):
            hidden = self.layer(hidden, index, first_only and index == last)
        return hidden

    def first_states(self, hidden: str) -> str:
        return self.node("Gather", hidden, self.first, axis=0)

    def means(self, hidden: str) -> str:
        """Average the states of each sequence's tokens, [T, hidden] -> [b, hidden]."""
        mask = self.node("Cast", "attention_mask", to=self.onnx.TensorProto.FLOAT)
        number = self.node("Max", self.node("ReduceSum", mask, self.integers(1), keepdims=1), self.number(1.0))
        weights = self.node("Unsqueeze", self.node("Div", mask, number), self.integers(1))  # [b, 1, s]
        states = self.at_places(hidden, self.config.hidden_size)
        return self.node("Squeeze", self.node("MatMul", weights, states), self.integers(1))

    def sentence_vectors(self, hidden: str, form: VectorForm) -> str:
        """Pool and normalise states as `form` says, [T, hidden] -> [b, hidden]."""
        vectors = self.means(hidden) if form.pooling == "mean" else self.first_states(hidden)
        lengths = self.node("Max", self.node("ReduceL2", vectors, axes=(-1,), keepdims=1), self.number(1e-12))
        return self.node("Div", vectors, lengths) if form.normalize else vectors

    def token_logits(self) -> str:
        """Add the token weights' share of the logits, [b, labels], as in `bert.model.heads.TokenWeights`."""
        name = TOKEN_WEIGHTS.removesuffix(".weight")
        each = self.node("Gather", self.parameter(TOKEN_WEIGHTS), "input_ids", name=name)
        mask = self.node("Cast", "attention_mask", to=self.onnx.TensorProto.FLOAT)
        sums = self.node("MatMul", self.node("Unsqueeze", mask, self.integers(1)), each)
        number = self.node("Max", self.node("ReduceSum", mask, self.integers(1), keepdims=1), self.number(1.0))
        return self.node("Div", self.node("Squeeze", sums, self.integers(1)), self.node("Sqrt", number))

    def transformed(self, states: str) -> str:
        """Add the transform of the masked-LM head, before the product with the word embeddings."""
        dense = self.activation(self.dense(states, "cls.predictions.transform.dense"))
        return self.norm(dense, "cls.predictions.transform.LayerNorm")

    def word_logits(self, states: str) -> str:
        """Add the masked-LM head, [T, hidden] -> [T, vocabulary]; its decoder is the word embeddings."""
        words = self.node("Transpose", self.parameter("bert.embeddings.word_embeddings.weight"), perm=(1, 0))
        product = self.node("MatMul", self.transformed(states), words)
        return self.node("Add", product, self.parameter(DECODER_BIAS))

    def pooled(self, states: str) -> str:
        return self.node("Tanh", self.dense(states, "bert.pooler.dense"))

    def tagged(self, states: str) -> str:
        """The states that a head over every token reads."""
        return states


class _ModernGraph(_Graph):
    """Builds a ModernBERT, equal to `bert.model.modernbert`."""

    def embeddings(self) -> str:
        table = "bert.embeddings.word_embeddings"
        words = self.node("Gather", self.parameter(f"{table}.weight"), self.real_tokens("input_ids"), name=table)
        return self.norm(words, "bert.embeddings.LayerNorm")

    def at_positions(self, x: str, index: int) -> str:
        config, half = self.config, self.config.head_size() // 2
        theta = config.local_rope_theta if config.uses_local_positions(index) else config.global_rope_theta
        angles = np.arange(config.max_position_embeddings)[:, None] * theta ** (-np.arange(half) / half)
        tables = {"cosines": np.cos(angles), "sines": np.sin(angles)}
        signs = {"cosines": (1, 1), "sines": (-1, 1)}
        parts = []
        for name, values in tables.items():
            table = np.concatenate([sign * values for sign in signs[name]], axis=1).astype("float32")
            self.constants[f"{name}_{theta:g}"] = table
            parts.append(self.node("Gather", f"{name}_{theta:g}", self.places, axis=0))  # [s, head_size]
        exchanged = self.node("Gather", x, self.integers(*range(half, 2 * half), *range(half)), axis=-1)
        return self.node("Add", self.node("Mul", x, parts[0]), self.node("Mul", exchanged, parts[1]))

    def scores_mask(self, index: int, first_only: bool) -> str:
        if not self.config.attends_locally(index):
            return self.mask
        queries = self.index(0) if first_only else self.node("Unsqueeze", self.places, self.integers(1))
        distances = self.node("Abs", self.node("Sub", self.places, queries))  # [1 or s, s]
        is_far = self.node("Greater", distances, self.index(self.config.local_attention // 2))
        is_far = self.node("Cast", is_far, to=self.onnx.TensorProto.FLOAT)
        return self.node("Add", self.mask, self.node("Mul", is_far, self.number(_MASKED_SCORE)))

    def layer(self, hidden: str, index: int, first_only: bool = False) -> str:
        prefix = _LAYER.format(index)
        normalised = self.norm(hidden, f"{prefix}.attention.LayerNorm") if index else hidden
        attended = self.dense(self.attention(normalised, index, first_only), f"{prefix}.attention.output.dense")
        hidden = self.node("Add", self.first_states(hidden) if first_only else hidden, attended)
        normalised = self.norm(hidden, f"{prefix}.intermediate.LayerNorm")
        gate = self.dense(normalised, f"{prefix}.intermediate.gate")
        gated = self.node("Mul", self.activation(self.dense(normalised, f"{prefix}.intermediate.dense")), gate)
        return self.node("Add", hidden, self.dense(gated, f"{prefix}.output.dense"))

    def encode(self, first_only: bool) -> str:
        return self.norm(super().encode(first_only), "bert.encoder.LayerNorm")

    def pooled(self, states: str) -> str:
        return self.transformed(states)

    def tagged(self, states: str) -> str:
        return self.pooled(states)


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

    parameters = vocabulary_padding.strip_vocabulary(model.parameters, model.config.vocab_size, [])
    if sum(array.nbytes for array in parameters.values()) > _LARGEST:
        raise ConversionError("the model has more than 2 GB, which one ONNX file cannot hold; use paddle-inference")
    graph = (_ModernGraph if model.config.is_modern() else _Graph)(parameters, model.config, onnx)
    usage = read_usage(model.folder)
    outputs = outputs_of(model.task, model.has_pooler(), usage.vectors)
    for name, source in zip(outputs, _results(graph, model.task, usage), strict=True):
        graph.node("Identity", source, name=name)
    onnx.save(_model(graph, outputs, onnx), file)


def _results(graph: _Graph, task: str, usage: Usage) -> list[str]:
    """Build the graph of a task; returns the names of its results in the order of `outputs_of`."""
    if task == "sequence-classification":
        is_mean = graph.config.classifier_pooling == "mean"
        hidden = graph.encode(first_only=not is_mean)
        logits = graph.dense(graph.pooled(graph.means(hidden) if is_mean else hidden), "classifier")
        has_token_weights = TOKEN_WEIGHTS in graph.parameters
        return [graph.node("Add", logits, graph.token_logits()) if has_token_weights else logits]
    hidden = graph.encode(first_only=False)
    if task == "encoder":
        if usage.vectors is not None:
            return [graph.sentence_vectors(hidden, usage.vectors)]
        states = graph.at_places(hidden, graph.config.hidden_size)
        has_pooler = "bert.pooler.dense.weight" in graph.parameters
        return [states, *([graph.pooled(graph.first_states(hidden))] if has_pooler else [])]
    if task == "masked-lm":
        return [graph.at_places(graph.word_logits(hidden), graph.config.vocab_size)]
    hidden = graph.tagged(hidden)
    if task == "question-answering":
        logits = graph.at_places(graph.dense(hidden, "qa_outputs"), 2)
        return [graph.part(logits, index, axis=2) for index in (0, 1)]
    return [graph.at_places(graph.dense(hidden, "classifier"), len(graph.parameters["classifier.bias"]))]


def _model(graph: _Graph, outputs: Mapping[str, tuple], onnx: Any) -> Any:
    helper, kinds = onnx.helper, onnx.TensorProto
    num_labels = len(graph.parameters.get("classifier.bias", ()))
    sizes = {
        "s": "sequence",
        "hidden": graph.config.hidden_size,
        "labels": num_labels,
        "vocabulary": graph.config.vocab_size,
    }
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
