"""The settings with which run_predict.py and the server open a model; their descriptions are the flags' help."""

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, field_validator

from bert.config.flags import add_flag, flag_name, members
from bert.config.settings_base import Settings

Task = Literal["masked-lm", "encoder", "question-answering", "sequence-classification", "token-classification"]
TASKS: tuple[str, ...] = get_args(Task)


class ModelSettings(Settings):
    model: str = Field(
        description="a checkpoint, the output folder of a run, an export, another library's model, or a published name"
    )
    task: Task | None = Field(None, description="what to use the model for; none: what its head is for")
    top_k: int = Field(5, ge=1, description="fills, answers or nearest lines to list")
    max_seq_length: int | None = Field(None, description="longest sequence in tokens; none: that of the training")
    device: Literal["auto", "cpu", "gpu"] = Field("auto", description="auto: a GPU if there is one")
    cpu_threads: int = Field(0, ge=0, description="0: one for each core")
    vocab_file: Path | None = Field(None, description="vocab.txt or tokenizer.json, if none is beside the weights")
    do_lower_case: bool | None = Field(None, description="lower-case the text (default: as the model's files say)")

    @field_validator("vocab_file")
    @classmethod
    def _exists(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"--vocab-file {path} must be an existing file; check the path")
        return path


def add_flags(group: Any, settings: type[Settings], positional: Collection[str] = ("model",)) -> None:
    """The flags of all fields that are not positional. A boolean flag takes no value: what follows may be the model."""
    for name, field in settings.model_fields.items():
        if bool in members(field):
            group.add_argument(flag_name(name), action=argparse.BooleanOptionalAction, help=field.description)
        elif name not in positional:
            add_flag(group, name, field)
