"""Converts between fields of settings and flags of argparse: every field has a flag, and every flag a field."""

import argparse
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bert.config.settings_base import SWITCHES
from bert.help_parser import HelpFormatter, HelpParser


def flat_fields(config_class: type[BaseModel]) -> dict[str, tuple[str, FieldInfo]]:
    """Fields of all sections, as field name -> (section, field)."""
    fields: dict[str, tuple[str, FieldInfo]] = {}
    for section, holder in config_class.model_fields.items():
        assert isinstance(holder.annotation, type) and issubclass(holder.annotation, BaseModel), section
        for name, field in holder.annotation.model_fields.items():
            assert name not in fields, f"{name} is in both {fields[name][0]} and {section}"
            fields[name] = (section, field)
    return fields


def field_at(config_class: type[BaseModel], place: Sequence[int | str]) -> tuple[str, FieldInfo]:
    """The name and field at a pydantic error's `loc`; parts below the field are ignored."""
    name, field = str(place[0]), config_class.model_fields[str(place[0])]
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and len(place) > 1:
        return field_at(field.annotation, place[1:])
    return name, field


class ValueFlags(dict[Any, tuple[str, str]]):
    """Metadata of a field that has one flag for each value: value -> (flag, help)."""


def value_flags(field: FieldInfo) -> Mapping[Any, tuple[str, str]]:
    """The field's `ValueFlags`, or an empty one."""
    return next((entry for entry in field.metadata if isinstance(entry, ValueFlags)), {})


_FLAGS = {  # flags with another name than the setting
    "do_lower_case": "--lowercase",
    "text_field": "--text-column",
    "keep_best_checkpoint": "--keep-best",
    "group_column": "--group-by",
}


@dataclass(frozen=True)
class Flag:
    """Metadata of a field: how its flag differs from its name, type and default.

    Attributes:
        name: the flag, if it is not the field's name with dashes.
        aliases: further flags, which --help lists.
        hidden_aliases: older flags that still work and that --help does not list.
        is_positional: the value is given without a flag.
        is_repeatable: of a flag with several values: when it is given again, its values are added; otherwise they
            replace the former ones.
        placeholder: what --help shows for the value; None: its choices or types.
        value_alone: the value that the flag has when it is given without one.
        default_text: what --help shows as the default, if the default value does not explain itself.
        unit: of a number, shown by --help as its placeholder.
        group: title of the flag's group in --help; None: the group of all other flags.
        is_hidden: --help does not show the flag.
        is_internal: there is no flag; the program sets the field.
    """

    name: str | None = None
    aliases: tuple[str, ...] = ()
    hidden_aliases: tuple[str, ...] = ()
    is_positional: bool = False
    is_repeatable: bool = False
    placeholder: str | None = None
    value_alone: str | None = None
    default_text: str | None = None
    unit: str | None = None
    group: str | None = None
    is_hidden: bool = False
    is_internal: bool = False


NO_FLAG = Flag(is_internal=True)
_PLAIN = Flag()


def flag_of(field: FieldInfo) -> Flag:
    """The field's `Flag`, or a default one."""
    return next((entry for entry in field.metadata if isinstance(entry, Flag)), _PLAIN)


def flag_name(name: str) -> str:
    """The flag of a setting, such as --max-steps of max_steps; for `no_NAME` the flag that switches NAME off."""
    if name.startswith("no_") and name[3:] in _FLAGS:
        return f"--no-{_FLAGS[name[3:]][2:]}"
    return _FLAGS.get(name, "--" + name.rstrip("_").replace("_", "-"))  # in_: `in` is a word of Python


def name_on_command_line(name: str, field: FieldInfo) -> str:
    """How a user gives the field on the command line: its flag, or the placeholder of its position."""
    flag = flag_of(field)
    if flag.is_positional:
        return flag.placeholder or name.upper()
    return flag.name or flag_name(name)


class Parser(HelpParser):
    """An argument parser that raises ValueError. It accepts a flag by its setting's name too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add_old_names({"--" + name.replace("_", "-"): flag for name, flag in _FLAGS.items()})

    def add_setting(
        self, group: Any, name: str, field: FieldInfo, aliases: Sequence[str] = (), *, bare: bool = False
    ) -> None:
        """Add the flag of a field to a group by `add_flag`, and accept its older names."""
        add_flag(group, name, field, aliases, bare=bare)
        self.add_old_names({old: name_on_command_line(name, field) for old in flag_of(field).hidden_aliases})

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see --help")


_LONGEST_PLACEHOLDER = 70  # characters of choices
_BOOLEANS = {"0": "false", "no": "false", "off": "false", "1": "true", "yes": "true", "on": "true"}


class Boolean(argparse.Action):
    """Argparse action of `--flag`, `--flag VALUE` and `--no-flag`; without VALUE if nargs=0."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        is_negated, has_value = option_string == self.option_strings[1], values not in (None, [])
        if is_negated and has_value:
            raise ValueError(f"{option_string}={values} takes no value; drop {values}")
        value = values.lower() if has_value else "true"  # which may be another value of a switch
        setattr(namespace, self.dest, "false" if is_negated else _BOOLEANS.get(value, value))


