"""Settings of pre-training: the settings of any run, shards and the two phases."""

import importlib.util
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from bert.config.batch_settings import PretrainingBatchSettings
from bert.config.flags import Flag, ValueFlags
from bert.config.setting_errors import check_all
from bert.config.settings_base import MayDiffer, MayGrow, ReadWith
from bert.config.training_settings import InitializationSettings, RunSettings, TrainingConfig, derive
from bert.files import unset_variable
from bert.interpreter import install_command
from bert.pretraining.epochs import sample_set
from bert.samples.settings import MASKED_SHARE, LoaderSettings, predictions_of
from bert.tokenization.vocabulary_files import check_vocabulary_file, vocabulary_copy


class DataSettings(LoaderSettings):
    input_dir: MayDiffer[Path] = Field(description="folder of training shards")
    eval_dir: MayDiffer[Path | None] = Field(
        None, description="folder of held-out shards (default: no held-out evaluation)"
    )
    vocab_file: MayDiffer[Path] = Field(description="vocabulary the shards were made with: vocab.txt or tokenizer.json")
    data_loader: Literal["own", "lddl"] = Field(
        "own", description="own; lddl: training reads the batches of NVIDIA's library, in its order (static masks)"
    )

    eval_masked_lm_ratio: Annotated[float, ReadWith("eval_dir")] = Field(
        MASKED_SHARE,
        gt=0,
        lt=1,
        description="share of tokens that the held-out evaluation predicts where its masks are dynamic: the same for "
        "all trainings, so that their losses compare",
    )

    def for_evaluation(self) -> "DataSettings":
        """Settings for loading the held-out shards."""
        share = self.eval_masked_lm_ratio
        most = max(self.max_predictions_per_seq, predictions_of(self.max_seq_length, share))
        return self.model_copy(update={"masked_lm_ratio": share, "max_predictions_per_seq": most})

    @model_validator(mode="after")
    def _as_lddl_can(self) -> "DataSettings":
        if self.data_loader == "lddl" and self.masking == "dynamic":
            raise ValueError(
                "masking=dynamic is not for data_loader=lddl, whose masking Paddle 2.6 refuses; pass --masking static"
            )
        if self.data_loader == "lddl" and self.group_by_length:
            raise ValueError("group_by_length=true has no effect with data_loader=lddl; drop one of the two")
        return self


_PHASE_FLAGS = {1: ("--phase1", "train phase 1, short sequences"), 2: ("--phase2", "train phase 2, long sequences")}
LENGTHS = ("max_steps", "epochs")  # one of them gives the length of the training


