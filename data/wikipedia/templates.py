"""Shows the templates that carry words inside of sentences, by the table templates.yaml; of others a hole remains."""

import re
from functools import cache
from pathlib import Path

import yaml

HOLE = "\ufdef"  # a noncharacter, which does not occur in text: here a reader sees something that is not known
_PART = re.compile(r"<([^<>]*)>")  # of a pattern: those with odd numbers may be left out
_FIELD = re.compile(r"\{([^{}:?]+)(?::(\w+)|\?([^{}]*))?\}")
_PLAIN_NUMBER = re.compile(r"(-?)(\d{4,30})(?:[.,](\d+))?")
_SUPERSCRIPTS = str.maketrans("0123456789-\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻")
_RANGES = ("to", "-", "\u2013", "and", "by", "x", "or")


@cache
def _table() -> dict:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))


@cache
def patterns_of(language: str) -> dict[str, str]:
    """Name of a template in lower case -> its pattern, in the wiki of that language."""
    table = _table()
    return {
        name.strip(): pattern
        for wiki in ("all", language)
        for pattern, names in (table.get(wiki) or {}).items()
        for name in names.split(", ")
    }


def template_text(content: str, language: str) -> str:
    """The text of {{content}} in a sentence; "" for what shows none or is a block of several lines; otherwise HOLE."""
    head, _, rest = content.partition("|")
    name, patterns = " ".join(head.replace("_", " ").split()).lower(), patterns_of(language)
    values = rest.split("|") if rest else []
    function, colon, argument = head.partition(":")  # {{formatnum:5}}
    if colon and function.strip().lower() in patterns:
        name, values = function.strip().lower(), [argument, *values]
    pattern = patterns.get(name, "{1}" if name.startswith("lang-") else None)
    if pattern is None:
        is_note = name.startswith(("cite ", "ipa-", "#tag:ref", "sfn", "efn", "harv"))
        return "" if "\n" in content or is_note else HOLE
    placed = [value.strip() for value in values if "=" not in value]
    named = {key.strip(): value.strip() for key, mark, value in (value.partition("=") for value in values) if mark}
    if pattern in _FUNCTIONS:
        return _FUNCTIONS[pattern](placed) or HOLE
    places = {str(place): value for place, value in enumerate(placed, start=1)}
    fields = {"*": "".join(placed), "-1": "".join(placed[-1:]), **places, **named}
    parts = [_filled(part, fields, language) for part in _PART.split(pattern)]
    return "".join(HOLE if part is None and place % 2 == 0 else part or "" for place, part in enumerate(parts))


def _filled(part: str, fields: dict[str, str], language: str) -> str | None:
    """A part of a pattern with its fields; None if one of them is not there."""
    texts = [_field(field, fields, language) for field in _FIELD.finditer(part)]
    remaining = iter(texts)
    return _FIELD.sub(lambda _: next(remaining), part) if all(texts) else None


def _field(field: re.Match, fields: dict[str, str], language: str) -> str:
    value = next((fields[name] for name in field[1].split("|") if fields.get(name)), "")
    if field[3] is not None:
        return dict(choice.split("=") for choice in field[3].split(",")).get(value, "")
    if field[2] == "number":
        return _grouped(value, language)
    if field[2] == "month":
        names = _table()["months"].get(language, "").split()
        return names[int(value) - 1] if re.fullmatch("0?[1-9]|1[0-2]", value) and names else value
    return value.translate(_SUPERSCRIPTS) if field[2] == "superscript" else value


def _grouped(value: str, language: str) -> str:
    """1234567.8 -> "1,234,567.8", as the wiki writes it; what is no plain number stays."""
    number, style = _PLAIN_NUMBER.fullmatch(value), _table()["numbers"].get(language)
    if number is None or style is None:
        return value
    sign, digits, decimals = number.groups()
    whole = f"{int(digits):,}".replace(",", style[0]) if len(digits) >= int(style[2]) else digits
    return sign + whole + (f"{style[1]}{decimals}" if decimals else "")


def _converted(values: list[str]) -> str:
    """{{convert|5|km|mi}} -> "5 km", {{convert|5|to|8|km}} -> "5 to 8 km"."""
    return " ".join(values[:4] if len(values) > 3 and values[1] in _RANGES else values[:2])


def _fraction(values: list[str]) -> str:
    """{{frac|2}} -> "1/2", {{frac|1|2}} -> "1/2", {{frac|3|1|2}} -> "3 1/2"."""
    return " ".join([*values[:-2], "/".join(["1", *values][-2:])]) if values else ""


_FUNCTIONS = {"=convert": _converted, "=fraction": _fraction}
