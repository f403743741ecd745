"""Builds and saves the pruned program of a model that Paddle Inference serves."""

from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.writing import Model
from bert.inference.serving import INPUTS, PREFIX, outputs_of
from bert.model.modeling import BertModel
from bert.model.objectives import (
    Objective,
    QuestionAnsweringObjective,
    SequenceClassificationObjective,
    TokenClassificationObjective,
)
from bert.runtime.paddle_api import paddle, place_of, static, unique_name, write_variable


def write_paddle_inference(folder: Path, model: Model) -> None:
    """model.pdmodel and model.pdiparams with the outputs of the model's task, for any batch and length, no dropout."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        feed = {name: static.data(name, [-1, -1], "int64") for name in INPUTS}
        outputs = _outputs(model, feed)
        wanted = outputs_of(model.task, model.has_pooler())
        fetched = [paddle.assign(outputs[name]) for name in wanted]
    scope, place = static.Scope(), place_of("cpu")
    executor = static.Executor(place)
    with static.scope_guard(scope):
        executor.run(startup)
        for parameter in main.all_parameters():
            value = model.parameters[parameter.name]
            assert value.shape == tuple(parameter.shape), parameter.name
            write_variable(scope, parameter.name, np.ascontiguousarray(value), place)
        static.save_inference_model(str(folder / PREFIX), list(feed.values()), fetched, executor, program=main)


def _outputs(model: Model, feed: dict[str, Any]) -> dict[str, Any]:
    if model.task == "encoder":
        encoder = BertModel(model.config, with_pooler=model.has_pooler())
        encoder.eval()
        hidden, pooled = encoder(*feed.values())
        return {"last_hidden_state": hidden, "pooler_output": pooled}
    objective = _objective(model)
    network = objective.network()
    network.eval()
    return objective.outputs(feed, network)


def _objective(model: Model) -> Objective:
    if model.task == "question-answering":
        return QuestionAnsweringObjective(model.config)
    num_labels = model.num_outputs()
    assert num_labels is not None
    if model.task == "sequence-classification":
        return SequenceClassificationObjective(model.config, num_labels=num_labels)
    return TokenClassificationObjective(model.config, num_labels=num_labels)
