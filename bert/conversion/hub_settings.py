"""Settings of a push to a Hugging Face hub. This module does not load huggingface_hub, which is slow."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from bert.config.flags import Flag
from bert.config.settings_base import Settings

_GROUP = "Hugging Face hub (HF_ENDPOINT names another)"


class HubRequest(Settings):
    """The hub repository to which a converted model is pushed; to_hub=None pushes nothing."""

    to_hub: Annotated[str | None, Flag(placeholder="NAME", group=_GROUP)] = Field(
        None, description="push it there as [OWNER/]NAME, with its card, instead of --output-dir"
    )
    hub_private: Annotated[bool, Flag(group=_GROUP)] = Field(False, description="make the repository private")
    hub_update: Annotated[bool, Flag(group=_GROUP)] = Field(
        False, description="make a new commit in a repository that has a model"
    )
    hub_token_file: Annotated[Path | None, Flag(placeholder="FILE", group=_GROUP, default_text="HF_TOKEN")] = Field(
        None, description="file with a token that may write"
    )
