"""Surveys the files of a corpus before an import: what will be read, left out and refused."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bert.help_parser import wrapped
from bert.reporting.progress import megabytes
from data.text.compression import DamagedError
from data.text.file_formats import Input
from data.text.findings import Findings
from data.text.held_out_split import check_groups
from data.text.inputs import list_inputs
from data.text.readers import Reading, read_pieces
from data.text.script_facts import ScriptFacts
from data.text.text_check import NotTextError, base64_characters, is_mostly_base64

MOST_READ_BYTES = 100_000_000  # of a larger folder every n-th file, and of a file at most this
SAMPLE_CHARACTERS = 1_000_000  # of all files, from the beginning of each; of more than 500 files, of some
_LEAST_OF_A_FILE = 2_000
_MAX_REASONS, _MAX_NAMES = 20, 3
_WARNED_SHARE = 0.1  # of the bytes of a folder


@dataclass
class Survey:
    """Counts over the files. A large folder is judged by a sample of its files."""

    findings: Findings
    scale: float = 1.0  # size of all files divided by the size of the files read
    files: Counter = field(default_factory=Counter)  # number of readable files by format
    documents: Counter = field(default_factory=Counter)  # number of documents by format
    script: ScriptFacts = field(default_factory=ScriptFacts)
    sample: list[str] = field(default_factory=list)
    sample_of_a_file: int = SAMPLE_CHARACTERS
    text_bytes: int = 0  # size of the text in UTF-8
    file_bytes: int = 0  # size of all opened files, omitted ones included
    unread_bytes: int = 0  # size of the files of other kinds, omitted unread
    alphabet: set[str] = field(default_factory=set)  # lower-case characters that occur
    every: int = 1  # only each n-th file was read
    groups: set[str] = field(default_factory=set)

    def scaled(self, count: int) -> int:
        """Scale a count over the sample to all files."""
        return round(count * self.scale)

    def read(self, source: Input, reading: Reading, is_sampled: bool = True) -> None:
        """Count a file, or the beginning of a very large one."""
        size, documents, has_text = source.path.stat().st_size, 0, False
        characters = base64 = read = 0
        most = MOST_READ_BYTES if source.kind in ("txt", "log") and not source.compression else math.inf
        sampled = self.sample_of_a_file if is_sampled else 0
        try:
            for piece in read_pieces(source, reading, self.findings):
                encoded, num_bytes = base64_characters(piece.text), len(piece.text.encode("utf-8", "surrogatepass"))
                read += num_bytes
                if piece.text and not is_mostly_base64(encoded, len(piece.text)):
                    self._add(piece.text, num_bytes)
                    if sampled > 0:
                        self.sample.append(piece.text[:sampled].encode("utf-8", "replace").decode())
                        sampled -= len(piece.text)
                has_text |= bool(piece.text.strip())
                characters, base64 = characters + len(piece.text), base64 + encoded
                is_enough = read > most
                self.groups.update([] if piece.group is None else [piece.group])
                if piece.ends or is_enough:
                    has_text = has_text and not self.findings.drops_base64(piece.id, base64, characters)
                    characters = base64 = 0
                    documents, has_text = documents + has_text, False
                if is_enough:
                    size = read
                    break
            if documents:
                self.files[source.kind] += 1
            else:
                self.findings.leave_out("files without a document left out", source.path, "has no document with text")
        except (NotTextError, DamagedError) as error:
            self.findings.refuse(source, error, documents)
        self.documents[source.kind] += documents
        self.file_bytes += size

    def _add(self, text: str, num_bytes: int) -> None:
        self.script.add(text)
        self.text_bytes += num_bytes
        self.alphabet.update(text.lower())

    def lines(self) -> Iterator[str]:
        """Lines about the files before the training: used, guessed and omitted ones, with remedies."""
        kinds = ", ".join(
            f"{number:,} {kind} ({self.documents[kind]:,} document{'s' * (self.documents[kind] != 1)})"
            for kind, number in self.files.most_common()
        )
        sample = f" (of 1 file in {self.every}; the import names all)" if self.every > 1 else ""
        yield f"read: {kinds or 'nothing'}{sample}"
        yield from _grouped("  text is ", self.findings.guessed, "; --text-column names another")
        yield from self.findings.encoding_lines()
        if self.groups:
            yield f"groups, each held out or trained on as a whole: {len(self.groups):,}"
        findings = self.findings
        if findings.left_out:
            refused = (findings.bytes_left_out - self.unread_bytes) * self.scale
            share = (self.unread_bytes + refused) / max(1, self.unread_bytes + self.file_bytes * self.scale)
            number = sum(count for name, count in findings.counts.items() if "left out" in name)
            yield f"left out{sample}: {number:,} files, {megabytes(findings.bytes_left_out)}, {share:.0%} of the bytes"
            yield from _grouped("  ", findings.left_out)
            if share > _WARNED_SHARE:
                yield f"warning: {share:.0%} of the bytes of these files are not used"
        yield from findings.row_lines()
        yield from (wrapped(line, indent="  ") for line in findings.noticed())
        if rows := findings.counts["bad rows"]:
            yield f"rows left out{sample}: {rows:,}"
            most = sorted(findings.bad_rows.items(), key=lambda item: -item[1][1])
            for name, (first, count) in most[:_MAX_REASONS]:
                yield f"  {Path(name).name}:{first} (the first of {count:,})"
            if len(findings.bad_rows) > _MAX_REASONS:
                yield f"  ... and in {len(findings.bad_rows) - _MAX_REASONS:,} more files"


def _grouped(indent: str, lines: Sequence[str], remedy: str = "") -> Iterator[str]:
    """Group lines "file: reason" by reason: the number of files, and the first names."""
    names: dict[str, list[str]] = {}
    for line in lines:
        name, _, reason = line.partition(": ")
        names.setdefault(reason, []).append(Path(name).name)
    by_use = sorted(names.items(), key=lambda item: ("--" not in item[0], -len(item[1])))  # what a flag mends is first
    for reason, files in by_use[:_MAX_REASONS]:
        more = f" and {len(files) - _MAX_NAMES:,} more" if len(files) > _MAX_NAMES else ""
        yield f"{indent}{reason}{remedy}: {', '.join(files[:_MAX_NAMES])}{more}"
    if len(names) > _MAX_REASONS:
        yield f"{indent}... and {len(names) - _MAX_REASONS:,} more reasons; report.json of the import has all"


def survey(paths: Sequence[Path], reading: Reading, follow_links: bool = False, flag: str = "input") -> Survey:
    """Read the files below the paths, or a sample of many. `flag` names the paths in errors."""
    findings = Findings()
    inputs = list_inputs(paths, "code" if reading.source_code else "auto", findings, follow_links, flag)
    sizes = [source.path.stat().st_size for source in inputs]
    every = max(1, round(sum(sizes) / MOST_READ_BYTES))
    if len(inputs) < 20 * every:
        every = 1
    result = Survey(findings, every=every, unread_bytes=findings.bytes_left_out)
    result.sample_of_a_file = max(_LEAST_OF_A_FILE, SAMPLE_CHARACTERS * every // max(1, len(inputs)))
    sampled = max(1, len(inputs) // every * _LEAST_OF_A_FILE // SAMPLE_CHARACTERS)  # one file in so many
    for number, source in enumerate(inputs[::every]):
        result.read(source, reading, number % sampled == 0)
    if every == 1:
        check_groups(reading.group_by, len(result.groups))
    whole = sum(sizes) / max(result.file_bytes, 1)
    result.scale = whole if whole > 1.001 else 1.0
    return result
