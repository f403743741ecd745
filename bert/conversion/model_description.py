"""The small files beside a model's weights, of all libraries: sizes, classes, task, length, columns, case.

config.json, bert_config.json   sizes, read as BertConfig, and written
labels.json                     classes
task.json                       our tasks: name, longest sequence, columns of the texts, context of sentences
tokenizer_config.json           do_lower_case and strip_accents, as Hugging Face's, and word_segmenter
modules.json, 1_Pooling ...     how sentence-transformers makes vectors
question_answering.json         windows and answers, of our fine-tuning for questions
linear_model.json               a kept baseline, which has no network
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from bert.config.architecture import BertConfig, network_of
from bert.conversion.old_calibration import without_old_calibration
from bert.conversion.untrusted_files import ConversionError, read_json
from bert.model.head_specs import HEADS
from bert.printable import printable
from bert.tokenization.normalization import Normalization

LABELS_FILE = "labels.json"
CONFIG_FILES = ("bert_config.json", "config.json", "model_config.json")
_READ_ELSEWHERE = frozenset(("architectures", "init_class", "id2label", "label2id", "num_labels", "problem_type"))
_FAMILY = re.compile("^(ModernBert|Roberta|XLMRoberta|Camembert)(?=For|Model)")


def architecture_of(task: str, config: BertConfig, library: int = 0) -> str:
    """The class of a task in Hugging Face (0) or PaddleNLP (-1)."""
    head = HEADS["masked-lm" if task == "pretraining" and not config.has_token_types() else task]
    name = head.classes[library]
    return name.replace("Bert", {"modernbert": "ModernBert", "roberta": "Roberta"}.get(config.model_type, "Bert"))


class Description(NamedTuple):
    """The content of a model's description file."""

    config: BertConfig
    task: str | None  # a key of HEADS, None if the file names no task
    labels: tuple[str, ...] | None  # names of a classifier's classes, by index


def read_description(path: Path, notes: list[str] | None = None) -> Description:
    """Read a description with any of the known key names; `notes` gets the names of settings that are not used."""
    values = _flattened(read_json(path, "the model's sizes"))
    try:
        config, others = network_of(values, path)
    except ValueError as error:
        raise ConversionError(str(error)) from None
    if not config.is_modern() and not values.keys() >= {"hidden_size", "num_hidden_layers"}:
        raise ConversionError(f"{path} must give hidden_size and num_hidden_layers; this does not describe a BERT")
    task, named = _task(values), values.get("architectures")
    if notes is not None and (ignored := sorted(others.keys() - _READ_ELSEWHERE)):
        notes.append(f"{path.name}: not used: {', '.join(ignored)}")
    if notes is not None and named and task is None:
        notes.append(f"{path.name}: architectures={str(named)[:80]} is no task that is known here; the heads tell it")
    return Description(config, task, _labels(values))


def _flattened(values: Any) -> dict[str, Any]:
    """PaddleNLP's older model_config.json nests the encoder's sizes below those of the head."""
    flat = dict(values) if isinstance(values, dict) else {}
    nested = flat.pop("init_args", None)
    for inner in nested if isinstance(nested, list) else ():
        flat = {**(inner if isinstance(inner, dict) else {}), **flat}
    return flat


def _task(values: Mapping[str, Any]) -> str | None:
    named = values.get("architectures") or values.get("init_class")
    named = named[0] if isinstance(named, list) and named else named
    named = _FAMILY.sub("Bert", named) if isinstance(named, str) else named
    return next((task for task, head in HEADS.items() if named in head.classes), None)


