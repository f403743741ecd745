"""Settings of an update: the optimizer, its learning rate, and the precision of the arithmetic."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from bert.config.flags import Flag
from bert.config.settings_base import MayDiffer, ReadWith, Settings, Switch

_SCHEDULES_THAT_READ = {  # a setting; with another schedule it must have its default
    "lr_decay_power": ("polynomial",),
    "lr_decay_from": ("polynomial",),
    "lr_decay_share": ("wsd",),
    "end_learning_rate": ("polynomial", "linear", "cosine", "inverse-sqrt", "wsd"),
}


class OptimizerSettings(Settings):
    optimizer: Literal["Lamb", "AdamW"] = Field("Lamb", description="LAMB (You et al., 2020) or AdamW")
    learning_rate: float = Field(1e-4, gt=0, description="peak learning rate, reached at the end of warm-up")
    embedding_rate_factor: float = Field(
        1.0, gt=0, description="learning rate of the word embeddings, as a multiple of --learning-rate"
    )
    head_rate_factor: float = Field(
        1.0, gt=0, description="learning rate of the masked-LM head, as a multiple of --learning-rate"
    )
    warmup_start_lr: float = Field(0.0, ge=0, description="learning rate that warm-up rises from")
    warmup_proportion: float = Field(0.01, ge=0, lt=1, description="share of --max-steps spent warming up")
    end_learning_rate: float = Field(0.0, ge=0, description="learning rate that decay falls to")
    lr_schedule: Literal["polynomial", "linear", "cosine", "constant", "inverse-sqrt", "wsd"] = Field(
        "polynomial",
        description="learning rate after warm-up. polynomial: falls with --lr-decay-power; wsd (warm-up, stable, "
        "decay): stays at the peak, then falls linearly in the last --lr-decay-share, which --finish-in or a file "
        "FINISH in the output folder begins earlier",
    )
    lr_decay_power: float = Field(
        1.0,
        gt=0,
        description="power of the polynomial schedule. 1.0: linear decay; 0.5: square root, as in other recipes",
    )
    lr_decay_from: Literal["warmup", "start"] = Field(
        "warmup",
        description="first update of the polynomial decay. warmup: decay over the updates after warm-up; start: over "
        "all updates, of which warm-up replaces the first, as NVIDIA's PyTorch and TensorFlow trainers do",
    )
    lr_decay_share: float = Field(
        0.15, gt=0, lt=1, description="with --lr-schedule wsd: share of the updates, or of the time, kept for the decay"
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the second moment")
    epsilon: float = Field(1e-6, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay; biases and LayerNorm have none")
    max_grad_norm: float = Field(
        1.0, ge=0, description="gradients of a larger global norm are scaled down to it; 0: off"
    )
    always_adapt: Annotated[bool, ReadWith("optimizer", values=("Lamb",))] = Field(
        False, description="LAMB's trust ratio also where there is no weight decay (biases, LayerNorm)"
    )
    fleet_strategies: Annotated[
        Literal["none", "amp", "gradient_merge", "amp,gradient_merge"], Flag(default_text="none, our own code")
    ] = Field(
        "none",
        description="build mixed precision, gradient accumulation or both with Fleet's own strategies; none: our own "
        "code, "
        "with the same updates and one all-reduce in place of one per parameter",
    )

    @field_validator("optimizer", mode="before")
    @classmethod
    def _with_a_state_that_is_saved(cls, value: Any) -> Any:
        if value == "DistributedFusedLamb":
            raise ValueError(
                f"optimizer={value} must be Lamb, the same method: Paddle keeps the moments of {value} in "
                "buffers cut into a piece for each rank, which checkpoints here do not hold; it does not run on CPUs, "
                "cannot be built with a float16 loss scale, and Fleet sums its gradients a second time; pass "
                "--optimizer Lamb"
            )
        return value

    @field_validator("fleet_strategies", mode="before")
    @classmethod
    def _without_lamb(cls, value: Any) -> Any:
        if "lamb" in str(value).split(","):
            raise ValueError(
                f"fleet_strategies={value} must be without lamb: Fleet's LambOptimizer does not see that a gradient "
                "overflowed and applies the update; use --optimizer Lamb, which the other strategies take"
            )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "OptimizerSettings":
        for name in ("warmup_start_lr", "end_learning_rate"):
            if getattr(self, name) > self.learning_rate:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be at most the peak learning_rate={self.learning_rate}; "
                    "lower it, or raise --learning-rate"
                )
        for name, schedules in _SCHEDULES_THAT_READ.items():
            value, default = getattr(self, name), type(self).model_fields[name].default
            if self.lr_schedule not in schedules and value != default:
                raise ValueError(
                    f"{name}={value} has no effect with lr_schedule={self.lr_schedule}; drop "
                    f"--{name.replace('_', '-')} (its default is {default}), or pass --lr-schedule {schedules[0]}"
                )
        return self

    def decay_text(self) -> str:
        """Describes the learning-rate schedule after warm-up in words."""
        return {
            "polynomial": f"decay of power {self.lr_decay_power:g}",
            "linear": "linear decay",
            "cosine": "decay along half a cosine",
            "constant": "constant",
            "inverse-sqrt": "decay with the inverse square root of the update",
            "wsd": f"stable, with linear decay in the last {self.lr_decay_share:.0%}",
        }[self.lr_schedule]


class PrecisionSettings(Settings):
    amp: bool = Field(False, description="mixed precision: matrix products in --amp-dtype, loss and update in float32")
    amp_dtype: Annotated[Literal["float16", "bfloat16"], ReadWith("amp")] = Field(
        "float16", description="the half-precision type of mixed precision"
    )
    use_pure_fp16: bool = Field(
        False,
        description="O2, which computes as --amp alone: both keep half-precision copies of the parameters, and sum, "
        "clip and update in float32; the loss scale starts at 2^15 if it would be higher",
    )
    scale_loss: Annotated[float, ReadWith("amp"), ReadWith("amp_dtype", values=("float16",))] = Field(
        2.0**20, gt=0, le=2.0**40, description="initial loss scale of float16"
    )
    use_dynamic_loss_scaling: Annotated[bool, ReadWith("amp"), ReadWith("amp_dtype", values=("float16",))] = Field(
        True, description="adapt the loss scale to overflows; otherwise constant"
    )
    loss_scale_growth_interval: Annotated[int, ReadWith("amp"), ReadWith("use_dynamic_loss_scaling")] = Field(
        2000, ge=1, description="updates without overflow before it grows"
    )
    loss_scale_growth_factor: Annotated[float, ReadWith("amp"), ReadWith("use_dynamic_loss_scaling")] = Field(
        2.0, gt=1, description="growth of the loss scale"
    )
    loss_scale_backoff_factor: Annotated[float, ReadWith("amp"), ReadWith("use_dynamic_loss_scaling")] = Field(
        0.5, gt=0, lt=1, description="shrinkage of the loss scale on overflow"
    )
    tf32: MayDiffer[Switch] = Field(
        "auto", description="TF32 in float32 matrix products; auto: on Ampere and newer GPUs; --no-tf32: exact float32"
    )
    float32_all_reduce: Annotated[Switch, ReadWith("amp")] = Field(
        "auto",
        description="with --amp, all-reduce gradients in float32 even if an update has one micro-step; auto: only for "
        "bfloat16, which would lose precision over many ranks",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "PrecisionSettings":
        if self.use_pure_fp16 and not self.amp:
            raise ValueError("use_pure_fp16=true needs amp=true; pass --amp, or drop --use-pure-fp16")
        if self.use_pure_fp16 and self.amp_dtype != "float16":
            raise ValueError(
                f"use_pure_fp16=true needs amp_dtype=float16, not {self.amp_dtype}; pass --amp-dtype float16, or drop "
                "--use-pure-fp16"
            )
        return self

    def sums_in_half_precision(self) -> bool:
        """Whether ranks sum the gradients of a single micro-step as they are computed; accumulated ones are float32."""
        in_float32 = self.float32_all_reduce == "on" or (
            self.float32_all_reduce == "auto" and self.amp_dtype == "bfloat16"
        )
        return self.amp and not in_float32

    def initial_loss_scale(self) -> float:
        is_lower = self.use_pure_fp16 and self.use_dynamic_loss_scaling
        return min(self.scale_loss, 2.0**15) if is_lower else self.scale_loss
