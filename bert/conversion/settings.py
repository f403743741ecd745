"""Settings of the commands that convert and export. Their help loads no code that reads or writes a model."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from bert.config.flags import NO_FLAG, Flag
from bert.config.settings_base import Settings
from bert.model.head_specs import HEADS
from data.text.code_pages import check_language

MODEL_FORMATS = ("native", "hf", "paddlenlp")  # that `bert.conversion.writers` writes
_GROUP = "model card (README.md)"
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")  # as Hugging Face writes it, with hyphens


class ModelSource(Settings):
    """The model to read."""

    source: str = Field(description="a path, or the name of a published model")
    task: Literal[*HEADS] | None = Field(  # type: ignore[valid-type]
        None, description="the task of the model, if the source does not name it; other heads are left out"
    )
    config_file: Path | None = Field(
        None, description="the model's bert_config.json or config.json, if none is beside the weights"
    )
    vocab_file: Path | None = Field(None, description="vocab.txt or tokenizer.json, if none is beside the weights")
    do_lower_case: Annotated[bool | None, Flag(default_text="from the source")] = Field(
        None, description="whether the vocabulary is of lower-cased text"
    )
    strip_accents: Annotated[bool | None, Flag(default_text="from the source; otherwise if lower-casing")] = Field(
        None, description="whether it is of text without accents"
    )
    fused_qkv: Annotated[str | None, NO_FLAG] = None  # this and the next two have flags in run_convert.py only
    allow_unknown: Annotated[bool, NO_FLAG] = False
    keep_padding: Annotated[bool, NO_FLAG] = False


class CardRequest(Settings):
    """What the user states about a model, by flags of the exporting commands."""

    license: Annotated[str | None, Flag(group=_GROUP)] = Field(
        None,
        description="license of the model, as the hub spells it: apache-2.0, cc-by-4.0, other (default: not stated)",
    )
    languages: Annotated[
        tuple[str, ...], Flag(name="--language", hidden_aliases=("--lang",), placeholder="CODE", group=_GROUP)
    ] = Field((), description="languages of its text, such as en de (default: not stated)")

    @field_validator("license")
    @classmethod
    def _is_license(cls, license: str | None) -> str | None:
        if license and not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", license):
            raise ValueError(f"license={license} must be a name as apache-2.0, mit or other; change --license")
        return license

    @field_validator("languages")
    @classmethod
    def _are_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        for language in languages:
            if not _LANGUAGE.fullmatch(language):
                raise ValueError(f"language={language} must be a code as en or de; change --language")
            check_language(language)
        return languages


class ConversionRequest(ModelSource, CardRequest):
    """A conversion to do."""

    target: Annotated[Path, Flag(name="--output-dir", hidden_aliases=("--to",), placeholder="DIR")] = Field(
        description="the folder to make"
    )
    to_format: str = Field(description="one of MODEL_FORMATS, or a serving format")
    name: Annotated[str | None, NO_FLAG] = None  # the model's name on its card; None: the folder's name
