"""The settings of the Python functions for editors equal the flags of the commands; --write-golden writes them."""

import inspect
import keyword
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from bert import REPOSITORY, api, api_settings
from bert.commands import classify, pretrain
from bert.commands.convert import ConvertRequest
from bert.config.flags import flag_name, flat_fields
from bert.config.plain_commands import parser_of
from bert.inference.export_files import ExportRequest
from bert.inference.heads import load_model
from bert.inference.model_folder import open_model
from bert.launching.arguments import LauncherParser
from bert.own_text.flags import OwnText
from bert.serving.settings import ServerSettings

FILE = REPOSITORY / "bert/api_settings.py"
OWN = {  # what the functions take by themselves
    "LoadSettings": {"model"},
    "PretrainSettings": {"text", "output_dir"},
    "ClassifySettings": {"train_file", "train", "output_dir"},
    "ExportSettings": {"model", "output_dir", "output_format"},
    "ConvertSettings": {"model", "output_dir", "output_format"},
    "ServeSettings": {"port"},
}
HEAD = '''"""Settings of the functions of `bert.api`, as editors show them: the flags of the commands, with underscores.

Written by `pytest tests/test_api_settings.py --write-golden`, which holds it equal to the flags.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict
'''


def name_of(annotation: Any) -> str:
    """Return a type as it is written in the file; a list may have any elements that become words."""
    if annotation is Any or annotation is None:
        return "Any"
    if get_origin(annotation) in (Union, UnionType):
        names = sorted({name_of(part) for part in get_args(annotation) if part is not type(None)})
        return "Any" if "Any" in names else " | ".join(names)
    if get_origin(annotation) is Literal:
        return " | ".join(sorted({type(value).__name__ for value in get_args(annotation) if value is not None}))
    if hasattr(annotation, "__metadata__"):
        return name_of(get_args(annotation)[0])
    if get_origin(annotation) in (tuple, list, Sequence):
        return "Sequence[Any]"
    names = {bool: "bool", int: "int", float: "float", str: "str", Path: "Path | str"}
    return names.get(annotation, "Any")


def flags_of_parser(parser: Any, fields: dict[str, Any]) -> dict[str, str]:
    """Return names by which a flag can be given, each with its type."""
    found = {}
    for action in parser._actions:
        flags = [flag for flag in action.option_strings if flag.startswith("--") and not flag.startswith("--no-")]
        if action.dest in ("help", "show_config") or action.help == "==SUPPRESS==":
            continue
        field = fields.get(action.dest)
        kind = "Any" if field is None else name_of(field.annotation)
        for flag in flags:
            name = flag.removeprefix("--").replace("-", "_")
            if name.isidentifier() and not keyword.iskeyword(name) and flag_name(name) == flag:
                found[name] = kind
    return found


def flags_of_launcher(launcher: Any) -> dict[str, str]:
    holders: list[type[BaseModel]] = [launcher.entry.config_class, launcher.settings]
    if launcher is pretrain.LAUNCHER:
        holders.append(OwnText)
    fields = {name: field for holder in holders for name, (_, field) in flat_fields(holder).items()}
    return flags_of_parser(LauncherParser(launcher), fields)


def flags_of_plain(settings: type[BaseModel]) -> dict[str, str]:
    return flags_of_parser(parser_of(settings, "", "run_export.py"), dict(settings.model_fields))


def arguments_of_loading() -> dict[str, str]:
    found = {}
    for function in (load_model, open_model):
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                optional = " | None" if type(None) in get_args(parameter.annotation) else ""
                found[name] = name_of(parameter.annotation) + optional
    return found


def expected() -> dict[str, dict[str, str]]:
    found = {
        "LoadSettings": arguments_of_loading(),
        "PretrainSettings": flags_of_launcher(pretrain.LAUNCHER),
        "ClassifySettings": flags_of_launcher(classify.LAUNCHER),
        "ExportSettings": flags_of_plain(ExportRequest),
        "ConvertSettings": flags_of_plain(ConvertRequest),
        "ServeSettings": flags_of_plain(ServerSettings),
    }
    return {
        kind: {name: names[name] for name in sorted(names) if name not in OWN.get(kind, ())}
        for kind, names in found.items()
    }


def rendered() -> str:
    parts = [HEAD]
    for kind, names in expected().items():
        ending = "" if kind == "LoadSettings" else " | None"  # as a flag, None leaves a setting out
        lines = [f"    {name}: {typed}" + ("" if typed == "Any" else ending) for name, typed in names.items()]
        parts.append(f"\n\nclass {kind}(TypedDict, total=False):\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def test_the_settings_are_the_flags_of_the_commands(write_golden):
    if write_golden:
        FILE.write_text(rendered())
    assert FILE.read_text() == rendered(), "run pytest tests/test_api_settings.py --write-golden"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("PretrainSettings", "hours max_steps eval_samples epochs language deduplicate seed num_gpus config"),
        ("ClassifySettings", "from_pretrained_params model eval_file epochs cross_validate keep_baseline hours"),
        ("ExportSettings", "precision calibration task"),
        ("ConvertSettings", "to_hub check fused_qkv"),
        ("ServeSettings", "max_inputs host task device"),
        ("LoadSettings", "max_seq_length batch_size device pooling"),
    ],
)
def test_names_that_users_need_are_known(kind, names):
    assert set(names.split()) <= set(getattr(api_settings, kind).__annotations__)


def test_all_public_functions_are_named():
    public = {name for name, value in vars(api).items() if getattr(value, "__module__", "") == api.__name__}
    assert set(api.__all__) == {name for name in public if not name.startswith("_")}
