"""Read and write files of tagged words in CoNLL-2003's format.

One word per line with its tag in the last column, blank lines between sentences, -DOCSTART- lines between documents.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert.finetuning.ner.tags import SCHEMES, Scheme, Span, detect_scheme, read_spans, split_tag, write_tags
from bert.finetuning.text_files import DataError, text_lines

DOCUMENT_START = "-DOCSTART-"
_COLUMNS = re.compile(r"[ \t]+")  # no other white space: published words contain U+00A0 and U+0085


@dataclass(frozen=True)
class TaggedText:
    """The n words and s sentences of a file.

    Attributes:
        lines: its lines without line ends.
        line_numbers: int64 [n], index of each word's line in `lines`.
        words: n words.
        sentence_offsets: int64 [s + 1]; sentence i is words[sentence_offsets[i]:sentence_offsets[i + 1]].
        document_of_sentence: int64 [s], ascending from 0.
        spans: the entities; None for a file without tags.
        scheme: the tag scheme of the file; without tags, the one to write.
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

    def __len__(self) -> int:
        """The number of sentences."""
        return len(self.sentence_offsets) - 1

    def types(self) -> tuple[str, ...]:
        return tuple(sorted({span.type for span in self.spans or ()}))

    def tags(self, scheme: Scheme = "iob2") -> list[str]:
        """The tag of every word in the given scheme."""
        assert self.spans is not None
        return write_tags(self.spans, len(self.words), scheme, self.sentence_offsets[:-1].tolist())

    def document_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [s] each: the first word of the document of every sentence, and the end (exclusive)."""
        first = np.searchsorted(self.document_of_sentence, self.document_of_sentence, "left")
        after = np.searchsorted(self.document_of_sentence, self.document_of_sentence, "right")
        return self.sentence_offsets[first], self.sentence_offsets[after]


@dataclass(frozen=True)
class ConllFormat:
    """The columns of a file, counted from 0, or from the end if negative."""

    word_column: int = 0
    tag_column: int = -1
    scheme: Scheme | None = None
    tagged: bool = True


def read_tagged_text(path: Path, layout: ConllFormat = ConllFormat(), types: Sequence[str] | None = None) -> TaggedText:
    """Read the words, sentences, documents and entities of a file.

    Args:
        types: the valid entity types; None: any.
    Raises:
        DataError: the file is missing, not UTF-8, has no words, or has a line with another number of columns than the
            first, an invalid tag or an unknown entity type.
    """
    return _tagged_text(_Lines(path, list(_lines(path))), layout, types)


def tagged_windows(
    path: Path, layout: ConllFormat, most_sentences: int, most_characters: int, whole_documents: bool
) -> Iterator[TaggedText]:
    """The sentences of a file, some at a time; the windows' lines are those of the file.

    A window ends with a sentence, so memory is bounded by the longest sentence.

    Args:
        whole_documents: windows end with a document, and memory is bounded by the longest one.
    Raises:
        DataError: as `read_tagged_text`, when the reading comes to the place.
    """
    lines: list[str] = []
    first, first_word, num_sentences, characters = 0, None, 0, 0
    inside, is_new_document = False, False
    for line in _lines(path):
        is_word, is_start = _kind(line)
        is_new_document |= is_start
        if is_word and not inside:
            is_full = num_sentences >= most_sentences or characters >= most_characters
            if is_full and (is_new_document or not whole_documents):
                part = _Lines(path, lines, first, first_word)
                yield _tagged_text(part, layout, None)
                first, first_word = first + len(lines), part.first_word
                lines, num_sentences, characters = [], 0, 0
            num_sentences, is_new_document = num_sentences + 1, False
        inside = is_word
        lines.append(line)
        characters += len(line)
    yield _tagged_text(_Lines(path, lines, first, first_word), layout, None)


@dataclass
class _Lines:
    """Lines of a file from number `first` (from 0) on; `first_word`: line and width of the file's first word."""

    path: Path
    lines: list[str]
    first: int = 0
    first_word: tuple[int, int] | None = None


def _lines(path: Path) -> Iterator[str]:
    return (line.removesuffix("\n").removesuffix("\r") for line in text_lines(path))


def _kind(line: str) -> tuple[bool, bool]:
    """Whether a line has a word, and whether it starts a document."""
    stripped = line.strip(" \t")
    is_start = stripped.startswith(DOCUMENT_START)
    return bool(stripped) and not is_start, is_start


def _tagged_text(part: _Lines, layout: ConllFormat, types: Sequence[str] | None) -> TaggedText:
    path, lines = part.path, part.lines
    rows, numbers, starts, documents = _rows(path, lines)
    part.first_word = part.first_word or (numbers[0], len(rows[0]))
    width = part.first_word[1]
    for number, row in zip(numbers, rows, strict=True):
        if len(row) != width:
            raise DataError(
                f"{path}:{part.first + number + 1}: {len(row)} columns, line {part.first_word[0] + 1} has {width} "
                f"({lines[number][:60]!r}); every line needs the same columns, separated by spaces or tabs"
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


def predicted_lines(text: TaggedText, spans: Sequence[Span]) -> bytes:
    """The lines of a text with the predicted tag, in its scheme, as an additional column.

    For a tagged text, the last two columns are the input of the CoNLL scorers.
    """
    tags = write_tags(spans, len(text.words), text.scheme, text.sentence_offsets[:-1].tolist())
    lines = [f"{line} O" if line.startswith(DOCUMENT_START) else line for line in text.lines]
    for number, tag in zip(text.line_numbers.tolist(), tags, strict=True):
        lines[number] += ("\t" if "\t" in lines[number] else " ") + tag
    return ("\n".join(lines) + "\n").encode()


def _rows(path: Path, lines: list[str]) -> tuple[list[list[str]], list[int], list[int], list[int]]:
    """Columns and line (from 0) of every word; first word and document (from 0) of every sentence."""
    rows: list[list[str]] = []
    numbers: list[int] = []
    starts: list[int] = []
    documents: list[int] = []
    document, inside = 0, False
    for number, line in enumerate(lines):
        is_word, is_start = _kind(line)
        if not is_word:
            inside = False
            document += is_start and bool(rows)
            continue
        if not inside:
            starts.append(len(rows))
            documents.append(document)
            inside = True
        rows.append(_COLUMNS.split(line.strip(" \t")))
        numbers.append(number)
    if not rows:
        raise DataError(
            f"{path} has no words: {len(lines)} lines, all blank or {DOCUMENT_START}; copy or download it again"
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
    """Raise a DataError for the first invalid tag or unknown type."""
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
    scheme, misfits = detect_scheme(tags, starts, SCHEMES if wanted is None else (wanted,))
    if not misfits:
        return scheme, ()
    return scheme, (
        f"{path}: {misfits} of {len(tags)} tags are not in {scheme} (known schemes: {', '.join(SCHEMES)}); "
        "they are read by the rules of the CoNLL scorer",
    )
