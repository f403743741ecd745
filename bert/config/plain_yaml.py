"""Reads the YAML of settings strictly: plain values, each name once."""

from functools import cache
from pathlib import Path
from typing import Any

_DEEPEST = 3  # levels of a YAML file
_LONGEST_VALUE = 3000  # characters: a number of as many hexadecimal digits can still be printed


@cache
def _strict_loader() -> type[Any]:
    """The loader class of YAML; the package is imported here, because --help needs none."""
    import yaml

    class _StrictLoader(yaml.SafeLoader):
        """YAML loader that refuses a duplicate key, which others accept."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise ValueError(f"line {key.start_mark.line + 1} must be `name: value`; the name is not a word")
                if key.value in seen:
                    raise ValueError(
                        f"{key.value} is given twice (again in line {key.start_mark.line + 1}); remove one"
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    return _StrictLoader


def _check_yaml(text: str) -> None:
    """Refuse YAML that could take endless time or memory: references, deep nesting, very long values."""
    import yaml

    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        what = f"nesting of more than {_DEEPEST} levels" if depth > _DEEPEST else None
        if isinstance(event, yaml.AliasEvent):
            what = f"the reference *{event.anchor}"
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > _LONGEST_VALUE:
            what = f"a value of {len(event.value)} characters"
        if what:
            assert event.start_mark is not None  # only where a caller makes events
            raise ValueError(f"line {event.start_mark.line + 1} has {what}; write plain values of settings")


def plain_yaml(text: str) -> Any:
    """Read the plain value of a YAML document. ValueError for anything that is no setting."""
    import yaml

    try:
        _check_yaml(text)
        return yaml.load(text, _strict_loader())
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"a value is not what its tag, as !!float, says ({error}); write plain values") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a file of settings as name -> value; ValueError, naming the file."""
    try:
        values = plain_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"config={path} must be readable YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ValueError(f"config={path} must hold lines of `name: value`, not {str(values)[:40]!r}")
    return values
