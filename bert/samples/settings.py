"""Settings of the pre-training loader: how shards become batches."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bert.config.settings_base import MayDiffer, ReadWith, Settings

MASKED_SHARE = 0.15  # of the tokens (Devlin et al., 2019)


def predictions_of(length: int, masked_lm_ratio: float = MASKED_SHARE) -> int:
    """Usual limit of masked positions in a sequence: 20 of 128 at a share of 15%, as in published recipes."""
    return max(1, min(length, round(length * 20 / 128 * (masked_lm_ratio / MASKED_SHARE))))


def check_predictions(length: int, masked_lm_ratio: float, max_predictions_per_seq: int) -> None:
    """Raise ValueError if the limit of predictions cuts an unusual masked share."""
    needed = round(length * masked_lm_ratio)
    if masked_lm_ratio != MASKED_SHARE and max_predictions_per_seq < needed:
        raise ValueError(
            f"max_predictions_per_seq={max_predictions_per_seq} must be at least {needed} for masked_lm_ratio="
            f"{masked_lm_ratio:g} of {length} tokens; pass --max-predictions-per-seq "
            f"{predictions_of(length, masked_lm_ratio)}, or leave it out"
        )


class LoaderSettings(Settings):
    max_seq_length: int = Field(512, ge=8, description="longest sequence of the shards, in tokens")
    max_predictions_per_seq: int = Field(80, ge=1, description="most masked positions in one sequence")
    masking: Literal["static", "dynamic"] = Field(
        "static", description="static: masked when the shards were made; dynamic: new masks at each reading"
    )
    whole_word_masking: bool = Field(False, description="dynamic masking hides whole words, not word pieces")
    masked_lm_ratio: float = Field(
        MASKED_SHARE,
        gt=0,
        lt=1,
        description="share of tokens to predict: of dynamic masking, and of the static masks that a run makes shards "
        "with; --max-predictions-per-seq follows it",
    )
    num_workers: Annotated[MayDiffer[int], ReadWith("data_loader", values=("own",), is_refused=True)] = Field(
        4, ge=0, description="background threads that read shards on each rank; 0: none"
    )
    sequence_length_multiple: MayDiffer[int] = Field(
        8, ge=1, description="a batch is padded to its longest sequence, rounded up to this multiple"
    )
    group_by_length: MayDiffer[bool] = Field(
        False,
        description="give an update sequences of similar length, chosen from 32 updates: less padding, but updates "
        "are no random samples any more",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "LoaderSettings":
        if self.max_predictions_per_seq > self.max_seq_length:
            raise ValueError(
                f"max_predictions_per_seq={self.max_predictions_per_seq} must be at most max_seq_length="
                f"{self.max_seq_length}; the usual pairs are 20 of 128 and 80 of 512"
            )
        check_predictions(self.max_seq_length, self.masked_lm_ratio, self.max_predictions_per_seq)
        if self.whole_word_masking and self.masking != "dynamic":
            raise ValueError(
                "whole_word_masking=true needs masking=dynamic: static shards are already masked; pass "
                "--masking dynamic, or make the shards with whole-word masking"
            )
        return self
