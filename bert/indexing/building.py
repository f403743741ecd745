"""Reads files into an index: new and changed files are encoded in parts, and each part is written at once."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bert.files import waiting_lock
from bert.indexing.searcher import index_model, room_of, token_counts
from bert.inference.trained_model import TrainedModel
from bert.printable import printable
from bert.reporting.progress import megabytes, progress
from bert.search.documents import DocumentReader, NamedInput, PassageCutter, TableColumns, inputs_of
from bert.search.index import Change, SearchIndex
from bert.search.manifest import Source, is_index
from bert.search.segments import Passage
from data.text.encodings import Decoding
from data.text.findings import Findings

_LOCK = ".reading.lock"
_PART_PASSAGES, _PART_SECONDS = 4096, 60.0  # most passages and seconds of a part, the work that a kill can lose


@dataclass
class _Part:
    """Passages that are encoded together, and the files that they come from."""

    passages: list[Passage] = field(default_factory=list)
    read: dict[str, Source | None] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Summary:
    """Numbers of passages and files that one reading of files added, deleted or left unchanged."""

    added: int
    deleted: int
    read: int
    unchanged: int
    gone: int
    notes: tuple[str, ...]

    def lines(self, index: SearchIndex) -> list[str]:
        """Lines for the terminal: notes, counts, and the present size of the index."""
        changes = f"{self.read:,} files read, {self.unchanged:,} unchanged"
        changes += f", {self.gone:,} gone since the last time" if self.gone else ""
        state = f"{index.folder}: {index.snapshot.num_live:,} passages, {megabytes(index.num_bytes())}"
        return [*self.notes, f"{changes}: {self.added:,} passages added, {self.deleted:,} deleted", state]


def open_index(folder: Path, model: TrainedModel) -> SearchIndex:
    """Open the index in a folder, or create it. ValueError if another model made it."""
    wanted = index_model(model)
    index = SearchIndex(folder) if is_index(folder) else SearchIndex.create(folder, wanted)
    index.require_model(wanted)
    return index


class IndexBuilder:
    """Reads files into an index. A stopped reading leaves a valid index, and the same call resumes it."""

    def __init__(
        self, index: SearchIndex, model: TrainedModel, decoding: Decoding, columns: TableColumns | None = None
    ) -> None:
        self._index, self._model = index, model
        self._decoding, self._columns = decoding, columns or TableColumns()
        self._reader = DocumentReader(decoding, self._columns, Findings())
        count = token_counts(model.tokenizer)
        self._cutter = PassageCutter(count, room_of(model), decoding.language, self._reader.left_out)
        self._added = self._deleted = 0
        self._since = time.monotonic()

    def read(self, paths: Sequence[Path]) -> Summary:
        """Read files and folders. Changed files are read again; passages of missing files are deleted.

        If the settings differ from the last reading, the files count as changed. Only one process reads files into an
        index at a time: two processes would add the same file twice.
        """
        with waiting_lock(self._index.folder / _LOCK, f"command that reads files into {self._index.folder}"):
            self._index.refresh()
            return self._read(paths)

    def _read(self, paths: Sequence[Path]) -> Summary:
        known = self._index.sources()
        inputs = inputs_of(paths, self._decoding, self._columns, known, self._reader.findings)
        pending = [source for source in inputs if not _is_done(known.get(source.name), source)]
        gone, moved = _gone(paths, inputs, known), _moved(inputs, known)
        if gone or moved:
            self._deleted += self._index.apply(Change(sources=gone, read=dict.fromkeys(gone) | moved))
        part, total = _Part(), sum(source.state().size for source in pending)
        cut_before = self._model.num_read, self._model.num_truncated
        with progress("indexing", total) as meter:
            for source in pending:
                size = source.state().size
                left = size
                for num_bytes in self._read_file(source, known.get(source.name), part):
                    step = min(left, num_bytes)
                    meter.update(step)
                    left -= step
                    meter.set_postfix_str(self._state(), refresh=False)
                meter.update(left)
            self._keep(part)
        notes = (*_notes(self._reader), *filter(None, [self._model.cut_texts(*cut_before)]))
        return Summary(self._added, self._deleted, len(pending), len(inputs) - len(pending), len(gone), notes)

    def _state(self) -> str:
        return f"{self._index.snapshot.num_live:,} passages, {megabytes(self._index.num_bytes())}"

    def _read_file(self, source: NamedInput, before: Source | None, part: _Part) -> Iterator[int]:
        """Read a file to its end; yields the number of bytes of each new document."""
        state = source.state()
        done = before.documents if before is not None and state.is_of(before) else 0
        if before is not None and not done:
            part.replaced.append(source.name)
        number = 0
        for number, document in enumerate(self._reader.documents(source), start=1):
            found = self._cutter.passages(document)  # also of documents in the index, so that equal texts are known
            if number <= done:
                continue
            part.passages += found
            part.read[source.name] = replace(state, documents=number, is_whole=False)
            if len(part.passages) >= _PART_PASSAGES or time.monotonic() - self._since > _PART_SECONDS:
                self._keep(part)
            yield len(document.text.encode(errors="replace"))
        part.read[source.name] = replace(state, documents=number)

    def _keep(self, part: _Part) -> None:
        """Encode a part, write it into the index, and empty it."""
        if not (part.passages or part.read or part.replaced):
            return
        vectors = self._model.encode([passage.text for passage in part.passages])
        change = Change([*part.passages], vectors, sources=[*part.replaced], read=dict(part.read))
        self._deleted += self._index.apply(change)
        self._added += len(part.passages)
        part.passages.clear()
        part.read.clear()
        part.replaced.clear()
        self._since = time.monotonic()


def _is_done(known: Source | None, source: NamedInput) -> bool:
    return known is not None and known.is_whole and source.state().is_of(known)


def _moved(inputs: Sequence[NamedInput], known: Mapping[str, Source]) -> dict[str, Source | None]:
    """Files of the index whose path has changed, by name, with their new paths."""
    found = {one.name: replace(known[one.name], path=one.state().path) for one in inputs if one.name in known}
    return {name: source for name, source in found.items() if source.path != known[name].path}


def _gone(paths: Sequence[Path], inputs: Sequence[NamedInput], known: dict[str, Source]) -> list[str]:
    """Names of files that were read from these folders earlier and are missing now."""
    names, folders = {source.name for source in inputs}, [path.resolve() for path in paths if path.is_dir()]
    return [
        name
        for name, source in known.items()
        if name not in names and any(Path(source.path).is_relative_to(folder) for folder in folders)
    ]


def _notes(reader: DocumentReader) -> list[str]:
    """Lines about texts that are left out, and about what is unusual in the files."""
    findings = reader.findings
    left_out = [f"left out: {line}" for line in (*findings.left_out[:3], *findings.problems[:3])]
    if (more := len(findings.left_out) + findings.counts["bad rows"] - len(left_out)) > 0:
        left_out.append(f"left out: {more:,} files and rows more")
    guessed = [f"text of {guess}" for guess in findings.guessed[:3]]
    return [*guessed, *findings.encoding_lines(), *findings.row_lines(), *left_out, *reader.left_out.lines()]


def print_notes(lines: Sequence[str]) -> None:
    """Print each note on one line of standard error."""
    for line in lines:
        print(printable(line), file=sys.stderr)
