"""The command line of run_predict.py. Paddle is loaded after it was checked."""

import argparse
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from bert import exit_codes
from bert.config.flags import Formatter, Parser, add_flag, flag_name, members
from bert.config.settings_base import Settings
from bert.inference.lines import refuse_documents

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


if TYPE_CHECKING:
    from bert.inference.streaming import Position, Run
    from bert.inference.trained_model import TrainedModel

_DESCRIPTION = (
    "Use a trained model: fill [MASK]s, make sentence vectors, answer questions, classify texts, find entities. The "
    "results are JSON lines, one for each line of the input, in its order; a line that cannot be used gives one with "
    "an error. Without a file, a terminal asks for one text after the other, and a pipe is read. Lines are plain "
    "text, two texts separated by a tab (pairs; question and context), or JSON objects with the keys text, text and "
    "text_pair, question and context, or the columns of the training data, and an id if you like."
)


class PredictRequest(ModelSettings):
    """What to do, from the flags."""

    files: tuple[Path, ...] = Field((), description="files of lines (default: standard input)")
    output: Path | None = Field(None, description="write to a file; the same command resumes; .npy for vectors")
    input_format: Literal["auto", "text", "tsv", "jsonl"] = Field(
        "auto", description="of the lines; auto: by name and first line"
    )
    nearest: Path | None = Field(None, description="find the lines of this file nearest to each line of the input")
    show: Path | None = Field(
        None,
        description="show what the model can do with a text, a file or a folder: masked words and nearest sentences",
    )
    batch_size: int = Field(32, ge=1, description="sequences that run at a time")

    def is_resumable(self) -> bool:
        """Whether the inputs can be read again from the place where an interruption left them."""
        return bool(self.files) and all(path.is_file() for path in self.files)

    def wants_vectors_file(self) -> bool:
        return self.output is not None and self.output.suffix == ".npy"

    @model_validator(mode="after")
    def _check(self) -> Self:
        named = [("FILE", path) for path in self.files] + ([("--nearest", self.nearest)] if self.nearest else [])
        for flag, path in named:
            if path.is_dir() or not path.exists():
                raise ValueError(f"{flag} {path} must be an existing file; check the path")
            refuse_documents(path, self.input_format if flag == "FILE" else "auto")
        if self.nearest and self.task != "encoder":
            raise ValueError(f"--nearest compares sentence vectors; omit --task {self.task}")
        if self.show and (self.files or self.nearest or self.output):
            raise ValueError("--show prints what the model can do with a text; omit FILE, --nearest and --output")
        if self.output and not self.output.absolute().parent.is_dir():
            raise ValueError(f"--output {self.output}: the folder does not exist; make it first")
        if self.wants_vectors_file() and (self.task != "encoder" or self.nearest):
            raise ValueError(f"--output {self.output} is for vectors; pass --encode, or name a .jsonl file")
        return self


def parse_request(argv: Sequence[str] | None) -> PredictRequest:
    """Read and check the command line.

    Raises:
        pydantic.ValidationError: `bert.config.setting_errors.explain` names the flags.
    """
    parser = Parser(
        prog="run_predict.py",
        description=_DESCRIPTION,
        formatter_class=Formatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    fields = PredictRequest.model_fields
    parser.add_argument("model", metavar="MODEL", help=fields["model"].description)
    parser.add_argument("files", nargs="*", default=[], metavar="FILE", help=fields["files"].description)
    parser.add_argument("--encode", action="store_true", help="make sentence vectors (means of the last hidden states)")
    add_flags(parser, PredictRequest, positional=("model", "files"))
    values = vars(parser.parse_intermixed_args(argv))
    if values.pop("encode", False):
        if values.setdefault("task", "encoder") != "encoder":
            raise ValueError(f"--encode makes vectors, --task {values['task']} something else; omit one of them")
    if "nearest" in values:
        values.setdefault("task", "encoder")
    return PredictRequest(**values)


def run_request(request: PredictRequest) -> int:
    """Do what was asked; returns the exit code."""
    from bert.inference.heads import load_from_settings
    from bert.inference.nearest import NearestSentences
    from bert.inference.terminal import talk

    model = load_from_settings(request, request.batch_size)
    if request.show:
        from bert.inference.demonstration import demonstrate, example_sentences

        print("\n".join(demonstrate(model, example_sentences(request.show))))
        return exit_codes.OK
    run = NearestSentences(model, request.nearest).run if request.nearest else None
    print(model.opened.describe(), file=sys.stderr)
    if not request.files and sys.stdin.isatty():
        return talk(model, sys.stdin, sys.stdout, run)
    return _run_lines(model, request, run)


def _run_lines(model: "TrainedModel", request: PredictRequest, run: "Run | None") -> int:
    from bert.inference.streaming import Position, json_lines, results_of

    end = Position()
    if request.output is None:
        for records, end in results_of(model, request.files, request.input_format, run):  # noqa: B007
            sys.stdout.buffer.write(json_lines(records))
            sys.stdout.buffer.flush()
    else:
        try:
            end = _write_file(model, request, run, request.output)
        except KeyboardInterrupt:
            if not request.is_resumable():
                raise
            return exit_codes.INTERRUPTED
        print(f"written: {request.output}", file=sys.stderr)
    if end.bad or request.output:
        print(end.summary(), file=sys.stderr)
    return exit_codes.BAD_INPUT if end.bad and end.bad == end.lines else exit_codes.OK


def _write_file(model: "TrainedModel", request: PredictRequest, run: "Run | None", output: Path) -> "Position":
    from bert.finetuning.prediction_stream import Window, key_of, write_stream
    from bert.inference.streaming import Position, json_lines, npy_header, results_of, vector_rows

    sizes = [path.stat().st_size for path in request.files]
    width = model.encode(["word"]).shape[1] if request.wants_vectors_file() else 0

    def windows(start: Mapping[str, Any] | None, _: Any) -> Iterator[Window]:
        before = start["lines"] if start else 0
        for records, at in results_of(model, request.files, request.input_format, run, start):
            content = vector_rows(records, width) if width else json_lines(records)
            if width and not before:
                content = npy_header(0, width) + content
            before = at.lines
            yield Window([content], at.lines, asdict(at), place=sum(sizes[: at.file]) + at.end)

    def finish(files: Sequence[BinaryIO], end: Mapping[str, Any] | None) -> None:
        if width and (end is None or end["bad"] == end["lines"]):
            raise ValueError("no line has a vector; check the input")
        if width and end is not None:
            files[0].seek(0)
            files[0].write(npy_header(end["lines"], width))

    key = None
    if request.is_resumable():
        compared = [model.opened.path, *request.files, *([request.nearest] if request.nearest else [])]
        key = key_of({**vars(request), **dict.fromkeys(("batch_size", "device", "cpu_threads"))}, compared)
    end = write_stream(
        [output],
        windows,
        finish,
        key=key,
        flag="--output",
        unit="lines",
        total=sum(sizes) or None,
        total_unit="B",
        log=lambda line: print(line, file=sys.stderr),
    )
    return Position(**(end or {}))
