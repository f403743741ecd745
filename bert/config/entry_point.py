"""A training command as its user sees it: settings, recipes, questions that it answers."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert.config.training_settings import TrainingConfig

START = "where to begin"  # title of the first group of flags


@dataclass(frozen=True)
class Inquiry:
    """Flags that ask something about the settings. Like --help, they are answered instead of running.

    Attributes:
        add_flags: adds them to an argparse group.
        take: removes them from the given flags -> the question, None if there is none.
        answer: (the question, settings of consecutive runs, number of ranks) -> text.
        title: of the group of flags; the default is that of --config.
    """

    add_flags: Callable[[Any], None]
    take: Callable[[dict[str, Any]], Any]
    answer: Callable[[Any, Sequence[Any], int], str]
    title: str = START


@dataclass(frozen=True)
class EntryPoint:
    """A run_*.py as its user sees it.

    Attributes:
        task: "module:class" of what is run; it is named because importing it loads Paddle.
        recipes: settings by the names that --config takes: all of a run's, or some by their flat names.
        inquiries: flags that are answered instead of running.
        aliases: further flags of a field: its name -> flags.
        alternatives: settings of which only one may be given; one in a layer replaces those of the layers below.
        implied: settings that the given ones imply where no layer says otherwise (the sizes in a checkpoint's folder).
    """

    script: str
    config_class: type[TrainingConfig]
    task: str
    recipes: Mapping[str, Callable[[], TrainingConfig | Mapping[str, Any]]]
    usage: str
    description: str
    inquiries: Sequence[Inquiry] = ()
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    alternatives: Sequence[str] = ()
    implied: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda values: {}


def load_task(name: str) -> Any:
    """The class that `EntryPoint.task` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
