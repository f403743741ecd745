"""Which model to use, and how: the settings that prediction and the server share. This module loads no Paddle."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from bert.config.flags import Flag
from bert.config.settings_base import Settings
from bert.inference.rows import RowForm
from bert.model.head_specs import PREDICTIONS
from data.text.encodings import Decoding

if TYPE_CHECKING:  # Paddle takes a second to load
    from bert.inference.trained_model import TrainedModel

Task = Literal[PREDICTIONS]  # type: ignore[valid-type]


def refuse_address(model: object) -> None:
    """Raise ValueError for the address of a server in place of a model."""
    if "://" in str(model):
        raise ValueError(
            f"{model} is an address, not a model; ask a server with curl or the client of ten lines in "
            "docs/howto/serve.md, or name the folder of a model or a published name"
        )


class ModelSettings(Settings):
    model: Annotated[str, Flag(is_positional=True, placeholder="MODEL")] = Field(
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
    do_lower_case: Annotated[bool | None, Flag(default_text="as the model's files say")] = Field(
        None, description="lower-case the text"
    )
    strip_accents: Annotated[bool | None, Flag(default_text="as the model's files say, else if lower-cased")] = Field(
        None, description="strip accents"
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


class PredictRequest(ModelSettings):
    """What to predict, from the flags."""

    files: Annotated[tuple[Path, ...], Flag(is_positional=True, placeholder="FILE", default_text="standard input")] = (
        Field((), description="files of lines")
    )
    output: Path | None = Field(
        None,
        description="write to a file; the same command resumes. A .csv, .tsv or .parquet gets the columns of the input "
        "and those of the results, a .npy vectors (and a .npy.json, which says of what), another JSON lines",
    )
    input_format: Literal["auto", "text", "tsv", "csv", "jsonl"] = Field(
        "auto", description="of the lines; auto: by name and first line"
    )
    text_column: str | None = Field(None, description="column of the text in a table; none: as in the training")
    text_pair_column: str | None = Field(None, description="column of the second text, if there are two")
    header: bool | None = Field(
        None, description="the first line of a CSV or TSV names the columns; none: as in the training"
    )
    encoding: str | None = Field(
        None, description="of the files, such as cp1250; none: as in the training where they are not UTF-8, or detected"
    )
    language: str | None = Field(None, description="of the text, by which code pages are told apart")
    nearest: str | None = Field(
        None, description="a text whose nearest texts in --in FILE are shown; or, alone, the FILE of --in"
    )
    in_: Path | None = Field(
        None,
        description="find what is nearest to each line of the input in a file: lines, a table, or a .npy of --encode",
    )
    show: Path | None = Field(
        None,
        description="show what the model can do with a text, a file or a folder: masked words and nearest sentences",
    )
    layers: str | None = Field(
        None, description="with --encode: layers whose states are joined, as -1,-2; -1 is the last, 0 the embeddings"
    )
    pooling: Literal["none", "mean", "cls", "max"] | None = Field(
        None,
        description="with --encode: how the tokens' states become a vector; none: tokens and a vector of each; without "
        "it as the model was trained, else mean",
    )
    escape_formulas: bool = Field(
        False, description="in a CSV or TSV, put ' before what a spreadsheet would run as a formula (=, +, -, @)"
    )
    batch_size: int = Field(32, ge=1, description="sequences that run at a time")

    def is_resumable(self) -> bool:
        """Whether the inputs can be read again from the place where an interruption left them."""
        return bool(self.files) and all(path.is_file() for path in self.files)

    def form(self) -> str:
        """Of the output: csv, tsv, parquet, npy or jsonl. Standard output is CSV if the input is."""
        if self.output is not None:
            suffix = self.output.suffix.lower().removeprefix(".")
            return suffix if suffix in ("csv", "tsv", "parquet", "npy") else "jsonl"
        is_csv = self.input_format == "csv" or (self.input_format == "auto" and self.files)
        return "csv" if is_csv and all(".csv" in path.suffixes for path in self.files) else "jsonl"

    @model_validator(mode="after")
    def _check(self) -> Self:
        named = [("--in" if self.nearest else "--nearest", self.in_)] if self.in_ else []
        for flag, path in [*(("FILE", path) for path in self.files), *named]:
            if path.is_dir() or not path.exists():
                more = ", or name what to search for this text: --in FILE" if flag == "--nearest" else ""
                raise ValueError(f"{flag} {path} must be an existing file; check the path{more}")
        if self.nearest is not None and (not self.nearest.strip() or not self.in_ or self.files or self.output):
            raise ValueError(
                f"--nearest {self.nearest!r} needs a text and --in FILE, without another FILE and --output"
            )
        if self.in_ and self.task != "encoder":
            raise ValueError(f"--nearest compares sentence vectors; omit --task {self.task}")
        if self.show and (self.files or self.in_ or self.output):
            raise ValueError("--show prints what the model can do; omit FILE, --nearest and --output")
        if self.output and not self.output.absolute().parent.is_dir():
            raise ValueError(f"--output {self.output}: the folder does not exist; make it first")
        if self.output and self.output.is_dir():
            raise ValueError(f"--output {self.output} is a folder; name a file in it")
        if self.output and self.output.resolve() in (path.resolve() for path in self.files):
            raise ValueError(f"--output {self.output} is an input, which it would replace; name another file")
        Decoding.of(self)
        if self.text_pair_column and not self.text_column:
            raise ValueError(f"text_pair_column={self.text_pair_column} needs text_column; pass --text-column")
        if self.form() == "npy" and (self.task != "encoder" or self.in_):
            raise ValueError(f"--output {self.output} is for vectors; pass --encode, or name a .jsonl file")
        if self.layers and not re.fullmatch(r"-?\d{1,4}(,-?\d{1,4})*", self.layers):
            raise ValueError(f"layers={self.layers} must be numbers with commas between them; pass --layers -1,-2")
        if (self.layers or self.pooling) and (self.task != "encoder" or self.in_):
            raise ValueError("--layers and --pooling are for vectors; pass --encode, and omit --nearest")
        if self.form() == "npy" and self.pooling == "none":
            raise ValueError(f"--output {self.output} has a vector for each line; name a .jsonl, or another --pooling")
        return self

    def row_form(self, model: "TrainedModel") -> RowForm:
        """Where the texts are in the rows of the files."""
        names = tuple(name for name in (self.text_column, self.text_pair_column) if name is not None)
        decoding = Decoding.of(self, model.opened.usage)
        return model.row_form(self.input_format, [names] if names else (), decoding)

    def of_vectors(self) -> dict[str, Any]:
        """The arguments of `load_model` for vectors."""
        layers = [int(layer) for layer in (self.layers or "").split(",") if layer]
        return {"layers": layers, "pooling": self.pooling} if self.task == "encoder" else {}
