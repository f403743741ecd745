"""Reads flags of a pre-training as settings, each checked on its own by its field."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, create_model

from bert.config.flags import flat_fields, is_optional
from bert.config.setting_errors import Mistakes
from bert.config.settings_base import Settings
from bert.pretraining.config import PretrainingConfig

_VALIDATORS = {"before": BeforeValidator, "after": AfterValidator}


def typed_settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Values of flags, by the names of the settings.

    Args:
        flags: strings as typed, or values that have their type.
    Raises:
        ValueError: with a line for each wrong value.
    """
    values, mistakes = dict[str, Any](), Mistakes()
    for name, value in flags.items():
        with mistakes.noted():
            values[name] = _typed_value(name, value)
    mistakes.refuse()
    return values


def _typed_value(name: str, value: Any) -> Any:
    _, field = flat_fields(PretrainingConfig)[name]
    if is_optional(field) and isinstance(value, str) and value.lower() in ("none", "null", ""):
        value = None
    return getattr(_model_of_one_field(name).model_validate({name: value}), name)


@cache
def _model_of_one_field(name: str) -> type[BaseModel]:
    """A model with the setting alone, and the validators that its section has for it. Its name is the section's, by
    which `explain` finds the words of an error."""
    section, field = flat_fields(PretrainingConfig)[name]
    section_class: Any = PretrainingConfig.model_fields[section].annotation
    checked: Any = Annotated[field.annotation, field]
    for validator in section_class.__pydantic_decorators__.field_validators.values():
        if name in validator.info.fields:
            checked = Annotated[checked, _VALIDATORS[validator.info.mode](validator.func)]
    fields: dict[str, Any] = {name: checked}
    return create_model(section_class.__name__, __config__=Settings.model_config, **fields)
