"""How a model is used: the small files beside its weights that name its task, length, columns and case.

task.json                 our tasks: name, longest sequence in training, columns of the texts, context of sentences
tokenizer_config.json     do_lower_case, as Hugging Face's
question_answering.json   windows and answers, of our fine-tuning for questions
labels.json               classes, read by `model_description`
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bert.conversion.model_description import LABELS_FILE
from bert.conversion.raw_tensors import ConversionError, read_json

TASK_FILE = "task.json"
TOKENIZER_FILE = "tokenizer_config.json"  # Hugging Face's name
READER_FILE = "question_answering.json"
_TOKENIZER_JSON = "tokenizer.json"
_PROGRESS_FILES = "*_progress.json"  # of our checkpoints, with all settings of their run


@dataclass(frozen=True)
class Usage:
    """The content of task.json.

    Attributes:
        name: of the task: "SST-2", "custom", "ner", "phase2" ...; None if it is not known.
        max_seq_length: longest sequence in training, in tokens; None if it is not known.
        text_columns: names of the columns (or keys) of the text, or of both texts of a pair; empty if not known.
        regression: the one output is a number.
        document_context: of a tagger: it reads each sentence with its neighbours in the document.
    """

    name: str | None = None
    max_seq_length: int | None = None
    text_columns: tuple[str, ...] = ()
    regression: bool = False
    document_context: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def usage_texts(usage: Usage, do_lower_case: bool | None, labels: tuple[str, ...] | None = None) -> dict[str, str]:
    """Files to keep beside weights, name -> content; `labels` are the classes of a classifier, in order."""
    texts = {TASK_FILE: usage.to_json()}
    if do_lower_case is not None:
        texts[TOKENIZER_FILE] = json.dumps({"do_lower_case": do_lower_case}) + "\n"
    if labels:
        texts[LABELS_FILE] = json.dumps(labels, ensure_ascii=False) + "\n"
    return texts


def read_usage(folder: Path) -> Usage:
    """What task.json beside the weights says; of older checkpoints, what the settings of the run say.

    Raises:
        ConversionError: task.json has another content.
    """
    path = folder / TASK_FILE
    if path.is_file():
        values = read_json(path, "the name, length and columns of a task")
        try:
            usage = Usage(**{**values, "text_columns": tuple(values["text_columns"])})
            if usage.max_seq_length is not None and usage.max_seq_length < 3:
                raise ValueError(f"max_seq_length={usage.max_seq_length}")
        except (KeyError, TypeError, ValueError) as error:
            raise ConversionError(f"{path} does not describe a task ({error}); remove or correct it") from None
        return usage
    for pattern, keys in ((READER_FILE, ("windows",)), (_PROGRESS_FILES, ("settings", "data"))):
        length = _value(folder, pattern, (*keys, "max_seq_length"))
        if isinstance(length, int):
            return Usage(max_seq_length=length)
    return Usage()


def kept_texts(folder: Path) -> dict[str, str]:
    """The files of a model's use that conversions copy as they are: name -> text."""
    texts = {}
    for name, content in ((READER_FILE, "settings"), (TASK_FILE, "a task")):
        if (folder / name).is_file():
            texts[name] = json.dumps(read_json(folder / name, content), indent=1, ensure_ascii=False) + "\n"
    return texts


def stated_lower_case(folder: Path) -> bool | None:
    """do_lower_case in the tokenizer's settings, question answering's or the run's (in this order); None: in none."""
    places = (
        (TOKENIZER_FILE, ("do_lower_case",)),
        (READER_FILE, ("windows", "lowercase")),
        (_PROGRESS_FILES, ("settings", "data", "do_lower_case")),
    )
    stated = (_value(folder, pattern, keys) for pattern, keys in places)
    return next((value for value in stated if isinstance(value, bool)), None)


def tokenizer_warnings(folder: Path, lowercase: bool) -> list[str]:
    """A line for each rule of Hugging Face's tokenizer beside the weights that is not followed here.

    Accents are stripped where text is lower-cased, and Chinese characters are split, as in BERT's published code.
    """
    remedy = "strip them from the text before it is read"
    if lowercase:
        remedy = "to keep them, lower-case the text before it is read, and set do_lower_case=false"
    found = []
    for name, key, default, rule in (
        ("strip_accents", "strip_accents", lowercase, f"lower-casing alone decides on accents here: {remedy}"),
        ("tokenize_chinese_chars", "handle_chinese_chars", True, "Chinese characters are always split here"),
    ):
        value = _value(folder, TOKENIZER_FILE, (name,))
        if value is None:
            with suppress(ConversionError):  # only the vocabulary of the file may be needed, and not even that
                value = _value(folder, _TOKENIZER_JSON, ("normalizer", key))
        if isinstance(value, bool) and value != default:
            found.append(
                f"{name}={json.dumps(value)} of the tokenizer in {folder} is not followed and not kept; {rule}. "
                "Words that it concerns get other tokens than in the training of the model"
            )
    return found


def _value(folder: Path, pattern: str, keys: tuple[str, ...]) -> Any:
    """A value in the first file that matches; None if there is none."""
    for path in sorted(folder.glob(pattern))[:1]:
        value = read_json(path, "settings")
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value
    return None
