"""`run_predict.py`: use a trained model on texts of files, a pipe or a terminal."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from bert import exit_codes
from bert.config.flags import Flag
from bert.config.plain_commands import read_flags
from bert.config.setting_errors import usage_errors
from bert.files import write_atomically
from bert.finetuning.prediction_files import WINDOW_CHARACTERS, WINDOW_EXAMPLES, PredictionFiles, stamps
from bert.inference.output import Output
from bert.inference.predict_settings import PredictRequest
from bert.inference.rows import InputRow, RowForm, Rows, kind_of, table_form
from bert.inference.settings import refuse_address
from bert.printable import printable
from bert.reporting.progress import announce, progress
from data.text.tables import user_table

if TYPE_CHECKING:  # Paddle takes a second to load
    from bert.inference.nearest import NearestSentences
    from bert.inference.trained_model import TrainedModel

_DESCRIPTION = (
    "Use a trained model: fill [MASK]s, make sentence vectors, answer questions, classify texts, find entities. The "
    "results are JSON lines, one for each line of the input, in its order; a line that cannot be used gives one with "
    "an error. A table (.csv, .tsv, .json, .parquet) keeps its form and its columns. Without a file, a terminal asks "
    "for one text after the other, and a pipe is read. Lines are plain text, two texts separated by a tab (pairs; "
    "question and context), or JSON objects with the keys text, text and text_pair, question and context, or the "
    "columns of the training data; their other keys come back with the result."
)
_EXAMPLES = (
    "results/classify-tickets new_tickets.csv --output predicted.csv",
    "results/vectors --nearest 'how do I undo a commit' --in manual.txt",
)
_LISTED = 10  # bad lines that are reported one by one


class PredictCommand(PredictRequest):
    """The settings of run_predict.py."""

    encode: bool = Field(
        False,
        description="make sentence vectors, as the model was trained to; otherwise means of the last hidden states",
    )
    url: Annotated[str, Flag(is_hidden=True)] = Field("", description="address of a server, which is refused")

    @model_validator(mode="before")
    @classmethod
    def _imply(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Set the flags that others imply: --encode and --in make vectors; a lone --nearest FILE is --in FILE."""
        implied = dict(values)
        refuse_address(implied.get("url", ""))
        if implied.get("encode") == "true" and implied.setdefault("task", "encoder") != "encoder":
            raise ValueError(f"--encode makes vectors, --task {implied['task']} something else; omit one of them")
        if "nearest" in implied and "in_" not in implied:
            implied["in_"] = implied.pop("nearest")
        if "in_" in implied:
            implied.setdefault("task", "encoder")
        return implied


def main(argv: Sequence[str] | None = None) -> int:
    typed = read_flags(PredictCommand, argv, description=_DESCRIPTION, examples=_EXAMPLES, program="run_predict.py")
    request = PredictRequest(**{name: getattr(typed, name) for name in PredictRequest.model_fields})
    with usage_errors():
        return run(request)
    return exit_codes.OK


def run(request: PredictRequest) -> int:
    """Load the model and use it; returns the exit code."""
    if sys.stderr.isatty():  # an error in a log stays one line
        announce("loading", [request.model])
    from bert.inference.heads import load_from_settings  # loads Paddle
    from bert.inference.nearest import NearestSentences
    from bert.inference.reranked import find_reranker
    from bert.inference.terminal import result_lines, talk

    model = load_from_settings(request, request.batch_size, **request.vector_arguments())
    if request.show:
        from bert.inference.demonstration import demonstrate  # its sentences need a package of training

        print("\n".join(map(printable, demonstrate(model, request.show))))
        return exit_codes.OK
    nearest = None
    if request.in_:
        machine = {"device": request.device, "cpu_threads": request.cpu_threads}
        reranker = find_reranker(request.model, request.reranker, **machine)
        nearest = NearestSentences.of(request, model, reranker)
    print(model.opened.describe(), file=sys.stderr)
    if nearest:
        print(nearest.describe(), file=sys.stderr)
    if nearest and request.nearest:
        (result,) = nearest.run([model.request(request.nearest)], itself=True)
        lines = result_lines(result, {}) if sys.stdout.isatty() else [json.dumps(result, ensure_ascii=False)]
        print("\n".join(map(printable, lines)))
        _report_cut_texts(model)
        return exit_codes.OK
    if not request.files and sys.stdin.isatty():
        return talk(model, sys.stdin, sys.stdout, nearest.run if nearest else None)
    prediction = _Prediction(request, model, nearest)
    try:
        prediction.write()
    except KeyboardInterrupt:
        if request.output is None or not request.is_resumable():
            raise
        return exit_codes.INTERRUPTED
    rows, bad = prediction.num_rows, prediction.num_bad
    if request.output:
        print(f"written: {request.output}", file=sys.stderr)
    if bad or request.output:
        counted = f", {bad:,} of them bad" if bad else ""
        print(f"{rows:,} {'line' if rows == 1 else 'lines'}{counted}", file=sys.stderr)
    _report_cut_texts(model)
    return exit_codes.BAD_INPUT if bad and bad == rows else exit_codes.OK


def _report_cut_texts(model: "TrainedModel") -> None:
    if cut := model.cut_texts():
        print(cut, file=sys.stderr)


