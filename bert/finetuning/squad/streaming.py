"""Read SQuAD's JSON files of any size: one paragraph is in memory at a time.

A file is checked as a whole (`count_questions`) and read again for its questions. What is wrong with a file that
cannot be streamed is found by `read_squad`, in memory.
"""

import json
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import xxhash

from bert.finetuning.squad.examples import Question, SquadExamples, SquadReader, no_number, read_squad

_CHUNK = 1 << 16  # characters
_SPACE = re.compile(r"[ \t\n\r]*")


def count_questions(path: Path, version_2: bool) -> int:
    """The number of questions of a file, all of which have been read and checked.

    Memory: 8 bytes a question, for their ids.

    Raises:
        ValueError: as `read_squad`.
    """
    try:
        hashes = array("Q")
        for reader in _paragraphs(path, version_2):
            hashes.extend(xxhash.xxh3_64_intdigest(question.id.encode()) for question in reader.questions)
        is_sure = len(hashes) == len(np.unique(np.frombuffer(hashes, np.uint64))) > 0
    except (ValueError, RecursionError) as error:
        read_squad(path, version_2=version_2, labelled=False)
        raise ValueError(f"{path}: {error}; correct that place") from error  # JSON all the same: a name that repeats
    return len(hashes) if is_sure else len(read_squad(path, version_2=version_2, labelled=False))


def stream_questions(
    path: Path, version_2: bool, start: int, most: int, most_characters: int
) -> Iterator[SquadExamples]:
    """The questions of a checked file from number `start` on, some at a time, with their paragraphs."""
    contexts: list[str] = []
    questions: list[Question] = []
    number = characters = 0
    for reader in _paragraphs(path, version_2):
        (context,) = reader.contexts
        is_new = True
        for question in reader.questions:
            number += 1
            if number <= start:
                continue
            if is_new:
                contexts.append(context)
                characters += len(context)
            questions.append(question._replace(context=len(contexts) - 1))
            is_new, characters = False, characters + len(question.text)
            if len(questions) >= most or characters >= most_characters:
                yield SquadExamples(str(path), tuple(contexts), tuple(questions))
                contexts, questions, characters, is_new = [], [], 0, True
    if questions:
        yield SquadExamples(str(path), tuple(contexts), tuple(questions))


def _paragraphs(path: Path, version_2: bool) -> Iterator[SquadReader]:
    """A reader that has read one paragraph, for each paragraph."""
    if not path.is_file():
        read_squad(path)  # raises
    with open(path, encoding="utf-8-sig", newline="") as file:
        scanner = _Scanner(file)
        for article in scanner.elements("data"):
            for index in scanner.elements("paragraphs"):
                reader = SquadReader(str(path), version_2, labelled=False)
                reader.paragraph(scanner.value(), ("data", article, "paragraphs", index))
                yield reader
        scanner.end()


class _Scanner:
    """A position in a JSON text, of which a part is in memory.

    Raises:
        ValueError: the text is not JSON, or not of the expected form.
    """

    def __init__(self, file: TextIO) -> None:
        self._file, self._text, self._at = file, "", 0
        self._decoder = json.JSONDecoder(parse_constant=no_number)

    def elements(self, name: str) -> Iterator[int]:
        """Read the object at the position; the index of each element of its array `name`.

        The caller reads each element before it asks for the next one.
        """
        self._take("{")
        keys: list[Any] = []
        while self._peek() != "}":
            if keys:
                self._take(",")
            keys.append(self.value())
            self._take(":")
            if keys[-1] == name:
                yield from self._indices()
            else:
                self.value()
        self._take("}")
        if keys.count(name) != 1 or not all(isinstance(key, str) for key in keys):
            raise ValueError(f"an object has {keys.count(name)} members {name!r} and must have one")

    def _indices(self) -> Iterator[int]:
        self._take("[")
        index = 0
        while self._peek() != "]":
            if index:
                self._take(",")
            yield index
            index += 1
        self._take("]")

    def value(self) -> Any:
        """The JSON value at the position."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if self._read_more():
                    continue
                raise
            if end + 2 >= len(self._text) and self._read_more():
                continue  # a number may be longer: 1 may begin 12, 1.5 or 1e+2
            self._at = end
            return value

    def end(self) -> None:
        if self._peek():
            raise ValueError("text after the end")

    def _peek(self) -> str:
        """The next character that is not a space; "" at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def _take(self, expected: str) -> None:
        if (found := self._peek()) != expected:
            raise ValueError(f"{found!r} in place of {expected!r}")
        self._at += 1

    def _read_more(self) -> bool:
        """Read as much as is in memory, so that a long value is decoded a few times only."""
        more = self._file.read(max(_CHUNK, len(self._text) - self._at))
        if more:
            self._text, self._at = self._text[self._at :] + more, 0
        return bool(more)
