"""`bash scripts/run_squad.sh`: fine-tunes BERT on SQuAD and scores it."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from bert.commands.fine_tuning import ALL_MODES, ArgumentSettings, FineTuningLauncher, planned_of
from bert.config.flags import is_on
from bert.config.setting_sources import read_settings
from bert.config.settings_base import Settings
from bert.finetuning.config import settings_of_the_run, usual_settings
from bert.finetuning.model_files import implied_by_weights
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.finetuning.squad.examples import read_squad
from bert.finetuning.text_files import decoding_of
from bert.jobs.job import start
from bert.launching.arguments import CommandLine, Positional, read_positional, settings_of_nvidia
from bert.launching.settings import LaunchSettings

SQUAD_PRESETS = {"dgxa100-80g_8gpu_amp": "squad_large", "dgxa100-80g_8gpu_tf32": "squad_large_tf32"}  # on 8 GPUs
_QUESTIONS = {"squad_quickstart": "-answerable", "squad_small": ""}  # recipe -> which files of this project
_MODES = {
    "train": ("do_train",),
    "eval": ("do_eval", "do_predict"),
    "prediction": ("do_predict",),
    "train_eval": ALL_MODES,
}


class SquadFiles(Settings):
    squad_dir: Path | None = Field(None, description="folder of SQuAD's files; v2.0 in its name means version 2")
    mode: Literal["train", "eval", "prediction", "train_eval"] | None = Field(
        None, description="what to do (default: train_eval, or by --do-train, --do-eval and --do-predict)"
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _as_documented(cls, mode: Any) -> Any:
        return mode.replace(" ", "_") if isinstance(mode, str) else mode  # NVIDIA's documents also say "train eval"

    def settings(self) -> dict[str, Any]:
        """The settings that follow from the folder and the mode."""
        settings: dict[str, Any] = {}
        if self.mode is not None:
            settings |= {name: name in _MODES[self.mode] for name in ALL_MODES}
        if self.squad_dir is not None:
            version_2 = "2.0" in self.squad_dir.name
            train_file, predict_file = (f"{part}-v{'2.0' if version_2 else '1.1'}.json" for part in ("train", "dev"))
            settings |= {"train_file": self.squad_dir / train_file, "predict_file": self.squad_dir / predict_file}
            settings["version_2_with_negative"] = version_2
        return settings


class SquadLaunch(LaunchSettings):
    start: SquadFiles = SquadFiles()


_POSITIONAL = (  # a default of None: as the recipe or the weights say
    Positional("init_checkpoint", None, "from_pretrained_params"),
    Positional("epochs", "2"),
    Positional("batch_size", "32"),
    Positional("learning_rate", "4.6e-5"),
    Positional("warmup_proportion", "0.2"),
    Positional("precision", "amp"),
    Positional("num_gpus", "8", "num_processes"),
    Positional("seed", "1"),
    Positional("squad_dir", "$BERT_PREP_WORKING_DIR/download/squad/v1.1"),
    Positional("vocab_file"),
    Positional("output_dir", "/results"),
    Positional("mode", "train_eval"),
    Positional("bert_config", None, "config_file"),
    Positional("max_steps", "-1"),
    Positional("benchmark", "false"),
    Positional("benchmark_steps", "100"),
    Positional("benchmark_warmup_steps", "100"),
    Positional("fuse_mha", "true"),
)


def _argument_settings(line: CommandLine) -> ArgumentSettings:
    if line.launch.get("mode") == "":
        raise ValueError(f"mode= must be one of {', '.join(_MODES)}, not empty; pass one, or drop --mode")
    name = line.launch.get("config", "")
    settings, launch = _nvidias_words(line) if line.positional else ({}, {})
    if name in SQUAD_PRESETS:
        launch = {"num_processes": "8"}
    quickstart = _quickstart(line, name)
    settings |= _files(line, launch, name).settings()
    values = {**settings, **line.training}
    own_file = Path(str(line.training.get("train_file", ""))).expanduser()
    if is_on(values, "do_train") and own_file.is_file() and not (name or line.positional):
        settings |= _usual_settings(own_file, {**line.training, **implied_by_weights(line.training)})
        return ArgumentSettings(settings, launch)
    # The recipe's windows would replace those that the training left beside the weights.
    if name or quickstart or is_on(values, "do_train"):
        settings["config"] = quickstart or SQUAD_PRESETS.get(name, name) or "squad"
    return ArgumentSettings(settings, launch, quickstart)


def _nvidias_words(line: CommandLine) -> tuple[dict[str, Any], dict[str, Any]]:
    """The training and launch settings that the positional arguments of NVIDIA's script stand for."""
    words = read_positional(line, _POSITIONAL)
    settings = settings_of_nvidia(words)
    launch = {setting: settings.pop(setting) for setting in ("num_processes", "squad_dir", "mode")}
    typed = {**words, **line.launch, **line.training}  # flags win
    settings["report_file"] = "{output_dir}/dllogger_{num_processes}_{precision}.json".format(**typed)
    settings["predict_batch_size"] = words["batch_size"]
    if "config_file" not in settings and "hidden_size" not in implied_by_weights(settings):
        settings["bert_model"] = "bert-large-uncased"
    return settings, launch


