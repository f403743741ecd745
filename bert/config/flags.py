"""Fields of settings <-> flags of argparse: every field has its flag, and every flag its field."""

import argparse
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bert.config.settings_base import SWITCHES
from bert.help_parser import HelpFormatter, HelpParser


def flat_fields(config_class: type[BaseModel]) -> dict[str, tuple[str, FieldInfo]]:
    """Field name -> (section, field), over all sections."""
    fields: dict[str, tuple[str, FieldInfo]] = {}
    for section, holder in config_class.model_fields.items():
        assert isinstance(holder.annotation, type) and issubclass(holder.annotation, BaseModel), section
        for name, field in holder.annotation.model_fields.items():
            assert name not in fields, f"{name} is in both {fields[name][0]} and {section}"
            fields[name] = (section, field)
    return fields


def field_at(config_class: type[BaseModel], place: Sequence[int | str]) -> tuple[str, FieldInfo]:
    """The name and the field that a pydantic error's `loc` refers to; parts below the field are ignored."""
    name, field = str(place[0]), config_class.model_fields[str(place[0])]
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and len(place) > 1:
        return field_at(field.annotation, place[1:])
    return name, field


class ValueFlags(dict[Any, tuple[str, str]]):
    """Metadata of a field that has one flag for each value, not one that takes the value: value -> (flag, help)."""


def value_flags(field: FieldInfo) -> Mapping[Any, tuple[str, str]]:
    """The field's `ValueFlags`; empty if it has none."""
    return next((entry for entry in field.metadata if isinstance(entry, ValueFlags)), {})


_FLAGS = {"do_lower_case": "--lowercase", "text_field": "--text-column"}  # flags with another name than the setting


def flag_name(name: str) -> str:
    """The flag of a setting, such as --max-steps of max_steps; of `no_NAME`, the flag that switches NAME off."""
    if name.startswith("no_") and name[3:] in _FLAGS:
        return f"--no-{_FLAGS[name[3:]][2:]}"
    return _FLAGS.get(name, "--" + name.rstrip("_").replace("_", "-"))  # in_: `in` is a word of Python


class Parser(HelpParser):
    """A parser whose errors are ValueErrors. A flag that has another name than its setting is accepted by both."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add_old_names({"--" + name.replace("_", "-"): flag for name, flag in _FLAGS.items()})

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see --help")


_BOOLEANS = {"0": "false", "no": "false", "off": "false", "1": "true", "yes": "true", "on": "true"}


class Boolean(argparse.Action):
    """`--flag`, `--flag VALUE`, `--no-flag`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        is_negated = option_string == self.option_strings[1]
        if is_negated and values is not None:
            raise ValueError(f"{option_string}={values} takes no value; drop {values}")
        value = "true" if values is None else values.lower()  # which may be another value of a switch
        setattr(namespace, self.dest, "false" if is_negated else _BOOLEANS.get(value, value))


def is_on(values: Mapping[str, Any], name: str) -> bool:
    """Whether a boolean setting is true among flat settings, which are flags' strings or YAML's values."""
    return str(values.get(name, "false")).lower() == "true"


class Formatter(HelpFormatter):
    """No placeholder after a boolean flag, whose value is rarely given, but the values of a switch."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, Boolean):
            flag, *others = action.option_strings
            return ", ".join([f"{flag} [{action.metavar}]" if action.metavar else flag, *others])
        return super()._format_action_invocation(action)


def add_flag(group: Any, name: str, field: FieldInfo, aliases: Sequence[str] = ()) -> None:
    """The flag of a field: its name with dashes, its description, its default, its type or choices."""
    if flags := value_flags(field):
        exclusive = group.add_mutually_exclusive_group()
        for value, (flag, text) in flags.items():
            exclusive.add_argument(flag, dest=name, action="store_const", const=value, help=text)
        return
    text = str(field.description)
    if not field.is_required():
        default = str(field.default)
        text += f" (default: {default.lower() if default in ('None', 'True', 'False') else default})"
    flag = flag_name(name)
    settings: dict[str, Any] = {"dest": name, "help": text.replace("%", "%%")}
    if field.annotation in SWITCHES:  # `--flag` and `--no-flag` set it
        values = "|".join(map(str, choices_of(field))) or None
        negated = flag_name(f"no_{name}")
        group.add_argument(flag, negated, action=Boolean, nargs="?", metavar=values, **settings)
        return
    kinds = [kind.__name__.upper() for kind in members(field) if kind in (int, float, str, Path)]
    aliases = [*aliases, *({"--lang", "--language"} - {flag} if name in ("lang", "language") else ())]
    group.add_argument(flag, *aliases, metavar="|".join([*map(str, choices_of(field)), *kinds]), **settings)


def members(field: FieldInfo) -> tuple[Any, ...]:
    """The types a field accepts: the members of a union, or one type."""
    is_union = typing.get_origin(field.annotation) in (typing.Union, UnionType)
    return typing.get_args(field.annotation) if is_union else (field.annotation,)


def is_optional(field: FieldInfo) -> bool:
    return type(None) in members(field)


def choices_of(field: FieldInfo) -> list[Any]:
    literals = [kind for kind in members(field) if typing.get_origin(kind) is typing.Literal]
    return [choice for literal in literals for choice in typing.get_args(literal)]
