"""Settings that every training run has: typed, frozen, checked once, where they enter.

A field's name is its flag (`batch_size` is `--batch-size`) and its key in YAML; its description is the flag's help.
Names are unique across the sections, so flat names are enough for recipes, YAML and the command line.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from bert.config.architecture import BUILT_IN_MODELS, BertConfig, FusedKernels
from bert.config.batch_settings import BatchSettings
from bert.config.flags import Flag
from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings
from bert.config.settings_base import MayDiffer, MayGrow, ReadWith, Settings, Switch, seconds_of
from bert.config.stage_names import display_name

OTHER_TRACKERS = ("tensorboard", "wandb", "mlflow")  # beside VisualDL; bert/reporting/trackers.py writes to them


class RunSettings(Settings):
    max_steps: MayGrow[int] = Field(ge=1, description="updates of the whole run; the learning rate ends there")
    steps_this_run: MayDiffer[int | None] = Field(
        None, ge=1, description="save and stop after this many updates (default: no limit)"
    )
    finish_in: MayDiffer[float | None] = Field(
        None,
        gt=0,
        description="end this long after this start of the process (90, 90s, 10m, 2h), the last evaluation and "
        "checkpoint included: the decay of --lr-schedule wsd begins early enough, and --max-steps is the most "
        "(default: no limit)",
    )
    seed: int = Field(42, ge=0, lt=2**31, description="decides initial weights, order of samples and dropout")
    output_dir: MayDiffer[Path] = Field(
        Path("./results"), description="checkpoints go to OUTPUT_DIR/BERT_MODEL/STAGE/STEP"
    )
    bert_model: str = Field(
        "bert-base-uncased",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="a built-in model (" + ", ".join(BUILT_IN_MODELS) + "), or any name beside --config-file",
    )
    model_prefix: Annotated[MayDiffer[str], Flag(group="checkpoints")] = Field(
        "bert_paddle", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="first part of a checkpoint's file names"
    )
    log_freq: Annotated[MayDiffer[int], Flag(group="log")] = Field(10, ge=1, description="updates between log lines")
    eval_freq: Annotated[MayDiffer[int], ReadWith("eval_dir"), Flag(group="evaluation")] = Field(
        0, ge=0, description="updates between held-out evaluations; 0: only at the end"
    )
    num_steps_per_checkpoint: Annotated[MayDiffer[int], Flag(group="checkpoints")] = Field(
        100, ge=1, description="updates between checkpoints"
    )
    keep_checkpoints: Annotated[MayDiffer[int], Flag(group="checkpoints")] = Field(
        3, ge=1, description="newest checkpoints kept"
    )
    report_file: Annotated[MayDiffer[Path], Flag(group="log")] = Field(
        Path("./report.json"), description="DLLogger lines of the run"
    )
    benchmark: Annotated[MayDiffer[bool], Flag(group="log")] = Field(
        False, description="measure throughput for a few updates, save nothing"
    )
    benchmark_steps: Annotated[MayDiffer[int], ReadWith("benchmark"), Flag(group="log")] = Field(
        20, ge=1, description="updates that --benchmark measures"
    )
    benchmark_warmup_steps: Annotated[MayDiffer[int], ReadWith("benchmark"), Flag(group="log")] = Field(
        20, ge=0, description="updates before --benchmark measures"
    )
    max_consecutive_skipped_steps: Annotated[MayDiffer[int], Flag(group="guards")] = Field(
        10, ge=1, description="stop after this many non-finite updates in a row"
    )
    rank_check_freq: Annotated[MayDiffer[int], Flag(group="guards")] = Field(
        100, ge=0, description="updates between comparisons of the ranks' parameters; 0: only at the start"
    )
    async_checkpoint: Annotated[MayDiffer[bool], Flag(group="checkpoints")] = Field(
        True, description="write checkpoints in the background: an update waits only while the state is copied"
    )
    watchdog_seconds: Annotated[MayDiffer[float], Flag(group="guards")] = Field(
        1800.0,
        ge=0,
        description="a micro-step, or a batch of an evaluation or prediction, that takes longer ends the run with exit "
        "code 70, the stacks of all ranks in OUTPUT_DIR/STAGE/stacks; 0: off",
    )
    loss_spike_factor: Annotated[MayDiffer[float], Flag(group="guards")] = Field(
        3.0, ge=0, description="report a log interval whose loss is above this multiple of the last 20's median; 0: off"
    )
    loss_spike_action: Annotated[
        MayDiffer[Literal["alert", "rollback"]], ReadWith("loss_spike_factor"), Flag(group="guards")
    ] = Field(
        "alert",
        description="alert: report the spike and continue; rollback: restore the newest checkpoint from before the "
        "spike and skip its batches",
    )

    @field_validator("finish_in", mode="before")
    @classmethod
    def _duration(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if (seconds := seconds_of(value)) is None:
            raise ValueError(f"finish_in={value} must be a duration above 0: 90, 90s, 10m or 2h")
        return seconds

    def length_is_of_the_data(self) -> bool:
        """Whether the number of updates follows from the data, as with epochs."""
        return False

    def patience(self) -> int:
        """Evaluations without improvement after which the training ends; 0: never."""
        return 0

    @field_validator("loss_spike_factor")
    @classmethod
    def _a_factor(cls, value: float) -> float:
        if 0 < value <= 1:
            raise ValueError(f"loss_spike_factor={value} must be above 1, or 0 to turn it off")
        return value


class InitializationSettings(Settings):
    from_checkpoint: Path | None = Field(
        None, description="resume this run: folder of STEP folders, or the output folder of the run"
    )
    last_step_of_checkpoint: Literal["auto"] | int | None = Field(
        None,
        description="step to resume from; auto: the newest valid one, or a fresh start if no checkpoint exists yet "
        "(default: the newest)",
    )
    from_pretrained_params: Annotated[Path | None, Flag(aliases=("--model",))] = Field(
        None,
        description="start at step 0 with the weights found here; or a published model's name: bert-base-uncased, "
        "OWNER/NAME of the Hugging Face hub",
    )

    @field_validator("from_pretrained_params", mode="before")
    @classmethod
    def _path_or_name(cls, value: Any) -> Any:
        """Make a missing path such as ./x absolute: Path drops "./", and x would be taken for a model's name."""
        is_missing_path = isinstance(value, str) and value.startswith(("./", "../")) and not Path(value).exists()
        return Path.cwd() / value if is_missing_path else value

    @field_validator("last_step_of_checkpoint", mode="before")
    @classmethod
    def _number_or_auto(cls, value: Any) -> Any:
        is_number = str(value).isdecimal() and int(value) > 0 and not isinstance(value, bool)
        if value not in (None, "auto") and not is_number:
            raise ValueError(f"last_step_of_checkpoint={value} must be auto, none or a step above 0")
        return int(value) if is_number else value

    @model_validator(mode="after")
    def _consistent(self) -> "InitializationSettings":
        if self.last_step_of_checkpoint is not None and self.from_checkpoint is None:
            raise ValueError(
                f"last_step_of_checkpoint={self.last_step_of_checkpoint} needs from_checkpoint; pass --from-checkpoint"
            )
        start = self.initial_weights()
        if self.from_checkpoint and start and self.last_step_of_checkpoint != "auto":
            raise ValueError(
                f"from_checkpoint={self.from_checkpoint} continues a run and {start} starts one; give only one, or "
                "--last-step-of-checkpoint auto to continue when there is a checkpoint and to start otherwise"
            )
        return self

    def is_of_phase1(self) -> bool:
        """Whether the initial weights come from phase 1, so that no tensor may be missing."""
        return False

    def attends_to_neighbours(self) -> bool:
        """Whether some heads of random weights initially attend to the previous and next token."""
        return False

    def initial_weights(self) -> Path | None:
        """The source of the initial weights of a new run; None: random weights."""
        return self.from_pretrained_params


