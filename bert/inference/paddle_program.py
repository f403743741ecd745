"""Builds the forward program of a task's model, runs it, and saves it for Paddle Inference."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bert.config.architecture import BertConfig, FusedKernels
from bert.conversion.usage import VectorForm
from bert.files import checksum_of
from bert.inference.export_files import NO_TOKEN_TYPES, PREFIX, VECTORS, Arrays, outputs_of
from bert.model.contrastive import ContrastiveObjective
from bert.model.head_specs import HEADS, TOKEN_WEIGHTS
from bert.model.objectives import OBJECTIVES, Objective
from bert.runtime.cpu_kernels import use_cpu_kernels
from bert.runtime.paddle_api import paddle, place_of, read_variable, static, unique_name
from bert.samples.packing import Packing, pack

_DENSE = 0.95  # share of real tokens from which gathering them costs more than computing on padding


@dataclass(frozen=True)
class ForwardProgram:
    """A program without dropout, for any batch and length."""

    main: Any
    feed: dict[str, Any]  # INPUTS int64 [b, s]; for masked-lm also masked_lm_positions int64 [n], indices into b * s
    outputs: dict[str, Any]  # in the order of `outputs_of`; for masked-lm, masked_lm_logits [n, padded vocabulary]
    packing: Packing | None = None  # converts a padded batch to `feed`; None: the program reads padded batches


def objective_of(
    task: str,
    config: BertConfig,
    num_outputs: int | None,
    with_pooler: bool = False,
    layers: tuple[int, ...] = (),
    token_weights: bool = False,
) -> Objective:
    """The objective whose network has the outputs of a task; arguments are as in `build_program`."""
    options: dict[str, Any] = {"with_pooler": with_pooler, "layers": layers} if task == "encoder" else {}
    if "classifier" in HEADS[task].needs:
        assert num_outputs is not None
        options = {"num_labels": num_outputs}
    if "token weights" in HEADS[task].may_have:
        options["token_weights"] = token_weights
    return OBJECTIVES[task](config, **options)


def build_program(
    task: str,
    config: BertConfig,
    num_outputs: int | None,
    with_pooler: bool,
    *,
    packed: bool = False,
    cpu_kernels: bool = False,
    layers: tuple[int, ...] = (),
    vectors: VectorForm | None = None,
    token_weights: bool = False,
    every_position: bool = False,
) -> ForwardProgram:
    """Build the program of a task.

    Args:
        num_outputs: number of outputs of the classifier; None for a task without a classifier.
        packed: whether the program computes real tokens only.
        layers: layers whose states the encoder gives, [b, s, layers * hidden], numbered as in `EncoderObjective`.
        vectors: how the encoder gives vectors of texts, [b, hidden], in place of states.
        token_weights: whether the classifier of texts has token weights.
        every_position: masked-lm gives logits of all tokens, [b, s, vocabulary], and has no masked_lm_positions.
    """
    config = config.model_copy(update={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})  # no copies
    objective: Objective = objective_of(task, config, num_outputs, with_pooler, layers, token_weights)
    if vectors:
        objective = ContrastiveObjective(config, pooling=vectors.pooling)
    objective = replace(objective, kernels=FusedKernels(unpad=packed))
    main = static.Program()
    with static.program_guard(main, static.Program()), unique_name.guard():
        feed, network = objective.inputs(with_labels=False), objective.network()
        network.eval()
        if every_position:
            feed.pop("masked_lm_positions")
            outputs = {"masked_lm_logits": network.everywhere(*objective.encoder_arguments(feed))}
        else:
            outputs = objective.outputs(feed, network)
        if vectors:
            found = outputs["vectors"]
            outputs = {VECTORS: paddle.nn.functional.normalize(found, axis=-1) if vectors.normalize else found}
        names: Iterable[str] = outputs_of(task, with_pooler, vectors)
        names = ("hidden_states",) if task == "encoder" and layers else names
        outputs = {name: paddle.assign(outputs[name]) for name in names}
    if cpu_kernels:
        use_cpu_kernels(main)
    return ForwardProgram(main, feed, outputs, objective.packing())


class Network:
    """A model's weights on a device, with the programs of its tasks, which share the weights.

    On a CPU, batches with much padding are packed: only real tokens are computed.

    Args:
        parameters: weights by our names, float32, with padded vocabulary.
        with_pooler: whether the task encoder also gives the pooled output.
        layers, vectors: outputs of the task encoder, as in `build_program`.
    """

    def __init__(
        self,
        parameters: Arrays,
        config: BertConfig,
        device: str = "cpu",
        *,
        with_pooler: bool = False,
        layers: tuple[int, ...] = (),
        vectors: VectorForm | None = None,
    ) -> None:
        self.config, self._layers, self._vectors = config, layers, vectors
        self._with_pooler = with_pooler and "bert.pooler.dense.weight" in parameters
        place, self.scope, self._on_cpu = place_of(device), static.Scope(), device == "cpu"
        self.executor = static.Executor(place)
        self._num_outputs = len(parameters["classifier.bias"]) if "classifier.bias" in parameters else None
        self._programs: dict[tuple[str, bool], ForwardProgram] = {}
        self._names = sorted(parameters)
        for name, value in parameters.items():
            self.scope.var(name).get_tensor().set(np.ascontiguousarray(value), place)

    def run(self, task: str, feed: Arrays) -> Arrays:
        """Compute the outputs of a task by name, float32. Values at padding have no meaning.

        Args:
            feed: padded sequences; each has at least one real token, and its real tokens come first.
        """
        packed = self._on_cpu and len(feed["attention_mask"]) > 1 and float(np.mean(feed["attention_mask"])) < _DENSE
        program = self._programs.get((task, packed)) or self._build(task, packed)
        inputs = dict(feed) if program.packing is None else pack(feed, program.packing)
        outputs = list(program.outputs.values())
        values = self.executor.run(program.main, feed=inputs, fetch_list=outputs, scope=self.scope)
        return dict(zip(program.outputs, values, strict=True))

    def _build(self, task: str, packed: bool) -> ForwardProgram:
        kind: dict[str, Any] = {"packed": packed, "cpu_kernels": self._on_cpu, "layers": self._layers}
        program = self._program(task, **kind)
        self.check(task, program.main)
        self._programs[task, packed] = program
        return program

    def _program(self, task: str, **kind: Any) -> ForwardProgram:
        vectors = self._vectors if task == "encoder" else None
        kind |= {"vectors": vectors, "token_weights": TOKEN_WEIGHTS in self._names}
        return build_program(task, self.config, self._num_outputs, self._with_pooler, **kind)

    def checksums(self) -> list[str]:
        """One line, name and checksum, for each weight."""
        arrays = ((name, np.ascontiguousarray(read_variable(self.scope, name))) for name in self._names)
        return [f"{name} {checksum_of(array.data.cast('B'))}" for name, array in arrays]

    def check(self, task: str, main: Any) -> None:
        """Raise ValueError if the weights lack a parameter of the program."""
        for parameter in main.all_parameters():
            if self.scope.find_var(parameter.name) is None:
                raise ValueError(
                    f"the weights have no {parameter.name}, which {task} needs; use a model with that head"
                )

    def save(self, task: str, folder: Path) -> None:
        """Write model.pdmodel and model.pdiparams: a program without dropout for any batch and length."""
        program = self._program(task, every_position=task == "masked-lm")
        names = program.feed if self.config.has_token_types() else NO_TOKEN_TYPES
        feeds, outputs = [program.feed[name] for name in names], list(program.outputs.values())
        with static.scope_guard(self.scope):
            static.save_inference_model(str(folder / PREFIX), feeds, outputs, self.executor, program=program.main)
