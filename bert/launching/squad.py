"""`bash scripts/run_squad.sh`: fine-tunes BERT on SQuAD and scores it.

Three forms, each with optional flags: no arguments or weights alone (both use questions of this project); the 18
positional arguments of NVIDIA's script; a recipe or preset with --config.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert.config.command_line import parse_flags
from bert.config.flags import is_on
from bert.finetuning.model_files import implied_by_weights
from bert.finetuning.squad.config import ENTRY
from bert.interpreter import shell_command
from bert.launching.arguments import (
    PRECISIONS,
    LauncherParser,
    names_help,
    one_of,
    positional_help,
    read_positional,
    split_positional,
)
from bert.launching.finetuning import FineTuningPlan, Row, finetune, make_plan
from bert.launching.finetuning_quickstart import check_flags, data_dir, quickstart_settings, run_module
from bert.launching.start_training import num_gpus, quickstart_processes

QUICKSTART_VOCABULARY_SIZE = 2048  # only where no checkpoint brings a vocabulary
PRESETS = {"dgxa100-80g_8gpu_amp": "squad_large", "dgxa100-80g_8gpu_tf32": "squad_large_tf32"}  # on 8 GPUs
OWN_QUESTIONS = {"squad_quickstart": "-answerable", "squad_small": ""}  # recipe -> which files of this project
MODES = {
    "train": ("do_train",),
    "eval": ("do_eval", "do_predict"),
    "prediction": ("do_predict",),
    "train_eval": ("do_train", "do_eval", "do_predict"),
}
FILES = {False: ("train-v1.1.json", "dev-v1.1.json"), True: ("train-v2.0.json", "dev-v2.0.json")}  # by version 2
SCORES: list[Row] = [
    ("exact match", "exact_match", ".2f"),
    ("F1", "F1", ".2f"),
    ("F1 of questions with an answer", "eval_HasAns_f1", ".2f"),
    ("F1 of questions without", "eval_NoAns_f1", ".2f"),
    ("F1 at the best threshold", "eval_best_f1", ".2f"),
]

# Order and defaults of the positional arguments; None: as the recipe or the weights say. Those named like a flag of
# the launcher set it.
POSITIONAL: tuple[tuple[str, str | None], ...] = (
    ("init_checkpoint", None),
    ("epochs", "2"),
    ("batch_size", "32"),
    ("learning_rate", "4.6e-5"),
    ("warmup_proportion", "0.2"),
    ("precision", "amp"),
    ("num_gpus", "8"),
    ("seed", "1"),
    ("squad_dir", "$BERT_PREP_WORKING_DIR/download/squad/v1.1"),
    ("vocab_file", None),
    ("output_dir", "/results"),
    ("mode", "train_eval"),
    ("bert_config", None),
    ("max_steps", "-1"),
    ("benchmark", "false"),
    ("benchmark_steps", "100"),
    ("benchmark_warmup_steps", "100"),
    ("fuse_mha", "true"),
)
_LAUNCHER_FLAGS = ("num_gpus", "squad_dir", "mode")


def main(words: Sequence[str]) -> int:
    return finetune(words, plan, lambda summary: SCORES)


def plan(words: Sequence[str]) -> FineTuningPlan:
    """The plan of a command line; raises ValueError with value, rule and remedy."""
    positional, words = split_positional(words)
    parser = _parser()
    launcher, rest = parser.read(words)
    flags = parse_flags(rest, ENTRY, parser.names())
    name = launcher.get("config")
    names_data = "squad_dir" in launcher or flags.keys() & {"train_file", "predict_file", "download"}
    if positional:
        values = read_positional(positional, POSITIONAL, launcher)
        launcher = {**{name: values.pop(name) for name in _LAUNCHER_FLAGS}, **launcher}
        defaults = _positional_settings(values)
    elif name in (None, *OWN_QUESTIONS) and not names_data:
        name = name or ("squad_small" if "from_pretrained_params" in flags else "squad_quickstart")
        check_flags(name, ENTRY, {**_files_and_modes(launcher, flags), **flags})
        defaults = {"config": name} | _quickstart_settings(name, launcher, flags)
        launcher.setdefault("num_gpus", str(quickstart_processes(flags.get("device", "auto"))))
    elif name in PRESETS:
        defaults = {"config": PRESETS[name]}
        launcher.setdefault("num_gpus", "8")
    else:
        defaults = {"config": name or "squad"}
    implied = _files_and_modes(launcher, flags)
    if name is not None and Path(name).is_file() and "mode" not in launcher:  # which says itself what to do
        implied = {key: value for key, value in implied.items() if key not in MODES["train_eval"]}
    defaults |= implied
    if name is None and not is_on({**defaults, **flags}, "do_train"):
        defaults.pop("config")  # its windows would replace those that the training left beside the weights
    return make_plan(ENTRY, launcher, defaults, flags)


def _positional_settings(values: dict[str, str]) -> dict[str, Any]:
    """The settings of the positional arguments, without those of the launcher."""
    settings: dict[str, Any] = {
        "config": "squad",
        **PRECISIONS[one_of("precision", values.pop("precision"), PRECISIONS)],
        "report_file": f"{values['output_dir']}/dllogger_squad.json",
    }
    if "init_checkpoint" in values:
        settings["from_pretrained_params"] = values.pop("init_checkpoint")
    if "bert_config" in values:
        settings["config_file"] = values.pop("bert_config")
    settings |= values
    if settings["fuse_mha"].lower() == "false":  # there it means fused attention too
        settings["fuse_attention"] = "off"
    if "config_file" not in settings and "hidden_size" not in implied_by_weights(settings):
        settings["bert_model"] = "bert-large-uncased"
    return settings


def _files_and_modes(launcher: Mapping[str, str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that follow from --mode and --squad-dir; without --mode and --do-... all modes are on."""
    settings: dict[str, Any] = {}
    some_are_given = any(flags.get(name, "false") != "false" for name in MODES["train_eval"])
    if "mode" in launcher or not some_are_given:
        mode = one_of("mode", launcher.get("mode", "train_eval"), MODES)
        settings |= {name: name in MODES[mode] for name in MODES["train_eval"]}
    if "squad_dir" in launcher:
        folder = launcher["squad_dir"]
        version_2 = "2.0" in Path(folder).name
        train_file, predict_file = FILES[version_2]
        settings |= {
            "train_file": f"{folder}/{train_file}",
            "predict_file": f"{folder}/{predict_file}",
            "version_2_with_negative": version_2,
        }
    return settings


