"""The command line of run_predict.py. It loads no Paddle."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from bert.config.flags import Formatter, Parser, add_flag, flag_name, members
from bert.config.settings_base import Settings
from bert.model.head_specs import PREDICTIONS

MODEL_HEADER = "x-bert-model"  # of a server's answers: the fingerprint of the model
Task = Literal[PREDICTIONS]  # type: ignore[valid-type]


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


_DESCRIPTION = (
    "Use a trained model: fill [MASK]s, make sentence vectors, answer questions, classify texts, find entities. The "
    "results are JSON lines, one for each line of the input, in its order; a line that cannot be used gives one with "
    "an error. A table (.csv, .tsv, .json, .parquet) keeps its form and its columns. Without a file, a terminal asks "
    "for one text after the other, and a pipe is read. Lines are plain text, two texts separated by a tab (pairs; "
    "question and context), or JSON objects with the keys text, text and text_pair, question and context, or the "
    "columns of the training data; their other keys come back with the result. MODEL may be the address of a server "
    "(http://HOST:PORT, of bert.serving), to which the texts are sent."
)


class PredictRequest(ModelSettings):
    """What to do, from the flags."""

    files: tuple[Path, ...] = Field((), description="files of lines (default: standard input)")
    output: Path | None = Field(
        None,
        description="write to a file; the same command resumes. A .csv, .tsv or .parquet gets the columns of the input "
        "and those of the results, a .npy vectors, another JSON lines",
    )
    input_format: Literal["auto", "text", "tsv", "csv", "jsonl"] = Field(
        "auto", description="of the lines; auto: by name and first line"
    )
    text_column: str | None = Field(None, description="column of the text in a table; none: as in the training")
    text_pair_column: str | None = Field(None, description="column of the second text, if there are two")
    nearest: Path | None = Field(None, description="find the lines of this file nearest to each line of the input")
    show: Path | None = Field(
        None,
        description="show what the model can do with a text, a file or a folder: masked words and nearest sentences",
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
        named = [("FILE", path) for path in self.files] + ([("--nearest", self.nearest)] if self.nearest else [])
        for flag, path in named:
            if path.is_dir() or not path.exists():
                raise ValueError(f"{flag} {path} must be an existing file; check the path")
        if self.nearest and self.task != "encoder":
            raise ValueError(f"--nearest compares sentence vectors; omit --task {self.task}")
        if self.show and (self.files or self.nearest or self.output or "://" in self.model):
            raise ValueError("--show prints what the model can do, if it is here; omit FILE, --nearest and --output")
        if self.output and not self.output.absolute().parent.is_dir():
            raise ValueError(f"--output {self.output}: the folder does not exist; make it first")
        if self.output and self.output.is_dir():
            raise ValueError(f"--output {self.output} is a folder; name a file in it")
        if self.text_pair_column and not self.text_column:
            raise ValueError(f"text_pair_column={self.text_pair_column} needs text_column; pass --text-column")
        if self.form() == "parquet" and [path.suffix.lower() for path in self.files] != [".parquet"]:
            raise ValueError(f"--output {self.output} is for one .parquet as input; name a .csv or .jsonl")
        if self.form() == "npy" and (self.task != "encoder" or self.nearest):
            raise ValueError(f"--output {self.output} is for vectors; pass --encode, or name a .jsonl file")
        return self


def parse_request(argv: Sequence[str] | None) -> PredictRequest:
    """Read and check the command line."""
    parser = model_parser("run_predict.py", _DESCRIPTION, {"": PredictRequest})
    help_ = PredictRequest.model_fields["files"].description
    parser.add_argument("files", nargs="*", default=[], metavar="FILE", help=help_)
    parser.add_argument("--encode", action="store_true", help="make sentence vectors (means of the last hidden states)")
    values = vars(parser.parse_intermixed_args(argv))
    if values.pop("encode", False) and values.setdefault("task", "encoder") != "encoder":
        raise ValueError(f"--encode makes vectors, --task {values['task']} something else; omit one of them")
    if "nearest" in values:
        values.setdefault("task", "encoder")
    return PredictRequest(**values)