def _quickstart(line: CommandLine, name: str) -> str:
    """The quickstart recipe for the example questions of this project, if no data are named; otherwise ""."""
    names_data = "squad_dir" in line.launch or line.training.keys() & {"train_file", "predict_file", "download"}
    if line.positional or names_data or name not in ("", *_QUESTIONS):
        return ""
    return name or ("squad_small" if "from_pretrained_params" in line.training else "squad_quickstart")


def _files(line: CommandLine, launch: Mapping[str, Any], name: str) -> SquadFiles:
    """The data folder and the mode; by default train and evaluate."""
    files = read_settings(SquadLaunch, {**launch, **line.launch}).start
    is_said = any(line.training.get(mode, "false") != "false" for mode in ALL_MODES)
    if files.mode is None and not is_said and not (name and Path(name).is_file()):
        return files.model_copy(update={"mode": "train_eval"})
    return files


def _usual_settings(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Defaults for a user's own file: rate, epochs and batch by size of data and model, windows by the model."""
    usual = usual_settings(len(read_squad(file, version_2=True, labelled=False, decoding=decoding_of(values))), values)
    length = min(384, int(values.get("max_position_embeddings", 384)))
    windows = {"max_seq_length": length, "doc_stride": min(128, length // 3), "max_query_length": min(64, length // 2)}
    return usual | windows | settings_of_the_run(values, "squad")


LAUNCHER = FineTuningLauncher(
    script="scripts/run_squad.sh",
    entry=SQUAD,
    usage="[--config NAME | --download]",
    description="Fine-tune BERT to answer questions on SQuAD, and score it. Without arguments it trains the "
    "quickstart, on questions of this "
    "project.",
    examples=(
        "--config squad --download --dry-run",
        "--train-file train.json --predict-file dev.json --do-train --do-eval --model bert-base-uncased",
    ),
    main_settings={
        "train_file": "",
        "predict_file": "",
        "from_pretrained_params": "",
        "output_dir": "",
        "epochs": "",
        "learning_rate": "",
        "batch_size": "",
    },
    epilog="The same command resumes a stopped run. NVIDIA's positional arguments are read too: --help positional.",
    names={"Presets": SQUAD_PRESETS, "Recipes": SQUAD.recipes},
    settings=SquadLaunch,
    positional=_POSITIONAL,
    argument_settings=_argument_settings,
    quickstart_output="results/{}",
    vocabulary_size=2048,
    questions=_QUESTIONS,
    scores=(
        ("exact match", "exact_match", ".2f"),
        ("F1", "F1", ".2f"),
        ("F1 of questions with an answer", "eval_HasAns_f1", ".2f"),
        ("F1 of questions without", "eval_NoAns_f1", ".2f"),
        ("F1 at the best threshold", "eval_best_f1", ".2f"),
    ),
)
planned = partial(planned_of, LAUNCHER)
main = partial(start, planned)
