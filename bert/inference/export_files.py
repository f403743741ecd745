"""The inputs and outputs of an exported model, which serving.json beside it describes."""

from collections.abc import Mapping

import numpy as np

from bert.conversion.raw_tensors import ConversionError

DESCRIPTION_FILE = "serving.json"
PREFIX = "model"  # of Paddle Inference's model.pdmodel, the program, and model.pdiparams, the weights
ONNX_FILE = "model.onnx"
CALIBRATION_FILE = "calibration.npz"  # from which Paddle Inference finds the scales of INT8 when it loads a model
Arrays = Mapping[str, np.ndarray]  # of a network's inputs or outputs
INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # int64 [batch, s]
_OUTPUTS: dict[str, dict[str, tuple[str, ...]]] = {  # shapes after the batch; `s` is the sequence length
    "encoder": {"last_hidden_state": ("s", "hidden"), "pooler_output": ("hidden",)},
    "question-answering": {"start_logits": ("s",), "end_logits": ("s",)},
    "sequence-classification": {"logits": ("labels",)},
    "token-classification": {"logits": ("s", "labels")},
}


def outputs_of(task: str, with_pooler: bool) -> dict[str, tuple[str, ...]]:
    """Outputs of an exported model of a task, by name."""
    if task not in _OUTPUTS:
        raise ConversionError(
            f"task={task} is not one that is served ({', '.join(_OUTPUTS)}); choose with --task, e.g. "
            "--task encoder for its hidden states"
        )
    return {name: shape for name, shape in _OUTPUTS[task].items() if with_pooler or name != "pooler_output"}
