"""The settings of run_squad.py: files, windows, answers, and the settings kept beside fine-tuned weights."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from bert.config.command_line import EntryPoint
from bert.config.flags import is_on
from bert.conversion.model_description import READER_FILE
from bert.files import unset_variable
from bert.finetuning.config import FineTuningConfig, FineTuningRunSettings, TaskDataSettings, implied_settings
from bert.finetuning.inquiries import inquiries
from bert.finetuning.model_files import named_weights
from bert.finetuning.squad.features import WindowSettings
from bert.finetuning.squad.predictions import AnswerSettings
from data.download_squad import download_file
from data.fetching.transfer import data_folder, mirrors

Recipe = dict[str, Any]


def squad() -> Recipe:
    """NVIDIA's recipe for BERT-large and SQuAD 1.1 on 8 GPUs: 32 sequences per GPU, 2 epochs, 20% warm-up."""
    return {
        "optimizer": "AdamW",
        "learning_rate": 4.6e-5,
        "warmup_proportion": 0.2,
        "epochs": 2.0,
        "batch_size": 32,
        "max_seq_length": 384,
        "doc_stride": 128,
        "max_query_length": 64,
        "n_best_size": 20,
        "max_answer_length": 30,
        "scale_loss": 128.0,
        "seed": 1,
    }


def squad_large() -> Recipe:
    """BERT-large in mixed precision."""
    return {**squad(), "bert_model": "bert-large-uncased", "amp": True}


def squad_large_tf32() -> Recipe:
    """BERT-large in float32 with TF32 matrix products."""
    return {**squad_large(), "amp": False, "tf32": True}


def squad2_large() -> Recipe:
    """SQuAD 2.0: half of the questions in the evaluation set are unanswerable."""
    return {**squad_large(), "version_2_with_negative": True}


def squad_base() -> Recipe:
    """BERT-base on one device as in BERT's published code: batches of 12, 3e-5, 10% warm-up (Devlin et al., 2019)."""
    return {
        **squad(),
        "bert_model": "bert-base-uncased",
        "batch_size": 12,
        "learning_rate": 3e-5,
        "warmup_proportion": 0.1,
    }


def squad_quickstart() -> Recipe:
    """A few hundred answerable questions written for this project, for the quickstart's tiny model on a CPU."""
    return {
        **squad(),
        "batch_size": 8,
        "global_batch_size": 8,
        "epochs": 20.0,
        "learning_rate": 3e-4,
        "warmup_proportion": 0.1,
        "max_seq_length": 128,
        "doc_stride": 48,
        "max_query_length": 32,
        "max_answer_length": 12,
        "num_workers": 0,
        "eval_freq": 200,
    }


def squad_small() -> Recipe:
    """A few hundred questions, some of them unanswerable, for a small published encoder."""
    return {
        **squad_quickstart(),
        "version_2_with_negative": True,
        "epochs": 5.0,
        "learning_rate": 1e-4,
        "max_answer_length": 16,
    }


RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe
    for recipe in (squad, squad_large, squad_large_tf32, squad2_large, squad_base, squad_quickstart, squad_small)
}


class SquadDataSettings(TaskDataSettings):
    download: bool = Field(
        False,
        description="fetch SQuAD's files that are missing; without --train-file and --predict-file, to "
        "$BERT_PREP_WORKING_DIR/download/squad or the cache",
    )
    train_file: Path | None = Field(None, description="SQuAD file to train on; --do-train needs it")
    predict_file: Path | None = Field(None, description="SQuAD file to answer; for --do-eval, with answers")
    max_seq_length: int = Field(384, ge=8, description="longest sequence, in tokens with [CLS] and [SEP]")
    doc_stride: int = Field(
        128, ge=1, description="tokens between the starts of consecutive windows of a long paragraph"
    )
    max_query_length: int = Field(64, ge=1, description="longest question, in tokens; longer ones are truncated")
    n_best_size: int = Field(
        AnswerSettings.n_best_size, ge=1, description="answers listed for each question; for SQuAD 2.0 at least 2"
    )
    max_answer_length: int = Field(AnswerSettings.max_answer_length, ge=1, description="longest answer, in tokens")
    version_2_with_negative: bool = Field(False, description="questions may have no answer, as in SQuAD 2.0")
    null_score_diff_threshold: float = Field(
        0.0, description="predict no answer if its score exceeds the best answer's by more than this"
    )
    eval_script: Path | None = Field(None, description="ignored: the official scores are computed by this program")

    def windows(self) -> WindowSettings:
        return WindowSettings(self.max_seq_length, self.doc_stride, self.max_query_length, self.do_lower_case)

    def answers(self) -> AnswerSettings:
        return AnswerSettings(
            self.n_best_size, self.max_answer_length, self.version_2_with_negative, self.null_score_diff_threshold
        )

    @model_validator(mode="after")
    def _windows_can_be_built(self) -> "SquadDataSettings":
        self.windows()
        return self


