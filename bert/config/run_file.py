"""The settings of a training as files: config.yaml for people, and the run file for ranks.

The run file is OUTPUT_DIR/STAGE/run.json: all settings of one start by section, resolved by the launcher. The ranks
read it as it is, with `run_*.py --run FILE`: no recipe, rule or flag is looked at again.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from bert.config.setting_errors import usage_errors
from bert.config.training_settings import TrainingConfig
from bert.files import json_of
from bert.parent_death import end_with_launcher

RUN_FLAG, _NAME = "--run", "run.json"
AnyConfig = TypeVar("AnyConfig", bound=TrainingConfig)


def dump_yaml(config: BaseModel) -> str:
    """All settings as flat YAML, by section; `--config FILE` reads it back to an equal config."""
    import yaml  # not for --help, nor for ranks that write none

    blocks = []
    for section, values in config.model_dump(mode="json").items():
        blocks.append(f"# {section}\n" + yaml.safe_dump(values, sort_keys=False, width=1000))
    return "\n".join(blocks)


def run_file(config: TrainingConfig) -> Path:
    """The path of a training's run file; a benchmark has its own."""
    return config.log_dir() / _NAME


def run_file_content(config: TrainingConfig) -> bytes:
    return (config.model_dump_json(indent=1) + "\n").encode()


def read_run(file: Path, config_class: type[AnyConfig]) -> AnyConfig:
    """The settings of a rank, read from a run file. ValueError if another version of the launcher wrote it."""
    try:
        return config_class.model_validate(json_of(file.read_bytes()))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"run={file} must be a run file as the launcher of this version writes it ({reason}); start the training "
            "with its command again, which rewrites the file"
        ) from None


def rank_settings(file: Path, config_class: type[AnyConfig]) -> AnyConfig:
    """Start a rank: end with the launcher, and read the settings, or end with an error."""
    end_with_launcher()
    with usage_errors():
        return read_run(file, config_class)


def given_run_file(argv: Sequence[str] | None) -> Path | None:
    """The FILE of `--run FILE`, by which a launcher starts a rank; None for any other command line."""
    words = sys.argv[1:] if argv is None else argv
    return Path(words[1]) if len(words) == 2 and words[0] == RUN_FLAG else None