class HardwareSettings(Settings):
    device: Literal["auto", "cpu", "gpu"] = Field("auto", description="auto: the GPU if Paddle sees one")
    cpu_threads: Annotated[int, ReadWith("device", values=("auto", "cpu"))] = Field(
        0, ge=0, description="threads of one rank's matrix products; 0: all its cores"
    )
    enable_cpu_affinity: Switch = Field(
        "auto", description="bind each rank to its own share of the cores; auto: on GPUs, to the cores near its own"
    )
    fuse_mha: bool = Field(True, description="one matrix product for queries, keys and values; same parameters")
    fuse_linear: Annotated[Switch, ReadWith("device", values=("auto", "gpu"))] = Field(
        "auto", description="GPU: matrix product and bias in one kernel; auto: off"
    )
    fuse_dropout_add: Annotated[Switch, ReadWith("device", values=("auto", "gpu"))] = Field(
        "auto", description="GPU: dropout and residual in one kernel, which keeps no mask; auto: off"
    )
    fuse_attention: Annotated[Switch, ReadWith("device", values=("auto", "gpu"))] = Field(
        "auto",
        description="GPU, with --amp: FlashAttention, which stores nothing of length x length; auto: on cards that "
        "have it (Ampere and newer)",
    )
    unpad: Switch = Field(
        "auto",
        description="compute real tokens only, no padding; same parameters and results. auto: on on CPU, off on GPUs; "
        "on: on a GPU FlashAttention reads the lengths (--fuse-attention), which nobody has run yet",
    )
    recompute: bool = Field(
        False,
        description="keep only the input of each layer for the backward pass, which computes the rest again: less "
        "memory, for long sequences and small cards, and about a third more work; same updates",
    )
    peak_tflops: Annotated[float | None, Flag(group="log")] = Field(
        None, gt=0, description="peak TFLOP/s of one device, for model FLOPs utilisation (default: known or measured)"
    )
    visualdl: Annotated[bool, Flag(group="log")] = Field(
        True, description="write VisualDL scalars to OUTPUT_DIR/STAGE/visualdl"
    )
    report_to: Annotated[str, Flag(group="log", default_text="none besides VisualDL")] = Field(
        "none",
        description="other programs that show the scalars: tensorboard, wandb, mlflow, or several (wandb,mlflow); "
        "bash scripts/setup.sh NAME installs it",
    )

    @field_validator("report_to")
    @classmethod
    def _known_trackers(cls, value: str) -> str:
        others = [name for name in value.split(",") if name not in OTHER_TRACKERS]
        if value != "none" and others:
            raise ValueError(
                f"report_to={value} must be none, or names of {', '.join(OTHER_TRACKERS)}, separated by commas"
            )
        return value

    def trackers(self) -> list[str]:
        """Names of the enabled trackers, as in `bert.reporting.trackers`."""
        chosen = [] if self.report_to == "none" else list(dict.fromkeys(self.report_to.split(",")))
        return [*(["visualdl"] if self.visualdl else []), *chosen]

    def fusions(self) -> dict[str, str]:
        """The settings on, off or auto, by the names of `FusedKernels`."""
        return {"linear": self.fuse_linear, "dropout_add": self.fuse_dropout_add, "attention": self.fuse_attention}


