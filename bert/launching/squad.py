"""`python -m bert.launching.squad ...`, which scripts/run_squad.sh calls: arguments -> settings -> ranks -> the result.

Three ways to say it: nothing, or weights alone (both ask questions of this project), the 18 positional arguments that
users of NVIDIA's script know, or names: a recipe or preset with --config, and flags.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert.config.command_line import dump_yaml, usage_errors
from bert.finetuning.model_files import implied_by_weights
from bert.finetuning.squad.config import ENTRY, SquadConfig
from bert.launching.finetuning import Ranks, add_rank_flags, launch, parse, ranks_of
from bert.launching.finetuning_quickstart import (
    output_settings,
    pretrained_settings,
    random_settings,
    run_module,
    value_of,
)
from bert.launching.plan import PRECISIONS, num_gpus, quickstart_processes

QUICKSTART_VOCABULARY_SIZE = 2048  # only where no checkpoint brings a vocabulary
PRESETS = {"dgxa100-80g_8gpu_amp": "squad_large", "dgxa100-80g_8gpu_tf32": "squad_large_tf32"}  # on 8 GPUs
OWN_QUESTIONS = {"squad_quickstart": "-answerable", "squad_small": ""}  # recipe -> which files of this project
MODES = {
    "train": ("do_train",),
    "eval": ("do_eval", "do_predict"),
    "prediction": ("do_predict",),
    "train_eval": ("do_train", "do_eval", "do_predict"),
}
FILES = {False: ("train-v1.1.json", "dev-v1.1.json"), True: ("train-v2.0.json", "dev-v2.0.json")}

# Order and defaults of the positional arguments; None: what the recipe or the weights say.
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
_SAME_FLAG = (
    "epochs",
    "batch_size",
    "learning_rate",
    "warmup_proportion",
    "seed",
    "vocab_file",
    "output_dir",
    "max_steps",
    "benchmark",
    "benchmark_steps",
    "benchmark_warmup_steps",
    "fuse_mha",
)


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    with usage_errors():
        own, config, ranks = plan(words)
    if own.show_config:
        print(dump_yaml(config), end="")
        return 0
    code = launch(ENTRY, config, ranks)
    if code == 0:
        print("\n".join(result_lines(config)))
    return code


def plan(words: Sequence[str]) -> tuple[argparse.Namespace, SquadConfig, Ranks]:
    """The launcher's own arguments, the settings, and where the processes are.

    Raises:
        ValueError: with value, rule and remedy.
    """
    first_flag = next((index for index, word in enumerate(words) if word.startswith("--")), len(words))
    positional, flags = list(words[:first_flag]), list(words[first_flag:])
    own, _ = _parser().parse_known_args(flags)
    defaults: dict[str, Any] = {}
    if positional:
        defaults = _positional(positional, own)
    elif own.config in (None, *OWN_QUESTIONS) and not _names_data(flags, own):
        weights = value_of("--from-pretrained-params", flags)
        name = own.config or ("squad_quickstart" if weights is None else "squad_small")
        defaults = {"config": name} | _quickstart_defaults(flags, own, name)
    elif own.config in PRESETS:
        defaults = {"config": PRESETS[own.config]}
        own.num_processes = own.num_processes or 8
    else:
        defaults = {"config": own.config or "squad"}
    defaults |= _files_and_modes(own, flags)
    own_again, config = parse(ENTRY, flags, _parser(), defaults)
    assert isinstance(config, SquadConfig) and vars(own_again).keys() == vars(own).keys()
    return own, config, ranks_of(own, config.hardware.device)


def _positional(positional: Sequence[str], own: argparse.Namespace) -> dict[str, Any]:
    """The settings that positional arguments stand for; the rest goes into `own`, where flags have not said it."""
    if own.config is not None:
        raise ValueError(f"config={own.config} contradicts the positional arguments; give only one of them")
    if len(positional) > len(POSITIONAL):
        raise ValueError(
            f"{len(positional)} positional arguments must be at most {len(POSITIONAL)}; drop "
            f"{' '.join(positional[len(POSITIONAL) :])}, or use flags (--help)"
        )
    given = {
        name: word for (name, _), word in zip(POSITIONAL, positional, strict=False) if word not in ("", "-", "None")
    }
    values = {name: given.get(name, default) for name, default in POSITIONAL}
    for name in ("squad_dir", "mode"):
        if getattr(own, name) is None:
            setattr(own, name, values[name])
    if own.num_processes is None:
        own.num_processes = _whole("num_gpus", str(values["num_gpus"]))
    precision = str(values["precision"])
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision} must be one of {', '.join(PRECISIONS)}; pass one of them")
    settings = {"config": "squad", **PRECISIONS[precision]}
    settings |= {name: values[name] for name in _SAME_FLAG if values[name] is not None}
    settings["report_file"] = f"{values['output_dir']}/dllogger_squad.json"
    if values["init_checkpoint"]:
        settings["from_pretrained_params"] = values["init_checkpoint"]
    if values["bert_config"]:
        settings["config_file"] = values["bert_config"]
    elif "hidden_size" not in implied_by_weights(settings):
        settings["bert_model"] = "bert-large-uncased"
    return settings


def _files_and_modes(own: argparse.Namespace, flags: Sequence[str]) -> dict[str, Any]:
    """What --mode and --squad-dir stand for."""
    settings: dict[str, Any] = {}
    said = [word for word in flags if word.startswith(("--do-train", "--do-eval", "--do-predict"))]
    mode = own.mode or (None if said else "train_eval")
    if mode is not None:
        if mode not in MODES:
            raise ValueError(f"mode={mode} must be one of {', '.join(MODES)}; pass one of them")
        settings |= dict.fromkeys(MODES[mode], True)
    if own.squad_dir is not None:
        version_2 = "2.0" in Path(own.squad_dir).name
        train_file, predict_file = FILES[version_2]
        settings |= {
            "train_file": f"{own.squad_dir}/{train_file}",
            "predict_file": f"{own.squad_dir}/{predict_file}",
            "version_2_with_negative": version_2,
        }
    return settings


def _names_data(flags: Sequence[str], own: argparse.Namespace) -> bool:
    files = ("--train-file", "--predict-file")
    return own.squad_dir is not None or any(value_of(flag, flags) is not None for flag in files)


def _quickstart_defaults(flags: Sequence[str], own: argparse.Namespace, name: str) -> dict[str, Any]:
    """Data of this project; the model that the pre-training quickstart left and two processes, unless said."""
    output_dir = Path(value_of("--output-dir", flags) or f"results/{name}")
    settings = output_settings(output_dir)
    if num_gpus() == 0:
        settings["device"] = "cpu"
    if own.num_processes is None:
        own.num_processes = quickstart_processes(value_of("--device", flags) or "auto")
    run_module("data.examples.sample_questions", "--output-dir", output_dir / "data")
    settings |= {
        "train_file": output_dir / f"data/train{OWN_QUESTIONS[name]}.json",
        "predict_file": output_dir / f"data/held_out{OWN_QUESTIONS[name]}.json",
    }
    if value_of("--from-pretrained-params", flags) is not None:
        return settings
    return settings | (
        pretrained_settings()
        or random_settings(output_dir / "data", _paragraphs(output_dir / "data/train.json"), QUICKSTART_VOCABULARY_SIZE)
    )


def _paragraphs(train_file: Path) -> list[str]:
    content = json.loads(train_file.read_text(encoding="utf-8"))
    texts = [paragraph["context"] for article in content["data"] for paragraph in article["paragraphs"]]
    return [f"paragraph-{number} {text}" for number, text in enumerate(texts)]


def result_lines(config: SquadConfig) -> list[str]:
    """What came out, and what to try next."""
    directory = config.stage_dir() / "benchmark" if config.run.benchmark else config.stage_dir()
    summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    rows = [
        ("exact match", "exact_match", "{:.2f}"),
        ("F1", "F1", "{:.2f}"),
        ("F1 of questions with an answer", "eval_HasAns_f1", "{:.2f}"),
        ("F1 of questions without", "eval_NoAns_f1", "{:.2f}"),
        ("F1 at the best threshold", "eval_best_f1", "{:.2f}"),
        ("training, sequences/s", "training_sequences_per_second", "{:.1f}"),
        ("inference, sequences/s", "inference_sequences_per_second", "{:.1f}"),
    ]
    lines = [""] + [
        f"  {title:<32}{form.format(summary[key]):>8}" for title, key, form in rows if summary.get(key) is not None
    ]
    if config.run.benchmark:
        return [*lines, f"\nSummary: {directory}/summary.json."]
    model = config.best_dir() if config.best_dir().is_dir() else config.checkpoint_dir()
    lines += ["", f"Answers: {config.stage_dir()}/predictions.json. Summary: {config.stage_dir()}/summary.json."]
    if model.is_dir():
        lines += [f"Ask it yourself:  python run_squad.py --interactive --from-pretrained-params {model}"]
    return lines


def _whole(name: str, word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise ValueError(f"{name}={word} must be a whole number of at least 1")
    return int(word)


def _parser() -> argparse.ArgumentParser:
    numbered = "\n".join(
        f"  {number:2} {name:24} {'-' if default is None else default}"
        for number, (name, default) in enumerate(POSITIONAL, 1)
    )
    parser = argparse.ArgumentParser(
        prog="run_squad.sh",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [18 positional arguments | --config NAME] [flags]",
        description="Fine-tune BERT on SQuAD and score it. Without arguments: the quickstart, on questions of this "
        "project.\n\nPresets of --config: " + ", ".join(PRESETS) + f".\nRecipes: {', '.join(ENTRY.recipes)}.",
        epilog="Further flags are those of `python run_squad.py --help`. The same command continues what was stopped."
        f"\n\nPositional arguments and their defaults, which a - also stands for:\n{numbered}",
    )
    add_rank_flags(parser)
    parser.add_argument("--config", metavar="NAME_OR_FILE", help="a preset, a recipe, or a YAML file")
    parser.add_argument("--squad-dir", metavar="DIR", help="folder of SQuAD's files; v2.0 in its name means version 2")
    parser.add_argument("--mode", metavar="|".join(MODES), help="what to do (default: train_eval)")
    parser.add_argument("--show-config", action="store_true", help="print every resolved setting as YAML")
    return parser


if __name__ == "__main__":
    sys.exit(main())
