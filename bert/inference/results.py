"""Writes results as JSON lines or as an array."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from bert.inference.trained_model import Result


class JsonLines:
    """One line for each record."""

    def __init__(self, files: Sequence[BinaryIO], state: Mapping[str, Any] | None = None) -> None:
        (self._out,) = files

    def write(self, records: list[Result]) -> None:
        self._out.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode())
        self._out.flush()

    def state(self) -> dict[str, Any]:
        """What a later writer needs to continue the file."""
        return {}

    def finish(self) -> None:
        pass


class Vectors:
    """The vectors of all lines as a .npy file, float32 [lines, hidden]; NaN for a bad line."""

    def __init__(self, files: Sequence[BinaryIO], state: Mapping[str, Any] | None = None) -> None:
        (self._out,) = files
        self._rows: int = state["rows"] if state else 0
        self._width: int = state["width"] if state else 0

    def write(self, records: list[Result]) -> None:
        for record in records:
            vector = record.get("vector")
            if vector is not None and not self._width:  # bad lines came before
                self._width = len(vector)
                self._write_header(0)
                self._out.write(np.full((self._rows, self._width), np.nan, "<f4").tobytes())
            if self._width:
                self._out.write(np.array([np.nan] * self._width if vector is None else vector, "<f4").tobytes())
            self._rows += 1
        self._out.flush()

    def state(self) -> dict[str, Any]:
        return {"rows": self._rows, "width": self._width}

    def finish(self) -> None:
        """Put the number of rows into the header."""
        if not self._width:
            raise ValueError("no line has a vector; check the input")
        self._out.seek(0)
        self._write_header(self._rows)  # as long as the first: numpy leaves room for the number of rows to grow

    def _write_header(self, rows: int) -> None:
        header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (rows, self._width)}
        np.lib.format.write_array_header_1_0(self._out, header)
