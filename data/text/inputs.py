"""Lists the files of a corpus with their formats; other files in a folder are named with the reason."""

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bert.files import shown
from data.text.compression import COMPRESSIONS
from data.text.file_formats import FORMATS, SOURCE_TEXT, Input, input_of, readable_suffixes
from data.text.findings import Findings
from data.text.folders import files_below
from data.text.lddl_reader import corpus_of, is_source_text
from data.text.lddl_writer import REPORT_NAME

_SET_ASIDE = re.compile(r".*(~|\.(bak|orig|old|tmp|sw[op]))|#.*#|~\$.*", re.IGNORECASE | re.DOTALL)
_OTHER_KIND = "files of other kinds left out"
_UNREADABLE = "may not be read by this user; allow it (chmod +r), or leave it out"


def list_inputs(
    paths: Iterable[Path], kind: str, findings: Findings, follow_links: bool = False, flag: str = "input"
) -> list[Input]:
    """List the named files and the readable files below named folders, sorted within each folder.

    Args:
        follow_links: also those that lead out of a folder.
        flag: names the paths in errors.
    """
    inputs: list[Input] = []
    remedy = f", or give --format {'|'.join(FORMATS)}" if flag == "input" else ""
    for path in paths:
        if path.is_dir():
            inputs += _inputs_below(path, kind, findings, follow_links)
        elif not path.is_file():
            raise ValueError(f"{flag}={shown(path)}: no such file or folder")
        elif isinstance(source := input_of(path, path.name, kind), str):
            raise ValueError(f"{flag}={shown(path)}: {source}{remedy if source.endswith('*.txt') else ''}")
        else:
            inputs.append(_as_source_text(source, kind))
    _refuse_both_parts(inputs, flag)
    if not inputs:
        left_out = findings.left_out
        example = f" ({len(left_out)} left out, e.g. {left_out[0]})" if left_out else ""
        raise ValueError(
            f"{flag}={' '.join(map(shown, paths))}: no file to read{example}; names must end in "
            f"{' '.join(readable_suffixes())}, perhaps with "
            f"{' '.join(COMPRESSIONS)}{', or pass --format' * (flag == 'input')}"
        )
    once: dict[Path, Input] = {}
    for source in sorted(inputs, key=lambda source: source.path.is_symlink()):  # files come before links to them
        once.setdefault(source.path.resolve(), source)
    distinct = [source for source in inputs if once[source.path.resolve()] is source]
    if len(distinct) < len(inputs):
        findings.counts["files named or linked twice, read once"] += len(inputs) - len(distinct)
    return _with_own_names(distinct)


def _with_own_names(inputs: list[Input]) -> list[Input]:
    """Give each input a unique name for document ids: a.md becomes a-2 if a.txt exists too."""
    renamed: dict[str, Input] = {}
    for source in inputs:
        name, number = source.name, 1
        while name in renamed:
            number += 1
            name = f"{source.name}-{number}"
        renamed[name] = replace(source, name=name)
    return list(renamed.values())


def _inputs_below(folder: Path, kind: str, findings: Findings, follow_links: bool) -> list[Input]:
    inputs: list[Input] = []
    shared: set[Path] = set()  # hidden folders that are named already

    def leave_out_unreadable(error: OSError) -> None:
        if not isinstance(error, PermissionError) or os.path.samefile(error.filename, folder):
            raise error
        findings.leave_out("unreadable files and folders left out", error.filename, _UNREADABLE)

    for file in files_below(folder, findings, follow_links=follow_links, on_error=leave_out_unreadable):
        name = file.relative_to(folder)
        hidden = _hidden_part(folder, name)
        if hidden in shared:
            findings.counts[_OTHER_KIND] += 1
        elif hidden is not None:
            findings.leave_out(_OTHER_KIND, folder / hidden, "is hidden")
            shared.add(hidden)
        elif _is_beside_source_text(file):
            findings.counts["reports and downloads of an import, beside its text"] += 1
        elif _SET_ASIDE.fullmatch(name.name):
            findings.leave_out(_OTHER_KIND, file, "is a backup or temporary file")
        elif isinstance(source := input_of(file, str(name), kind, False), str):
            findings.leave_out(_OTHER_KIND, file, source)
        elif not os.access(file, os.R_OK):
            findings.leave_out("unreadable files and folders left out", file, _UNREADABLE)
        else:
            inputs.append(_as_source_text(source, kind))
    return inputs


def _as_source_text(source: Input, kind: str) -> Input:
    """The input as source text, if it is an import's output with one document a line, its id first."""
    is_written = kind in ("auto", "code") and source.kind == "txt" and not source.compression
    return replace(source, kind=SOURCE_TEXT) if is_written and is_source_text(source.path) else source


def _is_beside_source_text(file: Path) -> bool:
    """Whether a file is an import's report or download, next to the text that the import wrote."""
    if file.name == REPORT_NAME and any((file.parent / part / "source").is_dir() for part in ("", "train")):
        return True
    output = file.parent.parent
    return file.parent.name == "download" and (output / REPORT_NAME).is_file() and (output / "source").is_dir()


def _refuse_both_parts(inputs: Iterable[Input], flag: str) -> None:
    """Raise ValueError if the held-out part of an import would be read with its training part."""
    corpora = {corpus for source in inputs if source.kind == SOURCE_TEXT and (corpus := corpus_of(source.path))}
    for corpus in sorted(corpora):
        train = corpus.with_name("train")
        if corpus.name == "held_out" and train in corpora:
            raise ValueError(
                f"{flag}={shown(corpus.parent)}: holds {shown(corpus)}, which is not for training, beside "
                f"{shown(train)}; give one of the two"
            )


def _hidden_part(folder: Path, name: Path) -> Path | None:
    """The hidden file or folder in a path; mail folders do not count as hidden."""
    begins = (Path(*name.parts[:place]) for place in range(1, len(name.parts) + 1) if name.parts[place - 1][0] == ".")
    return next((begin for begin in begins if not (folder / begin / "cur").is_dir()), None)


def total_bytes(inputs: Iterable[Input]) -> int:
    """Total size of the files on disk, in bytes."""
    return sum(os.path.getsize(source.path) for source in inputs)
