"""Pretrained weights from wherever they come, as our network wants them: one function, no Paddle.

pretrained = read_pretrained(Path("bert-base-uncased"))
pretrained.parameters   our names and layout, float32, vocabulary padded
pretrained.notes        a line for all that was left out, converted, filled in or is missing
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion import layout, locating, our_names
from bert.conversion.model_description import Description, check_sizes, read_description, read_labels
from bert.conversion.paddle_file import read_pdparams
from bert.conversion.raw import ConversionError, RawTensors
from bert.conversion.safetensors_file import merge, read_safetensors, shards_of
from bert.conversion.tensorflow_file import read_tensorflow
from bert.conversion.torch_file import read_torch


@dataclass(frozen=True)
class PretrainedWeights:
    """A checkpoint of any known format, in our terms."""

    parameters: dict[str, np.ndarray]  # by our structured names; float32; linear weights [in, out]
    config: BertConfig | None  # None when no model description lies beside the weights
    vocab_file: Path | None  # a vocab.txt beside the weights
    format: str  # "native", "huggingface", "paddlenlp", "nvidia-paddle" or "tensorflow"
    notes: tuple[str, ...]
    task: str | None = None  # what it was built for (model_description.ARCHITECTURES), None when nothing says it
    labels: tuple[str, ...] | None = None  # names of a classifier's classes
    heads: tuple[str, ...] = ()  # keys of our_names.HEADS that are there
    folder: Path = Path()  # where the weights lie


def read_pretrained(
    path: Path, *, config_file: Path | None = None, fused_qkv: str | None = None, allow_unknown: bool = False
) -> PretrainedWeights:
    """Read the weights of a directory or file whose format is recognised.

    Args:
        config_file: the model's description; by default the one beside the weights, if there is one.
        fused_qkv: for NVIDIA's Paddle checkpoints trained with --fuse-mha, see `flat_names.structured`.
        allow_unknown: list tensors that no BERT has, instead of refusing the file.
    Raises:
        ConversionError, CheckpointError (both ValueError): missing, damaged or hostile; not a BERT; not whole; a model
            description that does not belong to it. Nothing in the file is ever executed.
    """
    located = locating.locate(path)
    mapped = layout.to_ours(_read(located), fused_qkv)
    if mapped.unknown and not allow_unknown:
        raise ConversionError(
            _list(
                f"{located.weights} holds tensors that have no place in a BERT (allow_unknown, "
                "--allow-unknown on the command line, leaves them out)",
                tuple(f"unknown: {name}" for name in mapped.unknown),
            )
        )
    notes = [*located.notes, *mapped.notes, *(f"left out: {name}, unknown" for name in mapped.unknown)]
    present, absent = layout.missing_parts(mapped.parameters, mapped.num_layers)
    if absent:
        notes.append(f"not there: {', '.join(absent)}")
    parameters, description = mapped.parameters, _description(config_file or located.description)
    if description is not None:
        notes += description.notes
        check_sizes(parameters, mapped.num_layers, description.config, located.weights)
        parameters = layout.pad_vocabulary(
            parameters, description.config.vocab_size, description.config.padded_vocab_size(), notes
        )
    else:
        notes.append(f"no model description ({', '.join(locating.CONFIG_FILES)}) lies beside {located.weights}")
        rows = len(parameters[our_names.WORD_EMBEDDINGS])
        parameters = layout.pad_vocabulary(parameters, rows, -(-rows // 8) * 8, notes)
    task = description.task if description else None
    if mapped.dialect == "paddlenlp" and task == "question-answering" and "classifier.weight" in parameters:
        for kind in ("weight", "bias"):  # there every head is called so
            parameters[f"qa_outputs.{kind}"] = parameters.pop(f"classifier.{kind}")
        present = ["question-answering head" if head == "classifier" else head for head in present]
    folder = located.weights.parent
    return PretrainedWeights(
        parameters,
        description.config if description else None,
        located.vocab_file,
        mapped.dialect,
        tuple(notes),
        task,
        read_labels(folder) or (description.labels if description else None),
        tuple(present),
        folder,
    )


def _read(located: locating.Located) -> RawTensors:
    try:
        parts = locating.read_parts(located.weights, _READERS[located.container], shards_of)
    except MemoryError:
        raise ConversionError(
            f"{located.weights} asks for more memory than there is; it is damaged, or not made for this machine"
        ) from None
    return merge(parts, located.weights) if len(parts) > 1 else parts[0]


_READERS: dict[str, Callable[[Path], RawTensors]] = {
    "safetensors": read_safetensors,
    "torch": read_torch,
    "paddle": read_pdparams,
    "tensorflow": read_tensorflow,
}


def _description(path: Path | None) -> Description | None:
    return None if path is None else read_description(path)


def _list(title: str, lines: tuple[str, ...]) -> str:
    shown = [*lines[:20], *([f"... and {len(lines) - 20} more"] if len(lines) > 20 else [])]
    return "\n  ".join([title + ":", *shown])