class PretrainingRunSettings(RunSettings):
    max_steps: MayGrow[int] = Field(
        -1, ge=-1, description="updates of the whole run; the learning rate ends there; -1: as many as --epochs need"
    )
    epochs: MayGrow[float | None] = Field(
        None,
        gt=0,
        description="passes over the samples of the shards, instead of --max-steps (default: --max-steps decides)",
    )
    phase: Annotated[Literal[1, 2], ValueFlags(_PHASE_FLAGS)] = Field(
        description="1: short sequences; 2: long sequences, continuing phase 1"
    )
    objective: Literal["mlm_nsp", "mlm"] = Field(
        "mlm_nsp", description="mlm_nsp: masked LM and next-sentence prediction, as BERT; mlm: masked LM alone"
    )
    eval_samples: Annotated[MayDiffer[int], ReadWith("eval_dir"), Flag(group="evaluation")] = Field(
        2048, ge=1, description="held-out sequences of one evaluation, at most"
    )
    keep_best_checkpoint: Annotated[MayDiffer[bool], ReadWith("eval_dir"), Flag(group="evaluation")] = Field(
        True, description="save when the held-out masked-LM loss is the lowest so far, and never prune that checkpoint"
    )
    overfitting_evaluations: Annotated[MayDiffer[int], ReadWith("eval_dir"), Flag(group="evaluation")] = Field(
        3, ge=0, description="warn when this many evaluations in a row are above the lowest held-out loss; 0: off"
    )
    early_stopping: Annotated[MayDiffer[int], ReadWith("eval_dir"), Flag(group="evaluation")] = Field(
        0,
        ge=0,
        description="end the phase after this many evaluations without a lower held-out loss, and take the weights "
        "with the lowest as its result; 0: off",
    )
    early_stopping_from: Annotated[MayDiffer[float], ReadWith("early_stopping"), Flag(group="evaluation")] = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the updates before which no evaluation counts as one without a lower loss",
    )

    epochs_of: Annotated[MayDiffer[Literal["samples", "text"]], Flag(group="log")] = Field(
        "samples",
        description="an epoch in logs: a pass over the samples, or over the text, which they may have several times",
    )
    expected_steps: MayDiffer[int | None] = Field(
        None,
        ge=1,
        description="expected number of updates; warm-up and --early-stopping-from are fractions of it "
        "(default: --max-steps)",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "PretrainingRunSettings":
        if self.epochs is not None and self.max_steps != -1:
            raise ValueError(
                f"epochs={self.epochs:g} and max_steps={self.max_steps} both give the length of the training; give "
                "only one of --epochs and --max-steps"
            )
        if self.epochs is None and self.max_steps < 1:
            raise ValueError(
                f"max_steps={self.max_steps} is no length: --max-steps must be given, at least 1, or --epochs, or a "
                "recipe with --config"
            )
        if self.early_stopping and not self.keep_best_checkpoint:
            raise ValueError(
                f"early_stopping={self.early_stopping} ends with the best checkpoint, which keep_best_checkpoint=false "
                "does not keep; pass --early-stopping 0, or drop --no-keep-best"
            )
        return self

    def length_is_of_the_data(self) -> bool:
        return self.epochs is not None

    def patience(self) -> int:
        return self.early_stopping


class PretrainingInitializationSettings(InitializationSettings):
    from_phase1_final_params: Path | None = Field(None, description="phase 2 starts with phase 1's weights here")
    initial_attention: Annotated[
        Literal["random", "neighbours"],
        ReadWith("from_pretrained_params", values=(None,)),
        ReadWith("from_phase1_final_params", values=(None,)),
    ] = Field(
        "random",
        description="neighbours: random weights with which heads attend to the tokens before and after at once; "
        "given ones stay as they are",
    )

    @model_validator(mode="after")
    def _one_source(self) -> "PretrainingInitializationSettings":
        if self.from_pretrained_params and self.from_phase1_final_params:
            raise ValueError(
                f"from_pretrained_params={self.from_pretrained_params} and from_phase1_final_params="
                f"{self.from_phase1_final_params} both set the initial weights; give only one"
            )
        return self

    def is_of_phase1(self) -> bool:
        return self.from_phase1_final_params is not None

    def attends_to_neighbours(self) -> bool:
        return self.initial_attention == "neighbours"

    def initial_weights(self) -> Path | None:
        return self.from_pretrained_params or self.from_phase1_final_params


class PretrainingConfig(TrainingConfig):
    """All settings of one phase of pre-training."""

    batch: MayDiffer[PretrainingBatchSettings] = Field(default_factory=PretrainingBatchSettings)
    data: DataSettings
    run: PretrainingRunSettings
    initialization: MayDiffer[PretrainingInitializationSettings] = Field(
        default_factory=PretrainingInitializationSettings
    )

    @model_validator(mode="after")
    def _consistent(self) -> "PretrainingConfig":
        self._check_length(self.data.max_seq_length)
        if not self.model.has_token_types() and self.run.objective != "mlm":
            raise ValueError(
                f"objective={self.run.objective} is not for model_type={self.model.model_type}, which has no token "
                "types and no next-sentence head; pass --objective mlm"
            )
        for name, value, default in (
            ("fleet_strategies", self.optimizer.fleet_strategies, "none"),
            ("data_loader", self.data.data_loader, "own"),
            ("group_by_length", self.data.group_by_length, False),
        ):
            if self.batch.warms_up() and value != default:
                raise ValueError(
                    f"{name}={value} has a fixed number of sequences in an update, but batch_size_warmup_min_size="
                    f"{self.batch.batch_size_warmup_min_size}; drop --{name.replace('_', '-')} or the warm-up"
                )
        if self.run.phase == 1 and self.initialization.from_phase1_final_params:
            raise ValueError(
                f"from_phase1_final_params={self.initialization.from_phase1_final_params} is for phase 2; pass "
                "--phase2, or --from-pretrained-params"
            )
        return self

    def stage(self) -> str:
        return f"phase{self.run.phase}"

    def keeps_best(self) -> bool:
        return self.run.keep_best_checkpoint and self.data.eval_dir is not None

    def expected_steps(self) -> int:
        return self.run.expected_steps or self.run.max_steps

    def expects_fewer_steps(self) -> bool:
        return self.run.expected_steps is not None

    def with_steps(self, num_samples: int, world_size: int) -> "PretrainingConfig":
        """Replace --epochs by --max-steps: the whole updates in so many passes over the samples."""
        if self.run.epochs is None:
            return self
        steps = self.batch.schedule(world_size).steps(self.run.epochs * num_samples)
        return derive(self, max_steps=max(1, steps), epochs=None)

    def with_known_steps(self, world_size: int) -> "PretrainingConfig":
        """`with_steps` if the shards exist; otherwise unchanged."""
        samples = None if self.run.epochs is None else sample_set(self.data.input_dir)
        return self if samples is None else self.with_steps(samples.num_samples, world_size)

    def ending_in(self, seconds: float) -> "PretrainingConfig":
        """As in the base class; the warm-up becomes a fraction of the updates that fit in the time."""
        expected = self.run.expected_steps or self.run.max_steps
        return derive(self, finish_in=seconds, expected_steps=expected)

    def num_predictions(self) -> int:
        return self.data.max_predictions_per_seq

    def vocabulary_file(self) -> Path:
        return self.data.vocab_file

    def training_data(self) -> Path | None:
        return self.data.input_dir

    def prepare_files(self) -> None:
        """Find a published vocabulary, `check_files`, then fetch the weights of a published model."""
        from bert.conversion.locating import resolve  # not for ranks, which find all in place
        from data.download_vocabulary import provide_vocabulary

        provide_vocabulary(self.data.vocab_file)
        self.check_files()
        if self.initialization.from_pretrained_params is not None:
            resolve(self.initialization.from_pretrained_params)

    def check_files(self) -> None:
        """Refuse missing data and a vocabulary that does not fit the model, before slow work starts."""
        folders = {"input_dir": self.data.input_dir, "eval_dir": self.data.eval_dir}
        for name, folder in folders.items():
            if folder is not None and not folder.is_dir():
                raise ValueError(
                    f"{name}={folder} must be an existing folder of shards; pass "
                    f"--{name.replace('_', '-')}, or make the shards first{unset_variable(folder)}"
                )
        if self.data.data_loader == "lddl" and not all(map(importlib.util.find_spec, ("lddl", "transformers"))):
            raise ValueError(
                f"data_loader=lddl needs NVIDIA's library; {install_command('lddl')}, or drop --data-loader lddl"
            )
        check_vocabulary_file(self.data.vocab_file, self.model)
        if self.data.data_loader == "lddl" and vocabulary_copy(self.data.vocab_file)[0] != "vocab.txt":
            raise ValueError(
                f"data_loader=lddl reads a WordPiece's vocab.txt, and vocab_file={self.data.vocab_file} is another "
                "tokenizer; drop --data-loader lddl"
            )
        if self.initialization.from_pretrained_params is not None:
            from bert.conversion.locating import resolve

            resolve(self.initialization.from_pretrained_params, weights=False)

    def check_data(self) -> None:
        """Refuse a vocabulary that does not fit the model, and shards that do not fit the masking.

        What is not there is no mistake here: a step of the job may make or fetch it.
        """

        def check_vocabulary() -> None:
            if self.data.vocab_file.exists():
                check_vocabulary_file(self.data.vocab_file, self.model)

        def check_shards() -> None:
            for folder in (self.data.input_dir, self.data.eval_dir):
                if folder is not None and folder.is_dir():
                    from bert.samples.shards import check_masks  # loads the packages of all formats

                    check_masks(folder, self.data.masking)

        check_all([check_vocabulary, check_shards])