class SquadRunSettings(FineTuningRunSettings):
    interactive: bool = Field(False, description="answer questions typed in the terminal about a paragraph")

    @model_validator(mode="after")
    def _talks_alone(self) -> "SquadRunSettings":
        if self.interactive and (self.do_train or self.do_eval):
            raise ValueError("interactive=true uses a trained model; omit --do-train and --do-eval")
        return self


class SquadConfig(FineTuningConfig):
    """Question answering on SQuAD or files in its format."""

    data: SquadDataSettings
    run: SquadRunSettings

    def stage(self) -> str:
        return "squad"

    def needed_files(self) -> dict[str, str]:
        """The settings that name files to read, and the first mode that reads each."""
        modes = {"train_file": ("do_train",), "predict_file": ("do_eval", "do_predict")}
        readers = {name: [mode for mode in of if getattr(self.run, mode)] for name, of in modes.items()}
        return {name: found[0] for name, found in readers.items() if found and not self.run.interactive}

    def fetch_data(self) -> None:
        for name in self.needed_files() if self.data.download else ():
            path = getattr(self.data, name)
            if path is not None and not path.is_file() and not unset_variable(path):
                download_file(path, mirrors())

    def check_files(self) -> None:
        if self.run.interactive and self.initialization.initial_weights() is None:
            raise ValueError("interactive=true needs a fine-tuned model; pass --from-pretrained-params DIR")
        for name, mode in self.needed_files().items():
            path = getattr(self.data, name)
            if path is None:
                raise ValueError(
                    f"{mode}=true needs {name}; pass --{name.replace('_', '-')} FILE, or --download to fetch SQuAD"
                )
            if not path.is_file():
                raise ValueError(
                    f"{name}={path} must be an existing file; pass --download to fetch it if it is one of SQuAD's"
                    f"{unset_variable(path)}"
                )
        super().check_files()


def _implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings implied by the weights, the built-in models' vocabularies and the interactive mode."""
    found = implied_settings(values) | _left_by_training(values)
    if "max_position_embeddings" in found:
        found.setdefault("max_seq_length", min(384, found["max_position_embeddings"]))
    if is_on(values, "interactive"):
        found["do_predict"] = True
    if is_on(values, "download") and not values.keys() & {"train_file", "predict_file"}:
        version = "2.0" if is_on(values, "version_2_with_negative") else "1.1"
        folder = data_folder() / "squad" / f"v{version}"
        found |= {"train_file": folder / f"train-v{version}.json", "predict_file": folder / f"dev-v{version}.json"}
    return found


def _left_by_training(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of windows and answers that fine-tuning saved beside the weights."""
    folder = named_weights(values)
    if folder is None or not (folder / READER_FILE).is_file():
        return {}
    windows, answers = read_reader_settings(folder / READER_FILE)
    values = {**vars(windows), **vars(answers)}
    values["do_lower_case"] = values.pop("lowercase")
    values["version_2_with_negative"] = values.pop("version_2")
    return values


def reader_settings(data: SquadDataSettings) -> str:
    """The content of READER_FILE: windows and answers as in training."""
    return json.dumps({"windows": vars(data.windows()), "answers": vars(data.answers())}, indent=1) + "\n"


def read_reader_settings(path: Path) -> tuple[WindowSettings, AnswerSettings]:
    """Read a file written by `reader_settings`."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return WindowSettings(**values["windows"]), AnswerSettings(**values["answers"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} does not hold the settings of a fine-tuned model ({error}); remove it to use the default "
            "settings, or use another checkpoint"
        ) from error


_TASK = "bert.finetuning.squad.task:SquadTask"
ENTRY = EntryPoint(
    script="run_squad.py",
    config_class=SquadConfig,
    task=_TASK,
    recipes=RECIPES,
    usage="--from-pretrained-params DIR [--do-train --train-file FILE] [--do-eval | --do-predict] "
    "[--predict-file FILE] [--interactive] [flags]",
    description="Fine-tune BERT to answer questions on SQuAD 1.1 or 2.0, score it, use it.",
    aliases={"batch_size": ["--train-batch-size"]},
    inquiries=inquiries(_TASK),
    implied=_implied,
)
