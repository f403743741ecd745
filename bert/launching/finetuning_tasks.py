"""The table of fine-tuning launchers: what the arguments of run_squad.sh, run_glue.sh, run_ner.sh ... stand for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from bert.config.flags import Parser, is_on
from bert.config.setting_sources import read_settings
from bert.config.settings_base import Settings
from bert.finetuning.glue.config import ENTRY as GLUE
from bert.finetuning.glue.config import OWN_FILES
from bert.finetuning.glue.task_table import task_name
from bert.finetuning.model_files import implied_by_weights
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.launching.arguments import (
    FLAGS_INSTEAD,
    CommandLine,
    Launcher,
    Positional,
    read_positional,
    settings_of_nvidia,
)
from bert.launching.settings import LaunchSettings

SQUAD_PRESETS = {"dgxa100-80g_8gpu_amp": "squad_large", "dgxa100-80g_8gpu_tf32": "squad_large_tf32"}  # on 8 GPUs
_QUESTIONS = {"squad_quickstart": "-answerable", "squad_small": ""}  # recipe -> which files of this project
_MODES = {
    "train": ("do_train",),
    "eval": ("do_eval", "do_predict"),
    "prediction": ("do_predict",),
    "train_eval": ("do_train", "do_eval", "do_predict"),
}
_ALL_MODES = _MODES["train_eval"]
CLASSIFIED_FROM = "bert-base-uncased"  # the weights that run_classify.sh starts from


@dataclass(frozen=True)
class Form:
    """What the arguments stand for before the flags of the training are laid over it."""

    settings: Mapping[str, Any]
    launch: Mapping[str, Any] = field(default_factory=dict)
    quickstart: str = ""  # the recipe, if it trains on data of this project, which are made


@dataclass(frozen=True, kw_only=True)
class FineTuningLauncher(Launcher):
    """A launcher of fine-tuning, with the settings of its quickstarts and its table of results."""

    form: Callable[[CommandLine], Form]
    quickstart_output: str = "results/glue_quickstart/{}"  # the name of the quickstart for {}
    vocabulary_size: int = 1024  # in tokens, without pre-trained weights
    questions: Mapping[str, str] | None = None  # of SQuAD: which files of this project each quickstart reads
    scores: Sequence[tuple[str, str, str]] = ()  # title, key of summary.json, format; none: all metrics


class SquadFiles(Settings):
    squad_dir: Path | None = Field(None, description="folder of SQuAD's files; v2.0 in its name means version 2")
    mode: Literal["train", "eval", "prediction", "train_eval"] | None = Field(
        None, description="what to do; none: train_eval, or what --do-train, --do-eval and --do-predict say"
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _as_documented(cls, mode: Any) -> Any:
        return mode.replace(" ", "_") if isinstance(mode, str) else mode  # NVIDIA's documents also say "train eval"

    def settings(self) -> dict[str, Any]:
        """The settings that follow from the folder and the mode."""
        settings: dict[str, Any] = {}
        if self.mode is not None:
            settings |= {name: name in _MODES[self.mode] for name in _ALL_MODES}
        if self.squad_dir is not None:
            version_2 = "2.0" in self.squad_dir.name
            train_file, predict_file = (f"{part}-v{'2.0' if version_2 else '1.1'}.json" for part in ("train", "dev"))
            settings |= {"train_file": self.squad_dir / train_file, "predict_file": self.squad_dir / predict_file}
            settings["version_2_with_negative"] = version_2
        return settings


class SquadLaunch(LaunchSettings):
    start: SquadFiles = SquadFiles()


_SQUAD_POSITIONAL = (  # a default of None: as the recipe or the weights say
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


def _squad_form(line: CommandLine) -> Form:
    name = line.launch.get("config", "")
    names_data = "squad_dir" in line.launch or line.training.keys() & {"train_file", "predict_file", "download"}
    settings, launch = dict[str, Any](), dict[str, Any]()
    recipe, quickstart = name or "squad", ""
    if line.positional:
        words = read_positional(line, _SQUAD_POSITIONAL)
        settings = settings_of_nvidia(words)
        launch = {setting: settings.pop(setting) for setting in ("num_processes", "squad_dir", "mode")}
        typed = {**words, **line.launch, **line.training}  # flags win
        settings["report_file"] = "{output_dir}/dllogger_{num_processes}_{precision}.json".format(**typed)
        settings["predict_batch_size"] = words["batch_size"]
        if "config_file" not in settings and "hidden_size" not in implied_by_weights(settings):
            settings["bert_model"] = "bert-large-uncased"
    elif name in ("", *_QUESTIONS) and not names_data:
        quickstart = "squad_small" if "from_pretrained_params" in line.training else "squad_quickstart"
        recipe = quickstart = name or quickstart
    elif name in SQUAD_PRESETS:
        recipe, launch = SQUAD_PRESETS[name], {"num_processes": "8"}
    if line.launch.get("mode") == "":
        raise ValueError(f"mode= must be one of {', '.join(_MODES)}, not empty; pass one, or drop --mode")
    files = read_settings(SquadLaunch, {**launch, **line.launch}).start
    says_what_to_do = (bool(name) and Path(name).is_file()) or any(
        line.training.get(mode, "false") != "false" for mode in _ALL_MODES
    )
    if files.mode is None and not says_what_to_do:
        files = files.model_copy(update={"mode": "train_eval"})
    settings |= files.settings()
    # The recipe's windows would replace those that the training left beside the weights.
    if name or quickstart or is_on({**settings, **line.training}, "do_train"):
        settings["config"] = recipe
    return Form(settings, launch, quickstart)


def _glue_form(line: CommandLine) -> Form:
    name = line.launch.get("config")
    if not line.positional:
        return _form_of_recipe(GLUE.recipes, name or _glue_recipe(line.training))
    if name is not None:
        raise ValueError(f"config={name} contradicts the positional arguments; give only one of them")
    if len(line.positional) != 3:
        raise ValueError(
            f"{len(line.positional)} positional arguments ({' '.join(line.positional)}) must be 3, TASK DATA_DIR "
            f"CHECKPOINT; {FLAGS_INSTEAD}"
        )
    task = task_name(line.positional[0])
    settings: dict[str, Any] = dict(
        task_name=task, data_dir=line.positional[1], from_pretrained_params=line.positional[2]
    )
    return Form(settings | ({"config": task.lower()} if task.lower() in GLUE.recipes else {"do_predict": True}))


def _glue_recipe(flags: Mapping[str, Any]) -> str:
    """Without --config: the recipe of a task that is named without saying what to do; the quickstart without a task.

    Data without a task never get the quickstart, which would train on the sentences of this project first.
    """
    if "task_name" not in flags:
        return "" if flags.keys() & {*OWN_FILES, "data_dir"} else "quickstart_sentiment"
    recipe = task_name(str(flags["task_name"])).lower()
    says_what_to_do = any(flags.get(mode, "false") != "false" for mode in _ALL_MODES)
    return recipe if recipe in GLUE.recipes and not says_what_to_do else ""


class ClassifyStart(Settings):
    cross_validate: int | None = Field(
        None, ge=2, description="train this many times, each time with another part of --train held out; no --eval"
    )


class ClassifyLaunch(LaunchSettings):
    start: ClassifyStart = ClassifyStart()


def _classify_form(line: CommandLine) -> Form:
    flags = line.training
    if line.positional or not flags.keys() & set(OWN_FILES):
        raise ValueError(
            "--train FILE must be given (a table of texts and labels), or --eval or --predict with --model"
        )
    if "cross_validate" in line.launch and ("train_file" not in flags or "eval_file" in flags):
        raise ValueError("--cross-validate holds out parts of --train; give --train, and omit --eval")
    file = next(Path(str(flags[name])) for name in OWN_FILES if name in flags)
    folder = Path(flags.get("output_dir", f"results/classify-{file.name.partition('.')[0]}"))
    settings: dict[str, Any] = {"output_dir": folder, "report_file": folder / "report.json"}
    if "train_file" in flags and not flags.keys() & {"from_pretrained_params", "from_checkpoint", "bert_model"}:
        settings["from_pretrained_params"] = CLASSIFIED_FROM
    return Form(settings | ({"config": line.launch["config"]} if "config" in line.launch else {}))


def _form_of_recipe(recipes: Mapping[str, Any], name: str) -> Form:
    is_quickstart = name in recipes and name.startswith("quickstart")
    return Form({"config": name} if name else {}, quickstart=name if is_quickstart else "")


def _ner_form(line: CommandLine) -> Form:
    if line.positional:
        raise ValueError(f"{' '.join(line.positional)} must be a flag, there are no positional arguments; see --help")
    has_files = line.training.keys() & {"train_file", "eval_file", "predict_file"}
    return _form_of_recipe(NER.recipes, line.launch.get("config", "" if has_files else "quickstart_entities"))


def names_several_tasks(words: Sequence[str]) -> bool:
    """Whether the arguments of run_glue.sh are TASKS [DATA_DIR] CHECKPOINT, and not those of one training."""
    positional, flags = split_positional(words)
    if len(positional) > 3:
        return False
    if {"--seeds", "--learning-rates"} & {word.partition("=")[0] for word in flags}:
        return True
    return len(positional) == 2 or any(word == "all" or "," in word for word in positional[:1])


def split_positional(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first flag, and the others."""
    first = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    return [*words[:first]], [*words[first:]]


