"""The settings of run_squad.py: files, windows, answers, and the settings saved with fine-tuned weights."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from bert.config.entry_point import EntryPoint, Rule
from bert.config.flags import is_on
from bert.config.settings_base import MayDiffer
from bert.conversion.usage import READER_FILE
from bert.files import unset_variable
from bert.finetuning.config import FineTuningConfig, FineTuningRunSettings, TaskDataSettings, implied_settings
from bert.finetuning.inquiries import inquiries
from bert.finetuning.model_files import named_weights, usage_in_training
from bert.finetuning.squad.answer_settings import ReaderSettings, read_reader_settings
from bert.finetuning.text_files import implied_decoding
from data.download_squad import download_file
from data.fetching.places import data_folder, mirrors

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
    return {**squad_large(), "amp": False, "tf32": "on"}


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


class SquadDataSettings(ReaderSettings, TaskDataSettings):
    download: MayDiffer[bool] = Field(
        False,
        description="fetch SQuAD's files that are missing; without --train-file and --predict-file, to "
        "$BERT_PREP_WORKING_DIR/download/squad or the cache",
    )
    train_file: Path | None = Field(None, description="SQuAD file to train on; --do-train needs it")
    predict_file: MayDiffer[Path | None] = Field(None, description="SQuAD file to answer; for --do-eval, with answers")
    eval_script: Path | None = Field(None, description="ignored: the official scores are computed by this program")
    verbose_logging: bool = Field(False, description="ignored: NVIDIA's scripts pass it")


class SquadRunSettings(FineTuningRunSettings):
    interactive: bool = Field(False, description="answer questions typed in the terminal about a paragraph")

    @model_validator(mode="after")
    def _talks_alone(self) -> "SquadRunSettings":
        if self.interactive and (self.do_train or self.do_eval):
            raise ValueError("interactive=true uses a trained model; omit --do-train and --do-eval")
        return self


class SquadConfig(FineTuningConfig):
    """Settings of question answering on SQuAD or files in its format."""

    data: SquadDataSettings
    run: SquadRunSettings

    def stage(self) -> str:
        return "squad"

    def decides_also(self) -> Collection[str]:
        """Also the predicted file, if it is the evaluation set that selects the best weights."""
        return ("classifier_pooling", *(("predict_file",) if self.run.do_eval else ()))

    def needed_files(self) -> dict[str, str]:
        run, modes = self.run, {"predict_file": "do_predict", "train_file": "do_train"}
        if run.do_eval:
            modes["predict_file"] = "do_eval"
        return {name: mode for name, mode in modes.items() if getattr(run, mode) and not run.interactive}

    def fetching(self) -> str:
        return ", or pass --download to fetch SQuAD's files"

    def fetches_data(self) -> bool:
        return self.data.download

    def fetch_data(self) -> None:
        for name in self.needed_files() if self.data.download else ():
            path = getattr(self.data, name)
            if path is not None and not path.is_file() and not unset_variable(path):
                download_file(path, mirrors())

    def check_files(self) -> None:
        if self.run.interactive and self.initialization.initial_weights() is None:
            raise ValueError("interactive=true needs a fine-tuned model; pass --from-pretrained-params DIR")
        super().check_files()


DEFAULT_MODEL = "bert-large-uncased"  # as of NVIDIA's run_squad.py


def _implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings implied by the weights, the built-in models' vocabularies and the interactive mode."""
    implied = implied_settings(values, DEFAULT_MODEL) | implied_decoding(values, usage_in_training(values, "squad"))
    folder = named_weights(values)
    if folder is not None and (folder / READER_FILE).is_file():
        implied |= read_reader_settings(folder / READER_FILE).model_dump()
    if "max_position_embeddings" in implied:
        implied.setdefault("max_seq_length", min(384, implied["max_position_embeddings"]))
    if is_on(values, "interactive"):
        implied["do_predict"] = True
    if is_on(values, "download") and not values.keys() & {"train_file", "predict_file"}:
        version = "2.0" if is_on(values, "version_2_with_negative") else "1.1"
        data = data_folder() / "squad" / f"v{version}"
        implied |= {"train_file": data / f"train-v{version}.json", "predict_file": data / f"dev-v{version}.json"}
    return implied


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
    examples=(
        "--from-pretrained-params bert-base-uncased --do-train --train-file train-v1.1.json",
        "--from-pretrained-params results/squad --do-eval --predict-file dev-v1.1.json --output-dir results/dev",
    ),
    inquiries=inquiries(_TASK),
    default_model=DEFAULT_MODEL,
    rules=(Rule(implies=_implied),),
)
