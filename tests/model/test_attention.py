"""Packed tokens: losses, metrics, outputs and every gradient are those of the padded program."""

import dataclasses

import numpy as np
import pytest

from bert.config.architecture import FusedKernels
from bert.model import objectives
from bert.model.attention import gather_gradients_of_gathers
from bert.model.modeling import BertModel
from bert.runtime.paddle_api import paddle, place_of, static, unique_name, write_variable
from bert.samples.packing import pack
from tests.support import tiny

LENGTHS = {"one token": [1], "length 1": [1, 1, 1], "equal": [16] * 5, "mixed": [3, 16, 9, 1, 12, 8, 8], "one": [7]}
KINDS = (
    "PretrainingObjective",
    "MaskedLMObjective",
    "QuestionAnsweringObjective",
    "SequenceClassificationObjective",
    "SequenceRegressionObjective",
    "TokenClassificationObjective",
)


def batch(objective, lengths, seed=0) -> dict[str, np.ndarray]:
    """Return a padded feed of all inputs; masked positions and labels point at real tokens."""
    rng = np.random.RandomState(seed)
    size, width = len(lengths), -(-max(lengths) // 8) * 8
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype("int64")
    masked = np.sort(rng.choice(np.flatnonzero(mask), min(8, mask.sum()), replace=False))
    filled = np.zeros(8 - len(masked), "int64")
    weights = np.append(np.ones(len(masked)), filled).astype("float32")
    feed = {
        "input_ids": rng.randint(5, 99, mask.shape) * mask,
        "token_type_ids": rng.randint(0, 2, mask.shape) * mask,
        "attention_mask": mask,
        "masked_lm_positions": np.append(masked, filled),
        "masked_lm_labels": rng.randint(0, 99, 8) * (weights > 0),
        "masked_lm_weights": weights,
        "masked_lm_normalizer": np.array([3.0], "float32"),
        "next_sentence_labels": rng.randint(0, 2, size),
        "start_positions": rng.randint(0, 99, size) % lengths,
        "end_positions": rng.randint(0, 99, size) % lengths,
        "label_normalizer": np.array([3.0], "float32"),
    }
    if objective.outputs_per_token:
        feed["labels"] = np.where(mask > 0, rng.randint(-1, 2, mask.shape), -1)
    elif "labels" in objective.labels:
        feed["labels"] = rng.randint(0, 2, size).astype(objective.labels["labels"][1])
    declared = {**objective.encoder_inputs(), **objective.labels}
    return {name: value for name, value in feed.items() if name in declared}


class Gradients:
    """Runs an objective forward and backward, with weights that make every part matter."""

    def __init__(self, objective):
        self.objective, self.main, startup = objective, static.Program(), static.Program()
        with static.program_guard(self.main, startup), unique_name.guard():
            feed, network = objective.inputs(), objective.network()
            outputs = objective.outputs(feed, network)
            loss, sums = objective.loss(feed, outputs)
            parameters = self.main.all_parameters()
            gradients = static.gradients([loss], parameters)
        gather_gradients_of_gathers(self.main)
        self.found = {"loss": loss, **{f"sum {number}": value for number, value in enumerate(sums)}, **outputs}
        for parameter, gradient in zip(parameters, gradients, strict=True):
            # Softmax cancels what key biases add: their gradients are rounding noise.
            if gradient is not None and not parameter.name.endswith("key.bias"):
                self.found[parameter.name] = gradient
        self.scope, self.executor, rng = static.Scope(), static.Executor(place_of("cpu")), np.random.RandomState(3)
        self.executor.run(startup, scope=self.scope)
        for parameter in sorted(parameters, key=lambda parameter: parameter.name):
            value = rng.normal(0.0, 0.3, parameter.shape).astype("float32")
            write_variable(self.scope, parameter.name, value, place_of("cpu"))

    def __call__(self, feed) -> dict[str, np.ndarray]:
        packing = self.objective.packing()
        feed = feed if packing is None else pack(feed, packing)
        values = self.executor.run(self.main, feed=feed, fetch_list=list(self.found.values()), scope=self.scope)
        return dict(zip(self.found, values, strict=True))


@pytest.mark.parametrize("kind", [*KINDS, "mean"])
def test_losses_outputs_and_gradients_are_those_of_the_padded_program(kind):
    if kind == "mean":  # pooled of all tokens
        model = tiny.MODEL.model_copy(update={"model_type": "modernbert", "layer_norm_eps": 1e-5})
        objective = objectives.SequenceClassificationObjective(model, fuse_mha=True)
    else:
        objective = getattr(objectives, kind)(tiny.MODEL, fuse_mha=True)
    padded, packed = Gradients(objective), Gradients(dataclasses.replace(objective, kernels=FusedKernels(unpad=True)))
    assert packed.objective.attention_groups == (1 if "masked_lm_positions" in objective.encoder_inputs() else 4)
    for name, lengths in LENGTHS.items():
        feed = batch(objective, lengths)
        expected, found = padded(feed), packed(feed)
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            is_output = objective.outputs_per_token and key.endswith("logits")
            real = feed["attention_mask"] > 0 if is_output else np.ones(value.shape, bool)
            assert_near(found[key][real], value[real], (name, key))


def assert_near(value: np.ndarray, expected: np.ndarray, name: object) -> None:
    assert np.abs(value - expected).max() <= 1e-5 * max(np.abs(expected).max(), 0.01), name


def _at(self, input_ids, token_type_ids, sequences, positions=None):
    """Return `BertModel.at` of the last layer's states of all tokens."""
    hidden, pooled = self(input_ids, token_type_ids, sequences)
    return None if positions is None else paddle.gather(hidden.flatten(0, -2), positions), pooled


@pytest.mark.parametrize("unpad", [False, True])
@pytest.mark.parametrize("kind", ["PretrainingObjective", "MaskedLMObjective", "SequenceClassificationObjective"])
def test_the_last_layer_computes_what_is_read_and_all_gradients_are_the_same(monkeypatch, kind, unpad):
    padded = getattr(objectives, kind)(tiny.MODEL)
    objective = dataclasses.replace(padded, kernels=FusedKernels(unpad=unpad))
    some = Gradients(objective)
    monkeypatch.setattr(BertModel, "at", _at)
    everywhere = Gradients(objective)
    weight = f"bert.encoder.layer.{tiny.MODEL.num_hidden_layers - 1}.output.dense.weight"
    for gradients in (some, everywhere):
        readers = [op for op in gradients.main.global_block().ops if weight in op.input_arg_names]
        (product,) = (op for op in readers if op.type.startswith("matmul") and "grad" not in op.type)
        gradients.found["rows"] = gradients.main.global_block().var(product.output("Out")[0])
    for name, lengths in LENGTHS.items():
        feed = batch(padded, lengths)
        expected, found = everywhere(feed), some(feed)
        wanted = len(feed.get("masked_lm_positions", [])) + (kind != "MaskedLMObjective") * len(lengths)
        assert len(found.pop("rows")) == wanted
        assert expected.pop("rows").flatten().size // tiny.MODEL.hidden_size >= sum(lengths)
        for key, value in expected.items():
            assert_near(found[key], value, (name, key))


def test_no_gradient_adds_rows_in_attention():
    """Each token's query, key and value has one place, so the gradient is gathered from it."""
    objective = objectives.SequenceClassificationObjective(tiny.MODEL, kernels=FusedKernels(unpad=True))
    types = [operator.type for operator in Gradients(objective).main.global_block().ops]
    layers, groups = tiny.MODEL.num_hidden_layers, objective.attention_groups
    assert types.count("gather_nd") == 3 * groups * layers
    assert "gather_nd_grad" not in types and types.count("transpose2") == 0


def test_the_loss_of_an_answer_depends_on_no_padding():
    objective = objectives.QuestionAnsweringObjective(tiny.MODEL)
    run, feed = Gradients(objective), batch(objective, [3, 7, 5])
    wider = {name: np.pad(value, ((0, 0), (0, 8))) if value.ndim == 2 else value for name, value in feed.items()}
    assert run(wider)["loss"] == pytest.approx(run(feed)["loss"], rel=1e-6)
