"""Settings of a pre-training's launch besides its phases: how missing shards are made, and the job."""

import os
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from bert import REPOSITORY
from bert.config.flags import Flag
from bert.config.nvidia_image import own_checkout
from bert.config.settings_base import Settings
from bert.launching.settings import LaunchSettings
from bert.pretraining.config import PretrainingConfig


def _number(value: Any) -> Any:
    return int(value) if str(value).isdecimal() else value


BinSize = Annotated[Literal[32, 64, 128, 256, 512] | None, BeforeValidator(_number)]


class Preparation(Settings):
    """Settings for making missing shards from Wikipedia text."""

    wikipedia_source: Path = Field(
        Path("$BERT_PREP_WORKING_DIR/wikipedia/source/"),
        validate_default=True,
        description="text to make missing shards from",
    )
    num_dask_workers: int = Field(os.cpu_count() or 1, ge=1, description="processes that make missing shards")
    num_shards_per_worker: int = Field(128, ge=1, description="shards for each reader of each rank")
    sample_ratio: float = Field(0.9, gt=0, le=1, description="share of the documents to use")
    phase1_bin_size: BinSize = Field(
        None, description="width of phase 1's bins, in tokens; none: no bins (default: no bins)"
    )
    phase2_bin_size: BinSize = Field(64, description="width of phase 2's bins, in tokens; none: no bins")

    @field_validator("wikipedia_source")
    @classmethod
    def _expanded(cls, path: Path) -> Path:
        return Path(os.path.expandvars(path))


class JobSettings(Settings):
    job_name: str = Field("bert_lamb_pretraining", description="first part of the log file's name")
    create_logfile: bool = Field(False, description="keep the output in a file as well")
    code_dir: Annotated[Path, Flag(default_text="this checkout")] = Field(
        REPOSITORY, description="checkout that holds run_pretraining.py"
    )

    @field_validator("code_dir")
    @classmethod
    def _not_of_an_image(cls, path: Path) -> Path:
        return own_checkout(path)

    def script(self) -> Path:
        """The script that each rank runs."""
        return self.code_dir / "run_pretraining.py"

    def log_file(self, config: PretrainingConfig, world_size: int) -> Path | None:
        """File for the output of a phase, named as NVIDIA's script does; None without --create-logfile."""
        if not self.create_logfile:
            return None
        stamp = time.strftime("%y%m%d%H%M%S")
        precision = "amp" if config.precision.amp else "tf32" if config.precision.tf32 == "on" else "fp32"
        batch = config.batch.resolved_global_batch_size(world_size)
        run = f"paddle_bert_pretraining_{config.stage()}_{precision}_gbs{batch}"
        return config.run.output_dir / f"{self.job_name}.{run}.{stamp}.log"


class PretrainingLaunch(LaunchSettings):
    start: JobSettings = JobSettings()
    shards: Preparation = Preparation()
