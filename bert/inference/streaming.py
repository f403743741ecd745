"""Runs a model over lines in their order, in windows of bounded memory; a bad line gives a record of its error."""

import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bert import exit_codes
from bert.finetuning.prediction_stream import WINDOW_CHARACTERS, WINDOW_EXAMPLES, Window, key_of, write_stream
from bert.inference.command_line import PredictRequest
from bert.inference.heads import load_from_settings
from bert.inference.inputs import Position, keys_of, read_requests, report_bad
from bert.inference.tables import TableInput, csv_lines, flat, free_name, joined, kind_of_table, write_parquet
from bert.inference.terminal import talk
from bert.inference.trained_model import NearestSentences, Request, Result, Run, TrainedModel

# What a head can be tried with; of another one a word, or two.
_EXAMPLES = {"masked-lm": ("[MASK]",), "question-answering": ("word?", "word")}


def run_request(request: PredictRequest) -> int:
    """What run_predict.py does; returns the exit code."""
    model = load_from_settings(request, request.batch_size)
    if request.show:
        from bert.inference.demonstration import demonstrate  # its sentences need a package of training

        print("\n".join(demonstrate(model, request.show)))
        return exit_codes.OK
    run = NearestSentences(model, request.nearest).run if request.nearest else model.run
    print(model.opened.describe(), file=sys.stderr)
    if not request.files and sys.stdin.isatty():
        return talk(model, sys.stdin, sys.stdout, run if request.nearest else None)
    try:
        end = _write(model, request, run)
    except KeyboardInterrupt:
        if request.output is None or not request.is_resumable():
            raise
        return exit_codes.INTERRUPTED
    if request.output:
        print(f"written: {request.output}", file=sys.stderr)
    if end.bad or request.output:
        bad = f", {end.bad:,} of them bad" if end.bad else ""
        print(f"{end.lines:,} {'line' if end.lines == 1 else 'lines'}{bad}", file=sys.stderr)
    return exit_codes.BAD_INPUT if end.bad and end.bad == end.lines else exit_codes.OK


def json_lines(records: Sequence[Result]) -> bytes:
    """A line for each record."""
    lines = "".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records)
    return lines.encode(errors="backslashreplace")  # half of a surrogate pair in a bad line, as JSON escapes it


