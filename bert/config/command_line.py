"""Command lines of the training commands.

The flags are generated from the fields of the settings, so every field has its flag and every flag its field.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bert import exit_codes
from bert.config.entry_point import START, EntryPoint, load_task
from bert.config.flags import Formatter, Parser, flag_of, flat_fields, value_flags
from bert.config.run_file import dump_yaml, given_run_file, rank_settings
from bert.config.setting_errors import Mistakes, suggest, usage_errors
from bert.config.setting_sources import resolve_config
from bert.config.unread_settings import unread_warnings
from bert.help_parser import wrapped
from bert.parent_death import end_with_launcher

WORLD_SIZE = "PADDLE_TRAINERS_NUM"  # environment variable of Paddle's launcher
Question = Callable[[Sequence[Any], int], str]  # (settings of consecutive runs, number of ranks) -> answer


def parse_arguments(entry: EntryPoint, argv: Sequence[str] | None = None) -> Any:
    """Read and check a command line, and return the settings of the entry point's config_class.

    Raises:
        SystemExit: 2 after a line for each mistake; 0 after --show-config or an inquiry was answered.
    """
    end_with_launcher()
    with usage_errors():
        flags = parser_of(entry).read(argv)
        questions = take_questions(flags, entry)
        config = resolve_config(flags, entry)
        for warning in unread_warnings(config, flags):
            print(wrapped(f"warning: {warning}"), file=sys.stderr)
        if answered(questions, [config], int(os.environ.get(WORLD_SIZE, "1"))):
            raise SystemExit(exit_codes.OK)
        return config


def settings_of(entry: EntryPoint, argv: Sequence[str] | None = None) -> Any:
    """The settings of a run_*.py: read from a run file, otherwise from flags, whose files are checked.

    Raises:
        SystemExit: as `parse_arguments`.
    """
    if (file := given_run_file(argv)) is not None:
        return rank_settings(file, entry.config_class)
    config = parse_arguments(entry, argv)
    with usage_errors():
        config.prepare_files()
    return config


def run_entry(entry: EntryPoint, argv: Sequence[str] | None = None) -> int:
    """Run the task of an entry point with its settings; returns the exit code."""
    config = settings_of(entry, argv)
    with usage_errors():
        # Paddle takes a second to load: not for --help or an error in the settings.
        return load_task("bert.training.training_run:run")(config, load_task(entry.task).open)


def take_questions(flags: dict[str, Any], entry: EntryPoint) -> list[Question]:
    """Remove and return the flags that ask about the settings: --show-config and the flags of the inquiries."""
    questions: list[Question] = [_settings_text] if flags.pop("show_config", False) else []
    for inquiry in entry.inquiries:
        if (request := inquiry.take(flags)) is not None:
            questions.append(partial(inquiry.answer, request))
    return questions


def _settings_text(configs: Sequence[Any], num_ranks: int) -> str:
    return "\n".join(dump_yaml(config) for config in configs).rstrip("\n")


def answered(questions: Sequence[Question], configs: Sequence[Any], num_ranks: int) -> bool:
    """Print the answers to the questions; returns whether there was one."""
    if questions:
        print("\n".join(question(configs, num_ranks) for question in questions))
    return bool(questions)


class SettingsParser(Parser):
    """A parser of the flags of settings. It knows no defaults and no abbreviations."""

    def __init__(self, **texts: Any) -> None:
        super().__init__(allow_abbrev=False, argument_default=argparse.SUPPRESS, formatter_class=Formatter, **texts)

    def read(self, words: Sequence[str] | None) -> dict[str, Any]:
        """The flags on the command line as flat name -> string; ValueError with a line for each unknown word."""
        values, mistakes = self.read_known(words)
        Mistakes(mistakes).refuse()
        return values

    def read_known(self, words: Sequence[str] | None) -> tuple[dict[str, Any], list[str]]:
        """The known flags as flat name -> string, and an error line for each other word."""
        flags, unknown = self.parse_known_args(
            [with_dashes(word) for word in (sys.argv[1:] if words is None else words)]
        )
        others = [word.split("=")[0] for word in unknown if word.startswith("-")] or unknown[:1]
        return dict(vars(flags)), [f"{flag} is not a flag; {self.hint(flag)}" for flag in others]

    def hint(self, flag: str) -> str:
        return suggest(flag, self._option_string_actions, "see --help")

    def group(self, title: str) -> Any:
        """The group of flags with this title; created if there is none."""
        groups = (group for group in self._action_groups if group.title == title)
        return next(groups, None) or self.add_argument_group(title)

    def add_settings(self, entry: EntryPoint) -> None:
        """Add the flags of an entry point, in a group for each section of its settings."""
        start, recipe = self.group(START), next(iter(entry.recipes), None)
        start.add_argument(
            "--config",
            metavar="NAME_OR_FILE",
            help=(f"a recipe ({recipe}, ...), or " if recipe else "") + "a YAML file of flag names and values",
        )
        start.add_argument(
            "--show-config",
            action=_ShowConfig,
            nargs="?",
            metavar="true|false",
            help="print every resolved setting as YAML, and stop",
        )
        for inquiry in entry.inquiries:
            inquiry.add_flags(self.group(inquiry.title))
        for section in entry.config_class.model_fields:
            self.add_argument_group(section)
        self.group("model").description = "the sizes of --bert-model, changed one by one"
        self.group("model").add_argument("--config-file", metavar="JSON", help="the model's bert_config.json")
        for name, (section, field) in flat_fields(entry.config_class).items():
            title = START if value_flags(field) else flag_of(field).group or section
            self.add_setting(self.group(title), name, field, entry.aliases.get(name, ()))


class _ShowConfig(argparse.Action):
    """Accepts NVIDIA's `--show-config True` or `False` and continues: a run writes config.yaml anyway."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if values is None:
            setattr(namespace, self.dest, True)
        elif values.lower() not in ("true", "false"):
            raise ValueError(
                f"show_config={values} must be true, false or nothing, which prints the settings and stops"
            )


def with_dashes(word: str) -> str:
    """Write a flag with dashes: `--max_steps=3` -> `--max-steps=3` (NVIDIA's documents use both)."""
    flag, equals, value = word.partition("=")
    return f"{flag.replace('_', '-')}{equals}{value}" if word.startswith("--") else word


def parser_of(entry: EntryPoint) -> SettingsParser:
    parser = SettingsParser(
        prog=entry.script,
        usage=f"%(prog)s {entry.usage}",
        examples=entry.examples,
        description=f"{entry.description} A flag on the command line wins over the YAML file or recipe named by "
        "--config, which wins over the default.",
    )
    parser.add_settings(entry)
    return parser
