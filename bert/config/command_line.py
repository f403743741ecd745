"""Settings <-> command line and YAML. Strict keys; command line over YAML over recipe over default.

The flags are generated from the fields of the settings, so a field cannot lack a flag, nor a flag its field.
"""

import argparse
import contextlib
import dataclasses
import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from bert import exit_codes
from bert.command_errors import command
from bert.config.architecture import BUILT_IN_MODELS, BertConfig
from bert.config.base import TrainingConfig
from bert.config.flags import Formatter, Parser, add_flag, choices_of, flat_fields, is_optional, members

_EXTRA_KEYS = ("config", "config_file")  # accepted in YAML beside the fields: a parent, and the model's JSON


@dataclasses.dataclass(frozen=True)
class Inquiry:
    """Flags that ask something about the settings. Like --help, they are answered instead of running.

    Attributes:
        add_flags: adds them to an argparse group.
        take: removes them from the flags that were given -> what was asked, None if nothing.
        answer: (settings of runs that follow each other, what was asked) -> text.
    """

    add_flags: Callable[[Any], None]
    take: Callable[[dict[str, Any]], Any]
    answer: Callable[[Sequence[Any], Any], str]


@dataclasses.dataclass(frozen=True)
class EntryPoint:
    """A run_*.py as its user sees it.

    Attributes:
        script: its file name.
        config_class: the settings, whose fields are the flags.
        recipes: settings by the names that --config takes: all of a run's, or some by their flat names.
        usage: what follows the name of the script in the usage line.
        inquiries: flags that are answered instead of running.
        aliases: further flags of a field: its name -> flags.
        implied: settings that the given ones imply where no layer says otherwise (the sizes in a checkpoint's folder).
    """

    script: str
    config_class: type[TrainingConfig]
    recipes: Mapping[str, Callable[[], TrainingConfig | Mapping[str, Any]]]
    usage: str
    description: str
    inquiries: Sequence[Inquiry] = ()
    aliases: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    implied: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda values: {}


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
    """Only the flags that were given, by flat name, their values still strings.

    Raises:
        ValueError: an unknown flag (extra_flags are further names to suggest), a missing value.
    """
    parser = parser_of(entry)
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        known_flags = [flag for action in parser._actions for flag in action.option_strings]
        flag = unknown[0].split("=")[0]
        raise ValueError(f"{flag} is not a flag; {suggest(flag, [*known_flags, *extra_flags], 'see --help')}")
    return dict(vars(given))


def usage_errors() -> contextlib.AbstractContextManager[None]:
    """`command_errors.command`, which explains wrong settings line by line."""
    return command(explain=explain)


def resolve_config(flags: Mapping[str, Any], entry: EntryPoint) -> Any:
    """Lay flags (flat names, strings or values) over the YAML file or recipe named by `config`, and check the whole.

    Raises:
        ValueError: an unknown key or recipe, a value of the wrong type or out of range, a contradiction.
    """
    layers = [dict(flags)]
    while "config" in layers[0]:
        layers.insert(0, _load_layer(str(layers[0].pop("config")), entry))
        if len(layers) > 8:
            raise ValueError(f"config={flags['config']} must not name itself as its own parent; remove the cycle")
    values: dict[str, Any] = {}
    for layer in layers:
        values.update(_architecture(layer))
        values.update(layer)
    return _nested(entry.config_class, {**entry.implied(values), **values})


def dump_yaml(config: BaseModel) -> str:
    """All settings as flat YAML, by section; `--config FILE` reads it back to an equal config."""
    blocks = []
    for section, values in config.model_dump(mode="json").items():
        blocks.append(f"# {section}\n" + yaml.safe_dump(values, sort_keys=False, width=1000))
    return "\n".join(blocks)


# ---- layers -------------------------------------------------------------------------------------------------------


def _load_layer(name_or_file: str, entry: EntryPoint) -> dict[str, Any]:
    if name_or_file in entry.recipes:
        recipe = entry.recipes[name_or_file]()
        if isinstance(recipe, Mapping):
            return dict(recipe)
        return {name: value for section in recipe for name, value in section[1]}
    path = Path(name_or_file)
    if not path.is_file():
        hint = suggest(name_or_file, entry.recipes, f"the recipes are {', '.join(list(entry.recipes)[:6])} ...")
        raise ValueError(f"config={name_or_file} must be a recipe or a YAML file; {hint}")
    return _read_yaml(path, entry)


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key given twice, which YAML readers usually let pass."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError(f"line {key.start_mark.line + 1} must be `name: value`; the name is not a word")
            if key.value in seen:
                raise ValueError(f"{key.value} stands twice (again in line {key.start_mark.line + 1}); remove one")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path, entry: EntryPoint) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"config={path} must be readable YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ValueError(f"config={path} must hold lines of `name: value`, not {str(values)[:40]!r}")
    layer = {str(key).replace("-", "_"): value for key, value in values.items()}
    if len(layer) < len(values):
        raise ValueError(f"config={path} gives a setting twice, with - and with _ in its name; remove one of the two")
    for name in ("config", "config_file", "bert_model"):
        if not isinstance(layer.get(name, ""), (str, type(None))):
            raise ValueError(f"{name}={layer[name]!r} in {path} must be a name or a path; change it")
    known = [*flat_fields(entry.config_class), *_EXTRA_KEYS]
    for key in layer:
        if key not in known:
            raise ValueError(f"{key}={layer[key]!r} in {path} is not a setting; {suggest(key, known, 'see --help')}")
    return layer


