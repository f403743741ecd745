"""Flags of one phase, `--phaseN-NAME VALUE`: separated from those of both, and named as typed in errors."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bert.config.command_line import explain, parse_flags
from bert.config.flags import flag_name
from bert.planning.flags import PLAN_FLAGS
from bert.pretraining.entry import ENTRY


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
