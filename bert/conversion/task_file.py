"""Reads how a model is used, from task.json or the files of other libraries."""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bert.conversion.model_description import CONFIG_FILES
from bert.conversion.old_calibration import without_old_calibration
from bert.conversion.sentence_vectors import read_sentence_transformers
from bert.conversion.untrusted_files import ConversionError, read_json, read_json_value
from bert.conversion.usage import READER_FILE, TASK_FILE, RerankingForm, Usage, VectorForm

_SEVERAL_LABELS = "multi_label_classification"  # transformers' problem_type


def read_usage(folder: Path) -> Usage:
    """Read how the model in `folder` is used; other libraries' models state their vectors or several labels.

    Raises:
        ConversionError: the task.json does not describe a task.
    """
    if (folder / TASK_FILE).is_file():
        return _read_task_file(folder / TASK_FILE)
    encoder = read_sentence_transformers(folder)
    if encoder is not None and encoder.form is not None:
        length = read_json_value(folder / "sentence_bert_config.json", "max_seq_length")
        return Usage(max_seq_length=length if isinstance(length, int) else None, vectors=encoder.form)
    if any(read_json_value(folder / name, "problem_type") == _SEVERAL_LABELS for name in CONFIG_FILES):
        return Usage(label_separator=",")
    return Usage()


def _read_task_file(path: Path) -> Usage:
    values = read_json(path, "the name, length and columns of a task")
    try:
        values = without_old_calibration(dict(values))
        checked = {
            "text_columns": tuple(values["text_columns"]),
            "word_rules": TypeAdapter(dict[str, bool] | None).validate_python(values.get("word_rules")),
            "vectors": TypeAdapter(VectorForm | None).validate_python(values.get("vectors")),
            "reranking": TypeAdapter(RerankingForm | None).validate_python(values.get("reranking")),
            "held_out": TypeAdapter(dict[str, dict[str, float]] | None).validate_python(values.get("held_out")),
        }
        usage = Usage(**{**values, **checked})
        if usage.max_seq_length is not None and usage.max_seq_length < 3:
            raise ValueError(f"max_seq_length={usage.max_seq_length}")
        weight = usage.vectors.hybrid_weight if usage.vectors else None
        if weight is not None and not 0 <= weight <= 1:
            raise ValueError(f"hybrid_weight={weight} must be from 0 to 1")
    except (KeyError, TypeError, ValueError) as error:
        raise ConversionError(f"{path} does not describe a task ({error}); remove or correct it") from None
    return usage


def refuse_unread_vectors(folder: Path) -> None:
    """Raise ConversionError if a sentence-transformers model has steps that are not supported here."""
    if unread := unread_vector_steps(folder):
        raise ConversionError(
            f"{folder} makes its vectors with {', '.join(unread)} (sentence-transformers), which is not computed here: "
            "other vectors would come out; pass --pooling mean (pooling=) for means of the last layer's states, or use "
            "sentence-transformers for the vectors of this model"
        )


def unread_vector_steps(folder: Path) -> tuple[str, ...]:
    """Names of the steps of a sentence-transformers model that are not supported here: "Dense" ...

    Empty if there is a task.json, which `read_usage` follows.
    """
    encoder = None if (folder / TASK_FILE).is_file() else read_sentence_transformers(folder)
    return () if encoder is None else encoder.unknown_steps


def files_to_copy(folder: Path) -> dict[str, str]:
    """Files that state how a model is used, name -> text; conversions copy them.

    A model of another library gets the task.json that says the same, if it makes vectors or has several labels.
    """
    texts = {}
    if (folder / READER_FILE).is_file():
        texts[READER_FILE] = _indented_json(read_json(folder / READER_FILE, "settings"))
    if (folder / TASK_FILE).is_file():
        task = read_json(folder / TASK_FILE, "a task")
        texts[TASK_FILE] = _indented_json(without_old_calibration(task) if isinstance(task, dict) else task)
        return texts
    usage = read_usage(folder)
    if usage.label_separator or usage.vectors:
        texts[TASK_FILE] = usage.to_json()
    return texts


def _indented_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
