"""Merges the sources of settings. A later layer overrides an earlier one:

1. the default, or what other settings of the command imply for it (`Rule`)
2. the recipe, preset or YAML file that --config names, over the parent that it names
3. the flags of the command
4. the flags of one phase (--phase1-NAME)
5. what a start knows: the device, the number of updates of --epochs, the time that is left, the newest checkpoint

`resolve` merges the first four. The launcher adds the fifth (`bert.jobs.training.Train`), and writes the run file.
Ranks read it as it is; a rank of fine-tuning still turns --epochs into updates, once it has counted its rows.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bert.config.architecture import BUILT_IN_MODELS, BertConfig
from bert.config.entry_point import EntryPoint, Rule
from bert.config.flags import flat_fields, is_optional, members
from bert.config.nvidia_image import built_in_model, with_own_vocabulary
from bert.config.plain_yaml import read_yaml
from bert.config.setting_errors import suggest
from bert.config.settings_base import Settings

AnySettings = TypeVar("AnySettings", bound=Settings)

_NOT_GIVEN = ("None", "none", "null", "", "-1")
_WEIGHTS = ("from_pretrained_params", "from_checkpoint", "from_phase1_final_params")
_REMOVED = {"probe_file": None, "best_by": "loss"}  # settings that files of 88b30792 have, and their value for "off"
_EXTRA_KEYS = ("config", "config_file")  # accepted in YAML beside the fields: a parent, and the model's JSON


def resolve_config(flags: Mapping[str, Any], entry: EntryPoint) -> Any:
    """`resolve` for one layer: flags over the YAML file or recipe that `config` names."""
    return resolve([flags], entry)


def resolve(requested: Sequence[Mapping[str, Any]], entry: EntryPoint) -> Any:
    """Merge layers (flat names -> strings or values) over the YAML file or recipe that their `config` names.

    Args:
        requested: settings of a preset, flags, flags of a phase; a later layer overrides an earlier one.
    Returns:
        the checked settings of the entry point's config_class.
    """
    layers = [merged(requested, entry.rules)]
    name = layers[0].get("config")
    while "config" in layers[0]:
        layers.insert(0, _load_layer(str(layers[0].pop("config")), entry))
        if len(layers) > 8:
            raise ValueError(f"config={name} must not name itself as its own parent; remove the cycle")
    given = merged([{**_architecture(layer), **layer} for layer in layers], entry.rules)
    implied = {"bert_model": entry.default_model}
    if "vocab_file" in given:  # the name that an error says, if weights of NVIDIA's image have none beside them
        implied["vocab_file"] = given["vocab_file"]
    given = with_own_vocabulary(given, has_weights=any(str(given.get(name)) not in _NOT_GIVEN for name in _WEIGHTS))
    implied = {**_architecture(implied), **implied}
    for rule in entry.rules:
        implied |= rule.implies(given)
    return read_settings(entry.config_class, {**implied, **given})


def merged(layers: Iterable[Mapping[str, Any]], rules: Sequence[Rule]) -> dict[str, Any]:
    """Merge the layers, later ones over earlier ones. A value drops the lower settings that its rules name."""
    values: dict[str, Any] = {}
    for layer in layers:
        new = {name for name, value in layer.items() if str(value) not in (*_NOT_GIVEN, str(values.get(name)))}
        dropped = {name for rule in rules if new.intersection(rule.given) for name in rule.drops}
        values = {name: value for name, value in values.items() if name not in dropped} | dict(layer)
    return values


def _load_layer(name_or_file: str, entry: EntryPoint) -> dict[str, Any]:
    if name_or_file in entry.recipes:
        recipe = entry.recipes[name_or_file]()
        if isinstance(recipe, Mapping):
            return dict(recipe)
        return {name: value for section in recipe for name, value in section[1]}
    path = Path(name_or_file)
    if not path.is_file():
        listed = f"the recipes are {', '.join([*entry.recipes][:6])} ..." if entry.recipes else "there are no recipes"
        hint = suggest(name_or_file, entry.recipes, listed)
        raise ValueError(f"config={name_or_file} must be a recipe or a YAML file; {hint}")
    return _read_yaml(path, entry)


def _read_yaml(path: Path, entry: EntryPoint) -> dict[str, Any]:
    values = read_yaml(path)
    layer = {str(key).replace("-", "_"): value for key, value in values.items()}
    if len(layer) < len(values):
        raise ValueError(f"config={path} gives a setting twice, with - and with _ in its name; remove one of the two")
    for name in ("config", "config_file", "bert_model"):
        if not isinstance(layer.get(name, ""), (str, type(None))):
            raise ValueError(f"{name}={layer[name]!r} in {path} must be a name or a path; change it")
    known = [*flat_fields(entry.config_class), *_EXTRA_KEYS]
    layer = without_removed(layer, known)
    for key in layer:
        if key not in known:
            raise ValueError(f"{key}={layer[key]!r} in {path} is not a setting; {suggest(key, known, 'see --help')}")
    return layer


def without_removed(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The values of a file without removed settings that were off; one that was on stays, to be refused.

    Args:
        known: names of the settings there are. `best_by` was removed from pre-training, and is a setting of labels.
    """
    off = {name for name, value in _REMOVED.items() if name not in known and values.get(name) == value}
    return {name: value for name, value in values.items() if name not in off}


def _architecture(layer: dict[str, Any]) -> dict[str, Any]:
    """Model sizes of a layer, from its `config_file` (taken out of it) or the name of a built-in model."""
    config_file, name = layer.pop("config_file", None), layer.get("bert_model")
    if config_file not in (None, "None", "none"):
        if model := built_in_model(Path(str(config_file))):
            return BUILT_IN_MODELS[model].model_dump()
        return BertConfig.from_json_file(_expand_path(config_file)).model_dump()
    if name in BUILT_IN_MODELS:
        return BUILT_IN_MODELS[name].model_dump()
    if name is not None and "hidden_size" not in layer:
        hint = suggest(str(name), BUILT_IN_MODELS, f"they are {', '.join(BUILT_IN_MODELS)}")
        raise ValueError(f"bert_model={name} must be a built-in model, or come with --config-file; {hint}")
    return {}


def read_settings(settings_class: type[AnySettings], values: Mapping[str, Any]) -> AnySettings:
    """Build checked settings from values by flat names; values of other settings are ignored."""
    sections: dict[str, dict[str, Any]] = {section: {} for section in settings_class.model_fields}
    for name, (section, field) in flat_fields(settings_class).items():
        if name not in values:
            continue
        value = values[name]
        if is_optional(field) and isinstance(value, str) and value.lower() in ("none", "null", ""):
            value = None
        if Path in members(field) and value is not None:
            value = _expand_path(value)
        sections[section][name] = value
    return settings_class.model_validate(sections)


def _expand_path(path: Any) -> Any:
    """Expand ~ and $VARIABLES. An unset variable stays as it is, and check_files() reports it."""
    return os.path.expanduser(os.path.expandvars(path)) if isinstance(path, (str, Path)) else path
