"""Replaces templates inside sentences by their words, by the table templates.yaml; others leave a hole."""

import re
from functools import cache
from pathlib import Path

import yaml

HOLE = "\ufdef"  # a noncharacter, which does not occur in text: here a reader sees something that is not known
_PART = re.compile(r"<([^<>]*)>")  # of a pattern: parts with odd numbers may be left out
_FIELD = re.compile(r"\{([^{}:?]+)(?::(\w+)|\?([^{}]*))?\}")
_PLAIN_NUMBER = re.compile(r"(-?)(\d{1,30})(?:[.,](\d+))?")
_PAIRS = re.compile(r"(?<=\d)(?=(?:\d\d)+$)")  # where pairs of digits begin, but the first
_SUPERSCRIPTS = str.maketrans("0123456789-\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻")
_NUMBER = r"[-\u2212]?\.?\d[\d.,+/]*"
_RANGE = r"to|to\(-\)|-|\u2013|and|and\(-\)|or|by|xx?|[\u00d7*\u00b1]|\+/-"
_UNIT = rf"(?!{_NUMBER}(?:\||$))[^|]+"
_MEASURE = re.compile(rf"{_NUMBER}(?:\|(?:{_RANGE})\|{_NUMBER})*\|{_UNIT}(?:\|{_NUMBER}\|{_UNIT})*")


@cache
def _table() -> dict:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))


@cache
def patterns_of(language: str) -> dict[str, str]:
    """Patterns by lower-case template name, for the wiki of a language."""
    table = _table()
    return {
        name.strip(): pattern
        for wiki in ("all", language)
        for pattern, names in (table.get(wiki) or {}).items()
        for name in names.split(", ")
    }


def template_text(content: str, language: str) -> str:
    """Text of {{content}} in a sentence; "" if it shows nothing or is a block of lines; otherwise HOLE."""
    head, _, rest = content.partition("|")
    name, patterns = " ".join(head.replace("_", " ").split()).lower(), patterns_of(language)
    values = rest.split("|") if rest else []
    function, colon, argument = head.partition(":")  # {{formatnum:5}}
    if colon and function.strip().lower() in patterns:
        name, values = function.strip().lower(), [argument, *values]
    pattern = patterns.get(name, "{1}" if name.startswith("lang-") else None)
    if pattern is None:
        if re.fullmatch(_table()["shown as named"].get(language, "-"), name):
            return head.strip()
        is_note = name.startswith(("cite ", "ipa-", "#tag:ref", "sfn", "efn", "harv"))
        return "" if "\n" in content or is_note else HOLE
    placed = [value.strip() for value in values if "=" not in value]
    named = {key.strip(): value.strip() for key, mark, value in (value.partition("=") for value in values) if mark}
    if pattern in _FUNCTIONS:
        return _FUNCTIONS[pattern](name, placed) or HOLE
    places = {str(place): value for place, value in enumerate(placed, start=1)}
    fields = {"*": "".join(placed), "-1": "".join(placed[-1:]), **places, **named}
    parts = [_fill_pattern(part, fields, language) for part in _PART.split(pattern)]
    return "".join(HOLE if part is None and place % 2 == 0 else part or "" for place, part in enumerate(parts))


def _fill_pattern(part: str, fields: dict[str, str], language: str) -> str | None:
    """Fill the fields of a pattern's part; None if one is missing."""
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
    """Group the digits of a plain number, 1234567.8 -> "1,234,567.8"; other text stays."""
    number, style = _PLAIN_NUMBER.fullmatch(value), _table()["numbers"].get(language, ",.4")
    if number is None or (len(number[2]) < 4 and len(number[3] or "") == 3):  # 1.234 may be grouped
        return value
    sign, digits, decimals = number.groups()
    whole = digits
    if len(digits) >= int(style[2]):
        groups = _PAIRS.sub(",", digits[:-3]) + "," + digits[-3:] if style[3:] else f"{int(digits):,}"
        whole = groups.replace(",", style[0])
    return sign + whole + (f"{style[1]}{decimals}" if decimals else "")


def _converted(name: str, values: list[str]) -> str:
    """{{convert|6|ft|2|in|cm}} -> "6 ft 2 in", {{convert|5|-|8|sqmi|km2}} -> "5–8 sq mi"; "" if not understood."""
    measure, written = _MEASURE.match("|".join(values)), _table()["units"]
    measurement = " ".join(written.get(part, part) for part in measure[0].split("|")) if measure else ""
    return re.sub(r"(?<=\d)\+(?=\d+/)", " ", measurement.replace(" \u2013 ", "\u2013"))


def _ship(name: str, values: list[str]) -> str:
    """{{HMS|Hood|51}} -> "HMS Hood (51)", {{ship|HMS|Hood|51|2}} -> "Hood": the last value says what is shown."""
    named = values if name == "ship" else [name.upper(), *values]
    prefix, ship, number, form = [*named, "", "", "", ""][:4]
    whole = f"{prefix} {ship} ({number})" if number else f"{prefix} {ship}"
    return {"": whole, "1": number, "2": ship, "6": f"{prefix} {ship}"}.get(form, "").strip() if ship else ""


def _fraction(name: str, values: list[str]) -> str:
    """{{frac|2}} -> "1/2", {{frac|1|2}} -> "1/2", {{frac|3|1|2}} -> "3 1/2"."""
    return " ".join([*values[:-2], "/".join(["1", *values][-2:])]) if values else ""


_FUNCTIONS = {"=convert": _converted, "=fraction": _fraction, "=ship": _ship}
