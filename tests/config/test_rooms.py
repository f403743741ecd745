"""Every setting names the room that owns it, and no room looks up by its name a setting of a room that uses it."""

import ast

from pydantic import BaseModel

from bert.commands.vectors import LAUNCHER as VECTORS
from bert.config.flags import flat_fields
from bert.config.settings_base import room_of
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.glue.config import ENTRY as GLUE
from bert.own_text.flags import OwnText
from bert.pretraining.entry import ENTRY as PRETRAINING
from bert.pretraining.launch_settings import PretrainingLaunch
from tests.test_layers import MODULES, ORDER, package

ENTRIES = [PRETRAINING, SQUAD, NER, GLUE, VECTORS.entry]
CLASSES: list[type[BaseModel]] = [*(entry.config_class for entry in ENTRIES), PretrainingLaunch, OwnText]
LOOKS = ("getattr", "hasattr")
BY_NAME = ("flat_fields", "model_fields")


def rooms() -> dict[str, set[str]]:
    """Map the name of each setting to the rooms that own a setting of this name."""
    owners: dict[str, set[str]] = {}
    for settings in CLASSES:
        for name, (_, field) in flat_fields(settings).items():
            owners.setdefault(name, set()).add(room_of(field))
    return owners


def looked_up(tree: ast.Module) -> list[tuple[int, str]]:
    """Yield (line, name) of look-ups by a literal name: `getattr(x, "name")`, `x.model_fields["name"]`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOOKS:
            places = node.args[1:2]
        elif isinstance(node, ast.Subscript) and any(word in ast.unparse(node.value) for word in BY_NAME):
            places = [node.slice]
        else:
            continue
        found += [(node.lineno, place.value) for place in places if isinstance(place, ast.Constant)]
    return found


def strangers(module: str, source: str, owners: dict[str, set[str]]) -> list[str]:
    """Return the look-ups, in a module of settings, of names that only rooms below its own in ORDER own."""
    place = ORDER.index(package(module))
    below = {name for name, of in owners.items() if all(ORDER.index(room) > place for room in of)}
    return [f"{module}:{line} {name}" for line, name in looked_up(ast.parse(source)) if name in below]


def test_every_setting_names_its_room():
    owners = rooms()
    assert len(owners) > 150 and set().union(*owners.values()) <= set(ORDER)
    expected = {
        "max_steps": "bert.config",  # which two rooms give another default
        "phase": "bert.pretraining",
        "masking": "bert.samples",
        "keep_best": "bert.finetuning",
        "label_column": "bert.labels",
        "task_name": "bert.glue",
        "code_dir": "bert.pretraining",
        "num_nodes": "bert.launching",
        "replay_share": "bert.own_text",
    }
    assert {name: owners[name] for name in expected} == {name: {room} for name, room in expected.items()}


def test_no_room_looks_up_a_setting_of_a_room_that_uses_it():
    owners = rooms()
    sources = {module: path.read_text(encoding="utf-8") for module, path in MODULES.items()}
    assert [line for module, source in sources.items() for line in strangers(module, source, owners)] == []
    for line in ('getattr(config.run, "phase", None)', 'flat_fields(kind)["phase"]', 'hasattr(config, "keep_best")'):
        assert strangers("bert.launching.ranks", line, owners), "the check sees it"
        assert not strangers("bert.commands.squad", line, owners), "a command may name it"
