"""Read and write files of tagged words in CoNLL-2003's format.

One word per line with its tag in the last column, blank lines between sentences, -DOCSTART- lines between documents.
Files in CoNLL-U are recognised by their numbers of words.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bert.finetuning.ner import conllu
from bert.finetuning.ner.tags import SCHEMES, Scheme, Span, detect_scheme, read_spans, split_tag, write_tags
from bert.finetuning.text_files import text_lines
from data.text.encodings import DETECTED, Decoding

if TYPE_CHECKING:  # not for --help
    import numpy as np

DOCUMENT_START = "-DOCSTART-"
_BLANKS = re.compile(r"[ \t]+")  # no other white space: published words contain U+00A0 and U+0085
_COMMENT = re.compile(r"#[ \t]")
_SAMPLED_LINES = 10_000  # by which the columns of a file are recognised


@dataclass(frozen=True)
class TaggedText:
    """The n words and s sentences of a file."""

    lines: list[str]  # without line ends
    line_numbers: "np.ndarray"  # int64 [n], index of each word's line in `lines`
    words: list[str]  # n words
    sentence_offsets: "np.ndarray"  # int64 [s + 1]; sentence i is words[sentence_offsets[i]:sentence_offsets[i + 1]]
    document_of_sentence: "np.ndarray"  # int64 [s], ascending from 0
    spans: list[Span] | None  # the entities; None for a file without tags
    scheme: Scheme  # tag scheme of the file, or the scheme to write if it has no tags
    warnings: Sequence[str] = ()
    comments: int = 0  # number of comment lines
    not_words: Sequence[int] = ()  # number of CoNLL-U lines that are ranges or empty nodes

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.sentence_offsets) - 1

    def sentences(self) -> list[list[str]]:
        return [self.words[first:last] for first, last in pairwise(self.sentence_offsets.tolist())]

    def tags(self, spans: Sequence[Span], scheme: Scheme) -> list[str]:
        """The tag of every word."""
        return write_tags(spans, len(self.words), scheme, self.sentence_offsets[:-1].tolist())

    def document_bounds(self) -> "tuple[np.ndarray, np.ndarray]":
        """First word and end (exclusive) of the document of every sentence, each int64 [s]."""
        import numpy as np

        first = np.searchsorted(self.document_of_sentence, self.document_of_sentence, "left")
        after = np.searchsorted(self.document_of_sentence, self.document_of_sentence, "right")
        return self.sentence_offsets[first], self.sentence_offsets[after]


@dataclass(frozen=True)
class ConllFormat:
    """Columns of a file, counted from 0 or, if negative, from the end; `tagged`: whether tags are read."""

    word_column: int = 0
    tag_column: int = -1
    scheme: Scheme | None = None
    tagged: bool = True
    decoding: Decoding = DETECTED


def read_tagged_text(path: Path, layout: ConllFormat = ConllFormat(), types: Sequence[str] | None = None) -> TaggedText:
    """Read words, sentences, documents and entities of a file; `types` are the valid entity types, None: any."""
    return next(tagged_windows(path, layout, types=types))


def count_sentences(path: Path, decoding: Decoding) -> int:
    """Count the sentences as blocks of lines. A block of comments counts too."""
    are_words = (bool(line.strip()) and not line.startswith(DOCUMENT_START) for line in text_lines(path, decoding, []))
    return sum(is_word for is_word, _ in groupby(are_words))


def tagged_windows(
    path: Path,
    layout: ConllFormat,
    most_sentences: float = math.inf,
    most_characters: float = math.inf,
    whole_documents: bool = False,
    types: Sequence[str] | None = None,
) -> Iterator[TaggedText]:
    """Read the sentences of a file in parts; line numbers refer to the whole file.

    Memory is bounded by the longest sentence; with `whole_documents`, by the longest document.
    """
    form, notes = _layout_of(path, layout), list[str]()
    layout, window, not_words = form.layout, _Window(), 0
    inside = begins_document = False
    for number, line in enumerate(text_lines(path, layout.decoding, notes), start=1):
        columns = _columns(line, form.by_tabs)
        is_other = len(columns) != form.width or (layout.tagged and not conllu.TAG.fullmatch(columns[-1]))
        is_comment = not inside and is_other and _COMMENT.match(line) is not None  # not a word #
        is_word = bool(line.strip(" \t")) and not line.startswith(DOCUMENT_START) and not is_comment
        is_other_token = is_word and form.is_conllu and not conllu.is_word(columns)
        is_word &= not is_other_token
        begins_document |= line.startswith(DOCUMENT_START)
        window.comments += is_comment
        if is_word and not inside:
            is_full = len(window.starts) >= most_sentences or window.characters >= most_characters
            if is_full and (begins_document or not whole_documents):
                yield window.text(path, layout, types, form.is_conllu)
                window = _Window(number - 1)
            window.documents.append(window.documents[-1] + begins_document if window.documents else 0)
            window.starts.append(len(window.rows))
            begins_document = False
        if is_other_token:
            window.not_words.append(len(window.lines))
            not_words += 1
        else:
            inside = is_word
        if is_word:
            if len(columns) != form.width:
                separators = "tabs alone" if form.by_tabs else "spaces or tabs"
                what = "a comment stands before a sentence" if _COMMENT.match(line) else "every line needs as many"
                raise ValueError(
                    f"{path}:{number}: {len(columns)} columns by {separators} ({line[:60]!r}), but line {form.example} "
                    f"and most others have {form.width}; {what}"
                )
            window.rows.append(columns)
            window.numbers.append(len(window.lines))
        window.lines.append(line)
        window.characters += len(line)
    if not_words:
        notes.append(f"{path}: CoNLL-U: {not_words:,} ranges and empty nodes are no words")
    last = window.text(path, layout, types, form.is_conllu)
    yield replace(last, warnings=(*notes, *last.warnings))


class _FileLayout(NamedTuple):
    """How most lines of a file are divided into columns."""

    by_tabs: bool  # whether columns are separated by tabs only
    width: int  # number of columns
    example: int  # number of the first line with this layout
    layout: ConllFormat  # columns of CoNLL-U, if the file is in this format
    is_conllu: bool = False


def _columns(line: str, by_tabs: bool) -> list[str]:
    if by_tabs:
        return [column.strip(" ") or column for column in line.rstrip(" \t").split("\t")]
    return _BLANKS.split(line.strip(" \t"))


class _Sample:
    """Counts over the first lines of a file, split at tabs only or also at spaces."""

    def __init__(self, by_tabs: bool) -> None:
        self.by_tabs = by_tabs
        self.widths, self.examples = Counter[int](), dict[int, int]()
        self.words = self.numbers = self.tagged = self.sentences = self.first_numbers = 0
        self.number = self.other = ""  # examples of a word column and of the last column

    def add(self, number: int, line: str, is_first: bool, layout: ConllFormat) -> None:
        """Count a line; `is_first`: it begins a sentence."""
        columns = _columns(line, self.by_tabs)
        self.widths[len(columns)] += 1
        self.examples.setdefault(len(columns), number)
        self.words += 1
        self.sentences += is_first
        self.first_numbers += is_first and columns[0].partition("-")[0] in ("0.1", "1")
        if conllu.ID.fullmatch(columns[0]):
            self.numbers += 1
            self.number = self.number or columns[0]
        if -len(columns) <= layout.tag_column < len(columns):
            value = columns[layout.tag_column]
            self.tagged += conllu.has_tag(value)
            self.other = self.other or value

    def are_numbered(self) -> bool:
        """Whether the first column numbers the words of each sentence."""
        return conllu.are_mostly(self.numbers, self.words) and conllu.are_mostly(self.first_numbers, self.sentences)


def _layout_of(path: Path, layout: ConllFormat) -> _FileLayout:
    """The layout of a file: separated by tabs only, unless fewer lines would then have equally many columns.

    Raises:
        ValueError: the column of words holds numbers, or a file in CoNLL-U has no tags.
    """
    samples, names, is_first = (_Sample(False), _Sample(True)), list[str](), True
    for number, line in enumerate(islice(text_lines(path, layout.decoding, []), _SAMPLED_LINES), start=1):
        is_word = bool(line.strip(" \t")) and not line.startswith((DOCUMENT_START, "# ", "#\t"))
        names = names or conllu.named_columns(line)
        if is_word:
            for sample in samples:
                sample.add(number, line, is_first, layout)
        is_first = not is_word
    best, most, chosen = _FileLayout(False, 0, 0, layout), 0, samples[0]
    for sample in samples:
        for width, count in sample.widths.most_common(1):
            if count >= most and (width > 1 or not sample.by_tabs):
                best, most = _FileLayout(sample.by_tabs, width, sample.examples[width], layout), count
                chosen = sample
    return _with_columns(path, best, chosen, names)


def _with_columns(path: Path, form: _FileLayout, sample: _Sample, names: Sequence[str]) -> _FileLayout:
    """The format with the columns of CoNLL-U, if the file is in CoNLL-U."""
    layout = form.layout
    is_of_numbers = layout.word_column in (0, -form.width) and conllu.are_mostly(sample.numbers, sample.words)
    columns = conllu.columns_of(names, form.width) if sample.are_numbered() else None
    if columns is None:
        if is_of_numbers and form.width > 2 and sample.words > 2:
            raise ValueError(
                f"{path}:{form.example}: column 0 holds numbers ({sample.number!r}), not words; pass --word-column 1, "
                "or the number of the column with the words, from 0"
            )
        return form
    if layout.tagged and columns.tag == layout.tag_column and not sample.tagged:
        raise ValueError(
            f"{path}:{form.example}: the last column of CoNLL-U ({sample.other[:60]!r}) has no entity tags in "
            f"the first {sample.words:,} lines: neither B-PER nor NER=B-PER; name their column with --tag-column"
        )
    return form._replace(
        layout=replace(
            layout,
            word_column=columns.word if is_of_numbers else layout.word_column,
            tag_column=columns.tag if layout.tag_column == -1 else layout.tag_column,
        ),
        is_conllu=True,
    )


@dataclass
class _Window:
    """A part of a file's lines; its first `skipped` lines were read before."""

    skipped: int = 0
    lines: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)  # the columns of every word
    numbers: list[int] = field(default_factory=list)  # the index of every word's line in `lines`
    starts: list[int] = field(default_factory=list)  # the first word of every sentence
    documents: list[int] = field(default_factory=list)  # the document of every sentence
    characters: int = 0
    comments: int = 0
    not_words: list[int] = field(default_factory=list)

    def text(self, path: Path, layout: ConllFormat, types: Sequence[str] | None, is_conllu: bool = False) -> TaggedText:
        if not self.rows:
            raise ValueError(
                f"{path} has no words: {len(self.lines)} lines, all blank or {DOCUMENT_START}; copy or download it "
                "again"
            )
        words = self._column(path, layout.word_column, "word")
        if "" in words:
            raise ValueError(f"{path}:{self._line(words.index(''))}: the word is empty; write one before the tab")
        spans, scheme, warnings = None, layout.scheme or "iob2", list[str]()
        if layout.tagged:
            if len(self.rows[0]) == 1:
                raise ValueError(f"{path}:{self._line(0)}: one column, {words[0]!r}; a tag is needed after each word")
            tags = self._column(path, layout.tag_column, "tag")
            if is_conllu:
                tags = [*map(conllu.entity_tag, tags)]
            self._check_tags(path, tags, types)
            spans = read_spans(tags, self.starts)
            scheme, misfits = detect_scheme(tags, self.starts, (layout.scheme,) if layout.scheme else SCHEMES)
            if misfits:
                warnings.append(
                    f"{path}: {misfits} of {len(tags)} tags are not in {scheme} (known schemes: {', '.join(SCHEMES)}); "
                    "they are read by the rules of the CoNLL scorer"
                )
        import numpy as np

        numbers, offsets, documents = (
            np.array(values, np.int64) for values in (self.numbers, [*self.starts, len(words)], self.documents)
        )
        return TaggedText(
            self.lines, numbers, words, offsets, documents, spans, scheme, warnings, self.comments, self.not_words
        )

    def _column(self, path: Path, column: int, what: str) -> list[str]:
        width = len(self.rows[0])
        if not -width <= column < width:
            raise ValueError(
                f"{path}: {what}_column={column}, but its lines have {width} columns, 0 to {width - 1}; "
                f"correct --{what}-column"
            )
        return [row[column] for row in self.rows]

    def _check_tags(self, path: Path, tags: list[str], types: Sequence[str] | None) -> None:
        """Raise ValueError for the first invalid tag or unknown type."""
        for tag in dict.fromkeys(tags):
            problem = ""
            try:
                kind = split_tag(tag)[1]
                if kind and types is not None and kind not in types:
                    problem = f"type {kind!r} is not one of {', '.join(types)}, which the model was trained on"
            except ValueError as error:
                problem = f"{error}; is --tag-column the right one?"
            if problem:
                raise ValueError(f"{path}:{self._line(tags.index(tag))}: {problem}")

    def _line(self, word: int) -> int:
        """Line number of a word in the file."""
        return self.skipped + self.numbers[word] + 1


def predicted_lines(text: TaggedText, spans: Sequence[Span]) -> bytes:
    """Lines of a text with an additional column of predicted tags, in the text's scheme.

    For a tagged text, the last two columns are the input of the CoNLL scorers.
    """
    lines = [f"{line} O" if line.startswith(DOCUMENT_START) else line for line in text.lines]
    for number in text.not_words:
        lines[number] += "\t_" if "\t" in lines[number] else " _"
    for number, tag in zip(text.line_numbers.tolist(), text.tags(spans, text.scheme), strict=True):
        lines[number] += ("\t" if "\t" in lines[number] else " ") + tag
    return ("\n".join(lines) + "\n").encode()
