"""The base class of all settings."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Settings(BaseModel):
    """Frozen; refuses unknown names, infinite numbers and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, values: Any) -> Any:
        """Refuse a boolean for a number: pydantic would turn `batch_size: true` into 1."""
        for name, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, bool) and name in cls.model_fields and cls.model_fields[name].annotation is not bool:
                raise ValueError(f"{name}={str(value).lower()} must not be true or false; give a value")
        return values
