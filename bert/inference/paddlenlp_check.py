"""Checks a checkpoint for PaddleNLP: PaddleNLP loads and runs it, and its outputs are compared with our network."""

import importlib
from pathlib import Path

import numpy as np

from bert.conversion.model import Model
from bert.conversion.untrusted_files import ConversionError
from bert.inference.export_files import Arrays, outputs_of
from bert.inference.paddle_program import Network
from bert.inference.samples import random_sample
from bert.model.head_specs import HEADS, TOKEN_WEIGHTS
from bert.runtime.paddle_api import paddle

TOLERANCE = 2e-5  # limit of largest difference / largest output, in float32 (MiniLM-L6: 1.3e-6)


def check_with_paddlenlp(folder: Path, model: Model) -> str:
    """Compare outputs on random tokens, without token weights, which PaddleNLP ignores; returns a note on the result.

    Raises:
        ConversionError: the outputs differ.
    """
    parameters = {name: array for name, array in model.parameters.items() if name != TOKEN_WEIGHTS}
    sample, network = random_sample(model.config), Network(parameters, model.config, with_pooler=True)
    largest, name = 0.0, HEADS[model.task].classes[-1]
    # PaddleNLP has no class for next sentences alone; its class for pre-training adds a random masked-LM head.
    kind, first = ("BertForPretraining", 1) if model.task == "next-sentence" else (name, 0)
    with paddle.base.dygraph.guard(paddle.CPUPlace()):
        library = importlib.import_module("paddlenlp")
        importlib.import_module("paddlenlp.utils.log").logger.set_level("ERROR")
        theirs = getattr(importlib.import_module("paddlenlp.transformers"), kind).from_pretrained(str(folder))
        theirs.eval()
    for feed in sample.batches():
        expected, real = _outputs(network, model, feed), feed["attention_mask"] > 0
        with paddle.base.dygraph.guard(paddle.CPUPlace()), paddle.no_grad():
            outputs = theirs(**{argument: paddle.to_tensor(array) for argument, array in feed.items()})
            outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
            arrays = [output.numpy() for output in outputs[first:]]
        for (output, ours), array in zip(expected.items(), arrays, strict=True):
            places = real if ours.shape[:2] == real.shape else slice(None)  # padding has no meaning
            difference = float(np.abs(array[places] - ours[places]).max() / np.abs(ours[places]).max())
            if not difference <= TOLERANCE:  # also if it is NaN
                raise ConversionError(
                    f"PaddleNLP's {name} computes another {output}: relative difference {difference:.3g}, above "
                    f"{TOLERANCE:g}; nothing was written: report the source, or convert without --check"
                )
            largest = max(largest, difference)
    return f"checked by PaddleNLP {library.__version__} on {sample.source}: relative difference {largest:.2g} at most"


def _outputs(network: Network, model: Model, feed: Arrays) -> Arrays:
    """Compute our outputs in PaddleNLP's order; logits exclude the padding of the vocabulary."""
    outputs = dict[str, np.ndarray]()
    if model.task in ("pretraining", "masked-lm"):
        shape = feed["input_ids"].shape
        logits = network.run("masked-lm", {**feed, "masked_lm_positions": np.arange(feed["input_ids"].size)})
        outputs["masked_lm_logits"] = logits["masked_lm_logits"].reshape(*shape, -1)[..., : model.config.vocab_size]
    if model.task in ("pretraining", "next-sentence"):
        weight, bias = (model.parameters[f"cls.seq_relationship.{name}"] for name in ("weight", "bias"))
        outputs["next_sentence_logits"] = network.run("encoder", feed)["pooler_output"] @ weight + bias
    if not outputs:
        found = network.run(model.task, feed)
        outputs = {name: found[name] for name in outputs_of(model.task, model.has_pooler())}
    return outputs
