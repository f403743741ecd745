"""Builds the forward program of a task's model, runs it, and saves it for Paddle Inference."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion.writing import Model
from bert.inference.serving import INPUTS, PREFIX, outputs_of
from bert.model.modeling import BertModel
from bert.model.objectives import (
    Objective,
    PretrainingObjective,
    QuestionAnsweringObjective,
    SequenceClassificationObjective,
    TokenClassificationObjective,
)
from bert.runtime.paddle_api import paddle, place_of, static, unique_name

_UNUSED_FOR_MASKS = ("bert.pooler.", "cls.seq_relationship.")  # in the network of masked-lm, but not in its outputs


@dataclass(frozen=True)
class ForwardProgram:
    """A program without dropout, for any batch and length.

    Attributes:
        feed: variables of the inputs, by name: int64 [b, s] each of INPUTS; for masked-lm also masked_lm_positions
            int64 [n], flat indices into b * s.
        outputs: variables by the names of `outputs_of`; for masked-lm, masked_lm_logits [n, padded vocabulary].
    """

    main: Any
    feed: dict[str, Any]
    outputs: dict[str, Any]

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter, by name."""
        return {parameter.name: tuple(parameter.shape) for parameter in self.main.all_parameters()}


def build_program(task: str, config: BertConfig, num_outputs: int | None, with_pooler: bool) -> ForwardProgram:
    """The program of a task.

    Args:
        num_outputs: of the classifier, in the tasks that have one.
        with_pooler: whether the encoder's pooled output is wanted.
    """
    main = static.Program()
    with static.program_guard(main, static.Program()), unique_name.guard():
        if task == "encoder":
            feed = {name: static.data(name, [-1, -1], "int64") for name in INPUTS}
            encoder = BertModel(config, with_pooler=with_pooler)
            encoder.eval()
            found = dict(zip(("last_hidden_state", "pooler_output"), encoder(*feed.values()), strict=True))
        else:
            objective = objective_of(task, config, num_outputs)
            feed, network = objective.inputs(with_labels=False), objective.network()
            network.eval()
            found = objective.outputs(feed, network)
        wanted = ("masked_lm_logits",) if task == "masked-lm" else outputs_of(task, with_pooler)
        return ForwardProgram(main, feed, {name: paddle.assign(found[name]) for name in wanted})


def objective_of(task: str, config: BertConfig, num_outputs: int | None) -> Objective:
    """The objective whose network has the outputs of a task with a head."""
    if task == "masked-lm":
        return PretrainingObjective(config)
    if task == "question-answering":
        return QuestionAnsweringObjective(config)
    assert num_outputs is not None
    if task == "sequence-classification":
        return SequenceClassificationObjective(config, num_labels=num_outputs)
    return TokenClassificationObjective(config, num_labels=num_outputs)


class Network:
    """A model's weights on a device, and programs of its tasks that share them.

    Args:
        parameters: by our names, vocabulary padded, float32.
        device: "cpu" or "gpu".
        with_pooler: whether the task encoder has the pooled output too.
    """

    def __init__(
        self,
        parameters: Mapping[str, np.ndarray],
        config: BertConfig,
        device: str = "cpu",
        *,
        with_pooler: bool = False,
    ) -> None:
        self.config = config
        self._with_pooler = with_pooler and "bert.pooler.dense.weight" in parameters
        self._place, self._scope = place_of(device), static.Scope()
        self._executor = static.Executor(self._place)
        self._num_outputs = len(parameters["classifier.bias"]) if "classifier.bias" in parameters else None
        self._programs: dict[str, ForwardProgram] = {}
        for name, value in parameters.items():
            self._write(name, value)

    def run(self, task: str, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of `ForwardProgram` by name, float32.

        Raises:
            ValueError: the weights lack the head of the task.
        """
        program = self._programs.get(task) or self._build(task)
        values = self._executor.run(
            program.main, feed=dict(feed), fetch_list=list(program.outputs.values()), scope=self._scope
        )
        return dict(zip(program.outputs, values, strict=True))

    def _build(self, task: str) -> ForwardProgram:
        program = self._programs[task] = build_program(task, self.config, self._num_outputs, self._with_pooler)
        for name, shape in program.parameters().items():
            if self._scope.find_var(name) is not None:
                continue
            if task != "masked-lm" or not name.startswith(_UNUSED_FOR_MASKS):
                raise ValueError(f"the weights have no {name}, which {task} needs; use a model with that head")
            self._write(name, np.zeros(shape, "float32"))
        return program

    def _write(self, name: str, value: np.ndarray) -> None:
        self._scope.var(name).get_tensor().set(np.ascontiguousarray(value), self._place)


def write_paddle_inference(folder: Path, model: Model) -> None:
    """model.pdmodel and model.pdiparams with the outputs of the model's task, for any batch and length, no dropout."""
    program = build_program(model.task, model.config, model.num_outputs(), model.has_pooler())
    scope, place = static.Scope(), place_of("cpu")
    for name, shape in program.parameters().items():
        assert model.parameters[name].shape == shape, name
        scope.var(name).get_tensor().set(np.ascontiguousarray(model.parameters[name]), place)
    with static.scope_guard(scope):
        static.save_inference_model(
            str(folder / PREFIX),
            list(program.feed.values()),
            list(program.outputs.values()),
            static.Executor(place),
            program=program.main,
        )
