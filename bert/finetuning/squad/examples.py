"""Read and check SQuAD's JSON files of questions about paragraphs (Rajpurkar et al., 2016; 2018).

    {"version": ..., "data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
        {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}], "is_impossible": false}]}]}]}

A file in another form is an error that names the file, the entry and the remedy. Questions in this form that cannot be
trained on, e.g. because the answer is not at its offset, are kept: training skips and counts them
(`bert.finetuning.squad.features`); evaluation needs only the texts of the answers.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from bert.finetuning.text_files import decoded_text

_MISSING = object()
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a surrogate pair
_KINDS = {str: "a string", list: "a list", dict: "an object", int: "a whole number", bool: "true or false"}
_OWN_ID = "predictions are stored by id: give every question its own"
_FLAT_FORM = (
    "this looks like one object per question; SQuAD nests data -> paragraphs -> qas: convert the file to the "
    "form of https://rajpurkar.github.io/SQuAD-explorer"
)


class Answer(NamedTuple):
    text: str
    start: int  # characters (code points) before it in the context


class Question(NamedTuple):
    """A question about contexts[context]. Without answers it is unanswerable or unlabelled."""

    id: str
    text: str
    context: int
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True)
class SquadExamples:
    """The paragraphs and questions of one file, in its order."""

    source: str
    contexts: tuple[str, ...]
    questions: tuple[Question, ...]

    def __len__(self) -> int:
        return len(self.questions)


def read_squad(path: Path, *, version_2: bool = False, labelled: bool = True) -> SquadExamples:
    """Read and check a file of SQuAD 1.1 or 2.0.

    Args:
        path: the JSON file, in UTF-8.
        version_2: allow unanswerable questions.
        labelled: require answers or, in version 2, the mark is_impossible for every question. Otherwise answers are
            optional.
    Raises:
        ValueError: names the file, the entry, the rule and the remedy.
    """
    content = _load(Path(path))
    reader = SquadReader(str(path), version_2, labelled)
    articles = reader.member(content, "data", list, ())
    for number, article in enumerate(articles):
        where: tuple[Any, ...] = ("data", number)
        if isinstance(article, dict) and "paragraphs" not in article and "question" in article:
            reader.fail(where, "has a question and no paragraphs", _FLAT_FORM)
        for index, paragraph in enumerate(reader.member(article, "paragraphs", list, where)):
            reader.paragraph(paragraph, (*where, "paragraphs", index))
    if not reader.questions:
        reader.fail((), "holds no question", "pass a file with at least one")
    return SquadExamples(str(path), tuple(reader.contexts), tuple(reader.questions))


def single_paragraph(context: str, questions: Sequence[str]) -> SquadExamples:
    """Unlabelled questions about one text; their ids are "0", "1", ..."""
    for name, text in (("paragraph", context), *(("question", question) for question in questions)):
        if not isinstance(text, str):
            raise ValueError(f"{name}={text!r} must be a string")
        if _not_text(text):
            raise ValueError(f"{name} holds half of a surrogate pair, which is not a character; decode the text again")
    return SquadExamples(
        "the paragraph", (context,), tuple(Question(str(number), text, 0) for number, text in enumerate(questions))
    )


def _load(path: Path) -> Any:
    """The JSON value of a file, or a ValueError with the place and the remedy."""
    if not path.is_file():
        raise ValueError(
            f"{path} must be an existing SQuAD file; make it with `python -m data.download_squad`, or "
            "pass the path of yours"
        )
    text = decoded_text(path)
    if not text.strip():
        raise ValueError(f"{path} is empty; download or copy it again")
    try:
        return json.loads(text, parse_constant=no_number)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        reason = f"line {error.lineno}, column {error.colno}: {error.msg}"
        if text.lstrip().startswith("<"):
            remedy = "it is a web page, not JSON: download the file itself"
        else:
            remedy = "the file seems to be truncated: copy it again" if cut else "correct that place, or copy it again"
        raise ValueError(f"{path}: {reason}; {remedy}") from error
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deeply to be SQuAD; copy the file again") from error
    except ValueError as error:  # NaN, or a number of thousands of digits
        raise ValueError(f"{path}: {error}; correct that place, or copy the file again") from error


def no_number(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's reader takes."""
    raise ValueError(f"{name} is not a number of JSON")


def _not_text(text: str) -> bool:
    return not text.isascii() and _SURROGATE.search(text) is not None