def _labels(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    by_id = values.get("id2label")
    if not isinstance(by_id, dict) or not by_id or by_id.keys() != {str(index) for index in range(len(by_id))}:
        return None
    return plain_labels((str(by_id[str(index)]) for index in range(len(by_id))), "id2label")


def read_labels(folder: Path) -> tuple[str, ...] | None:
    """The classes in labels.json, which our classifiers have beside their weights; None without it."""
    path = folder / LABELS_FILE
    if not path.is_file():
        return None
    labels = read_json(path, "a list of the classes, in order")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ConversionError(f"{path} must be JSON with a list of the classes, in order; correct it")
    return plain_labels(labels, str(path))


def plain_labels(labels: Iterable[str], source: str) -> tuple[str, ...]:
    """The labels; ConversionError for one with a control character, which would become two lines of a file or drive a
    terminal."""
    labels = tuple(labels)
    for label in labels:
        if printable(label) != label:
            raise ConversionError(f"{source}: the label {label[:80]!r} has a control character; correct it there")
    return labels


def named_classes(labels: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The names of a classifier's outputs: LABEL_0, LABEL_1 ... where they are not known."""
    return labels if len(labels) == number else tuple(f"LABEL_{index}" for index in range(number))


TASK_FILE = "task.json"
TOKENIZER_FILE = "tokenizer_config.json"  # Hugging Face's name
READER_FILE = "question_answering.json"
LINEAR_MODEL_FILE = "linear_model.json"
_TOKENIZER_JSON = "tokenizer.json"
_SEVERAL_LABELS = "multi_label_classification"  # transformers' problem_type
WHOLE = "whole"  # key of Usage.held_out: the scores of the decision as it is
POOLING_KEYS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}  # of sentence-transformers


@dataclass(frozen=True)
class VectorForm:
    """How a text becomes a vector: the prefix of its kind, then a pooling of its last hidden states.

    Attributes:
        pooling: "mean" of the states of all tokens, or that of "cls".
        normalize: whether vectors have length 1, after a cut too.
        query_prefix, passage_prefix: put before a text as they are.
        dimensions: shorter vectors that were trained too, the first so many numbers of each (Kusupati et al., 2022).
    """

    pooling: Literal["mean", "cls"] = "mean"
    normalize: bool = True
    query_prefix: str = ""
    passage_prefix: str = ""
    dimensions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Usage:
    """The content of task.json; None and empty: not known."""

    name: str | None = None  # of the task: "SST-2", "custom", "ner", "phase2" ...
    max_seq_length: int | None = None  # longest sequence in training, in tokens
    text_columns: tuple[str, ...] = ()  # names of the columns (or keys) of the text, or of both texts of a pair
    regression: bool = False  # the one output is a number
    document_context: bool = False  # of a tagger: it reads each sentence with its neighbours in the document
    label_column: str | None = None  # of the user's own tables
    label_separator: str | None = None  # between the labels of a text, which may have several
    positive_label: str | None = None  # the class that is predicted from `threshold` on
    threshold: float = 0.5
    word_rules: Mapping[str, bool] | None = None  # of a tagger: how its training's words are cut (`ner.plain_words`)
    encoding: str | None = None  # by which files are decoded as those of the training were; None: detected
    language: str | None = None  # of the text, by which encodings are detected
    header: bool = True  # the first line of a CSV or TSV names the columns
    vectors: VectorForm | None = None  # of an encoder that was trained for search
    # Scores on the held-out rows of the training, by name: of the WHOLE decision, and without a part that other
    # libraries leave out ("threshold", "token weights"); None: no such part.
    held_out: Mapping[str, Mapping[str, float]] | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def usage_texts(
    usage: Usage, normalization: Normalization | None, labels: tuple[str, ...] | None = None
) -> dict[str, str]:
    """Files to keep beside weights, name -> content; `labels` are the classes of a classifier, in order."""
    texts = {TASK_FILE: usage.to_json()}
    if normalization is not None:
        texts[TOKENIZER_FILE] = json.dumps(normalization.settings()) + "\n"
    if labels:
        texts[LABELS_FILE] = json.dumps(labels, ensure_ascii=False) + "\n"
    return texts


def read_usage(folder: Path) -> Usage:
    """What task.json beside the weights says; of other libraries' models, whether a text may have several labels."""
    path = folder / TASK_FILE
    if path.is_file():
        values = read_json(path, "the name, length and columns of a task")
        try:
            values = without_old_calibration(dict(values))
            rules = TypeAdapter(dict[str, bool] | None).validate_python(values.get("word_rules"))
            vectors = TypeAdapter(VectorForm | None).validate_python(values.get("vectors"))
            held_out = TypeAdapter(dict[str, dict[str, float]] | None).validate_python(values.get("held_out"))
            known: dict[str, Any] = {"text_columns": tuple(values["text_columns"])}
            known |= {"word_rules": rules, "vectors": vectors, "held_out": held_out}
            usage = Usage(**{**values, **known})
            if usage.max_seq_length is not None and usage.max_seq_length < 3:
                raise ValueError(f"max_seq_length={usage.max_seq_length}")
        except (KeyError, TypeError, ValueError) as error:
            raise ConversionError(f"{path} does not describe a task ({error}); remove or correct it") from None
        return usage
    if form := _sentence_transformers_form(folder)[0]:
        length = _value(folder, "sentence_bert_config.json", ("max_seq_length",))
        return Usage(max_seq_length=length if isinstance(length, int) else None, vectors=form)
    several = _SEVERAL_LABELS in (_value(folder, name, ("problem_type",)) for name in CONFIG_FILES)
    return Usage(label_separator=",") if several else Usage()


def refuse_unread_vectors(folder: Path) -> None:
    """ConversionError if a model of sentence-transformers makes its vectors by steps that are not computed here."""
    if unread := unread_vector_steps(folder):
        raise ConversionError(
            f"{folder} makes its vectors with {', '.join(unread)} (sentence-transformers), which is not computed here: "
            "other vectors would come out; pass --pooling mean (pooling=) for means of the last layer's states, or use "
            "sentence-transformers for the vectors of this model"
        )


def unread_vector_steps(folder: Path) -> list[str]:
    """Steps by which a model of sentence-transformers makes vectors and that are not computed here: "Dense" ...

    Empty if there is a task.json, which `read_usage` follows.
    """
    return _sentence_transformers_form(folder)[1] if not (folder / TASK_FILE).is_file() else []


def _sentence_transformers_form(folder: Path) -> tuple[VectorForm | None, list[str]]:
    """How a model of sentence-transformers makes vectors, or the names of the steps that are not known here.

    Returns:
        (None, []) if the folder is no such model.
    """
    modules = _value(folder, "modules.json", ())
    if modules is None:
        return None, []
    if not isinstance(modules, list) or not all(isinstance(module, Mapping) and "type" in module for module in modules):
        raise ConversionError(
            f"{folder / 'modules.json'} must list the modules of a model of sentence-transformers, each with its type; "
            "correct it, or remove it to use the weights alone"
        )
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    poolings = _poolings(folder) if "Pooling" in kinds else ["no pooling"]
    unread = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    unread += [f"pooling {name}" for name in poolings if name not in POOLING_KEYS.values()]
    if len(poolings) > 1:
        unread = [*unread, f"poolings side by side: {', '.join(poolings)}"]
    if not unread and kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        unread = [f"modules in another order: {', '.join(kinds)}"]
    if unread:
        return None, unread
    prompts = _value(folder, "config_sentence_transformers.json", ("prompts",)) or {}
    passages = [prompts[name] for name in ("document", "passage", "corpus") if prompts.get(name)]
    values = {"pooling": poolings[0], "normalize": "Normalize" in kinds}
    values |= {"query_prefix": prompts.get("query") or "", "passage_prefix": next(iter(passages), "")}
    try:
        return TypeAdapter(VectorForm).validate_python(values), []
    except ValueError as error:
        raise ConversionError(f"{folder / 'config_sentence_transformers.json'}: {error}; correct it") from None


def _poolings(folder: Path) -> list[str]:
    """The poolings of a model of sentence-transformers: "mean", "cls", or another one of its names."""
    content = _value(folder, "1_Pooling/config.json", ())
    settings = content if isinstance(content, Mapping) else {}
    if isinstance(name := settings.get("pooling_mode"), str):  # from version 6 on
        return [name]
    chosen = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    names = [POOLING_KEYS.get(key, key.removeprefix("pooling_mode_").removesuffix("_tokens")) for key in chosen]
    return names or [f"none in {folder / '1_Pooling/config.json'}"]


def kept_texts(folder: Path) -> dict[str, str]:
    """The files of a model's use that conversions copy as they are: name -> text."""
    texts = {}
    for name, content in ((READER_FILE, "settings"), (TASK_FILE, "a task")):
        if (folder / name).is_file():
            values = read_json(folder / name, content)
            values = without_old_calibration(values) if name == TASK_FILE and isinstance(values, dict) else values
            texts[name] = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    if TASK_FILE not in texts and ((usage := read_usage(folder)).label_separator or usage.vectors):
        texts[TASK_FILE] = usage.to_json()
    return texts


def stated_normalization(folder: Path) -> dict[str, Any]:
    """The fields of a `Normalization` that the tokenizer's settings beside the weights state; strip_accents also a
    tokenizer.json."""
    stated: dict[str, Any] = {}
    for name, ours, kind in (
        ("do_lower_case", "lowercase", bool),
        ("strip_accents", "strip_accents", bool),
        ("word_segmenter", "word_segmenter", str),
    ):
        values = [_value(folder, TOKENIZER_FILE, (name,))]
        if name == "strip_accents" and (folder / "vocab.txt").is_file():
            with suppress(ConversionError):  # only the vocabulary of the file may be needed, and not even that
                values.append(_value(folder, _TOKENIZER_JSON, ("normalizer", name)))
        stated |= dict.fromkeys([ours], next((value for value in values if isinstance(value, kind)), None))
    return {name: value for name, value in stated.items() if value is not None}


def tokenizer_warnings(folder: Path) -> list[str]:
    """A line if Hugging Face's tokenizer beside the weights does not split Chinese characters, as BERT's code does."""
    if not (folder / "vocab.txt").is_file():
        return []  # the rules are followed that the tokenizer.json states
    value = _value(folder, TOKENIZER_FILE, ("tokenize_chinese_chars",))
    if value is None:
        with suppress(ConversionError):
            value = _value(folder, _TOKENIZER_JSON, ("normalizer", "handle_chinese_chars"))
    if value is not False:
        return []
    return [
        f"tokenize_chinese_chars=false of the tokenizer in {folder} is not followed and not kept: Chinese characters "
        "are always split here, so they get other tokens than in the training of the model; pass its tokenizer.json as "
        "--vocab-file, whose rules are followed"
    ]


def _value(folder: Path, file: str, keys: tuple[str, ...]) -> Any:
    """A value in a file; None if there is none."""
    value = read_json(folder / file, "settings") if (folder / file).is_file() else None
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
