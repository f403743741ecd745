"""The argument parser of all commands, and the layout of their help.

Help begins with one sentence and two examples, which name the command as it runs in the reader's folder. A usage of at
most two lines follows, then the rest of the description, then the flags in groups.
"""

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from bert.interpreter import shell_command

_SPACED_PATH = re.compile(r"(?<!\S)[~.]{0,2}/\S*(?: (?![/~.-])\S*/\S*)+")  # /home/my texts/old
_CLAUSE = re.compile(r"(\S*[^\d\s]/(?!s\b)\S*[.,;:]) +")  # its end, if this is a path; 7/40 and sequences/s are none
SENTENCE_END = re.compile(r"(?<=[\w)\]'`][.?!])\s+")
_LONGEST_USAGE = 2  # lines
WIDTH = min(100, shutil.get_terminal_size((100, 0)).columns)


def wrapped(text: str, width: int = WIDTH, indent: str = "") -> str:
    """Wrap text at a width and keep each line's indentation; continuation lines of unindented text get `indent`.

    No path is cut, so that it can be copied; a line that is too long is first broken where a clause ends with a path,
    unless that clause is too long itself.
    The rows of a table in Markdown stay as they are.
    """
    lines = list[str]()
    for line in textwrap.dedent(text).splitlines():
        if line.startswith("|"):
            lines.append(line)
            continue
        rest = line[: len(line) - len(line.lstrip())] or indent
        line = _SPACED_PATH.sub(lambda path: path[0].replace(" ", "\0"), line)
        parts = _CLAUSE.sub(r"\1\n", line).split("\n") if len(line) > width else [line]
        for number in reversed(range(1, len(parts))):
            if len(parts[number - 1]) > width:
                parts[number - 1 : number + 1] = [" ".join(parts[number - 1 : number + 1])]
        for number, part in enumerate(parts):
            wrap = partial(textwrap.wrap, part, width, break_on_hyphens=False, break_long_words=False)
            lines += wrap(initial_indent=rest * bool(number), subsequent_indent=rest) or [""]
    return "\n".join(lines).replace("\0", " ")


def wrapped_command(command: str, indent: str = "  ") -> str:
    """Wrap a command at WIDTH columns, only between words, so that a shell reads it as one command."""
    first, *words = re.findall(r"""(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+""", command)
    lines = [f"{indent}{first}"]
    for word in _with_values(words):
        if len(lines[-1]) + len(word) + 3 <= WIDTH:  # a space, and the end of a line
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}  {word}")
    return " \\\n".join(lines)


def joined_lines(text: str) -> str:
    """Join the lines of each paragraph; indented lines stay as they are."""
    lines = list[str]()
    for line in textwrap.dedent(text).strip().splitlines():
        continues = bool(lines and lines[-1]) and not line[:1].isspace() and not lines[-1][:1].isspace()
        if line and continues:
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


def first_sentence(text: str) -> tuple[str, str]:
    """Split text into its first sentence and the rest."""
    sentence, *rest = SENTENCE_END.split(joined_lines(text), 1)
    return sentence, "".join(rest).strip()


def _with_values(words: Sequence[str]) -> list[str]:
    """Join each flag with the word after it, which is its value unless it is a flag."""
    joined = list[str]()
    for word in words:
        if joined and joined[-1].startswith("--") and " " not in joined[-1] and not word.startswith("--"):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter with at most WIDTH columns, which shows long choices in the text and keeps line breaks."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=WIDTH)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return wrapped(joined_lines(text), width)

    def _format_usage(self, *settings: Any) -> str:
        text = " ".join(super()._format_usage(*settings).split())
        return wrapped(text, WIDTH, "    ") + "\n\n"

    def _metavar_formatter(self, action: argparse.Action, default_metavar: str) -> Any:
        shown = super()._metavar_formatter(action, default_metavar)
        return (lambda size: (default_metavar,) * size) if _long_choices(action) else shown

    def _expand_help(self, action: argparse.Action) -> str:
        return super()._expand_help(action) + (f" ({_long_choices(action)})" if _long_choices(action) else "")


def _long_choices(action: argparse.Action) -> str:
    """The choices of a flag as text if they are too long for its placeholder; otherwise ""."""
    text = ", ".join(map(str, action.choices or ()))
    return text if action.metavar is None and len(text) > 40 else ""


class HelpParser(argparse.ArgumentParser):
    """Argument parser whose help begins with a sentence and examples.

    Args:
        examples: the words after the command, one string for each example.
        settings: of ArgumentParser. `prog` is the start of a `shell_command`; by default the module that runs.
    """

    def __init__(self, *, examples: Sequence[str] = (), **settings: Any) -> None:
        settings.setdefault("formatter_class", HelpFormatter)
        if "prog" not in settings:
            spec = getattr(sys.modules["__main__"], "__spec__", None)
            settings["prog"] = spec.name.removesuffix(".__main__") if spec else sys.argv[0]
        settings["prog"] = shell_command(settings["prog"])
        super().__init__(**settings)
        self.examples = tuple(examples)
        self._old_names = dict[str, str]()

    def add_old_names(self, names: Mapping[str, str]) -> None:
        """Accept older names of flags, which the help does not list.

        Args:
            names: old flag -> flag, such as {"--outdir": "--output-dir"}. --no-OLD is accepted too.
        """
        self._old_names |= names

    def introduction(self) -> str:
        """The help before the flags: a sentence, the examples, the usage and the rest of the description."""
        sentence, rest = first_sentence(self.description or "")
        commands = (wrapped_command(f"{self.prog} {example}".rstrip()) for example in self.examples)
        usage = self.format_usage().strip()
        parts = [wrapped(sentence), "\n".join(["Examples:", *commands]) if self.examples else ""]
        parts.append(usage if len(usage.splitlines()) <= _LONGEST_USAGE else "")
        parts.append(wrapped(rest))
        return "\n\n".join(filter(None, parts))

    def format_help(self) -> str:
        formatter = self._get_formatter()
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        return "\n\n".join(filter(None, [self.introduction(), formatter.format_help()]))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        flags = words.index("--") if "--" in words else len(words)  # what follows "--" is no flag
        return super().parse_known_args([*map(self._current_name, words[:flags]), *words[flags:]], namespace)

    def _current_name(self, word: str) -> str:
        """Replace an old name of a flag: `--outdir=D` -> `--output-dir=D`."""
        flag, equals, value = word.partition("=")
        if flag.startswith("--no-") and (positive := f"--{flag[5:]}") in self._old_names:
            return f"--no-{self._old_names[positive][2:]}"
        return f"{self._old_names.get(flag, flag)}{equals}{value}"

    def error(self, message: str) -> NoReturn:
        """Print the error in one line and end with exit code 2."""
        self.exit(2, f"error: {message}; see --help\n")
