"""Errors of settings in one line each: the value, the rule, the remedy."""

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from bert.config.flags import choices_of, field_at, flag_name, value_flags
from bert.config.settings_base import Settings


def explain(error: ValueError, source: str | None = None) -> list[str]:
    """One line for each mistake; `source` is where the values can be changed, their flags by default."""
    if not isinstance(error, ValidationError):
        return [str(error)]
    settings = [found for found in _subclasses(Settings) if found.__name__ == error.title][-1]
    return [_explain_one(dict(detail), settings, source) for detail in error.errors()]


def _subclasses(parent: type[Settings]) -> list[type[Settings]]:
    return [found for child in parent.__subclasses__() for found in (child, *_subclasses(child))]


def _explain_one(detail: dict[str, Any], settings: type[Settings], source: str | None) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    name, field = field_at(settings, detail["loc"])
    flag, flags = flag_name(name), [value_flag for value_flag, _ in value_flags(field).values()]
    if detail["type"] == "missing":
        what = f"one of {' and '.join(flags)}" if flags else flag
        return f"{what} must be given ({field.description}), or a recipe with --config"
    rule = f"{detail['msg'][0].lower()}{detail['msg'][1:]}".replace("input should be", "must be")
    remedy = f"change it in {source}" if source else f"change {' or '.join(flags) or flag}"
    if detail["type"] == "literal_error":
        choices = [str(choice) for choice in choices_of(field)]
        rule, remedy = f"must be one of {', '.join(choices)}", suggest(str(detail["input"]), choices, remedy)
    return f"{name}={detail['input']} {rule}; {remedy}"


def suggest(word: str, known: Iterable[str], otherwise: str) -> str:
    """`did you mean ...?` with the most similar of the known words; `otherwise` if none is similar."""
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(
        word.lower().replace("_", "-") if word.startswith("--") else word.lower(), list(lower), n=1, cutoff=0.6
    )
    return f"did you mean {lower[close[0]]}?" if close else otherwise