def is_on(values: Mapping[str, Any], name: str) -> bool:
    """Whether a boolean among flat settings is true; it may be a flag's string or a value of YAML."""
    return str(values.get(name, "false")).lower() == "true"


class Formatter(HelpFormatter):
    """Help formatter that shows no placeholder after a boolean flag, but the values of a switch."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, Boolean):
            flag, *others = action.option_strings
            return ", ".join([f"{flag} [{action.metavar}]" if action.metavar else flag, *others])
        return super()._format_action_invocation(action)


def add_flag(group: Any, name: str, field: FieldInfo, aliases: Sequence[str] = (), *, bare: bool = False) -> None:
    """Add the flag of a field: its name with dashes, its description, its default, its type or choices.

    Args:
        group: a parser or a group of one, without defaults.
        aliases: further flags.
        bare: a boolean flag takes no value, so that the word after it can be a positional argument.
    """
    if flags := value_flags(field):
        exclusive = group.add_mutually_exclusive_group()
        for value, (flag, text) in flags.items():
            exclusive.add_argument(flag, dest=name, action="store_const", const=value, help=text)
        return
    form, typed = flag_of(field), name_on_command_line(name, field)
    text = argparse.SUPPRESS if form.is_hidden else _help_of(field).replace("%", "%%")
    settings: dict[str, Any] = {"help": text, "metavar": _placeholder(field)}
    if form.is_positional:
        # Never required by argparse, which would report it alone: the settings report all that is missing together.
        group.add_argument(name, nargs="*" if is_list(field) else "?", **settings | {"metavar": typed})
        return
    settings["dest"] = name
    if field.annotation in SWITCHES:  # `--flag` and `--no-flag` set it
        settings |= {"action": Boolean, "nargs": 0 if bare else "?"}
        group.add_argument(typed, typed.replace("--", "--no-", 1), **settings)
    else:
        if is_list(field):
            settings |= {"nargs": "+", "action": "extend" if form.is_repeatable else "store"}
        elif form.value_alone is not None:
            settings |= {"nargs": "?", "const": form.value_alone}
        group.add_argument(typed, *aliases, *form.aliases, **settings)


def _help_of(field: FieldInfo) -> str:
    """Help text of a field: description, long choices, and the default if the flag may be omitted.

    A default of None is no value that a reader can use: if the program does something by itself, the description ends
    with it: "(default: no limit)".
    """
    text, has_words, words = str(field.description).partition(" (default: ")
    if _has_long_choices(field):
        text += f": {', '.join(map(str, choices_of(field)))}"
    default = flag_of(field).default_text
    if default is None and has_words and field.default in (None, ()):  # a subclass may have a value
        default = words.removesuffix(")")
    if default is None and not field.is_required() and field.default not in ((), "", None):
        default = _shown_default(field.default)
    return text if default is None else f"{text} (default: {default})"


def _shown_default(value: Any) -> str:
    """The default as a user would type it: `true`, `1.1`, list elements separated by commas."""
    if isinstance(value, tuple):
        return ", ".join(map(_shown_default, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _placeholder(field: FieldInfo) -> str | None:
    """Placeholder of a flag's value in --help: the metavar, the unit, or the choices and types."""
    form = flag_of(field)
    if form.placeholder or form.unit:
        return form.placeholder or form.unit
    if _has_long_choices(field):
        return "NAME"
    choices = [str(choice) for choice in choices_of(field)]
    if field.annotation in SWITCHES:
        return "|".join(choices) or None
    kinds = [kind.__name__.upper() for kind in _value_types(field) if kind in (int, float, str, Path)]
    return "|".join([*choices, *kinds])


def _has_long_choices(field: FieldInfo) -> bool:
    """Whether the choices are too long for a line beside the flag."""
    length = len("|".join(map(str, choices_of(field))))
    return length * (2 if is_list(field) else 1) > _LONGEST_PLACEHOLDER


def is_list(field: FieldInfo) -> bool:
    """Whether a field takes several values."""
    return any(typing.get_origin(kind) is tuple for kind in members(field))


def _value_types(field: FieldInfo) -> tuple[Any, ...]:
    """The types of one value of a field. For a list (tuple[X, ...]) they are the types of its elements."""
    if not is_list(field):
        return members(field)
    return tuple(typing.get_args(kind)[0] for kind in members(field) if typing.get_origin(kind) is tuple)


def members(field: FieldInfo) -> tuple[Any, ...]:
    """The types that a field accepts: the members of a union, or one type."""
    is_union = typing.get_origin(field.annotation) in (typing.Union, UnionType)
    return typing.get_args(field.annotation) if is_union else (field.annotation,)


def is_optional(field: FieldInfo) -> bool:
    return type(None) in members(field)


def choices_of(field: FieldInfo) -> list[Any]:
    """The Literal values that a field accepts, or that each element of a list may have."""
    literals = [kind for kind in _value_types(field) if typing.get_origin(kind) is typing.Literal]
    return [choice for literal in literals for choice in typing.get_args(literal)]