def _quickstart_settings(name: str, launcher: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Data of this project, and the model of the pre-training quickstart unless other weights are given."""
    output_dir = Path(flags.get("output_dir", f"results/{name}"))
    data = data_dir(output_dir, launcher)
    run_module("data.examples.sample_questions", output_dir=data)
    return {
        **({"device": "cpu"} if num_gpus() == 0 else {}),
        "train_file": data / f"train{OWN_QUESTIONS[name]}.json",
        "predict_file": data / f"held_out{OWN_QUESTIONS[name]}.json",
        **quickstart_settings(
            output_dir, data, flags, lambda: _paragraphs(data / "train.json"), QUICKSTART_VOCABULARY_SIZE
        ),
    }


def _paragraphs(train_file: Path) -> list[str]:
    content = json.loads(train_file.read_text(encoding="utf-8"))
    texts = [paragraph["context"] for article in content["data"] for paragraph in article["paragraphs"]]
    return [f"paragraph-{number} {text}" for number, text in enumerate(texts)]


def _parser() -> LauncherParser:
    parser = LauncherParser(
        further=shell_command("run_squad.py", "--help"),
        topics={
            "positional": positional_help(POSITIONAL),
            "recipes": names_help(Presets=PRESETS, Recipes=ENTRY.recipes),
        },
        prog="scripts/run_squad.sh",
        usage="%(prog)s [18 positional arguments | --config NAME | --download] [flags]",
        description="Fine-tune BERT on SQuAD and score it. Without arguments: the quickstart, on questions of this "
        "project.",
        epilog="The same command resumes a stopped run.",
    )
    parser.add_argument("--squad-dir", metavar="DIR", help="folder of SQuAD's files; v2.0 in its name means version 2")
    parser.add_argument("--mode", metavar="|".join(MODES), help="what to do (default: train_eval)")
    return parser
