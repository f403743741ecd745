"""Command lines of the training commands.

The flags are generated from the fields of the settings, so every field has its flag and every flag its field.
"""

import argparse
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from bert import exit_codes
from bert.command_errors import command
from bert.config.entry_point import EntryPoint
from bert.config.flags import Formatter, Parser, add_flag, flat_fields, value_flags
from bert.config.setting_errors import explain, suggest
from bert.config.setting_sources import dump_yaml, resolve_config


def parse_arguments(entry: EntryPoint, argv: Sequence[str] | None = None) -> Any:
    """Read and check a command line -> settings of the entry point's config_class.

    Raises:
        SystemExit: 2 after a line for each mistake; 0 after --show-config or an inquiry was answered.
    """
    with usage_errors():
        return settings_or_answers(parse_flags(argv, entry), entry)


def settings_or_answers(flags: dict[str, Any], entry: EntryPoint) -> Any:
    """`resolve_config`, unless the flags ask for an answer instead: print it and exit with code 0."""
    show_config = flags.pop("show_config", False)
    requests = [(inquiry, inquiry.take(flags)) for inquiry in entry.inquiries]
    config = resolve_config(flags, entry)
    answers = [dump_yaml(config).rstrip("\n")] if show_config else []
    answers += [inquiry.answer([config], request) for inquiry, request in requests if request is not None]
    if answers:
        print("\n".join(answers))
        raise SystemExit(exit_codes.OK)
    return config


def parse_flags(argv: Sequence[str] | None, entry: EntryPoint, extra_flags: Iterable[str] = ()) -> dict[str, Any]:
    """Parse a command line into flat name -> string, for the flags that were given."""
    parser = parser_of(entry)
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        known_flags = [flag for action in parser._actions for flag in action.option_strings]
        flag = unknown[0].split("=")[0]
        raise ValueError(f"{flag} is not a flag; {suggest(flag, [*known_flags, *extra_flags], 'see --help')}")
    return dict(vars(given))


def usage_errors() -> contextlib.AbstractContextManager[None]:
    """A context in which wrong settings end the command with one line for each mistake."""
    return command(place=None, explain=explain)


def parser_of(entry: EntryPoint) -> argparse.ArgumentParser:
    parser = Parser(
        prog=entry.script,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=Formatter,
        usage=f"%(prog)s {entry.usage}",
        description=f"{entry.description} A flag on the command line wins over the YAML file or recipe named by "
        "--config, which wins over the default.",
    )
    start = parser.add_argument_group("where to begin")
    start.add_argument(
        "--config",
        metavar="NAME_OR_FILE",
        help=f"a recipe ({next(iter(entry.recipes), 'none')}, ...), or a YAML file of flag names and values",
    )
    start.add_argument("--show-config", action="store_true", help="print every resolved setting as YAML")
    for inquiry in entry.inquiries:
        inquiry.add_flags(start)
    fields = flat_fields(entry.config_class)
    groups = {section: parser.add_argument_group(section) for section in entry.config_class.model_fields}
    groups["model"].description = "the sizes of --bert-model, changed one by one"
    groups["model"].add_argument("--config-file", metavar="JSON", help="the model's bert_config.json")
    for name, (section, field) in fields.items():
        add_flag(start if value_flags(field) else groups[section], name, field, entry.aliases.get(name, ()))
    return parser
