"""Command lines of scripts/run_*.sh: flags of the launch and the training, and NVIDIA's positional arguments."""

import contextlib
import re
import sys
import textwrap
from argparse import SUPPRESS, Action
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bert.config.command_line import SettingsParser, with_dashes
from bert.config.entry_point import START, EntryPoint
from bert.config.flags import flag_name, flat_fields, value_flags
from bert.config.setting_errors import Mistakes, explain, refuse_mistakes, suggest
from bert.help_parser import wrapped
from bert.interpreter import shell_command
from bert.launching.settings import LaunchSettings

PRECISIONS = {  # the names that NVIDIA's scripts have for them
    "amp": {"amp": True, "tf32": "auto"},
    "fp32": {"amp": False, "tf32": "off"},  # who writes it wants float32
    "tf32": {"amp": False, "tf32": "on"},
    "fp16": {"amp": True, "tf32": "auto"},
}
POSITIONAL_PLAN = "positional arguments"  # the name of their plan
_FIRST_WORDS = 6  # one of which is the precision in every script of NVIDIA's that has one
FLAGS_INSTEAD = "pass flags (docs/from_nvidia.md lists them)"


class Positional(NamedTuple):
    """A positional argument of one of NVIDIA's Paddle training scripts."""

    name: str
    default: str | None = None
    setting: str | None = None  # the setting that it sets; None: the setting of the same name


@dataclass(frozen=True)
class Launcher:
    """A scripts/run_*.sh as its user sees it: settings, recipes, help."""

    script: str
    entry: EntryPoint
    usage: str
    description: str
    epilog: str
    names: Mapping[str, Iterable[str]]  # values of --config, in lists by their titles
    settings: type[LaunchSettings] = LaunchSettings
    positional: Sequence[Positional] = ()
    examples: Sequence[str] = ()  # arguments of the script, for the examples in --help
    # What the first help lists before the flags of a start: a setting -> its default here, if that is another one.
    main_settings: Mapping[str, str] = field(default_factory=dict)
    phases: Sequence[int] = ()  # phases with their own flags, --phaseN-NAME
    add_flags: Callable[[SettingsParser], None] = field(default=lambda parser: None)  # adds flags that are no settings
    help_flag: str = ""  # a flag before --help that selects the group of its name; "": none does

    def topics(self) -> dict[str, str]:
        """Texts that `--help TOPIC` shows besides groups of flags."""
        rows = [f"  {number:2} {row.name:30} {row.default}" for number, row in enumerate(self.positional, 1)]
        names = [
            textwrap.fill(f"{title}: {', '.join(listed)}.", 100, break_on_hyphens=False)
            for title, listed in self.names.items()
        ]
        title = "Positional arguments and their defaults (- means the default):"
        texts = {"positional": "\n".join([title, *rows]) if rows else "", "recipes": "\n\n".join(names)}
        return {topic: text for topic, text in texts.items() if text}


class CommandLine(NamedTuple):
    """The arguments of a launcher; flags are strings by the names of the settings."""

    words: Sequence[str]  # the arguments as typed
    positional: Sequence[str]
    launch: dict[str, Any]  # settings of the launch, also --config and questions such as --dry-run
    training: dict[str, Any]  # settings of all phases
    phases: dict[int, dict[str, Any]]  # settings of single phases
    mistakes: Sequence[str] = ()  # an error line for each unknown word

    def notices_on_stderr_if_config_is_printed(self) -> contextlib.AbstractContextManager[Any]:
        """Context manager: with --show-config, which prints only YAML, other output goes to standard error."""
        return contextlib.redirect_stdout(sys.stderr if "show_config" in self.launch else sys.stdout)


def read_command_line(launcher: Launcher, words: Sequence[str]) -> CommandLine:
    """Parse a command line; words before the first flag are positional (`-` and negative numbers too)."""
    first = next((index for index, word in enumerate(words) if word.startswith("--") or word == "-h"), len(words))
    flags, mistakes = LauncherParser(launcher).read_known(words[first:])
    _refuse_other_order(launcher, words[:first])
    return CommandLine(words, words[:first], *sorted_by_owner(launcher, flags), mistakes)


