"""A training command as its user sees it: settings, recipes and the questions that it answers."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert.config.training_settings import TrainingConfig

START = "where to begin"  # title of the first group of flags


@dataclass(frozen=True)
class Inquiry:
    """Flags that ask something about the settings. Like --help, they are answered instead of running."""

    add_flags: Callable[[Any], None]  # adds the flags to an argparse group
    take: Callable[[dict[str, Any]], Any]  # removes the flags from the command line; returns the question, or None
    answer: Callable[[Any, Sequence[Any], int], str]  # of (question, settings of consecutive runs, number of ranks)
    title: str = START  # title of the group of flags


@dataclass(frozen=True)
class Rule:
    """The effect of some settings on others.

    Attributes:
        given, drops: if a layer changes any of the settings `given`, the settings `drops` are removed from the layers
            below it.
        implies: all given settings, flat -> settings that hold unless a layer gives them; a later rule overrides.
    """

    given: Sequence[str] = ()
    drops: Sequence[str] = ()
    implies: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda values: {}


@dataclass(frozen=True)
class EntryPoint:
    script: str
    config_class: type[TrainingConfig]
    task: str  # "module:class" of the task; a string, because importing it loads Paddle
    # By the names that --config takes: all settings of a run, or some by their flat names.
    recipes: Mapping[str, Callable[[], TrainingConfig | Mapping[str, Any]]]
    usage: str
    description: str
    examples: Sequence[str] = ()  # arguments of the script, for the examples in --help
    inquiries: Sequence[Inquiry] = ()
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name of a field -> its other flags
    default_model: str = "bert-base-uncased"  # built-in model if neither settings nor weights name one
    rules: Sequence[Rule] = ()  # applied in this order


def load_task(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