class SquadReader:
    """Checks entries and collects what they hold, for `read_squad`. `where` is the path of an entry, for errors."""

    def __init__(self, source: str, version_2: bool, labelled: bool) -> None:
        self.contexts: list[str] = []
        self.questions: list[Question] = []
        self._source, self._version_2, self._labelled = source, version_2, labelled
        self._seen: dict[str, tuple[Any, ...]] = {}

    def fail(self, where: tuple[Any, ...], problem: str, remedy: str) -> NoReturn:
        raise ValueError(f"{self._source}: {_path(where)} {problem}; {remedy}")

    def member(self, holder: Any, name: str, kind: type, where: tuple[Any, ...], default: Any = _MISSING) -> Any:
        """holder[name], which must be of the type `kind`."""
        if type(holder) is not dict:
            self.fail(where, f"is {_shown(holder)} and must be an object with {name!r}", "correct the entry")
        value = holder.get(name, default)
        if type(value) is not kind:
            if value is _MISSING:
                self.fail(where, f"has no {name!r}", f"it must be {_KINDS[kind]}: add it, or remove the entry")
            if value is default:
                return value
            self.fail((*where, name), f"is {_shown(value)} and must be {_KINDS[kind]}", "correct or remove the entry")
        if isinstance(value, str) and _not_text(value):
            self.fail((*where, name), "holds half of a surrogate pair, which is not a character", "correct the entry")
        return value

    def paragraph(self, paragraph: Any, where: tuple[Any, ...]) -> None:
        self.contexts.append(self.member(paragraph, "context", str, where))
        for index, entry in enumerate(self.member(paragraph, "qas", list, where)):
            self._question(entry, (*where, "qas", index))

    def _question(self, entry: Any, where: tuple[Any, ...]) -> None:
        identity = self.member(entry, "id", str, where)
        if not identity:
            self.fail((*where, "id"), "is empty", _OWN_ID)
        if identity in self._seen:
            self.fail((*where, "id"), f"is {identity!r}, as that of {_path(self._seen[identity])}", _OWN_ID)
        self._seen[identity] = where
        text = self.member(entry, "question", str, where)
        answers = self._answers(entry, where)
        impossible = self.member(entry, "is_impossible", bool, where, default=None)
        if impossible and not self._version_2:
            self.fail(
                where, f"(id {identity!r}) is marked as impossible, as in SQuAD 2.0", "pass --version-2-with-negative"
            )
        if impossible and answers:
            self.fail(
                where,
                f"(id {identity!r}) is marked as impossible and has {len(answers)} answers",
                "remove the mark or the answers",
            )
        if not answers and not impossible and self._labelled:
            self._refuse_unanswered(identity, impossible, where)
        self.questions.append(Question(identity, text, len(self.contexts) - 1, answers))

    def _refuse_unanswered(self, identity: str, impossible: bool | None, where: tuple[Any, ...]) -> None:
        if not self._version_2:
            self.fail(
                where,
                f"(id {identity!r}) has no answer",
                "SQuAD 1.1 needs at least one; pass --version-2-with-negative if it is unanswerable",
            )
        if impossible is False:
            self.fail(
                where,
                f"(id {identity!r}) has no answer and is not marked as impossible",
                "add an answer, or set is_impossible to true",
            )

    def _answers(self, entry: dict[str, Any], where: tuple[Any, ...]) -> tuple[Answer, ...]:
        entries = self.member(entry, "answers", list, where, default=_MISSING if self._needs_answers(entry) else None)
        answers = []
        for index, answer in enumerate(entries or ()):
            place = (*where, "answers", index)
            text = self.member(answer, "text", str, place)
            if self._labelled and not text.strip():
                self.fail(
                    (*place, "text"), "is empty", "an unanswerable question has no answers and is_impossible true"
                )
            answers.append(Answer(text, self.member(answer, "answer_start", int, place)))
        return tuple(answers)

    def _needs_answers(self, entry: dict[str, Any]) -> bool:
        return self._labelled and entry.get("is_impossible") is not True


def _path(where: tuple[Any, ...]) -> str:
    """('data', 0, 'paragraphs', 2) -> "data[0].paragraphs[2]"; () -> "the file"."""
    text = ""
    for step in where:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the file"


def _shown(value: Any) -> str:
    """The value as JSON, truncated to 60 characters."""
    if isinstance(value, (list, dict)):
        return f"{_KINDS[type(value)]} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
