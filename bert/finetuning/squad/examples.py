"""Reads and checks SQuAD's JSON files of questions about paragraphs (Rajpurkar et al., 2016; 2018).

    {"version": ..., "data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
        {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}], "is_impossible": false}]}]}]}

Read as well are Hugging Face's rows, one object for each question (a list, JSON lines, or below "data"), and
simpletransformers' list of paragraphs. A file in another form is an error that names the file, the entry and the
remedy. Questions that cannot be trained on, e.g. because the answer is not at its offset, are kept: training skips and
counts them (`bert.finetuning.squad.features`); evaluation needs only the texts of the answers.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

from pydantic import BeforeValidator, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from bert.finetuning.text_files import text_lines
from bert.interpreter import shell_command
from data.text.encodings import DETECTED, Decoding

_OWN_ID = "predictions are stored by id: give every question its own"
_Place = tuple[str | int, ...]


class _Answer(TypedDict):
    text: str
    answer_start: int


class _Question(TypedDict):
    id: Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
    question: str
    answers: NotRequired[list[_Answer] | None]
    is_impossible: NotRequired[bool | None]


class _Paragraph(TypedDict):
    context: str
    qas: list[_Question]


class _Article(TypedDict):
    paragraphs: list[_Paragraph]


class _File(TypedDict):
    data: list[_Article]


_FORM = TypeAdapter(_File)


class Answer(NamedTuple):
    text: str
    start: int  # offset in the context, in characters (code points)


class Question(NamedTuple):
    """A question about the paragraph contexts[context]. Without answers it is unanswerable or unlabelled."""

    id: str
    text: str
    context: int
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True)
class SquadExamples:
    """The paragraphs and questions of one file, in file order."""

    source: str
    contexts: tuple[str, ...]
    questions: tuple[Question, ...]
    notes: Sequence[str] = ()  # remarks about the file

    def __len__(self) -> int:
        return len(self.questions)

    def windows(self, most: int, most_characters: int) -> Iterator["SquadExamples"]:
        """Divide the questions into parts of limited size, with their paragraphs."""
        contexts: dict[int, int] = {}  # number of a context in the file -> in the window
        questions: list[Question] = []
        characters = 0
        for number, question in enumerate(self.questions, start=1):
            if question.context not in contexts:
                contexts[question.context] = len(contexts)
                characters += len(self.contexts[question.context])
            questions.append(question._replace(context=contexts[question.context]))
            characters += len(question.text)
            if len(questions) >= most or characters >= most_characters or number == len(self):
                yield SquadExamples(
                    self.source, tuple(self.contexts[context] for context in contexts), tuple(questions)
                )
                contexts, questions, characters = {}, [], 0


def read_squad(
    path: Path, *, version_2: bool = False, labelled: bool = True, decoding: Decoding = DETECTED
) -> SquadExamples:
    """Read and check a file of SQuAD 1.1 or 2.0.

    Args:
        labelled: require answers or, in version 2, the mark is_impossible for every question. Otherwise answers are
            optional.
    """
    contexts, notes = list[str](), list[str]()
    questions: list[Question] = []
    places: dict[str, _Place] = {}
    for number, article in enumerate(_load(path, decoding, notes)["data"]):
        for index, paragraph in enumerate(article["paragraphs"]):
            if contexts[-1:] != [paragraph["context"]]:  # rows of one question each repeat it
                contexts.append(paragraph["context"])
            for row, entry in enumerate(paragraph["qas"]):
                place = ("data", number, "paragraphs", index, "qas", row)
                _check_question(path, place, entry, places, version_2, labelled)
                places[entry["id"]] = place
                answers = tuple(Answer(answer["text"], answer["answer_start"]) for answer in entry.get("answers") or ())
                questions.append(Question(entry["id"], entry["question"], len(contexts) - 1, answers))
    if not questions:
        _fail(path, (), "holds no question", "pass a file with at least one")
    return SquadExamples(str(path), tuple(contexts), tuple(questions), notes)


def _load(path: Path, decoding: Decoding, notes: list[str]) -> _File:
    """Read a file; ValueError with the place and the remedy."""
    if not path.is_file():
        raise ValueError(
            f"{path} must be an existing SQuAD file; make it with `{shell_command('data.download_squad')}`, or "
            "pass the path of yours"
        )
    text = "\n".join(text_lines(path, decoding, notes))
    if not text.strip():
        raise ValueError(f"{path} is empty; download or copy it again")
    try:
        return _FORM.validate_json(text, strict=True)
    except ValidationError as errors:
        error = errors.errors(include_url=False)[0]
    if (rows := _rows(text)) is not None:
        try:
            return _FORM.validate_python({"data": [_article(row) for row in rows]}, strict=True)
        except ValidationError as errors:
            error = errors.errors(include_url=False)[0]
    place, value = error["loc"], error["input"]
    if error["type"] == "json_invalid":
        problem, _, at = error["ctx"]["error"].rpartition(" at ")
        remedy = "correct that place, or copy the file again"
        if text.lstrip().startswith("<"):
            remedy = "it is a web page, not JSON: download the file itself"
        elif problem.startswith("EOF"):
            remedy = "the file seems to be truncated: copy it again"
        elif problem.startswith("recursion"):
            problem = "nested too deeply to be SQuAD"
        raise ValueError(f"{path}: {at.replace(' column', ', column')}: {problem}; {remedy}")
    if error["type"] != "missing":
        _fail(path, place, f"is {_value_text(value)}: {error['msg']}", "correct or remove the entry")
    _fail(path, place[:-1], f"has no {place[-1]!r}", "add it, or remove the entry")


def _rows(text: str) -> list[Any] | None:
    """The questions or paragraphs of a list, of JSON lines or below "data"; None if there are none."""
    try:
        content = json.loads(text)
        if isinstance(content, dict) and "data" not in content:  # a single line of JSON lines
            content = [content]
    except (ValueError, RecursionError):
        content = []
        with suppress(ValueError, RecursionError):
            content = [json.loads(line) for line in text.split("\n") if line.strip()]
    rows = content.get("data") if isinstance(content, dict) else content
    return rows if isinstance(rows, list) and any(isinstance(row, dict) and "context" in row for row in rows) else None


def _article(row: Any) -> Any:
    """Turn a row of other libraries into an article: simpletransformers' paragraph, or a question of `datasets`."""
    if not isinstance(row, dict) or "context" not in row:
        return row
    if "qas" in row:
        return {"paragraphs": [row]}
    answers = row.get("answers")
    if isinstance(answers, dict) and all(isinstance(answers.get(name), list) for name in _Answer.__annotations__):
        pairs = zip_longest(*(answers[name] for name in _Answer.__annotations__))
        answers = [dict(zip(_Answer.__annotations__, pair, strict=True)) for pair in pairs]
    return {"paragraphs": [{"context": row["context"], "qas": [{**row, "answers": answers}]}]}


