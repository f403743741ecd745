"""Exports a model for serving: to Paddle Inference, ONNX, Triton or OpenVINO, or to Hugging Face or PaddleNLP."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.conversion import converting
from bert.conversion.lost_on_export import facts_beside_network
from bert.conversion.model import Model, parameters_for, read
from bert.conversion.settings import MODEL_FORMATS
from bert.conversion.task_file import read_usage
from bert.conversion.untrusted_files import ConversionError, write_json
from bert.inference.export_files import (
    CALIBRATION_FILE,
    DESCRIPTION_FILE,
    INPUTS,
    NO_TOKEN_TYPES,
    TOLERANCES,
    Arrays,
    ExportRequest,
    outputs_of,
)
from bert.inference.onnx_files import write_onnx_export
from bert.inference.onnx_graph import require_packages
from bert.inference.openvino_files import write_openvino_export
from bert.inference.samples import ExportedTokenizer, Sample, random_sample, read_texts
from bert.model.head_specs import HEADS

if TYPE_CHECKING:
    from bert.inference.paddle_program import Network


def export(request: ExportRequest) -> dict[str, Any]:
    """Write the files of `request.to_format`, the tokenizer and serving.json; returns the report."""
    if request.to_format in MODEL_FORMATS:
        return converting.convert(request)
    if request.to_format != "paddle-inference":
        require_packages(request.to_format, request.precision)
    converting.check_target(request.target)
    model = read(request)
    if model.config.is_modern() and (request.to_format, request.precision) == ("paddle-inference", "int8"):
        raise ConversionError(
            "--output-format paddle-inference --precision int8: Paddle quantises no product without a bias, and a "
            "ModernBERT has none; use --output-format onnx --precision int8"
        )
    if request.task is None and (served := HEADS[model.task].predicts) is not None:
        model.notes.append(f"served: {HEADS[served].noun}, which predictions of {model.task} use")
        parameters = parameters_for(served, model.parameters, model.notes)
        model = dataclasses.replace(model, parameters=parameters, task=served, labels=None)
    if request.task is None and model.task == "masked-lm":
        model.notes.append("it gives logits of the vocabulary for every token; for hidden states pass --task encoder")
    outputs_of(model.task, model.has_pooler())  # raises for a task that is not served
    if (texts := request.calibration or request.sample) and model.tokens is None:
        raise ConversionError(f"{texts}: the texts need a vocabulary; pass --vocab-file")
    converting.write_directory(request.target, lambda folder: _write(folder, model, request))
    return model.report(request.to_format)


def _write(folder: Path, model: Model, request: ExportRequest) -> None:
    from bert.inference.paddle_program import Network  # loads Paddle
    from bert.inference.predictor import Predictor

    model.write_tokenizer(folder)
    model.write_texts(folder)  # the predictor reads them
    usage = read_usage(folder)
    length = min(usage.max_seq_length or 384, model.config.max_position_embeddings)

    def sample_of(path: Path) -> Sample:
        texts = read_texts(path, usage.text_columns)
        return Sample(path.name, ExportedTokenizer(folder).table(texts, length, model.config.pad_token_id), length)

    calibration = sample_of(request.calibration) if request.calibration else None
    sample = sample_of(request.sample) if request.sample else calibration or random_sample(model.config)
    network = Network(model.parameters, model.config, with_pooler=True, vectors=usage.vectors)
    outputs = outputs_of(model.task, model.has_pooler(), usage.vectors)
    description: dict[str, Any] = {
        "format": request.to_format,
        "task": model.task,
        "inputs": list(INPUTS if model.config.has_token_types() else NO_TOKEN_TYPES),
        "outputs": {name: ["batch", *shape] for name, shape in outputs.items()},
        "labels": model.labels,
        "max_length": model.config.max_position_embeddings,
        "precision": request.precision,
        **facts_beside_network(model),
        **({"vectors": dataclasses.asdict(usage.vectors)} if usage.vectors else {}),
    }
    if request.to_format == "paddle-inference":
        network.save(model.task, folder)
        if request.precision == "int8":
            assert calibration is not None
            np.savez(folder / CALIBRATION_FILE, **calibration.batches(len(calibration.table))[0])
            description["quantization"] = {"activations": f"static, calibrated on {calibration.source}"}
    elif request.to_format == "openvino":
        description |= write_openvino_export(folder, model, calibration)
    else:
        description |= write_onnx_export(folder, model, request, calibration)
    write_json(folder / DESCRIPTION_FILE, description)  # the check opens the export
    run = partial(_run_everywhere, network) if model.task == "masked-lm" else network.run
    description["check"] = _check_outputs(model, sample, request, run, Predictor(folder, device="cpu").run)
    write_json(folder / DESCRIPTION_FILE, description)
    converting.write_notes(folder, model, request)


def _run_everywhere(network: "Network", task: str, feed: Arrays) -> Arrays:
    """Compute masked-LM logits of every token as an export does: [b, s, vocabulary], 0 at padding."""
    places = np.flatnonzero(feed["attention_mask"])
    found = network.run(task, {**feed, "masked_lm_positions": places})
    logits = np.zeros((feed["attention_mask"].size, network.config.vocab_size), "float32")
    logits[places] = found["masked_lm_logits"][:, : network.config.vocab_size]
    return {"masked_lm_logits": logits.reshape(*feed["attention_mask"].shape, -1)}


def _check_outputs(
    model: Model,
    sample: Sample,
    request: ExportRequest,
    network: Callable[[str, Arrays], Arrays],
    exported: Callable[[Arrays], Arrays],
) -> dict[str, Any]:
    """Compare an exported model with our network in float32; returns the differences for serving.json.

    Returns:
        relative_error: root mean square of the differences, divided by the root mean square of the outputs; of the
            output where it is largest.
        max_difference: the largest absolute difference.
        same_decision: the share of texts (tokens, for a tagger) with the same class, or the same most likely start and
            end of an answer; None for vectors and numbers."""
    batches = [(network(model.task, feed), exported(feed), feed["attention_mask"] > 0) for feed in sample.batches()]
    errors, largest = [], 0.0
    for name, shape in outputs_of(model.task, model.has_pooler(), read_usage(model.folder).vectors).items():
        squares = scale = 0.0
        for ours, theirs, mask in batches:
            places = mask if shape[0] == "s" else slice(None)
            expected = ours[name][places].astype("float64")
            difference = theirs[name][places] - expected
            squares, scale = squares + float(np.square(difference).sum()), scale + float(np.square(expected).sum())
            largest = max(largest, float(np.abs(difference).max()))
        errors.append(float(np.sqrt(squares / max(scale, 1e-30))))
    error, same = float(np.max(errors)), _same_decision(model, batches)
    tolerance = TOLERANCES[request.precision] if request.tolerance is None else request.tolerance
    if not error <= tolerance:  # also if it is NaN
        raise ConversionError(
            f"the export differs from the model: relative error {error:.3g} on "
            f"{sample.source}, above the tolerance {tolerance:g}; keep layers in float32 (--keep-float PATTERN), "
            "calibrate with typical texts, choose another --precision, or accept it with --tolerance"
        )
    decisions = "" if same is None else f", the same decision in {same:.1%}"
    model.notes.append(f"checked on {sample.source}: relative error {error:.2g}{decisions}")
    if request.precision == "bfloat16" and error < 1e-5:  # bfloat16 has eight bits: 2e-3
        model.notes.append("this processor computes it in float32; check it again on one with bfloat16 (AVX-512)")
    if (request.precision, request.to_format) == ("fp16", "paddle-inference"):
        model.notes.append("GPUs compute it in float16; a CPU, as in this check, in float32")
    return {
        "sample": sample.source,
        "sequences": len(sample.table),
        "tokens": len(sample.table.input_ids),
        "relative_error": error,
        "max_difference": largest,
        "same_decision": same,
        "tolerance": tolerance,
    }


def _same_decision(model: Model, batches: Sequence[tuple[Arrays, Arrays, np.ndarray]]) -> float | None:
    if model.task == "encoder" or model.num_outputs() == 1:
        return None
    same: list[np.ndarray] = []
    chooses_places = model.task == "question-answering"  # start and end of a span
    for ours, theirs, mask in batches:
        decisions, others = (
            np.array([(np.where(mask, v, -np.inf) if chooses_places else v).argmax(-1) for v in outputs.values()])
            for outputs in (ours, theirs)
        )
        agree = np.all(decisions == others, axis=0)  # bool [b], or [b, s] for a tagger
        same.append(agree[mask] if agree.ndim == 2 else agree)
    return float(np.concatenate(same).mean())
