"""Command lines of commands that do not train: one settings class, whose fields are the flags.

A training command has recipes, YAML files and sections; see bert/config/command_line.py.
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import ValidationError

from bert.config.flags import (
    Flag,
    Formatter,
    Parser,
    choices_of,
    flag_of,
    is_list,
    is_optional,
    members,
    name_on_command_line,
)
from bert.config.setting_errors import SeveralMistakes, explain, suggest, usage_errors
from bert.config.settings_base import Settings

AnySettings = TypeVar("AnySettings", bound=Settings)

# Fields of several commands, with the names that their flags had before.
InputDir = Annotated[Path, Flag(name="--input-dir", hidden_aliases=("--indir",))]
OutputDir = Annotated[Path, Flag(name="--output-dir", hidden_aliases=("--outdir",))]
Language = Annotated[str, Flag(name="--language", hidden_aliases=("--lang",))]


def read_flags(
    settings_class: type[AnySettings],
    words: Sequence[str] | None = None,
    *,
    description: str | None,
    program: str | None = None,
    examples: Sequence[str] = (),
) -> AnySettings:
    """Read and check the settings of a command line.

    Args:
        words: without the name of the program; None: the words of this process.
        description, program, examples: for --help; program None: the module that runs.
    Raises:
        SystemExit: 2 after one line for each mistake; 0 after --help.
    """
    parser = parser_of(settings_class, description, program, examples=examples)
    with usage_errors():
        return settings_from(settings_class, parser, words)


def settings_from(
    settings_class: type[AnySettings], parser: argparse.ArgumentParser, words: Sequence[str] | None = None
) -> AnySettings:
    """As `read_flags`, with an existing parser made by `parser_of`.

    Raises:
        ValueError: for all mistakes that were found; `explain` gives one line for each.
    """
    flags, unknown = parser.parse_known_intermixed_args(sys.argv[1:] if words is None else list(words))
    mistakes = _unknown_word_errors(unknown, parser)
    try:
        settings = settings_class.model_validate(_without_none(settings_class, vars(flags)))
    except ValidationError as error:
        mistakes += explain(error, has_recipes=False)
    if mistakes:
        raise SeveralMistakes(mistakes)
    return settings


def parser_of(
    settings_class: type[Settings],
    description: str | None,
    program: str | None = None,
    groups: Mapping[str, type[Settings]] = MappingProxyType({}),
    examples: Sequence[str] = (),
) -> Parser:
    """A parser of the flags of a settings class; flags that are not on the command line get no value.

    Args:
        groups: title in --help -> a parent of the settings class, whose fields stand below that title.
        examples: words after the command, for --help.
    """
    fields = {name: field for name, field in settings_class.model_fields.items() if not flag_of(field).is_internal}
    required = [name for name, field in fields.items() if field.is_required()]
    has_positional = any(flag_of(field).is_positional for field in fields.values())
    names: dict[str, Any] = {"examples": examples} | ({} if program is None else {"prog": program})
    parser = Parser(description=description, formatter_class=Formatter, argument_default=argparse.SUPPRESS, **names)
    parser._negative_number_matcher = re.compile(r"-\d[\d.,e-]*$")  # -1,-2 and -1e-3 are values, not flags
    titles = {name: title for title, parent in groups.items() for name in parent.model_fields}
    places: dict[str | None, Any] = {None: parser, **{title: parser.add_argument_group(title) for title in groups}}
    for name in [*required, *(name for name in fields if name not in required)]:
        field = fields[name]
        title = flag_of(field).group or (None if flag_of(field).is_positional else titles.get(name))
        if title not in places:
            places[title] = parser.add_argument_group(title)
        parser.add_setting(places[title], name, field, bare=has_positional)
    usage = [_usage(name, fields[name]) for name in fields if name in required or flag_of(fields[name]).is_positional]
    parser.usage = " ".join(["%(prog)s", *usage, "[flags]"])
    return parser


def _usage(name: str, field: Any) -> str:
    """A field in the usage line: its flag and a placeholder, or its position."""
    form, typed = flag_of(field), name_on_command_line(name, field)
    several = " ..." if is_list(field) else ""
    if form.is_positional:
        return f"{typed}{several}" if field.is_required() else f"[{typed}{several}]"
    return f"{typed} {form.placeholder or form.unit or _word_of(name)}{several}"


def _word_of(name: str) -> str:
    return name.rpartition("_")[2].upper()


def _unknown_word_errors(words: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Error lines: one for each unknown flag, or for each extra word if all flags are known."""
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    known = parser._option_string_actions
    lines = [f"{flag} is not a flag; {suggest(flag, known, 'see --help')}" for flag in flags]
    return lines or [f"{word} is one word too many; drop it, or see --help" for word in words]


def _without_none(settings_class: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the word none by None, if a field is optional and neither is text nor has none as a choice.

    The training commands read it in the same way.
    """
    fields = settings_class.model_fields
    no_value = {
        name
        for name, value in values.items()
        if value == "none"
        and is_optional(fields[name])
        and str not in members(fields[name])
        and "none" not in choices_of(fields[name])
    }
    return {name: None if name in no_value else value for name, value in values.items()}