def sorted_by_owner(
    launcher: Launcher, values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[int, dict[str, Any]]]:
    """Divide settings into launch, training and phases: `phase1_batch_size` is `batch_size` of phase 1."""
    launch, training = dict[str, Any](), dict[str, Any]()
    phases: dict[int, dict[str, Any]] = {phase: {} for phase in launcher.phases}
    names = {*flat_fields(launcher.entry.config_class), "config_file"}
    for name, value in values.items():
        prefix, _, of_phase = name.partition("_")
        if name in names:
            training[name] = value
        elif of_phase in names:
            phases[int(prefix.removeprefix("phase"))][of_phase] = value
        else:
            launch[name] = value
    return launch, training, phases


class _Help(Action):
    """The action of `--help` and `--help TOPIC`."""

    def __call__(self, parser: Any, namespace: Any, topic: Any, option_string: str | None = None) -> None:
        name = parser._launcher.help_flag
        is_about_flag = bool(name and not topic and getattr(namespace, name, None))
        print(parser.help_about(name if is_about_flag else topic))
        if is_about_flag:
            print(f"These flags go with --{name}. For all others type --help without --{name}.")
        parser.exit()


class LauncherParser(SettingsParser):
    def __init__(self, launcher: Launcher) -> None:
        super().__init__(
            prog=launcher.script,
            usage=f"%(prog)s {launcher.usage} [flags]",
            description=launcher.description,
            examples=launcher.examples,
            add_help=False,
        )
        self._launcher = launcher
        self.add_argument("-h", "--help", nargs="?", const="", action=_Help, metavar="TOPIC", help=SUPPRESS)
        self.add_settings(launcher.entry)
        for name, (section, setting) in flat_fields(launcher.settings).items():
            self.add_setting(self.group(START if section in ("start", "time") else section), name, setting)
        launcher.add_flags(self)

    def read_known(self, words: Sequence[str] | None) -> tuple[dict[str, Any], list[str]]:
        """Parse known flags; `--phase1-NAME VALUE` gives `phase1_NAME` if NAME is a setting of the training."""
        flags = list[list[str]]()  # each with its values
        for word in map(with_dashes, sys.argv[1:] if words is None else words):
            if word.startswith("--") or not flags:
                flags.append([])
            flags[-1].append(word)
        common = [word for flag in flags if self._phase_of(flag[0]) is None for word in flag]
        values, mistakes = super().read_known(common)
        for flag in flags:
            if phase := self._phase_of(flag[0]):
                own = [f"--{flag[0].removeprefix(f'--{phase}-')}", *flag[1:]]
                try:
                    of_phase = self._read_of_phase(phase, own)
                except ValueError as error:
                    mistakes += explain(error)
                else:
                    values |= {f"{phase}_{name}": value for name, value in of_phase.items()}
        return values, mistakes

    def _phase_of(self, flag: str) -> str | None:
        """The phase of a flag, such as phase1 of --phase1-NAME; None for a flag of the whole command."""
        match = re.match(r"--(phase\d)-", flag)
        is_own = flag.partition("=")[0] in self._option_string_actions  # such as --phase1-bin-size
        return match[1] if match and self._launcher.phases and not is_own else None

    def _read_of_phase(self, phase: str, words: Sequence[str]) -> dict[str, Any]:
        """Parse the flag of a phase without its prefix, which errors show again."""
        flag, fields = words[0].partition("=")[0], flat_fields(self._launcher.entry.config_class)
        typed, action = f"--{phase}-{flag.removeprefix('--')}", self._option_string_actions.get(flag)
        of_phases = {"config_file", *(name for name, (_, field) in fields.items() if not value_flags(field))}
        is_known = int(phase.removeprefix("phase")) in self._launcher.phases
        if action is not None and not (is_known and action.dest in of_phases):
            raise ValueError(f"{typed} is not a flag; it is not a setting of a phase: give it without {phase}-")
        try:
            values, mistakes = super().read_known(words)
            Mistakes(mistakes).refuse()
            return values
        except ValueError as error:
            text = re.sub(rf"{re.escape(flag)}(?![\w-])", typed, str(error))
            raise ValueError(text.replace("mean --", f"mean --{phase}-")) from None

    def help_about(self, topic: str) -> str:
        """The introduction, the most used flags and the topics; or one topic."""
        launcher, topics = self._launcher, self._launcher.topics()
        groups = [group for group in self._action_groups if group.title and group._group_actions]
        names = [str(group.title) for group in groups if group.title not in (START, "options")]
        if topic in topics:
            return topics[topic]
        if topic and topic not in names:
            known = [*names, *topics]
            raise ValueError(f"--help {topic} must be one of {', '.join(known)}; {suggest(topic, known, 'pass one')}")
        formatter = self._get_formatter()
        if topic:
            formatter.add_arguments(self.group(topic)._group_actions)
            return formatter.format_help().rstrip()
        actions = {action.dest: action for action in self._actions}
        formatter.add_arguments([_with_default(actions[name], text) for name, text in launcher.main_settings.items()])
        formatter.add_arguments(
            [action for action in self.group(START)._group_actions if action.dest not in launcher.main_settings]
        )
        settings = f"All settings of the training: `{shell_command(launcher.entry.script, '--help')}`."
        repeated = "With several seeds: --seeds 5 --help."
        more = wrapped(f"More: --help {' | '.join([*names, *topics])}")
        flags = formatter.format_help()
        return "\n".join([self.introduction(), "", flags, wrapped(launcher.epilog), repeated, wrapped(settings), more])