class TrainingConfig(Settings):
    """The settings of every training run. Each task adds sections and names its stage."""

    sample_name: ClassVar[str] = "sequences"  # plural noun for the elements of a batch

    model: BertConfig = Field(default_factory=BertConfig)
    batch: MayDiffer[BatchSettings] = Field(default_factory=BatchSettings)
    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings)
    precision: PrecisionSettings = Field(default_factory=PrecisionSettings)
    run: RunSettings
    initialization: MayDiffer[InitializationSettings] = Field(default_factory=InitializationSettings)
    hardware: MayDiffer[HardwareSettings] = Field(default_factory=HardwareSettings)

    @model_validator(mode="after")
    def _sections_fit(self) -> "TrainingConfig":
        fleets_amp = "amp" in self.optimizer.fleet_strategies and self.precision.amp
        if fleets_amp and self.precision.amp_dtype != "float16":
            raise ValueError(
                f"fleet_strategies={self.optimizer.fleet_strategies} needs amp_dtype=float16, not "
                f"{self.precision.amp_dtype}: Fleet's amp_configs have no other type; drop --fleet-strategies"
            )
        if self.run.finish_in is not None and self.optimizer.lr_schedule != "wsd":
            raise ValueError(
                f"finish_in={self.run.finish_in:g} needs lr_schedule=wsd, whose decay can begin at any update, not "
                f"{self.optimizer.lr_schedule}; pass --lr-schedule wsd, or drop --finish-in"
            )
        if self.hardware.fuse_attention == "on" and not self.precision.amp:
            raise ValueError(
                "fuse_attention=on needs amp=true: FlashAttention computes in float16 or bfloat16; pass "
                "--amp, or drop --fuse-attention"
            )
        return self

    def check_benchmark(self, first_step: int = 0) -> None:
        """Refuse a benchmark without measured updates: its warm-up takes all that are left.

        Args:
            first_step: updates that the checkpoint has, with which it begins.
        """
        run = self.run
        if not run.benchmark or not self.trains() or run.max_steps < 1:  # the number is not known yet
            return
        if (left := run.max_steps - first_step) > run.benchmark_warmup_steps:
            return
        needed = first_step + run.benchmark_warmup_steps + run.benchmark_steps
        after = f" after step {first_step:,}" if first_step else ""
        raise ValueError(
            f"benchmark=true would measure nothing in {self.display_name()}: max_steps={run.max_steps} leaves {left} "
            f"updates{after}, and benchmark_warmup_steps={run.benchmark_warmup_steps} of them are not measured; raise "
            f"--max-steps to {needed:,}, or lower --benchmark-warmup-steps"
        )

    def _check_length(self, max_seq_length: int) -> None:
        """Refuse sequences that are longer than the model's positions."""
        if max_seq_length <= self.model.max_position_embeddings:
            return
        longer = f", or pass --max-position-embeddings {max_seq_length}"
        if not self.model.is_modern():  # untrained positions are of no use
            longer = f"{longer}: the positions of given weights are repeated" if self.trains() else ""
        raise ValueError(
            f"max_seq_length={max_seq_length} must be at most max_position_embeddings="
            f"{self.model.max_position_embeddings} of the model; lower --max-seq-length{longer}"
        )

    def kernels(self) -> FusedKernels:
        """The fused kernels of these settings; `bert.config.automatic.resolve_auto` must have replaced every `auto`."""
        values = self.hardware.fusions() | {"unpad": self.hardware.unpad}
        assert "auto" not in values.values(), f"{values} must be resolved for a device first (resolve_auto)"
        return FusedKernels(**{name: value == "on" for name, value in values.items()})

    def stage(self) -> str:
        """Name of the run's folders: phase1, squad, glue-mrpc ..."""
        raise NotImplementedError

    def display_name(self) -> str:
        """Name of the run in messages."""
        return display_name(self.stage())

    def vocabulary_file(self) -> Path:
        """The vocabulary that is saved with the weights."""
        raise NotImplementedError

    def check_data(self) -> None:
        """Refuse existing data that do not fit. Missing data may be made by a step."""

    def training_data(self) -> Path | None:
        """The training file or folder; None if there is none."""
        return None

    def prepare_files(self) -> None:
        """Check the files of the run, and fetch the weights of a published model."""
        raise NotImplementedError

    def trains(self) -> bool:
        return True

    def decides_also(self) -> Collection[str]:
        """Names of `MayDiffer` settings that affect this task's training or its choice of the best weights."""
        return ()

    def expected_steps(self) -> int:
        """Number of updates on which the schedule's fractions are based."""
        return self.run.max_steps

    def expects_fewer_steps(self) -> bool:
        """Whether the time limit is expected to end the training before --max-steps."""
        return False

    def with_known_steps(self, world_size: int) -> Self:
        """Set the number of updates if the data that decide it exist; otherwise change nothing."""
        return self

    def ending_in(self, seconds: float) -> Self:
        """The settings of a run that ends after so many seconds."""
        return derive(self, finish_in=seconds)

    @property
    def sequences_a_sample(self) -> int:
        """Sequences that the program runs for each sample of a batch."""
        return 1

    def num_predictions(self) -> int:
        """Largest number of masked words in a sequence; 0 without a masked-LM head."""
        return 0

    def keeps_best(self) -> bool:
        """Whether the checkpoint of the best evaluation is kept beside the newest ones."""
        return False

    def warmup_steps(self) -> int:
        return int(self.expected_steps() * self.optimizer.warmup_proportion)

    def stage_dir(self) -> Path:
        """The folder of this stage's logs and summary."""
        return self.run.output_dir / self.stage()

    def log_dir(self) -> Path:
        """`stage_dir`; for a benchmark the folder `benchmark` in it, so that no training's logs are overwritten."""
        return self.stage_dir() / "benchmark" if self.run.benchmark else self.stage_dir()

    def checkpoint_dir(self) -> Path:
        """Parent of this stage's STEP folders."""
        return self.run.output_dir / self.run.bert_model / self.stage()


AnyConfig = TypeVar("AnyConfig", bound=TrainingConfig)


def derive(config: AnyConfig, **changes: Any) -> AnyConfig:
    """Copy settings, change fields by their flat names, and check again; `model` replaces the whole architecture."""
    sections: dict[str, dict[str, Any]] = {
        name: getattr(config, name).model_dump() for name in type(config).model_fields
    }
    if "model" in changes:
        sections["model"] = changes.pop("model").model_dump()
    for name, value in changes.items():
        holders = [section for section in sections if name in sections[section]]
        if not holders:
            raise ValueError(f"{name}={value!r} is not a setting; see {type(config).__name__}")
        sections[holders[0]][name] = value
    return type(config)(**sections)
