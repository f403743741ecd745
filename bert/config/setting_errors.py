"""Explains wrong settings in one line each: the value, the rule, the remedy."""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from bert.command_errors import command
from bert.config.flags import choices_of, field_at, is_optional, name_on_command_line, value_flags
from bert.config.settings_base import Settings

_OTHER_TRAINERS = Path(__file__).with_name("other_trainers.txt")

_RULES = {  # by the type of a pydantic error, whose own words are for programmers
    "path_type": "must be a path, in quotes if it is of digits alone",
    "string_pattern_mismatch": "must be of letters, digits, '.', '_' and '-', the first a letter or digit",
}


class SeveralMistakes(ValueError):
    """A ValueError with all mistakes of a command line, each in a line of its own."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = list(lines)


class Mistakes:
    """Collects the mistakes of one command line, so that all of them are shown together.

    Args:
        lines: mistakes that were found before.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._lines = list(lines)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Context manager: a ValueError ends its block, and is collected."""
        try:
            yield
        except ValueError as error:
            self._lines += explain(error)

    def add(self, line: str) -> None:
        self._lines.append(line)

    def are_there(self) -> bool:
        return bool(self._lines)

    def refuse(self) -> None:
        """Raise `SeveralMistakes` if mistakes were collected."""
        refuse_mistakes(dict.fromkeys(self._lines))


def refuse_mistakes(lines: Iterable[str]) -> None:
    """Raise `SeveralMistakes` unless the list of lines is empty."""
    if mistakes := list(lines):
        raise SeveralMistakes(mistakes)


def check_all(checks: Iterable[Callable[[], object]]) -> None:
    """Call all checks. If some raise ValueError, raise `SeveralMistakes` with all their mistakes."""
    mistakes = Mistakes()
    for check in checks:
        with mistakes.noted():
            check()
    mistakes.refuse()


class SettingsWithRules(Settings):
    """Settings with rules between values; all broken rules are reported together."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        refuse_mistakes(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[str]:
        """An error line for each rule that the values break together."""
        yield from ()


def usage_errors() -> contextlib.AbstractContextManager[None]:
    """Context manager: wrong settings end the command with one line for each mistake."""
    return command(place=None, explain=explain)


def explain(error: ValueError, source: str | None = None, *, has_recipes: bool = True) -> list[str]:
    """Error lines for a ValueError: one for each mistake.

    Args:
        source: where the values can be changed; None: on the command line.
        has_recipes: a recipe of --config can give a missing value.
    """
    if isinstance(error, SeveralMistakes):
        return error.lines
    if not isinstance(error, ValidationError):
        return [str(error)]
    settings = [subclass for subclass in _subclasses(Settings) if subclass.__name__ == error.title][-1]
    lines = list[str]()
    for detail in error.errors():
        if detail["type"] == "value_error":
            lines += explain(detail["ctx"]["error"], source, has_recipes=has_recipes)
        else:
            lines.append(_explain_one(dict(detail), settings, source, has_recipes))
    return lines


def _subclasses(parent: type[Settings]) -> list[type[Settings]]:
    return [subclass for child in parent.__subclasses__() for subclass in (child, *_subclasses(child))]


def _explain_one(detail: dict[str, Any], settings: type[Settings], source: str | None, has_recipes: bool) -> str:
    name, field = field_at(settings, detail["loc"])
    typed = name_on_command_line(name, field)
    flags = [value_flag for value_flag, _ in value_flags(field).values()]
    if detail["type"] == "missing":
        what = f"one of {' and '.join(flags)}" if flags else typed
        return f"{what} must be given ({field.description}){', or a recipe with --config' if has_recipes else ''}"
    own = f"{detail['msg'][0].lower()}{detail['msg'][1:]}".replace("input should be", "must be")
    rule = _RULES.get(detail["type"], own)
    remedy = f"change it in {source}" if source else f"change {' or '.join(flags) or typed}"
    if detail["type"] == "literal_error":
        choices = [*map(str, choices_of(field)), *(["none"] if is_optional(field) else [])]
        rule, remedy = f"must be one of {', '.join(choices)}", suggest(str(detail["input"]), choices, remedy)
    shown = typed.removeprefix("--").replace("-", "_")
    return f"{shown}={detail['input']} {rule}; {remedy}"


def suggest(word: str, known: Iterable[str], otherwise: str) -> str:
    """What takes the place of a word of another trainer, or `did you mean ...?` with the known word of its name or the
    most similar one; else `otherwise`."""
    plain = {_flag_name(name): name for name in known}
    table = _OTHER_TRAINERS.read_text(encoding="utf-8").splitlines()
    lines = [line.partition(": ") for line in table if not line.startswith("#")]
    others = [(names.split(), text) for names, _, text in lines if _flag_name(word) in names.split()]
    same = [name for names, text in others for name in names if not text and name in plain]
    if not same and (texts := [text for _, text in others if text]):
        return texts[0]
    close = [*same, *difflib.get_close_matches(_flag_name(word), list(plain), n=1, cutoff=0.6)]
    return f"did you mean {plain[close[0]]}?" if close else otherwise


def _flag_name(name: str) -> str:
    return name.lower().removeprefix("--").replace("_", "-")