def _check_question(
    path: Path, place: _Place, entry: _Question, places: dict[str, _Place], version_2: bool, labelled: bool
) -> None:
    """Raise ValueError for a question that contradicts itself or the version, or repeats an id in `places`."""
    identity, answers, is_impossible = entry["id"], entry.get("answers"), entry.get("is_impossible")
    problem = remedy = ""
    if not identity:
        problem, remedy = "an empty id", _OWN_ID
    elif identity in places:
        problem, remedy = f"the id of {_place_text(places[identity])}", _OWN_ID
    elif is_impossible and not version_2:
        problem, remedy = "the mark is_impossible, as in SQuAD 2.0", "pass --version-2-with-negative"
    elif is_impossible and answers:
        problem, remedy = f"the mark is_impossible and {len(answers)} answers", "remove the mark or the answers"
    elif is_impossible or not labelled:
        return
    elif answers is None:
        problem, remedy = "no 'answers'", "it must be a list: add it, or remove the entry"
    elif not answers and not version_2:
        remedy = "SQuAD 1.1 needs at least one; pass --version-2-with-negative if it is unanswerable"
        problem = "no answer"
    elif not answers and is_impossible is False:
        problem, remedy = "no answer and is not marked as impossible", "add an answer, or set is_impossible to true"
    elif not all(answer["text"].strip() for answer in answers):
        problem, remedy = "an empty answer", "an unanswerable question has no answers and is_impossible true"
    if problem:
        _fail(path, place, f"(id {identity!r}) has {problem}", remedy)


def _fail(path: Path, place: _Place, problem: str, remedy: str) -> NoReturn:
    raise ValueError(f"{path}: {_place_text(place)} {problem}; {remedy}")


def _place_text(place: _Place) -> str:
    """Name a place in the file: ("data", 0, "paragraphs", 2) -> "data.0.paragraphs.2"; () -> "the file"."""
    return ".".join(map(str, place)) or "the file"


def _value_text(value: Any) -> str:
    """The value as JSON, truncated to 60 characters."""
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int) and not -(10**60) < value < 10**60:
        return f"a number of {math.log10(abs(value)):.0f} digits"
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
