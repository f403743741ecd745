"""Read and write files of tagged words in CoNLL-2003's format.

One word per line with its tag in the last column, blank lines between sentences, -DOCSTART- lines between documents.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bert.finetuning.ner.tags import SCHEMES, Scheme, Span, detect_scheme, read_spans, split_tag, write_tags
from bert.finetuning.text_files import text_lines
from data.text.encodings import DETECTED, Decoding

if TYPE_CHECKING:  # not for --help
    import numpy as np

DOCUMENT_START = "-DOCSTART-"
_BLANKS = re.compile(r"[ \t]+")  # no other white space: published words contain U+00A0 and U+0085
_COMMENT, _TAG = re.compile(r"#[ \t]"), re.compile(r"O|[A-Z]-.+")
_SAMPLED_LINES = 10_000  # by which the columns of a file are recognised


@dataclass(frozen=True)
class TaggedText:
    """n words and s sentences of a file."""

    lines: list[str]  # without line ends
    line_numbers: "np.ndarray"  # int64 [n], index of each word's line in `lines`
    words: list[str]  # n words
    sentence_offsets: "np.ndarray"  # int64 [s + 1]; sentence i is words[sentence_offsets[i]:sentence_offsets[i + 1]]
    document_of_sentence: "np.ndarray"  # int64 [s], ascending from 0
    spans: list[Span] | None  # the entities; None for a file without tags
    scheme: Scheme  # the tag scheme of the file; without tags, the one to write
    warnings: Sequence[str] = ()
    comments: int = 0  # lines

    def __len__(self) -> int:
        """The number of sentences."""
        return len(self.sentence_offsets) - 1

    def sentences(self) -> list[list[str]]:
        return [self.words[first:last] for first, last in pairwise(self.sentence_offsets.tolist())]

    def tags(self, spans: Sequence[Span], scheme: Scheme) -> list[str]:
        """The tag of every word."""
        return write_tags(spans, len(self.words), scheme, self.sentence_offsets[:-1].tolist())

    def document_bounds(self) -> "tuple[np.ndarray, np.ndarray]":
        """int64 [s] each: the first word of the document of every sentence, and the end (exclusive)."""
        import numpy as np

        first = np.searchsorted(self.document_of_sentence, self.document_of_sentence, "left")
        after = np.searchsorted(self.document_of_sentence, self.document_of_sentence, "right")
        return self.sentence_offsets[first], self.sentence_offsets[after]


@dataclass(frozen=True)
class ConllFormat:
    """The columns of a file, counted from 0, or from the end if negative; `tagged`: whether its tags are read."""

    word_column: int = 0
    tag_column: int = -1
    scheme: Scheme | None = None
    tagged: bool = True
    decoding: Decoding = DETECTED


def read_tagged_text(path: Path, layout: ConllFormat = ConllFormat(), types: Sequence[str] | None = None) -> TaggedText:
    """Read the words, sentences, documents and entities of a file; `types` are the valid ones, None: any."""
    return next(tagged_windows(path, layout, types=types))


def count_sentences(path: Path, decoding: Decoding) -> int:
    """The number of blocks of lines, which is that of the sentences, but for comments that stand alone."""
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
    """The sentences of a file, some at a time; the windows' lines are those of the file.

    Memory is bounded by the longest sentence; with `whole_documents`, by the longest document.
    """
    window, form, notes = _Window(), _layout_of(path, layout.decoding), list[str]()
    inside = begins_document = False
    for number, line in enumerate(text_lines(path, layout.decoding, notes), start=1):
        columns = _columns(line, form.by_tabs)
        is_other = len(columns) != form.width or (layout.tagged and not _TAG.fullmatch(columns[-1]))
        is_comment = not inside and is_other and _COMMENT.match(line) is not None  # not a word #
        is_word = bool(line.strip(" \t")) and not line.startswith(DOCUMENT_START) and not is_comment
        begins_document |= line.startswith(DOCUMENT_START)
        window.comments += is_comment
        if is_word and not inside:
            is_full = len(window.starts) >= most_sentences or window.characters >= most_characters
            if is_full and (begins_document or not whole_documents):
                yield window.text(path, layout, types)
                window = _Window(number - 1)
            window.documents.append(window.documents[-1] + begins_document if window.documents else 0)
            window.starts.append(len(window.rows))
            begins_document = False
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
    last = window.text(path, layout, types)
    yield replace(last, warnings=(*notes, *last.warnings))


class _FileLayout(NamedTuple):
    """How most words of a file are written."""

    by_tabs: bool  # tabs alone separate columns
    width: int  # columns
    example: int  # number of the first such line


def _columns(line: str, by_tabs: bool) -> list[str]:
    if by_tabs:
        return [column.strip(" ") or column for column in line.rstrip(" \t").split("\t")]
    return _BLANKS.split(line.strip(" \t"))


def _layout_of(path: Path, decoding: Decoding) -> _FileLayout:
    """Tabs alone separate columns unless fewer lines would then have equally many."""
    counts, examples = (Counter[int](), Counter[int]()), (dict[int, int](), dict[int, int]())
    for number, line in enumerate(islice(text_lines(path, decoding, []), _SAMPLED_LINES), start=1):
        if line.strip(" \t") and not line.startswith((DOCUMENT_START, "# ", "#\t")):
            for by_tabs in (False, True):
                width = len(_columns(line, by_tabs))
                counts[by_tabs][width] += 1
                examples[by_tabs].setdefault(width, number)
    best, most = _FileLayout(False, 0, 0), 0
    for by_tabs in (False, True):
        for width, count in counts[by_tabs].most_common(1):
            if count >= most and (width > 1 or not by_tabs):
                best, most = _FileLayout(by_tabs, width, examples[by_tabs][width]), count
    return best


@dataclass
class _Window:
    """Lines of a file that are read: those behind its first `skipped` ones."""

    skipped: int = 0
    lines: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)  # columns of every word
    numbers: list[int] = field(default_factory=list)  # its line in `lines`
    starts: list[int] = field(default_factory=list)  # first word of every sentence
    documents: list[int] = field(default_factory=list)  # its document
    characters: int = 0
    comments: int = 0

    def text(self, path: Path, layout: ConllFormat, types: Sequence[str] | None) -> TaggedText:
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
        return TaggedText(self.lines, numbers, words, offsets, documents, spans, scheme, warnings, self.comments)

    def _column(self, path: Path, column: int, what: str) -> list[str]:
        width = len(self.rows[0])
        if not -width <= column < width:
            raise ValueError(
                f"{path}: {what}_column={column}, but its lines have {width} columns, 0 to {width - 1}; "
                f"correct --{what}-column"
            )
        return [row[column] for row in self.rows]

    def _check_tags(self, path: Path, tags: list[str], types: Sequence[str] | None) -> None:
        """Raise a ValueError for the first invalid tag or unknown type."""
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
        """The number of a word's line in the file."""
        return self.skipped + self.numbers[word] + 1


def predicted_lines(text: TaggedText, spans: Sequence[Span]) -> bytes:
    """The lines of a text with the predicted tag, in its scheme, as an additional column.

    For a tagged text, the last two columns are the input of the CoNLL scorers.
    """
    lines = [f"{line} O" if line.startswith(DOCUMENT_START) else line for line in text.lines]
    for number, tag in zip(text.line_numbers.tolist(), text.tags(spans, text.scheme), strict=True):
        lines[number] += ("\t" if "\t" in lines[number] else " ") + tag
    return ("\n".join(lines) + "\n").encode()
