"""Values of flags of the user's text, each checked by its own field."""

import pytest
from pydantic_core import PydanticUndefined

from bert.config.flags import flat_fields, value_flags
from bert.own_text.typed_settings import typed_settings
from bert.pretraining.config import PretrainingConfig


def test_flags_become_values_of_their_types():
    flags = {"learning_rate": "1e-3", "finish_in": "10m", "max_steps": "40", "amp": "true", "eval_dir": "none"}
    values = {"learning_rate": 0.001, "finish_in": 600.0, "max_steps": 40, "amp": True, "eval_dir": None}
    assert typed_settings(flags) == values


def test_every_default_is_read_as_itself():
    """Each default is typed as a user types it, without the other settings that a whole configuration needs."""
    wrong, number = [], 0
    for name, (_, field) in flat_fields(PretrainingConfig).items():
        if field.is_required() or field.default is PydanticUndefined or value_flags(field):
            continue
        read = typed_settings({name: str(field.default)})[name]
        number += 1
        wrong += [] if read == field.default else [(name, field.default, read)]
    assert number > 60 and not wrong


def test_a_field_is_checked_by_the_validators_of_its_section():
    with pytest.raises(ValueError) as refused:
        typed_settings({"optimizer": "DistributedFusedLamb", "fleet_strategies": "lamb", "epochs": "0", "seed": "3"})
    first, second, third = str(refused.value).split("; pass ", 1)[0], *str(refused.value).split("; ")[-2:]
    assert first.startswith("optimizer=DistributedFusedLamb must be Lamb")
    assert "fleet_strategies=lamb must be without lamb" in str(refused.value)
    assert (second, third) == ("epochs=0 must be greater than 0", "change --epochs")


def test_a_number_is_finite():
    with pytest.raises(ValueError, match="masked_lm_ratio=inf must be a finite number; change --masked-lm-ratio"):
        typed_settings({"masked_lm_ratio": "inf"})