def _with_default(action: Action, default: str) -> Action:
    """The action with this default in its help; unchanged if the default is empty."""
    if not default:
        return action
    other = copy(action)
    other.help = f"{str(action.help).partition(' (default: ')[0]} (default: {default})"
    return other


def read_positional(line: CommandLine, table: Sequence[Positional]) -> dict[str, str]:
    """Values of positional arguments by setting; a missing, empty or `-` word means the default."""
    words = line.positional
    if "config" in line.launch:
        raise ValueError(f"config={line.launch['config']} contradicts the positional arguments; give only one of them")
    if len(words) > len(table):
        raise ValueError(
            f"{len(words)} positional arguments must be at most {len(table)}; drop "
            f"{' '.join(words[len(table) :])}, or use flags (--help)"
        )
    values: dict[str, str] = {}
    for number, row in enumerate(table):
        word = words[number] if number < len(words) else ""
        value = row.default if word in ("", "-") or (word == "None" and row.default is None) else word
        if value is not None:
            values[row.setting or row.name] = value
    return values


def _refuse_other_order(launcher: Launcher, words: Sequence[str]) -> None:
    """Refuse the argument order of another trainer's script of this name, where the precision has another place."""
    ours = [row.name for row in launcher.positional]
    for number, word in enumerate(words[:_FIRST_WORDS]):
        if word in PRECISIONS and "precision" in ours and number != ours.index("precision"):
            raise ValueError(
                f"argument {number + 1} is a precision ({word}), here it is {ours[number]}: the words are of another "
                f"script than NVIDIA's for Paddle; {FLAGS_INSTEAD}"
            )


def settings_of_nvidia(values: dict[str, str]) -> dict[str, Any]:
    """Turn positional values into settings: a precision sets two of them, and fuse_mha also means fused attention."""
    settings: dict[str, Any] = dict(values)
    settings |= PRECISIONS[one_of("precision", settings.pop("precision"), PRECISIONS)]
    return settings | ({"fuse_attention": "off"} if values.get("fuse_mha", "").lower() == "false" else {})


def one_of(name: str, value: str, choices: Collection[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name}={value} must be one of {', '.join(choices)}; {suggest(value, choices, 'change it')}")
    return value


@contextmanager
def errors_of_phase(phase: int, names: Iterable[str]) -> Iterator[None]:
    """Context manager whose errors write the flags of the settings `names` as --phaseN-NAME."""
    flags = "|".join(flag_name(name)[2:] for name in names)
    try:
        yield
    except ValueError as error:
        lines = explain(error)
        if flags:
            lines = [re.sub(rf"--({flags})(?![\w-])", rf"--phase{phase}-\1", line) for line in lines]
        refuse_mistakes(lines)


@contextmanager
def errors_name_file(names: Iterable[str], file: str | Path | None) -> Iterator[None]:
    """Context manager whose errors name the file that set the settings `names`, if there is one."""
    try:
        yield
    except ValueError as error:
        lines = list[str]()
        for line in explain(error):
            of_file = [name for name in names if re.search(rf"\b{name}=", line)]
            lines.append(f"{line} ({' and '.join(of_file)}: {file})" if file and of_file else line)
        refuse_mistakes(lines)
