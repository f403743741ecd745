"""Reads pretrained weights of any known format and converts them to our names and layout.

pretrained = read_pretrained("bert-base-uncased")
pretrained.parameters   our names and layout, float32, vocabulary padded
pretrained.notes        a line for each tensor that was left out, converted, padded or is missing
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert.checkpoints.directories import VerifiedCheckpoint
from bert.config.architecture import BertConfig
from bert.conversion import locating, tensor_layout, tensor_names
from bert.conversion.downloading import resolve
from bert.conversion.model_description import read_description, read_labels
from bert.conversion.paddle_file import read_pdparams
from bert.conversion.raw_tensors import ConversionError, RawTensors
from bert.conversion.safetensors_file import read_safetensors
from bert.conversion.shapes import check_complete, check_sizes, heads_of
from bert.conversion.shards import read_shards
from bert.conversion.tensorflow_file import read_tensorflow
from bert.conversion.torch_file import read_torch

_SHOWN = 20  # unknown tensors listed in the error


@dataclass(frozen=True)
class PretrainedWeights:
    """A checkpoint of any known format, in our terms."""

    parameters: dict[str, np.ndarray]  # by our structured names; float32; linear weights [in, out]
    config: BertConfig | None  # None without a model description beside the weights
    vocab_file: Path | None  # a vocab.txt beside the weights
    format: str  # "native", "huggingface", "paddlenlp", "nvidia-paddle" or "tensorflow"
    notes: tuple[str, ...]
    task: str | None  # a key of model_description.ARCHITECTURES, None if unknown
    labels: tuple[str, ...] | None  # names of a classifier's classes
    folder: Path  # of the weights


def read_pretrained(
    source: str | Path | VerifiedCheckpoint,
    *,
    config_file: Path | None = None,
    fused_qkv: str | None = None,
    allow_unknown: bool = False,
) -> PretrainedWeights:
    """Read the weights of a directory or file, recognising the format.

    Args:
        source: a path; where there is none, the name of a published model, which is fetched (`downloading.resolve`).
        config_file: the model's description; by default the one beside the weights, if there is one.
        fused_qkv: for NVIDIA's Paddle checkpoints trained with --fuse-mha, see `nvidia_names.structured`.
        allow_unknown: list tensors that no BERT has, instead of refusing the file.
    Raises:
        ConversionError, CheckpointError (both ValueError): missing, damaged or hostile; not a BERT; incomplete; a model
            description of another model. Nothing in the file is ever executed.
    """
    located = locating.locate(source if isinstance(source, VerifiedCheckpoint) else resolve(source))
    mapped = tensor_layout.to_ours(_read(located), fused_qkv)
    _check_known(mapped.unknown, located.weights, allow_unknown)
    notes = [*located.notes, *mapped.notes, *(f"left out: {name}, unknown" for name in mapped.unknown)]
    parameters = mapped.parameters
    check_complete(parameters, mapped.num_layers)
    if absent := tensor_names.HEADS.keys() - heads_of(parameters):
        notes.append(f"not there: {', '.join(head for head in tensor_names.HEADS if head in absent)}")
    description_file = config_file or located.description
    config: BertConfig | None = None
    if description_file is not None:
        description = read_description(description_file)
        config, task, labels = description.config, description.task, description.labels
        notes += description.notes
        check_sizes(parameters, mapped.num_layers, config, located.weights)
        rows, padded = config.vocab_size, config.padded_vocab_size()
    else:
        config, task, labels = None, None, None
        notes.append(f"no model description ({', '.join(locating.CONFIG_FILES)}) is beside {located.weights}")
        rows = len(parameters[tensor_names.WORD_EMBEDDINGS])
        padded = -(-rows // 8) * 8
    parameters = tensor_layout.pad_vocabulary(parameters, rows, padded, notes)
    if mapped.dialect == "paddlenlp" and task == "question-answering":
        parameters = tensor_names.with_question_answering_head(parameters)
    folder = located.weights.parent
    return PretrainedWeights(
        parameters,
        config,
        located.vocab_file,
        mapped.dialect,
        tuple(notes),
        task,
        read_labels(folder) or labels,
        folder,
    )


def _read(located: locating.Located) -> RawTensors:
    read = _READERS[located.container]
    try:
        return read_shards(located.weights, read) if locating.is_index(located.weights) else read(located.weights)
    except MemoryError:
        raise ConversionError(
            f"{located.weights} needs more memory than is available; it is damaged, or not made for this machine"
        ) from None


_READERS: dict[str, Callable[[Path], RawTensors]] = {
    "safetensors": read_safetensors,
    "torch": read_torch,
    "paddle": read_pdparams,
    "tensorflow": read_tensorflow,
}


def _check_known(unknown: tuple[str, ...], weights: Path, allow_unknown: bool) -> None:
    if not unknown or allow_unknown:
        return
    lines = [f"unknown: {name}" for name in unknown[:_SHOWN]]
    if len(unknown) > _SHOWN:
        lines.append(f"... and {len(unknown) - _SHOWN} more")
    raise ConversionError(
        f"{weights} holds tensors that have no place in a BERT (allow_unknown, --allow-unknown on the command line, "
        "leaves them out):\n  " + "\n  ".join(lines)
    )
