"""The base class of all settings."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic.fields import FieldInfo

SWITCH_VALUES = Literal["auto", "on", "off"]
SWITCHES = (bool, bool | None, SWITCH_VALUES)  # the types of settings that `--flag` and `--no-flag` set


# on and off for the booleans that a switch once was, and that `--flag` and `--no-flag` still give.
_OF_BOOLEANS = BeforeValidator(lambda value: {"true": "on", "false": "off"}.get(str(value).lower(), value))
Switch = Annotated[SWITCH_VALUES, _OF_BOOLEANS]

# The type of a setting, or of a section of settings, that a resumed run may change: it does not decide what is learned
# from which samples.
_Value = TypeVar("_Value")
MAY_DIFFER = "may differ when a run is resumed"
MayDiffer = Annotated[_Value, MAY_DIFFER]
# Of a length: a run may be extended, by a larger value or by one where there was none.
MAY_GROW = "may grow when a run is resumed"
MayGrow = Annotated[_Value, MAY_GROW]
# Of files of the user's own, whose form a published set has no need to say.
OWN_FILES_ONLY = "is for the user's own files"
OwnFilesOnly = Annotated[_Value, OWN_FILES_ONLY]


@dataclass(frozen=True, init=False)
class ReadWith:
    """Metadata of a setting that has an effect only with another setting (`bert.config.unread_settings`).

    Attributes:
        names: the other setting; of several one is enough. A task that has none of them reads the setting.
        values: that it must have; none: any but false, 0 and none.
        above: a number must be larger than this.
        is_refused: a command line that gives the setting for nothing is refused, not only warned of.
    """

    names: tuple[str, ...]
    values: tuple[Any, ...]
    above: float
    is_refused: bool

    def __init__(self, *names: str, values: tuple[Any, ...] = (), above: float = 0.0, is_refused: bool = False) -> None:
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "above", above)
        object.__setattr__(self, "is_refused", is_refused)

    def is_met_by(self, value: Any) -> bool:
        if self.values:
            return value in self.values
        return value > self.above if isinstance(value, int | float) else bool(value)


class Room(str):
    """Metadata of a field: the package that owns it, such as `bert.pretraining`. `Settings` adds it to every field."""


def room_of(field: FieldInfo) -> str:
    """The package that owns a setting: only it, and packages that import it, may name the setting."""
    return next(entry for entry in field.metadata if isinstance(entry, Room))


_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float | None:
    """Seconds of a duration such as 90, 90s, 10m or 1.5h, above 0; None if the text is no duration."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([smh]?)", text.strip().lower())
    return (float(match[1]) * _SECONDS[match[2]] or None) if match else None


class Settings(BaseModel):
    """Base of all settings: immutable; refuses unknown names, infinite numbers and NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Set the owning package of each field: the package of the first class that declares it."""
        super().__pydantic_init_subclass__(**options)
        for name, field in cls.model_fields.items():
            owners = [parent for parent in cls.__mro__ if name in parent.__dict__.get("__annotations__", {})]
            module = owners[-1].__module__.removeprefix("bert_on_paddle.")
            other_metadata = [entry for entry in field.metadata if not isinstance(entry, Room)]
            field.metadata = [*other_metadata, Room(".".join(module.split(".")[:2]))]

    @model_validator(mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, values: Any) -> Any:
        """Refuse a boolean for a number: pydantic would turn `batch_size: true` into 1."""
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field and field.annotation not in SWITCHES:
                raise ValueError(f"{name}={str(value).lower()} must not be true or false; give a value")
        return values