def windows_of(rows: Iterable[InputRow | None]) -> Iterator[list[InputRow]]:
    """Group the input rows that are predicted together: some thousand, or all rows before a pause of the input."""
    window: list[InputRow] = []
    characters = 0
    for row in chain(rows, [None]):
        if row is not None:
            window.append(row)
            characters += sum(map(len, row.texts))
        if window and (row is None or len(window) >= WINDOW_EXAMPLES or characters >= WINDOW_CHARACTERS):
            yield window
            window, characters = [], 0


class _Prediction:
    """Reads the rows of a request, predicts them (or finds their nearest texts) and writes the results.

    Attributes:
        num_rows, num_bad: rows that were read, and unusable rows among them.
    """

    def __init__(self, request: PredictRequest, model: "TrainedModel", nearest: "NearestSentences | None") -> None:
        self._request, self._model, self.num_rows, self.num_bad = request, model, 0, 0
        self._run: Callable[..., list[dict[str, Any]]] = nearest.run if nearest else model.run
        form = request.row_form(model)
        self._rows = Rows(request.files, form)
        columns = nearest.columns() if nearest else model.columns()
        self._output = Output(
            request.output_format(), self._rows, columns, model.opened.hidden_size, escapes=request.escape_formulas
        )
        kinds = {path: kind_of(path, request.input_format) for path in request.files}
        self._has_tables = any(is_table for _, is_table in kinds.values())
        if request.output_format() in ("csv", "tsv"):
            self._compare_columns([path for path, (kind, _) in kinds.items() if kind == "csv"], form)

    def _compare_columns(self, paths: Sequence[Path], form: RowForm) -> None:
        """Before anything is predicted, refuse a CSV that lacks columns of the first one."""
        columns: dict[Path, Sequence[str]] = {}
        for path in paths if len(paths) > 1 else ():
            table = user_table(path, table_form(form.keys, form.decoding.header), "csv", form.decoding)
            if next(table.rows, None) is not None:  # a CSV without rows decides nothing
                columns[path] = table.columns
        first = next(iter(columns), None)
        for path, names in columns.items():
            if first and (more := [name for name in names if name not in columns[first]]):
                raise ValueError(
                    f"{path} has the columns {', '.join(more)[:200]}, which {first} has not; put it first or run it by "
                    "itself, or name a .jsonl as --output"
                )

    def write(self) -> None:
        """Write all results to standard output, or to a file, whose writing can be resumed."""
        if self._request.output is not None:
            return self._write_file(self._request.output)
        for content, _ in self._contents(0):
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        sys.stdout.buffer.write(self._output.end(self.num_rows, self.num_bad))

    def _write_file(self, path: Path) -> None:
        output, command = self._output, self._command() if self._request.is_resumable() else None
        total = None if self._has_tables else sum(file.stat().st_size for file in self._request.files) or None
        files = PredictionFiles(
            {path: output.row_ends},
            command,
            flag="--output",
            unit="lines",
            log=lambda line: print(line, file=sys.stderr),
            convert=output.convert,
        )
        with files, progress("predicted", total, "lines" if self._has_tables else "B") as bar:
            for content, first in self._contents(files.rows):
                files.append([content], first)
                bar.update((self.num_rows if self._has_tables else self._rows.num_bytes) - bar.n)
            files.append([output.end(self.num_rows, self.num_bad)])
            output.finish(files.files[0], self.num_rows)
        if self._request.output_format() == "npy":
            facts = {**(command or {}), "texts_read": self._model.num_read, "texts_cut": self._model.num_truncated}
            write_atomically(Path(f"{path}.json"), json.dumps(facts, indent=1, default=str).encode())

    def _contents(self, done: int) -> Iterator[tuple[bytes, int]]:
        """The output of each window and the number of its first row; finished windows are skipped."""
        output = self._output
        for window in windows_of(self._rows):
            output.begin()
            first, self.num_rows = self.num_rows, self.num_rows + len(window)
            is_done = self.num_rows <= done
            self._count_bad(window, report=not is_done)
            if is_done:
                continue
            usable = [row.texts for row in window if row.texts]
            results = iter(self._run(usable) if usable else [])
            records = [output.record(row, next(results)) if row.texts else row.record for row in window]
            yield output.content(records, is_first=not first), first

    def _count_bad(self, window: Sequence[InputRow], *, report: bool) -> None:
        """Count the rows that cannot be predicted, and report the first of them on standard error."""
        for row in filter(lambda row: row.error, window):
            if report and self.num_bad <= _LISTED:
                rest = "further bad lines are counted; each has its error in the output"
                print(printable(f"{row.where}: {row.error}") if self.num_bad < _LISTED else rest, file=sys.stderr)
            self.num_bad += 1

    def _command(self) -> dict[str, Any]:
        """The facts that decide the results; an output file is resumed only if they are equal."""
        request, opened = self._request, self._model.opened
        settings = request.model_dump(exclude={"batch_size", "device", "cpu_threads"})
        files = [*request.files, *([request.in_] if request.in_ else [])]
        return {"settings": settings, "model": [opened.describe(), opened.fingerprint()], "files": stamps(files)}