def task_of(name: str, words: Sequence[str]) -> str:
    """The task of a launcher: run_glue.sh starts NER's recipes, and settings that run_ner.py wrote, as run_ner.sh."""
    if name != "glue":
        return name
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", default="")
    recipe = parser.parse_known_args(words)[0].config
    file = Path(recipe)
    is_of_ner = file.is_file() and "tag_column:" in file.read_text(encoding="utf-8", errors="replace")
    return "ner" if recipe in NER.recipes or is_of_ner else name


TASKS = {
    "squad": FineTuningLauncher(
        script="scripts/run_squad.sh",
        entry=SQUAD,
        usage="[--config NAME | --download]",
        description="Fine-tune BERT on SQuAD and score it. Without arguments: the quickstart, on questions of this "
        "project.",
        epilog="The same command resumes a stopped run. NVIDIA's positional arguments are read too: --help positional.",
        names={"Presets": SQUAD_PRESETS, "Recipes": SQUAD.recipes},
        settings=SquadLaunch,
        positional=_SQUAD_POSITIONAL,
        form=_squad_form,
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
    ),
    "glue": FineTuningLauncher(
        script="scripts/run_glue.sh",
        entry=GLUE,
        usage="[--config NAME | --task-name TASK --download | TASK DATA_DIR CHECKPOINT | all [DATA_DIR] CHECKPOINT]",
        description="Fine-tune BERT on a task of GLUE, on sentences of your own, or to find entities, and score it. "
        "Files without --task-name are your own (custom). Without arguments: the quickstart, on sentences of this "
        "project.",
        epilog="Recipes of entities have the settings of run_ner.py. The same command resumes a stopped run. "
        "Several tasks, seeds and rates in one table: `all --help`.",
        names={"Recipes": [*GLUE.recipes, *NER.recipes]},
        form=_glue_form,
    ),
    "classify": FineTuningLauncher(
        script="scripts/run_classify.sh",
        entry=GLUE,
        usage="--train FILE [--eval FILE] [--model WEIGHTS]",
        description="Train a classifier on your own labelled texts: a table (.csv, .tsv, .jsonl, .json or .parquet) "
        "with a column of texts and one of labels, which are inferred. Without --eval a part of --train is held out. "
        f"--model is the model to start from ({CLASSIFIED_FROM}).",
        epilog="The same command resumes a stopped run.",
        names={"Recipes": ()},
        settings=ClassifyLaunch,
        shown=("data",),
        hidden=("task_name", "data_dir", "download"),
        form=_classify_form,
    ),
    "ner": FineTuningLauncher(
        script="scripts/run_ner.sh",
        entry=NER,
        usage="[--config NAME]",
        description="Fine-tune BERT to find named entities, and score it. Without arguments: the quickstart, on "
        "sentences of this project.",
        epilog="The same command resumes a stopped run.",
        names={"Recipes": NER.recipes},
        form=_ner_form,
    ),
}