def _architecture(layer: dict[str, Any]) -> dict[str, Any]:
    """Sizes that a layer brings by its `config_file` (taken out of it) or by the name of a built-in model."""
    config_file, name = layer.pop("config_file", None), layer.get("bert_model")
    if config_file not in (None, "None", "none"):
        return BertConfig.from_json_file(_expanded(config_file)).model_dump()
    if name in BUILT_IN_MODELS:
        return BUILT_IN_MODELS[name].model_dump()
    if name is not None and "hidden_size" not in layer:
        hint = suggest(str(name), BUILT_IN_MODELS, f"they are {', '.join(BUILT_IN_MODELS)}")
        raise ValueError(f"bert_model={name} must be a built-in model, or come with --config-file; {hint}")
    return {}


def _nested(config_class: type[TrainingConfig], values: Mapping[str, Any]) -> TrainingConfig:
    sections: dict[str, dict[str, Any]] = {section: {} for section in config_class.model_fields}
    for name, (section, field) in flat_fields(config_class).items():
        if name not in values:
            continue
        value = values[name]
        if is_optional(field) and isinstance(value, str) and value.lower() in ("none", "null", ""):
            value = None
        if Path in members(field) and value is not None:
            value = _expanded(value)
        sections[section][name] = value
    return config_class.model_validate(sections)


def _expanded(path: Any) -> Any:
    """~ and $VARIABLES filled in; a variable that is not set stays, and check_files() says so."""
    return os.path.expanduser(os.path.expandvars(path)) if isinstance(path, (str, Path)) else path


# ---- errors -------------------------------------------------------------------------------------------------------


def explain(error: ValueError) -> list[str]:
    """One line per mistake: the value, the rule, the remedy."""
    if not isinstance(error, ValidationError):
        return [str(error)]
    config_class = _config_classes()[error.title]
    return [_explain_one(dict(detail), config_class) for detail in error.errors()]


def _config_classes(root: type[TrainingConfig] = TrainingConfig) -> dict[str, type[TrainingConfig]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _config_classes(child)
    return found


def _explain_one(detail: dict[str, Any], config_class: type[TrainingConfig]) -> str:
    name = next((str(part) for part in detail["loc"][1:]), "")
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if name == "phase":
        return "one of --phase1 and --phase2 must be given, or a recipe of one phase with --config"
    flag, field = "--" + name.replace("_", "-"), flat_fields(config_class)[name][1]
    if detail["type"] == "missing":
        return f"{flag} must be given ({field.description}), or a recipe with --config"
    rule = f"{detail['msg'][0].lower()}{detail['msg'][1:]}".replace("input should be", "must be")
    remedy = f"change {flag}"
    if detail["type"] == "literal_error":
        choices = [str(choice) for choice in choices_of(field)]
        rule, remedy = f"must be one of {', '.join(choices)}", suggest(str(detail["input"]), choices, remedy)
    return f"{name}={detail['input']} {rule}; {remedy}"


def suggest(word: str, known: Iterable[str], otherwise: str) -> str:
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(
        word.lower().replace("_", "-") if word.startswith("--") else word.lower(), list(lower), n=1, cutoff=0.6
    )
    return f"did you mean {lower[close[0]]}?" if close else otherwise


# ---- the parser ---------------------------------------------------------------------------------------------------


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
        help="a recipe of bert/pretraining/recipes ("
        + f"{next(iter(entry.recipes), 'none')}, ...), or a YAML file of flag names and values",
    )
    start.add_argument("--show-config", action="store_true", help="print every resolved setting as YAML")
    for inquiry in entry.inquiries:
        inquiry.add_flags(start)
    fields = flat_fields(entry.config_class)
    if "phase" in fields:
        phase = start.add_mutually_exclusive_group()
        for number, length in ((1, "short"), (2, "long")):
            phase.add_argument(
                f"--phase{number}",
                dest="phase",
                action="store_const",
                const=number,
                help=f"train phase {number}, {length} sequences",
            )
    groups = {section: parser.add_argument_group(section) for section in entry.config_class.model_fields}
    groups["model"].description = "the sizes of --bert-model, changed one by one"
    groups["model"].add_argument("--config-file", metavar="JSON", help="the model's bert_config.json")
    for name, (section, field) in fields.items():
        if name != "phase":
            add_flag(groups[section], name, field, entry.aliases.get(name, ()))
    return parser
