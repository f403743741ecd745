"""Settings <-> command line and YAML. Strict keys; command line over YAML over recipe over default.

The flags are generated from the fields of the settings, so a field cannot lack a flag, nor a flag its field.
"""

import argparse
import contextlib
import dataclasses
import difflib
import os
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from bert.architecture import BUILT_IN_MODELS, BertConfig
from bert.pretraining_config import PretrainingConfig
from bert.recipes import RECIPES

EXIT_USAGE = 2
_EXTRA_KEYS = ("config", "config_file")  # accepted in YAML beside the fields: a parent, and the model's JSON


@dataclasses.dataclass(frozen=True)
class PretrainingArguments:
    config: PretrainingConfig
    show_config: bool
    dry_run: bool


def parse_pretraining_arguments(argv: Sequence[str] | None = None) -> PretrainingArguments:
    """Read and check the command line of run_pretraining.py; on an error print one line and exit with code 2."""
    with usage_errors():
        flags = parse_flags(argv)
        show_config, dry_run = flags.pop("show_config", False), flags.pop("dry_run", False)
        return PretrainingArguments(resolve_config(flags), show_config, dry_run)


def parse_flags(argv: Sequence[str] | None = None, extra_flags: Iterable[str] = ()) -> dict[str, Any]:
    """Only the flags that were given, by flat name, their values still strings.

    Raises:
        ValueError: an unknown flag (extra_flags are further names to suggest), a missing value.
    """
    parser = pretraining_parser()
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        known_flags = [flag for action in parser._actions for flag in action.option_strings]
        flag = unknown[0].split("=")[0]
        raise ValueError(f"{flag} is not a flag; {suggest(flag, [*known_flags, *extra_flags], 'see --help')}")
    return dict(vars(given))


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError, or what a file or folder refuses, into `error: ...` on stderr and exit code 2."""
    try:
        yield
    except ValueError as error:
        for line in explain(error):
            print(f"error: {line}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None
    except OSError as error:
        remedy = "" if error.errno is None else "; check that the path exists, is yours to use, and its disk has room"
        print(f"error: {error}{remedy}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None


def resolve_config(flags: Mapping[str, Any]) -> PretrainingConfig:
    """Lay flags (flat names, strings or values) over the YAML file or recipe named by `config`, and check the whole.

    Raises:
        ValueError: an unknown key or recipe, a value of the wrong type or out of range, a contradiction.
    """
    layers = [dict(flags)]
    while "config" in layers[0]:
        layers.insert(0, _load_layer(str(layers[0].pop("config"))))
        if len(layers) > 8:
            raise ValueError(f"config={flags['config']} must not name itself as its own parent; remove the cycle")
    values: dict[str, Any] = {}
    for layer in layers:
        values.update(_architecture(layer))
        values.update(layer)
    return _nested(PretrainingConfig, values)


def dump_yaml(config: BaseModel) -> str:
    """All settings as flat YAML, by section; `--config FILE` reads it back to an equal config."""
    blocks = []
    for section, values in config.model_dump(mode="json").items():
        blocks.append(f"# {section}\n" + yaml.safe_dump(values, sort_keys=False, width=1000))
    return "\n".join(blocks)


def flat_fields(config_class: type[BaseModel]) -> dict[str, tuple[str, FieldInfo]]:
    """Field name -> (section, field), over all sections."""
    found: dict[str, tuple[str, FieldInfo]] = {}
    for section, holder in config_class.model_fields.items():
        assert isinstance(holder.annotation, type) and issubclass(holder.annotation, BaseModel), section
        for name, field in holder.annotation.model_fields.items():
            assert name not in found, f"{name} is in both {found[name][0]} and {section}"
            found[name] = (section, field)
    return found


# ---- layers -------------------------------------------------------------------------------------------------------


def _load_layer(name_or_file: str) -> dict[str, Any]:
    if name_or_file in RECIPES:
        recipe = RECIPES[name_or_file]()
        return {name: value for section in recipe for name, value in section[1]}
    path = Path(name_or_file)
    if not path.is_file():
        hint = suggest(name_or_file, RECIPES, f"the recipes are {', '.join(list(RECIPES)[:6])} ... in bert/recipes")
        raise ValueError(f"config={name_or_file} must be a recipe or a YAML file; {hint}")
    return _read_yaml(path)


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


def _read_yaml(path: Path) -> dict[str, Any]:
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
    known = [*flat_fields(PretrainingConfig), *_EXTRA_KEYS]
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


def _nested(config_class: type[PretrainingConfig], values: Mapping[str, Any]) -> PretrainingConfig:
    sections: dict[str, dict[str, Any]] = {section: {} for section in config_class.model_fields}
    for name, (section, field) in flat_fields(config_class).items():
        if name not in values:
            continue
        value = values[name]
        if _is_optional(field) and isinstance(value, str) and value.lower() in ("none", "null", ""):
            value = None
        if Path in _members(field) and value is not None:
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
    return [_explain_one(dict(detail)) for detail in error.errors()]


def _explain_one(detail: dict[str, Any]) -> str:
    name = next((str(part) for part in detail["loc"][1:]), "")
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if name == "phase":
        return "one of --phase1 and --phase2 must be given, or a recipe of one phase with --config"
    flag, field = "--" + name.replace("_", "-"), flat_fields(PretrainingConfig)[name][1]
    if detail["type"] == "missing":
        return f"{flag} must be given ({field.description}), or a recipe with --config"
    rule = f"{detail['msg'][0].lower()}{detail['msg'][1:]}".replace("input should be", "must be")
    remedy = f"change {flag}"
    if detail["type"] == "literal_error":
        choices = [str(choice) for choice in _choices(field)]
        rule, remedy = f"must be one of {', '.join(choices)}", suggest(str(detail["input"]), choices, remedy)
    return f"{name}={detail['input']} {rule}; {remedy}"


def suggest(word: str, known: Iterable[str], otherwise: str) -> str:
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("_", "-") if word.startswith("--") else word.lower(),
                                      list(lower), n=1, cutoff=0.6)
    return f"did you mean {lower[close[0]]}?" if close else otherwise


# ---- the parser ---------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see --help")


class _Truth(argparse.Action):
    """`--flag`, `--flag true`, `--no-flag`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        negated = option_string is not None and option_string.startswith("--no-")
        if negated and values is not None:
            raise ValueError(f"{option_string}={values} must stand without a value; drop {values}")
        setattr(namespace, self.dest, "false" if negated else "true" if values is None else values)


