"""Opens a model from any folder: a checkpoint, a run's output, an export, or another library's model."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion import locating
from bert.conversion.model import choose_task
from bert.conversion.model_description import checked_labels, named_classes
from bert.conversion.old_calibration import with_old_temperature
from bert.conversion.reading import read_pretrained
from bert.conversion.task_file import read_usage, refuse_unread_vectors
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import Usage
from bert.conversion.vocabularies import Tokens, check_ids, find_tokens
from bert.files import checksum_of, checksum_of_file, shown
from bert.inference.export_files import DESCRIPTION_FILE, Arrays, outputs_of
from bert.inference.paddle_program import Network
from bert.inference.predictor import Predictor
from bert.model.head_specs import HEADS, PREDICTIONS
from bert.runtime.paddle_api import chosen_device

logger = logging.getLogger(__name__)

Forward = Callable[[str, Arrays], Arrays]  # runs a network, as `Network.run` does


@dataclass(frozen=True)
class OpenedModel:
    """A model that is ready to run."""

    path: Path  # the folder of the weights or of the export
    task: str  # one of PREDICTIONS
    forward: Forward
    tokens: Tokens
    usage: Usage
    labels: tuple[str, ...] | None  # the classes of a classifier or tagger
    most_positions: int  # the longest sequence that the network can read, in tokens
    hidden_size: int  # dimensions of its sentence vectors; 0 for an export without vectors
    checksums: Callable[[], list[str]]  # computes checksums of the weights
    has_encoder: bool = True  # True for a checkpoint; an export has the outputs of one task, a kept baseline no network
    noun: str = ""  # description of the model for users; "": the description of its head

    def can_encode(self) -> bool:
        return self.task == "encoder" or self.has_encoder

    def fingerprint(self) -> str:
        """A checksum of the weights, the vocabulary and the JSON files beside them: labels, thresholds, lengths."""
        lasting = [path for path in sorted(self.path.glob("*.json")) if not path.name.endswith(".partial.json")]
        files = [f"{path.name} {checksum_of_file(path)}" for path in lasting if path.is_file()]
        return checksum_of("\n".join([*self.checksums(), *files, *self.tokens.vocabulary.tokens]).encode())

    def describe(self) -> str:
        """Describe the model in one line: the folder, the kind of head, the classes and the normalisation."""
        classes = f" ({', '.join(self.labels[:5])}{' ...' if len(self.labels) > 5 else ''})" if self.labels else ""
        reading = "" if self.noun else f", {self.tokens.normalization}"
        return f"{shown(self.path)}: {self.noun or HEADS[self.task].noun}{classes}{reading}"


def open_model(
    source: str | Path,
    task: str | None = None,
    *,
    device: str = "auto",
    vocab_file: Path | None = None,
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
    model: BertConfig | None = None,
    cpu_threads: int = 1,
    layers: Sequence[int] = (),
    pooling: str | None = None,
) -> OpenedModel:
    """Find, read and check a model.

    Args:
        source: a checkpoint, the output folder of a run (its best or newest weights), an export for Paddle Inference or
            ONNX, a model of Hugging Face or PaddleNLP or its published name.
        device: auto, cpu or gpu; for an export also tensorrt.
        task: one of PREDICTIONS; None: the task of the model's head. Every checkpoint has an encoder.
        layers: layers whose states the encoder concatenates: 0 for the embeddings, 1 for the first layer, -1 for the
            last; empty: the last layer.
        pooling: the pooling that the caller wants; None: the pooling with which the encoder was trained, if any.
    """
    path = locating.resolve(str(source))
    if (path / DESCRIPTION_FILE).is_file():
        if set(layers) - {-1}:
            raise ValueError(
                f"layers={','.join(map(str, layers))}: {path} is an export, which gives the last layer's states alone; "
                "use the checkpoint that it was made from, or omit --layers"
            )
        if pooling and read_usage(path).vectors:
            raise ValueError(f"pooling={pooling}: {path} is an export with a pooling inside; omit --pooling")
        predictor = Predictor(path, device=device, cpu_threads=cpu_threads)
        return _open_export(predictor, task, partial(_tokens, path, vocab_file, do_lower_case, strip_accents))
    if device == "tensorrt":
        raise ValueError(
            f"device=tensorrt is for exports, and {path} is none; export it with run_export.py, or pass --device gpu"
        )
    device = chosen_device(device)
    pretrained = read_pretrained(path)
    for note in pretrained.notes:
        logger.log(logging.WARNING if "refused" in note else logging.DEBUG, "%s: %s", path, note)
    folder, config = pretrained.folder, pretrained.config or model
    if config is None:
        raise ConversionError(
            f"{folder} has no description of the model beside the weights; put its bert_config.json there"
        )
    if model is not None and model.num_attention_heads != config.num_attention_heads:
        raise ConversionError(
            f"{folder} was trained with {config.num_attention_heads} attention heads, not "
            f"num_attention_heads={model.num_attention_heads}; omit the model's sizes"
        )
    task = choose_task(pretrained, task)
    task = HEADS[task].predicts or task
    tokens = _tokens(folder, vocab_file or pretrained.vocab_file, do_lower_case, strip_accents)
    check_ids(tokens, config, [])
    labels = None
    if "classification" in task:
        labels = named_classes(pretrained.labels or (), len(pretrained.parameters["classifier.bias"]))
    if task == "encoder" and not layers and not pooling:
        refuse_unread_vectors(folder)
    usage, numbers = read_usage(folder), _from_the_first(layers, config.num_hidden_layers)
    vectors = None if layers or pooling else usage.vectors
    network = Network(pretrained.parameters, config, device, layers=numbers, vectors=vectors)
    return OpenedModel(
        path=folder,
        task=task,
        forward=network.run,
        tokens=tokens,
        usage=usage,
        labels=labels,
        most_positions=config.max_position_embeddings,
        hidden_size=config.hidden_size * max(1, len(layers)),
        checksums=network.checksums,
    )


def _from_the_first(layers: Sequence[int], last: int) -> tuple[int, ...]:
    """Convert layers, also negative ones, to numbers counted from the embeddings. The model has `last` layers."""
    for layer in layers:
        if not -last - 1 <= layer <= last:
            of = f"the model has the layers 1 to {last} (or {-last} to -1), and its embeddings, which are 0"
            raise ValueError(f"layers={layer}: {of}; correct --layers")
    return tuple(layer % (last + 1) for layer in layers)


def _tokens(folder: Path, vocab_file: Path | None, lowercase: bool | None, strip_accents: bool | None) -> Tokens:
    tokens = find_tokens(folder, vocab_file, [], lowercase=lowercase, strip_accents=strip_accents)
    if tokens is None:
        raise ConversionError(f"{folder} has no vocab.txt or tokenizer.json; pass --vocab-file (vocab_file=)")
    return tokens


def _at_masks(run: Callable[[Arrays], Arrays], feed: Arrays) -> Arrays:
    """Run an export and pick the logits at masked_lm_positions, [n, vocabulary], which a checkpoint gives directly."""
    logits = run(feed)["masked_lm_logits"]
    return {"masked_lm_logits": logits.reshape(-1, logits.shape[-1])[feed["masked_lm_positions"]]}


def _open_export(predictor: Predictor, requested: str | None, read_tokens: Callable[[], Tokens]) -> OpenedModel:
    path, description = predictor.folder, predictor.description
    task = description.get("task")
    labels = checked_labels(description.get("labels") or (), str(path / DESCRIPTION_FILE))
    if task not in PREDICTIONS:
        raise ConversionError(f"{path / DESCRIPTION_FILE} names the task {task!r}; export the model again")
    usage = read_usage(path)
    if lacking := [name for name in outputs_of(task, False, usage.vectors) if name not in predictor.outputs]:
        raise ConversionError(
            f"{path / DESCRIPTION_FILE} lacks {' and '.join(lacking)} of {task}; export the model again"
        )
    if requested is not None and requested != task:
        needed = HEADS[requested].noun if requested in HEADS else requested
        raise ConversionError(
            f"{path} is an export of {HEADS[task].noun}, task={requested} needs {needed}; "
            "use the checkpoint that it was made from, or export it with --task"
        )
    tokens, run = read_tokens(), with_old_temperature(predictor.run, path)
    if task == "masked-lm":
        run = partial(_at_masks, run)
    hidden_size = 0
    if task == "encoder" or (
        "classification" in task and not labels
    ):  # the export does not say how many outputs it has
        outputs = predictor.run(dict.fromkeys(predictor.inputs, np.ones((1, 2), np.int64)))
        if task == "encoder":
            hidden_size = outputs[predictor.outputs[0]].shape[-1]
        else:
            labels = named_classes((), outputs["logits"].shape[-1])
    return OpenedModel(
        path=path,
        task=task,
        forward=lambda task, feed: run(feed),
        tokens=tokens,
        usage=usage,
        labels=labels or None,
        most_positions=int(description["max_length"]),
        hidden_size=hidden_size,
        checksums=lambda: [checksum_of_file(file) for file in predictor.files],
        has_encoder=False,
    )
