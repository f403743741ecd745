"""Reads pretrained weights of any known format and converts them to our names and layout.

pretrained = read_pretrained("bert-base-uncased")
pretrained.parameters   our names and layout, float32, vocabulary padded
pretrained.notes        a line for each tensor that was left out, converted, padded or is missing
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize

from bert.checkpoints.directories import VerifiedCheckpoint
from bert.config.architecture import BertConfig
from bert.conversion import locating, tensor_layout, tensor_names, vocabulary_padding
from bert.conversion.model_description import CONFIG_FILES, read_description, read_labels
from bert.conversion.old_calibration import with_old_calibration
from bert.conversion.paddle_file import read_pdparams
from bert.conversion.raw_tensors import BFLOAT16, RawTensors
from bert.conversion.task_file import read_usage
from bert.conversion.torch_file import read_torch
from bert.conversion.untrusted_files import ConversionError, read_json, regular_file
from bert.printable import printable
from bert.tokenization.vocabulary_files import vocabulary_beside

WITHOUT = "the model has no "  # begins the note that lists heads

_DTYPES: dict[str, str | np.dtype] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": BFLOAT16}
_DTYPES |= {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}


@dataclass(frozen=True)
class PretrainedWeights:
    """Weights of any known format, converted to our names and layout."""

    parameters: dict[str, np.ndarray]  # by our structured names; float32; linear weights [in, out]
    config: BertConfig | None  # None without a model description
    vocab_file: Path | None  # vocab.txt or tokenizer.json in the same folder
    format: str  # "native", "huggingface", "modernbert", "roberta", "paddlenlp", "nvidia-paddle" or "tensorflow"
    notes: list[str]
    task: str | None  # a key of HEADS, None if unknown
    labels: tuple[str, ...] | None  # names of the classes
    folder: Path  # folder of the weights


def read_pretrained(
    source: str | Path | VerifiedCheckpoint,
    *,
    config_file: Path | None = None,
    fused_qkv: str | None = None,
    allow_unknown: bool = False,
) -> PretrainedWeights:
    """Read the weights in a directory or file, and recognise their format.

    Args:
        source: a path; where there is none, the name of a published model, which is fetched (`locating.resolve`).
        config_file: the model's description; by default the one beside the weights, if there is one.
        fused_qkv: for NVIDIA's Paddle checkpoints trained with --fuse-mha, see `unnamed_layers.parameters_of_layers`.
        allow_unknown: list tensors that no BERT has, instead of refusing the file.
    Raises:
        ConversionError, CheckpointError (both ValueError): missing, damaged or hostile; not a BERT; incomplete; a model
            description of another model. Nothing in the file is ever executed.
    """
    notes: list[str] = []
    path = source if isinstance(source, VerifiedCheckpoint) else locating.resolve(source)
    weights, container = locating.locate(path, notes)
    folder = weights.parent
    config_file = config_file or next((folder / name for name in CONFIG_FILES if (folder / name).is_file()), None)
    config: BertConfig | None = None
    task = labels = None
    if config_file is not None:  # first: it says shortly what is no BERT
        config, task, labels = read_description(config_file, notes)
    raw = _read(weights, _READERS[container])
    notes += raw.notes
    dialect, parameters = tensor_layout.to_ours(raw, notes, fused_qkv=fused_qkv, allow_unknown=allow_unknown)
    heads, modern = tensor_names.heads_of(parameters), tensor_names.is_modern(parameters)
    absent = [head for head in tensor_names.heads_by_name(modern) if head not in (*heads, "token weights")]
    if absent:  # few classifiers have token weights, and none needs them
        notes.append(f"{WITHOUT}{', '.join(absent)}")
    if config is not None:
        if dialect != "native":
            parameters = tensor_layout.without_unused_positions(parameters, config, notes)
        tensor_names.check_parameters(parameters, f"{weights} does not fit its model description", config)
        rows, padded = config.vocab_size, config.padded_vocab_size()
    else:
        notes.append(f"no model description ({', '.join(CONFIG_FILES)}) is beside {weights}")
        tensor_names.check_parameters(parameters, f"{weights} does not hold one whole BERT; save or fetch it again")
        rows = len(parameters[tensor_names.WORD_EMBEDDINGS])
        padded = -(-rows // 8) * 8
    parameters = with_old_calibration(parameters, folder)
    parameters = vocabulary_padding.pad_vocabulary(parameters, rows, padded, notes)
    if modern and task is None and read_usage(folder).name == "ner":  # its head has the names of a text classifier's
        task = "token-classification"
    if dialect in ("paddlenlp", "modernbert") and task == "question-answering":
        parameters = tensor_names.with_question_answering_head(parameters)
    return PretrainedWeights(
        parameters,
        config,
        vocabulary_beside(folder),
        dialect,
        list(map(printable, notes)),
        task,
        read_labels(folder) or labels,
        folder,
    )


def _read(weights: Path, read: Callable[[Path], RawTensors]) -> RawTensors:
    """Tensors of a file, or of the shards that an index lists. Refuses a tensor that is in two shards."""
    try:
        if not locating.is_index(weights):
            return read(weights)
        tensors: dict[str, np.ndarray] = {}
        notes: list[str] = []
        for part in map(read, _shards_of(weights)):
            if twice := sorted(tensors.keys() & part.tensors.keys()):
                raise ConversionError(
                    f"{part.source} holds {twice[0]} again, which an earlier shard has; fetch the shards again"
                )
            tensors.update(part.tensors)
            notes += part.notes
        return RawTensors(tensors, weights, part.metadata, tuple(notes))
    except MemoryError:
        raise ConversionError(
            f"{weights} needs more memory than is available; it is damaged, or not made for this machine"
        ) from None


def _shards_of(index: Path) -> list[Path]:
    """The shard files that an index names, which must be in its own folder."""
    content = read_json(index, "a weight_map of shards", 64 << 20)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(n, str) for n in weight_map.values()):
        raise ConversionError(f"{index} must be JSON with a weight_map: the shard of each tensor; fetch it again")
    names = sorted(set(weight_map.values()))
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            raise ConversionError(f"{index} names the shard {name!r}; shards must be in the folder of their index")
    if missing := [name for name in names if not (index.parent / name).is_file()]:
        raise ConversionError(f"{index} names {', '.join(missing)}, which {index.parent} does not hold; fetch them")
    return [index.parent / name for name in names]


def read_safetensors(path: Path) -> RawTensors:
    """All tensors of one .safetensors file."""
    regular_file(path)
    data = path.read_bytes()
    tensors = {}
    try:
        for name, entry in deserialize(data):
            if entry["dtype"] not in _DTYPES:
                raise ConversionError(
                    f"{path}: {name} has dtype {entry['dtype']}; only float32, float16 and bfloat16 are read: "
                    "save the model in one of them"
                )
            tensors[name] = np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except ConversionError:
        raise
    except (SafetensorError, ValueError, OverflowError) as error:
        raise ConversionError(f"{path} is not a complete safetensors file ({error}); fetch or make it again") from None
    length = int.from_bytes(data[:8], "little")  # length of the header, which `deserialize` has checked
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__")
    return RawTensors(tensors, path, metadata or {})


def _read_tensorflow(path: Path) -> RawTensors:
    from bert.conversion.tensorflow_file import read_tensorflow  # loads protobuf and pyarrow

    return read_tensorflow(path)


_READERS: dict[str, Callable[[Path], RawTensors]] = {
    "safetensors": read_safetensors,
    "torch": read_torch,
    "paddle": read_pdparams,
    "tensorflow": _read_tensorflow,
}