class _Formatter(argparse.HelpFormatter):
    """Long lines, and no placeholder after a truth flag, whose value is rarely given."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=118)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, _Truth):
            return ", ".join(action.option_strings)
        return super()._format_action_invocation(action)


def pretraining_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="run_pretraining.py", allow_abbrev=False, argument_default=argparse.SUPPRESS,
        formatter_class=_Formatter,
        usage="%(prog)s (--phase1 | --phase2 | --config NAME_OR_FILE) [flags]",
        description="Pre-train BERT on PaddlePaddle. A flag on the command line wins over the YAML file or recipe "
        "named by --config, which wins over the default.")
    start = parser.add_argument_group("where to begin")
    start.add_argument("--config", metavar="NAME_OR_FILE", help="a recipe of bert/recipes (phase1_large, ...), or a "
                       "YAML file of flag names and values")
    start.add_argument("--show-config", action="store_true", help="print every resolved setting as YAML")
    start.add_argument("--dry-run", action="store_true", help="print the plan (batches, tokens, memory) and stop")
    phase = start.add_mutually_exclusive_group()
    for number, length in ((1, "short"), (2, "long")):
        phase.add_argument(f"--phase{number}", dest="phase", action="store_const", const=number,
                           help=f"train phase {number}, {length} sequences")
    groups = {section: parser.add_argument_group(section) for section in PretrainingConfig.model_fields}
    groups["model"].description = "the sizes of --bert-model, changed one by one"
    groups["model"].add_argument("--config-file", metavar="JSON", help="the model's bert_config.json")
    for name, (section, field) in flat_fields(PretrainingConfig).items():
        if name != "phase":
            _add_flag(groups[section], name, field)
    return parser


def _add_flag(group: Any, name: str, field: FieldInfo) -> None:
    flag, text = "--" + name.replace("_", "-"), str(field.description)
    if not field.is_required():
        default = str(field.default)
        text += f" (default: {default.lower() if default in ('None', 'True', 'False') else default})"
    text = text.replace("%", "%%")
    if field.annotation is bool:
        group.add_argument(flag, "--no-" + flag[2:], dest=name, action=_Truth, nargs="?", help=text)
        return
    kinds = [kind.__name__.upper() for kind in _members(field) if kind in (int, float, str, Path)]
    metavar = "|".join([*map(str, _choices(field)), *kinds])
    group.add_argument(flag, dest=name, metavar=metavar, help=text)


def _members(field: FieldInfo) -> tuple[Any, ...]:
    """The types a field accepts, a union taken apart."""
    is_union = typing.get_origin(field.annotation) in (typing.Union, UnionType)
    return typing.get_args(field.annotation) if is_union else (field.annotation,)


def _is_optional(field: FieldInfo) -> bool:
    return type(None) in _members(field)


def _choices(field: FieldInfo) -> list[Any]:
    literals = [kind for kind in _members(field) if typing.get_origin(kind) is typing.Literal]
    return [choice for literal in literals for choice in typing.get_args(literal)]
