"""Reads the arguments of scripts/run_*.sh: positional tables, the flags that all launchers have, and their values."""

import argparse
import contextlib
import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bert.config.command_line import explain, parse_flags, suggest
from bert.config.flags import Parser, flag_name
from bert.planning.planner import PLAN_FLAGS
from bert.pretraining.entry import ENTRY

PRECISIONS = {  # the names that NVIDIA's scripts have for them
    "amp": {"amp": True, "tf32": False},
    "fp32": {"amp": False, "tf32": False},
    "tf32": {"amp": False, "tf32": True},
}
PositionalTable = Sequence[tuple[str, str | None]]  # (name, default) in order; None: not set


class _Help(argparse.Action):
    """`--help` or `--help TOPIC`."""

    def __call__(self, parser: Any, namespace: Any, topic: Any, option_string: str | None = None) -> None:
        print(parser.help_about(topic))
        parser.exit()


class LauncherParser(Parser):
    """The flags of a launcher: those of the ranks and the configuration, which all have, and those that a task adds.

    Args:
        further: the command that lists all settings.
        topics: what else `--help TOPIC` shows; the titles of the groups of flags are topics too.
    """

    def __init__(self, further: str, topics: Mapping[str, str], **texts: str) -> None:
        super().__init__(
            allow_abbrev=False,
            add_help=False,
            argument_default=argparse.SUPPRESS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **texts,
        )
        self._further, self._topics = further, topics
        self.add_argument("-h", "--help", nargs="?", const="", action=_Help, metavar="TOPIC", help=argparse.SUPPRESS)
        self.add_argument("--config", metavar="NAME_OR_FILE", help="a preset, a recipe, or a YAML file")
        self.add_argument("--show-config", action="store_true", help="print every resolved setting as YAML")
        self.add_argument("--dry-run", action="store_true", help="print the plan and stop")
        add = self.add_argument_group("nodes").add_argument
        add(
            "--num-processes",
            "--num-gpus",
            dest="num_gpus",
            metavar="N",
            help="processes (GPUs) on each node; without it, as many as the preset or the task takes",
        )
        add("--num-nodes", metavar="N", help="nodes; start the same command on each of them")
        add("--node-rank", metavar="R", help="number of this node; none: the launchers agree on one")
        add("--master", metavar="HOST:PORT", help="address of the first node")

    def help_about(self, topic: str) -> str:
        """Usage, the most used flags and the topics; or one topic."""
        groups = {str(group.title): group for group in self._action_groups if group._group_actions}
        options = groups.pop("options")
        formatter = self._get_formatter()
        if topic in groups:
            formatter.add_arguments(groups[topic]._group_actions)
            return formatter.format_help().rstrip()
        if topic in self._topics:
            return self._topics[topic]
        topics = [*groups, *self._topics]
        if topic:
            raise ValueError(f"--help {topic} must be one of {', '.join(topics)}; {suggest(topic, topics, 'pass one')}")
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        formatter.add_arguments(options._group_actions)
        further = f"All settings of the training: `{self._further}`. More: --help {'|'.join(topics)}"
        return f"{formatter.format_help()}\n{self.epilog}\n{further}"

    def read(self, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """The launcher's flags that were given, by name, and the words of all other flags."""
        known, rest = self.parse_known_args(words)
        return dict(vars(known)), rest

    def names(self) -> list[str]:
        """All flags, to suggest one for a misspelt one."""
        return [flag for action in self._actions for flag in action.option_strings]


def notices_aside(words: Sequence[str]) -> contextlib.AbstractContextManager[Any]:
    """A context whose output goes to standard error if the words ask for --show-config, which prints YAML alone."""
    return contextlib.redirect_stdout(sys.stderr if "--show-config" in words else sys.stdout)


def split_positional(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first flag, and the others. `-` and negative numbers are not flags."""
    first = next((index for index, word in enumerate(words) if word.startswith("--") or word == "-h"), len(words))
    return list(words[:first]), list(words[first:])


def read_positional(words: Sequence[str], table: PositionalTable, given: Mapping[str, Any]) -> dict[str, str]:
    """The values of positional arguments by name. A missing, empty or `-` word means the default.

    Args:
        given: the launcher's flags; --config contradicts positional arguments.
    """
    if "config" in given:
        raise ValueError(f"config={given['config']} contradicts the positional arguments; give only one of them")
    if len(words) > len(table):
        raise ValueError(
            f"{len(words)} positional arguments must be at most {len(table)}; drop "
            f"{' '.join(words[len(table) :])}, or use flags (--help)"
        )
    values: dict[str, str] = {}
    for number, (name, default) in enumerate(table):
        word = words[number] if number < len(words) else ""
        value = default if word in ("", "-") or (word == "None" and default is None) else word
        if value is not None:
            values[name] = value
    return values


def positional_help(table: PositionalTable) -> str:
    rows = (f"  {number:2} {name:30} {default}" for number, (name, default) in enumerate(table, 1))
    return "\n".join(["Positional arguments and their defaults (- means the default):", *rows])


def names_help(**names: Iterable[str]) -> str:
    """Lists of names that --config takes, each after its title."""
    return "\n\n".join(
        textwrap.fill(f"{title.replace('_', ' ')}: {', '.join(listed)}.", 100, break_on_hyphens=False)
        for title, listed in names.items()
    )


def one_of(name: str, value: str, choices: Collection[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name}={value} must be one of {', '.join(choices)}; {suggest(value, choices, 'change it')}")
    return value


def whole_number(name: str, value: str, least: int = 1) -> int:
    if not value.isdecimal() or int(value) < least:
        raise ValueError(f"{name}={value} must be a whole number from {least} up; change it")
    return int(value)


def ratio(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise ValueError(f"{name}={value} must be above 0 and at most 1; change it")
    return number


def split_phases(words: Sequence[str], launcher_flags: Iterable[str]) -> tuple[dict[str, Any], dict[int, dict]]:
    """Flags for all phases, and those with --phaseN- for one phase only."""
    parts: dict[int, list[str]] = {0: [], 1: [], 2: []}
    target = 0
    for word in words:
        if word.startswith("--"):
            target = next((phase for phase in (1, 2) if word.startswith(f"--phase{phase}-")), 0)
            word = word if target == 0 else "--" + word[len("--phase1-") :]
        parts[target].append(word)
    common = parse_flags(parts[0], ENTRY, launcher_flags)
    per_phase = {}
    for phase in (1, 2):
        with errors_of_phase(phase):
            flags = per_phase[phase] = parse_flags(parts[phase], ENTRY)
            for name in {"dry_run", "show_config", "phase", "config", *PLAN_FLAGS} & flags.keys():
                raise ValueError(f"{flag_name(name)} is not a setting of a phase; give it without phase{phase}-")
    return common, per_phase


@contextmanager
def errors_of_phase(phase: int, names: Iterable[str] | None = None) -> Iterator[None]:
    """A context whose errors call the flags of the settings `names` --phaseN-NAME; None: all flags but --help."""
    flags = "|".join(flag_name(name)[2:] for name in names) if names is not None else "(?!help)[a-z0-9-]+"
    try:
        yield
    except ValueError as error:
        text = "; ".join(explain(error))
        raise ValueError(re.sub(rf"--({flags})(?![\w-])", rf"--phase{phase}-\1", text) if flags else text) from None
