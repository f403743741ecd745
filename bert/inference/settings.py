"""Settings of the model, which prediction, server and index share. Loads no Paddle."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from bert.config.flags import Flag
from bert.config.settings_base import Settings
from bert.model.head_specs import PREDICTIONS

Task = Literal[PREDICTIONS]  # type: ignore[valid-type]


def refuse_address(model: object) -> None:
    """Raise ValueError if the model is the address of a server."""
    if "://" in str(model):
        raise ValueError(
            f"{model} is an address, not a model; ask a server with curl or the client of ten lines in "
            "docs/howto/serve.md, or name the folder of a model or a published name"
        )


class ModelSettings(Settings):
    model: Annotated[str, Flag(is_positional=True, placeholder="MODEL")] = Field(
        description="a checkpoint, the output folder of a run, an export, another library's model, or a published name"
    )
    task: Task | None = Field(None, description="what to use the model for (default: by its head)")
    top_k: int = Field(5, ge=1, description="fills, answers or nearest lines to list")
    max_seq_length: int | None = Field(None, description="longest sequence in tokens (default: as in the training)")
    device: Literal["auto", "cpu", "gpu", "tensorrt"] = Field(
        "auto",
        description="auto: a GPU if there is one; tensorrt: an export compiled for the GPU, minutes at the start",
    )
    cpu_threads: int = Field(0, ge=0, description="0: one for each core")
    vocab_file: Path | None = Field(None, description="vocab.txt or tokenizer.json, if none is beside the weights")
    do_lower_case: Annotated[bool | None, Flag(default_text="as in the model's files")] = Field(
        None, description="lower-case the text"
    )
    strip_accents: Annotated[bool | None, Flag(default_text="as in the model's files; otherwise if lower-casing")] = (
        Field(None, description="strip accents")
    )

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