def npy_header(rows: int, width: int) -> bytes:
    """What stands before the rows in a .npy file; as long for any number of rows: numpy leaves room for it to grow."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
    return header.getvalue()


class _Output:
    """Records as the bytes of one form of output.

    Args:
        form: as of `PredictRequest.form`.
    """

    def __init__(self, model: TrainedModel, request: PredictRequest, run: Run) -> None:
        self.form, self._keys = request.form(), keys_of(model, request)
        self._width = model.encode(["word"]).shape[1] if self.form == "npy" else 0
        self.is_flat = self.form in ("csv", "tsv", "parquet")
        texts = _EXAMPLES.get(model.task, ("word", "word")[: max(model.num_texts)])
        self._example = flat(run([texts])[0]) if self.is_flat else {}
        if "error" in self._example:  # a server refused it
            raise ValueError(self._example["error"])
        self._source = request.files[0] if request.files else None
        self._kind = kind_of_table(self._source, request.input_format)
        if self.form in ("csv", "tsv"):
            self._compare_columns(
                [path for path in request.files if kind_of_table(path, request.input_format) == "csv"]
            )

    def _compare_columns(self, paths: Sequence[Path]) -> None:
        """Refuse a CSV with columns that the first one lacks before anything is predicted."""
        rows = ((path, next(TableInput(path, sys.stdin.buffer, "csv", self._keys).rows(), None)) for path in paths)
        columns = {path: row.values for path, row in rows if row and row.values}  # a CSV without rows decides nothing
        first = next(iter(columns), None)
        for path, names in columns.items():
            if first and (more := [name for name in names if name not in columns[first]]):
                raise ValueError(
                    f"{path} has the columns {', '.join(more)[:200]}, which {first} has not; put it first or run it by "
                    "itself, or name a .jsonl as --output"
                )

    def content(self, records: Sequence[Result], at: Position, *, is_first: bool) -> bytes:
        if self.form == "npy":
            vectors = [record.get("vector", [np.nan] * self._width) for record in records]  # NaN for a bad line
            return (npy_header(0, self._width) if is_first else b"") + np.array(vectors, "<f4").tobytes()
        if self.form not in ("csv", "tsv"):
            return json_lines(records)
        own = at.columns or ["text"]
        columns = [*own, *(free_name(name, own) for name in (*self._example, "error"))]
        records = [{name: value for name, value in row.items() if name in columns or name != "line"} for row in records]
        mark = at.mark.encode() if is_first else b""
        return mark + csv_lines(records, columns, "\t" if self.form == "tsv" else at.delimiter, header=is_first)

    def header(self) -> bytes:
        """The CSV or TSV of a table without rows; nothing for other inputs."""
        if self._source is None or not self._kind or self.form not in ("csv", "tsv"):
            return b""
        delimiter, mark, names = TableInput(self._source, sys.stdin.buffer, self._kind, self._keys).opening()
        return self.content([], Position(columns=names, delimiter=delimiter, mark=mark), is_first=True)

    def finish(self, file: BinaryIO, end: Position) -> None:
        if self.form == "npy":
            if end.bad == end.lines:
                raise ValueError("no line has a vector; check the input")
            file.seek(0)
            file.write(npy_header(end.lines, self._width))
        elif self.form == "parquet":
            assert self._source is not None, "the request was checked"
            write_parquet(file, self._source, {**self._example, "error": ""})
        elif not end.lines:
            file.write(self.header())


def _write(model: TrainedModel, request: PredictRequest, run: Run) -> Position:
    """Write the results to standard output, or to a file that can be resumed; returns the end of the reading."""
    output, position = _Output(model, request, run), Position()
    if request.output is None:
        for records, at in results_of(model, request, run, position, is_flat=output.is_flat):
            sys.stdout.buffer.write(output.content(records, at, is_first=position.lines == 0))
            sys.stdout.buffer.flush()
            position = at
        if not position.lines:
            sys.stdout.buffer.write(output.header())
        return position
    sizes = [path.stat().st_size for path in request.files]
    is_of_rows = any(kind_of_table(path, request.input_format) for path in request.files)

    def windows(start: Mapping[str, Any] | None, _: Any) -> Iterator[Window]:
        is_first = start is None
        for records, at in results_of(model, request, run, Position(**(start or {})), is_flat=output.is_flat):
            place = None if is_of_rows else sum(sizes[: at.file]) + at.end
            yield Window([output.content(records, at, is_first=is_first)], at.lines, asdict(at), place=place)
            is_first = False

    key = None
    if request.is_resumable():
        compared = [*request.files, *([request.nearest] if request.nearest else [])]
        free = dict.fromkeys(("batch_size", "device", "cpu_threads"))
        opened = [model.opened.describe(), model.opened.fingerprint]
        key = key_of({**vars(request), **free, "opened": opened}, compared)
    end = write_stream(
        [request.output],
        windows,
        lambda files, end: output.finish(files[0], Position(**(end or {}))),
        key=key,
        flag="--output",
        unit="lines",
        total=None if is_of_rows else sum(sizes) or None,
        total_unit="lines" if is_of_rows else "B",
        log=lambda line: print(line, file=sys.stderr),
    )
    return Position(**(end or {}))


def results_of(
    model: TrainedModel, request: PredictRequest, run: Run, start: Position, *, is_flat: bool
) -> Iterator[tuple[list[Result], Position]]:
    """The records of all lines after a position, some at a time, and the position after them.

    Args:
        is_flat: whether the values of a record are no lists and no objects.
    """
    whole = flat if is_flat else dict
    records: list[Result] = []
    requests: list[Request | None] = []
    places: list[str] = []  # of those that can be used
    characters, failed, position = 0, 0, start
    for line in read_requests(model, request, position):
        if line is not None:
            record, texts, position, place = line
            records.append(record)
            requests.append(texts)
            places += [place] if texts else []
            characters += sum(map(len, texts or ()))
        if records and (line is None or len(records) >= WINDOW_EXAMPLES or characters >= WINDOW_CHARACTERS):
            usable = [texts for texts in requests if texts]
            answers = run(usable) if usable else []
            for place, answer in zip(places, answers, strict=True):
                if "error" in answer:  # at a server
                    report_bad(place, answer["error"], position.bad + failed)
                    failed += 1
            results = iter(answers)
            yield (
                [joined(r, whole(next(results))) if texts else r for r, texts in zip(records, requests, strict=True)],
                replace(position, bad=position.bad + failed),
            )
            records, requests, places, characters = [], [], [], 0
