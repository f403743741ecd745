"""Finds requested settings that have no effect with the other settings, such as --scale-loss without --amp.

A field says by `ReadWith` (bert/config/settings_base.py) which other setting it needs; the text follows from that.
"""

from collections.abc import Collection
from typing import Any

from bert.config.flags import flag_name, flat_fields
from bert.config.setting_errors import refuse_mistakes
from bert.config.settings_base import ReadWith


def unread_warnings(config: Any, given: Collection[str], prefix: str = "") -> list[str]:
    """A warning for each requested setting that has no effect in this run, with the remedy.

    Args:
        config: settings with sections.
        given: names of the settings that the user gave, without the settings of recipes. A given default changes
            nothing, and is not named.
        prefix: of the flags: `phase1-` if they were given as --phase1-NAME.
    Raises:
        ValueError: one of them is not read although its user expects an effect (`ReadWith.is_refused`).
    """
    fields, warnings, refused = flat_fields(type(config)), list[str](), list[str]()
    for name in given:
        section, field = fields.get(name, ("", None))
        if field is None:
            continue
        value = getattr(getattr(config, section), name)
        rules = [rule for rule in field.metadata if isinstance(rule, ReadWith)]
        for rule in rules if value != field.default else ():
            if (others := _values_of_rule(config, rule)) and not any(map(rule.is_met_by, others.values())):
                setting = f"--{prefix}{flag_name(name)[2:]} {_value_text(value)}"
                line = f"{setting} has no effect {_need_text(rule, others)}; drop it"
                (refused if rule.is_refused else warnings).append(line)
                break
    refuse_mistakes(refused)
    return warnings


def _values_of_rule(config: Any, rule: ReadWith) -> dict[str, Any]:
    """The values of the settings that a rule names, as far as this task has them."""
    fields = flat_fields(type(config))
    return {name: getattr(getattr(config, fields[name][0]), name) for name in rule.names if name in fields}


def _need_text(rule: ReadWith, others: dict[str, Any]) -> str:
    name, value = next(iter(others.items()))
    if rule.values == (None,):
        return f"with {flag_name(name)}"
    if not rule.values and rule.above:
        return f"with {flag_name(name)} {_value_text(value)}"
    if not rule.values:
        return f"without {' or '.join(map(flag_name, others))}"
    needed = " or ".join(f"{flag_name(name)} {_value_text(one)}" for one in rule.values)
    return f"with {flag_name(name)} {_value_text(value)}, as it needs {needed}"


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
