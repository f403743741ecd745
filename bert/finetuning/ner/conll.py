"""Files of tagged words in CoNLL-2003's format: a word a line with its tag in the last column, blank lines between
sentences, and lines of -DOCSTART- between documents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert.files import write_atomically
from bert.finetuning.ner.tags import SCHEMES, Scheme, Span, detect_scheme, read_spans, split_tag, write_tags
from bert.finetuning.text_files import DataError, decoded_text

DOCUMENT_START = "-DOCSTART-"
_COLUMNS = re.compile(r"[ \t]+")  # and no other white space: published words hold U+00A0 and U+0085


@dataclass(frozen=True)
class TaggedText:
    """What a file holds, its words in one row.

    Attributes:
        source: the file.
        lines: its lines as they stand, without their ends.
        line_numbers: int64 [n], the place in `lines` of each word.
        words: n words.
        sentence_offsets: int64 [s + 1]; sentence i is words sentence_offsets[i]..sentence_offsets[i + 1] - 1.
        document_of_sentence: int64 [s], rising from 0.
        spans: the entities; None in a file without tags.
        scheme: how they are tagged.
        warnings: lines to show to the user.
    """

    source: Path
    lines: list[str]
    line_numbers: np.ndarray
    words: list[str]
    sentence_offsets: np.ndarray
    document_of_sentence: np.ndarray
    spans: list[Span] | None
    scheme: Scheme
    warnings: tuple[str, ...] = ()

    def types(self) -> tuple[str, ...]:
        return tuple(sorted({span.type for span in self.spans or ()}))

    def tags(self, scheme: Scheme = "iob2") -> list[str]:
        """The tag of every word, in any scheme."""
        assert self.spans is not None
        return write_tags(self.spans, len(self.words), scheme, self.sentence_offsets[:-1].tolist())

    def document_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [s] each: the first word of every sentence's document, and the word after its last."""
        first = np.searchsorted(self.document_of_sentence, self.document_of_sentence, "left")
        after = np.searchsorted(self.document_of_sentence, self.document_of_sentence, "right")
        return self.sentence_offsets[first], self.sentence_offsets[after]


@dataclass(frozen=True)
class ConllFormat:
    """Where things stand; columns are counted from 0, from the end if negative.

    Attributes:
        word_column, tag_column: columns of the word and of its tag.
        scheme: None: found out.
        tagged: whether the file has tags.
    """

    word_column: int = 0
    tag_column: int = -1
    scheme: Scheme | None = None
    tagged: bool = True


def read_tagged_text(path: Path, layout: ConllFormat = ConllFormat(), types: Sequence[str] | None = None) -> TaggedText:
    """The words, sentences, documents and entities of a file.

    Args:
        types: the entity types that may occur; None: any.
    Raises:
        DataError: the file is missing, not UTF-8, has no words, has lines with another number of columns than its
            first, something that is not a tag, or a type that is not known.
    """
    lines = [line.removesuffix("\r") for line in decoded_text(path).split("\n")]
    if lines and not lines[-1]:
        lines.pop()
    rows, numbers, starts, documents = _rows(path, lines)
    width = len(rows[0])
    for number, row in zip(numbers, rows, strict=True):
        if len(row) != width:
            raise DataError(
                f"{path}:{number + 1}: {len(row)} columns, line {numbers[0] + 1} has {width} "
                f"({lines[number][:60]!r}); every word needs the same columns, between spaces or tabs"
            )
    words = [row[_column(path, layout.word_column, width, "word")] for row in rows]
    offsets = np.array([*starts, len(words)], np.int64)
    spans: list[Span] | None = None
    scheme: Scheme = layout.scheme or "iob2"
    warnings: tuple[str, ...] = ()
    if layout.tagged:
        if width == 1:
            raise DataError(f"{path}:{numbers[0] + 1}: one column, {words[0]!r}; a tag is needed after each word")
        tags = [row[_column(path, layout.tag_column, width, "tag")] for row in rows]
        _check_tags(path, tags, numbers, types)
        spans = read_spans(tags, starts)
        scheme, warnings = _scheme(path, tags, starts, layout.scheme)
    return TaggedText(
        path, lines, np.array(numbers, np.int64), words, offsets, np.array(documents, np.int64), spans, scheme, warnings
    )


def write_predicted(path: Path, text: TaggedText, spans: Sequence[Span]) -> None:
    """The file's own lines with the predicted tag, in the file's scheme, as one more column; whole or not at all.

    Where the file is tagged, the last two columns are what the CoNLL scorers take.
    """
    tags = write_tags(spans, len(text.words), text.scheme, text.sentence_offsets[:-1].tolist())
    lines = [f"{line} O" if line.startswith(DOCUMENT_START) else line for line in text.lines]
    for number, tag in zip(text.line_numbers.tolist(), tags, strict=True):
        lines[number] += ("\t" if "\t" in lines[number] else " ") + tag
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def _rows(path: Path, lines: list[str]) -> tuple[list[list[str]], list[int], list[int], list[int]]:
    """Columns of every word, its line counted from 0; first word and document of every sentence."""
    rows: list[list[str]] = []
    numbers: list[int] = []
    starts: list[int] = []
    documents: list[int] = []
    document, inside = 0, False
    for number, line in enumerate(lines):
        stripped = line.strip(" \t")
        if not stripped or stripped.startswith(DOCUMENT_START):
            inside = False
            document += bool(stripped and rows)
            continue
        if not inside:
            starts.append(len(rows))
            documents.append(document)
            inside = True
        rows.append(_COLUMNS.split(stripped))
        numbers.append(number)
    if not rows:
        raise DataError(
            f"{path} has no words: {len(lines)} lines, all of them blank or {DOCUMENT_START}; is the file whole?"
        )
    return rows, numbers, starts, documents


def _column(path: Path, column: int, width: int, what: str) -> int:
    if not -width <= column < width:
        raise DataError(
            f"{path}: {what}_column={column}, but its lines have {width} columns, 0 to {width - 1}; "
            f"correct --{what}-column"
        )
    return column


def _check_tags(path: Path, tags: list[str], numbers: list[int], types: Sequence[str] | None) -> None:
    """Refuse what is no tag and types that are not known, each at its first line."""
    for tag in dict.fromkeys(tags):
        try:
            _, kind = split_tag(tag)
            problem = (
                f"type {kind!r} is not one of {', '.join(types)}, which the model was trained on"
                if kind and types is not None and kind not in types
                else ""
            )
        except ValueError as error:
            problem = f"{error}; is --tag-column the right one?"
        if problem:
            raise DataError(f"{path}:{numbers[tags.index(tag)] + 1}: {problem}")


def _scheme(path: Path, tags: list[str], starts: list[int], wanted: Scheme | None) -> tuple[Scheme, tuple[str, ...]]:
    if wanted is not None:
        written = write_tags(read_spans(tags, starts), len(tags), wanted, starts)
        misfits = sum(
            "-".join(split_tag(tag)).removesuffix("-") != other for tag, other in zip(tags, written, strict=True)
        )
        scheme = wanted
    else:
        scheme, misfits = detect_scheme(tags, starts)
    if not misfits:
        return scheme, ()
    return scheme, (
        f"{path}: {misfits} of {len(tags)} tags are not in {scheme} ({', '.join(SCHEMES)} are known); "
        "they are read as the CoNLL scorer reads them",
    )
