"""The command line of run_predict.py. Paddle is loaded after it was checked."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bert import exit_codes
from bert.config.flags import Formatter, Parser
from bert.inference.lines import FORMATS, refuse_documents
from bert.reporting.progress import progress

if TYPE_CHECKING:
    from bert.inference.streaming import Counts, Run
    from bert.inference.trained_model import TrainedModel

_TASKS = ("masked-lm", "encoder", "question-answering", "sequence-classification", "token-classification")
_DESCRIPTION = (
    "Use a trained model: fill [MASK]s, make sentence vectors, answer questions, classify texts, find entities. The "
    "results are JSON lines, one for each line of the input, in its order; a line that cannot be used gives one with "
    "an error. Without a file, a terminal asks for one text after the other, and a pipe is read. Lines are plain "
    "text, two texts separated by a tab (pairs; question and context), or JSON objects with the keys text, text and "
    "text_pair, question and context, or the columns of the training data, and an id if you like."
)


@dataclass(frozen=True)
class PredictRequest:
    """What to do, from the flags."""

    model: str
    files: tuple[Path, ...]
    task: str | None
    output: Path | None
    input_format: str
    nearest: Path | None
    show: Path | None
    top_k: int
    batch_size: int
    max_seq_length: int | None
    device: str
    cpu_threads: int
    vocab_file: Path | None
    do_lower_case: bool | None

    def is_resumable(self) -> bool:
        """Whether the inputs can be read again from the place where an interruption left them."""
        return bool(self.files) and all(path.is_file() for path in self.files)

    def wants_vectors_file(self) -> bool:
        return self.output is not None and self.output.suffix == ".npy"


def parse_request(argv: Sequence[str] | None) -> PredictRequest:
    """Read and check the command line.

    Raises:
        ValueError: the flag, the rule and the remedy.
    """
    values = vars(_parser().parse_intermixed_args(argv))
    if values.pop("encode"):
        if values["task"] not in (None, "encoder"):
            raise ValueError(f"--encode makes vectors, --task {values['task']} something else; omit one of them")
        values["task"] = "encoder"
    if values["nearest"]:
        values["task"] = values["task"] or "encoder"
    request = PredictRequest(**{**values, "files": tuple(values["files"])})
    _check(request)
    return request


def _check(request: PredictRequest) -> None:
    named = {"FILE": request.files, "--nearest": [request.nearest], "--vocab-file": [request.vocab_file]}
    for flag, paths in named.items():
        for path in paths:
            if path is not None and (path.is_dir() or not path.exists()):
                raise ValueError(f"{flag} {path} must be an existing file; check the path")
    for path in (*request.files, *([request.nearest] if request.nearest else [])):
        refuse_documents(path, request.input_format if path in request.files else "auto")
    if request.nearest and request.task != "encoder":
        raise ValueError(f"--nearest compares sentence vectors; omit --task {request.task}")
    if request.show and (request.files or request.nearest or request.output):
        raise ValueError("--show prints what the model can do with a text; omit FILE, --nearest and --output")
    if request.output and not request.output.absolute().parent.is_dir():
        raise ValueError(f"--output {request.output}: the folder does not exist; make it first")
    if request.wants_vectors_file() and (request.task != "encoder" or request.nearest):
        raise ValueError(f"--output {request.output} is for vectors; pass --encode, or name a .jsonl file")


def _parser() -> Parser:
    parser = Parser(prog="run_predict.py", description=_DESCRIPTION, formatter_class=Formatter, allow_abbrev=False)
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        help="a checkpoint, the output folder of a run, an export, another library's model, or a published name",
    )
    add("files", nargs="*", default=[], type=Path, metavar="FILE", help="files of lines (default: standard input)")
    add("--encode", action="store_true", help="make sentence vectors (means of the last hidden states)")
    add("--task", choices=_TASKS, help="what to use the model for (default: its head)")
    add("--output", type=Path, metavar="FILE", help="write to a file; the same command resumes; .npy for vectors")
    add("--input-format", choices=FORMATS, default="auto", help="of the lines (default: auto, by name and first line)")
    add("--nearest", type=Path, metavar="FILE", help="find the lines of this file nearest to each line of the input")
    add(
        "--show",
        type=Path,
        metavar="TEXT",
        help="show what the model can do with a text, a file or a folder: masked words and nearest sentences",
    )
    add("--top-k", type=int, default=5, metavar="N", help="fills, answers or nearest lines to list (default: 5)")
    add("--batch-size", type=int, default=32, metavar="N", help="sequences that run at a time (default: 32)")
    add("--max-seq-length", type=int, metavar="N", help="longest sequence in tokens (default: that of the training)")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="default: a GPU if there is one")
    add("--cpu-threads", type=int, default=0, metavar="N", help="default: one for each core")
    add("--vocab-file", type=Path, metavar="FILE", help="vocab.txt or tokenizer.json, if none is beside the weights")
    add(
        "--do-lower-case",
        action=argparse.BooleanOptionalAction,
        help="whether text is lower-cased (default: as the model's files say)",
    )
    return parser


def run_request(request: PredictRequest) -> int:
    """Do what was asked; returns the exit code."""
    from bert.inference.loading import load_model
    from bert.inference.nearest import NearestSentences
    from bert.inference.terminal import talk
    from bert.runtime.hardware import use_cores

    threads = use_cores(request.cpu_threads, "off", 0, 1)
    model = load_model(
        request.model,
        request.task,
        max_seq_length=request.max_seq_length,
        batch_size=request.batch_size,
        top_k=request.top_k,
        device=request.device,
        cpu_threads=threads,
        vocab_file=request.vocab_file,
        do_lower_case=request.do_lower_case,
    )
    if request.show:
        from bert.inference.demonstration import demonstrate
        from bert.inference.example_sentences import held_out_sentences

        print("\n".join(demonstrate(model, held_out_sentences(request.show)).lines()))
        return exit_codes.OK
    run = NearestSentences(model, request.nearest).run if request.nearest else None
    print(model.opened.describe(), file=sys.stderr)
    if not request.files and sys.stdin.isatty():
        return talk(model, sys.stdin, sys.stdout, run)
    return _run_lines(model, request, run)


def _run_lines(model: "TrainedModel", request: PredictRequest, run: "Run | None") -> int:
    from bert.inference.results import JsonLines
    from bert.inference.streaming import Counts, results_of

    counts = Counts()
    if request.output is None:
        writer = JsonLines(sys.stdout.buffer)
        for window in results_of(model, request.files, request.input_format, counts, run):
            writer.write(window.records)
    else:
        try:
            _write_file(model, request, run, counts, request.output)
        except KeyboardInterrupt:
            if not request.is_resumable():
                raise
            print("interrupted; the results so far are kept: start again to continue", file=sys.stderr)
            return exit_codes.INTERRUPTED
        print(f"written: {request.output}", file=sys.stderr)
    if counts.bad or request.output:
        print(counts.summary(), file=sys.stderr)
    return exit_codes.BAD_INPUT if counts.bad and counts.bad == counts.lines else exit_codes.OK


def _write_file(
    model: "TrainedModel", request: PredictRequest, run: "Run | None", counts: "Counts", output: Path
) -> None:
    from bert.finetuning.resumable_files import ResumableFiles, key_of
    from bert.inference.results import JsonLines, Vectors
    from bert.inference.streaming import Position, results_of

    sizes = [path.stat().st_size for path in request.files]
    key = None
    if request.is_resumable():
        compared = [model.opened.path, *request.files, *([request.nearest] if request.nearest else [])]
        key = key_of({**vars(request), **dict.fromkeys(("batch_size", "device", "cpu_threads"))}, compared)
    with ResumableFiles([output], key, "--output") as partial:
        start, done = Position(), 0
        if partial.state is not None:
            counts.lines, counts.bad = partial.state["counts"]
            start = Position(**partial.state["position"])
            done = sum(sizes[: start.file]) + start.end
            there = partial.partials[0]
            print(f"continuing after {counts.lines:,} lines, whose results are in {there}", file=sys.stderr)
        make = Vectors if request.wants_vectors_file() else JsonLines
        writer = make(partial.files[0], partial.state["writer"] if partial.state else None)
        with progress("predicted", sum(sizes) or None, done=done) as meter:
            for window in results_of(model, request.files, request.input_format, counts, run, start):
                writer.write(window.records)
                position = window.position.to_json()
                partial.save({"position": position, "counts": [counts.lines, counts.bad], "writer": writer.state()})
                meter.update(sum(sizes[: window.position.file]) + window.position.end - meter.n)
        writer.finish()
