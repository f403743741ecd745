"""Which model to use, and how: the settings that prediction and the server share. This module loads no Paddle."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from bert.config.flags import Formatter, Parser, add_flag, flag_name, members
from bert.config.settings_base import Settings
from bert.model.head_specs import PREDICTIONS

Task = Literal[PREDICTIONS]  # type: ignore[valid-type]


def refuse_address(model: object) -> None:
    """Raise ValueError for the address of a server in place of a model."""
    if "://" in str(model):
        raise ValueError(
            f"{model} is an address, not a model; ask a server with curl or the client of ten lines in "
            "bert/serving/README.md, or name the folder of a model or a published name"
        )


class ModelSettings(Settings):
    model: str = Field(
        description="a checkpoint, the output folder of a run, an export, another library's model, or a published name"
    )
    task: Task | None = Field(None, description="what to use the model for; none: what its head is for")
    top_k: int = Field(5, ge=1, description="fills, answers or nearest lines to list")
    max_seq_length: int | None = Field(None, description="longest sequence in tokens; none: that of the training")
    device: Literal["auto", "cpu", "gpu", "tensorrt"] = Field(
        "auto",
        description="auto: a GPU if there is one; tensorrt: an export compiled for the GPU, minutes at the start",
    )
    cpu_threads: int = Field(0, ge=0, description="0: one for each core")
    vocab_file: Path | None = Field(None, description="vocab.txt or tokenizer.json, if none is beside the weights")
    do_lower_case: bool | None = Field(None, description="lower-case the text (default: as the model's files say)")
    strip_accents: bool | None = Field(None, description="strip accents (default: as they say, else if lower-cased)")

    @field_validator("model")
    @classmethod
    def _is_no_address(cls, model: str) -> str:
        refuse_address(model)
        return model

    @field_validator("vocab_file")
    @classmethod
    def _exists(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"--vocab-file {path} must be an existing file; check the path")
        return path


def model_parser(prog: str, description: str, groups: Mapping[str, type[Settings]]) -> Parser:
    """A parser whose first argument is the model; the other fields of settings are flags, in groups by their titles."""
    parser = Parser(
        prog=prog,
        description=description,
        formatter_class=Formatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("model", metavar="MODEL", help=ModelSettings.model_fields["model"].description)
    for title, settings in groups.items():
        group: Any = parser.add_argument_group(title) if title else parser
        for name, field in settings.model_fields.items():
            if bool in members(field):  # without a value: the word after it may be the model
                group.add_argument(flag_name(name), action=argparse.BooleanOptionalAction, help=field.description)
            elif name not in ("model", "files"):
                add_flag(group, name, field)
    return parser
