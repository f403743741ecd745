"""Predictions for a file of any size: read, run and written a window at a time, and continued after an interruption."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bert.files import checksum_of, sha256_of_file
from bert.finetuning.config import FineTuningConfig
from bert.finetuning.loader import FeatureTable
from bert.finetuning.prediction import predict
from bert.finetuning.resumable_files import ResumableFiles, key_of
from bert.reporting.progress import progress
from bert.runtime.paddle_api import read_variable

logger = logging.getLogger(__name__)
Outputs = dict[str, np.ndarray]  # of the objective, by name: float32 [n, ...], in the order of the table
_NOT_IN_RESULTS = ("train_file", "eval_file", "cache_dir", "num_workers", "sequence_length_multiple", "download")


@dataclass(frozen=True)
class Window:
    """Examples that are run together.

    Attributes:
        table: their sequences; an example can have several.
        render: the outputs -> what is appended to each file; called on rank 0 only.
        counts: numbers of cut texts and the like, by name.
    """

    table: FeatureTable
    num_examples: int
    render: Callable[[Outputs], Sequence[bytes]]
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamedSet:
    """Examples to predict, read from a file again and again: it has been checked, and is not kept in memory.

    Attributes:
        name: for messages.
        source: the file.
        num_examples: in the file.
        unit: of what is counted: "examples", "questions".
        windows: the examples from a number on.
        files: the results' files, name -> what stands before and after the results.
        describe: the sums of the windows' counts -> lines for the log.
        labels: the classes, on which the results depend too.
    """

    name: str
    source: Path
    num_examples: int
    unit: str
    windows: Callable[[int], Iterator[Window]]
    files: Mapping[str, tuple[bytes, bytes]]
    describe: Callable[[Mapping[str, int]], Sequence[str]] = lambda counts: ()
    labels: Sequence[str] = ()


class StreamedPrediction:
    """Runs a prediction program over streamed sets, on all ranks; rank 0 writes.

    Args:
        device, program: as for `prediction.predict`, with the weights in the device's scope.
    """

    def __init__(self, config: FineTuningConfig, device: Any, program: Any) -> None:
        self._config, self._device, self._program = config, device, program
        self._seconds, self._sequences = 0.0, 0

    def sequences_per_second(self) -> float:
        return self._sequences / max(self._seconds, 1e-9)

    def run(self, part: StreamedSet) -> None:
        """All windows, without results: for a measurement."""
        for window in part.windows(0):
            self._outputs(window)

    def write(self, part: StreamedSet, folder: Path) -> None:
        """The results' files, continued where an equal command was interrupted.

        Raises:
            ValueError: the outputs are not finite, or partial files of another command are in the folder.
        """
        with contextlib.ExitStack() as stack:
            files, done, counts = None, 0, dict[str, int]()
            if self._device.group.is_main:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_noting_interruptions())
                files = stack.enter_context(
                    ResumableFiles([folder / name for name in part.files], self._key(part), "--output-dir")
                )
                done, counts = _begin(files, part)
            done = int(self._device.collective.sum(np.array([done], "int64"))[0])
            meter = stack.enter_context(
                progress("predicted", part.num_examples, part.unit, done=done) if files else contextlib.nullcontext()
            )
            for window in part.windows(done):
                outputs = self._outputs(window, meter, done)
                done += window.num_examples
                if files is None:
                    continue
                for file, data in zip(files.files, window.render(outputs), strict=True):
                    file.write(data)
                counts = {name: counts.get(name, 0) + number for name, number in window.counts.items()}
                files.save({"done": done, "counts": counts})
            if files is not None:
                for file, (_, tail) in zip(files.files, part.files.values(), strict=True):
                    file.write(tail)
        if files is not None:
            for line in part.describe(counts):
                logger.info(line)
            logger.info(f"predictions of {part.name} are in {folder}")

    def _outputs(self, window: Window, meter: Any = None, done: int = 0) -> Outputs:
        begin, batch, data = time.perf_counter(), self._config.batch, self._config.data
        size = len(window.table)

        def show(num_sequences: int) -> None:
            meter.update(done + window.num_examples * min(num_sequences, size) // size - meter.n)

        outputs = predict(
            self._device,
            self._program,
            window.table,
            batch.predict_batch_size,
            max_seq_length=data.max_seq_length,
            sequence_length_multiple=data.sequence_length_multiple,
            after_batch=show if meter is not None else None,
        )
        self._seconds += time.perf_counter() - begin
        self._sequences += size
        return outputs

    def _key(self, part: StreamedSet) -> str:
        """What decides the results: the file, the settings, the vocabulary, the classes, the model and the weights."""
        settings = self._config.data.model_dump()
        weights = {
            name: checksum_of(np.ascontiguousarray(read_variable(self._device.scope, name)).data.cast("B"))
            for name in self._program.parameters
        }
        return key_of(
            {
                **{name: value for name, value in settings.items() if name not in _NOT_IN_RESULTS},
                "vocabulary": sha256_of_file(self._config.vocabulary_file()),
                "precision": self._config.precision.model_dump(),
                "model": self._config.model.model_dump(),
                "labels": list(part.labels),
                "weights": weights,
            },
            [part.source],
        )


def _begin(files: ResumableFiles, part: StreamedSet) -> tuple[int, dict[str, int]]:
    """The number of examples whose results are in the files, and the counts of them."""
    if files.state is None:
        for file, (head, _) in zip(files.files, part.files.values(), strict=True):
            file.write(head)
        return 0, {}
    done = files.state["done"]
    logger.info(f"continuing after {done:,} {part.unit}, whose results are in {files.partials[0]}")
    return done, files.state["counts"]


@contextlib.contextmanager
def _noting_interruptions() -> Iterator[None]:
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        logger.info("interrupted; the results so far are kept: start again to continue")
        raise
