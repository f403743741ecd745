"""The settings of run_ner.py: files of tagged words, their columns and tag scheme, and windows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from bert import REPOSITORY
from bert.config.entry_point import EntryPoint, Rule
from bert.config.flags import is_on
from bert.config.settings_base import MayDiffer
from bert.finetuning.config import (
    USUAL_SETTINGS,
    FineTuningConfig,
    TaskDataSettings,
    implied_settings,
    modes_of_files,
    settings_of_the_run,
    usual_settings,
)
from bert.finetuning.inquiries import inquiries
from bert.finetuning.model_files import usage_in_training
from bert.finetuning.ner.conll import ConllFormat, count_sentences
from bert.finetuning.text_files import decoding_of, implied_decoding
from data.text.encodings import Decoding

_EXAMPLES = REPOSITORY / "data" / "examples" / "entities"
Settings = dict[str, Any]


def conll2003() -> Settings:
    """CoNLL-2003 as in Devlin et al. (2019, section 5.3): document context, batches of 32, 3 epochs.

    They chose among the learning rates 5e-5, 3e-5 and 2e-5 on the dev set. Capitals mark names: use a cased model, and
    pass --no-lowercase if its files do not say that it is cased.
    """
    return {
        "max_seq_length": 256,
        "document_context": True,
        "batch_size": 32,
        "global_batch_size": 32,
        "epochs": 3.0,
        "learning_rate": 3e-5,
        "do_train": True,
        "do_eval": True,
    }


def small_entities() -> Settings:
    """People, places and organisations in 105 sentences written for this project, 29 held out; a small encoder."""
    return {
        "train_file": _EXAMPLES / "train.conll",
        "eval_file": _EXAMPLES / "held_out.conll",
        "max_seq_length": 64,
        "batch_size": 8,
        "global_batch_size": 8,
        "epochs": 12.0,
        "learning_rate": 2e-4,
        "log_freq": 10,
        "num_steps_per_checkpoint": 1000,
        "do_train": True,
        "do_eval": True,
    }


def quickstart_entities() -> Settings:
    """`small_entities` for the two-layer model of the pre-training quickstart."""
    return {**small_entities(), "epochs": 20.0, "learning_rate": 5e-4, "device": "cpu"}


NER_RECIPES: dict[str, Callable[[], Settings]] = {
    recipe.__name__: recipe for recipe in (conll2003, small_entities, quickstart_entities)
}


class TaggedDataSettings(TaskDataSettings):
    train_file: Path | None = Field(None, description="tagged words to train on, in CoNLL-2003's format")
    eval_file: Path | None = Field(None, description="tagged words to evaluate on")
    predict_file: MayDiffer[Path | None] = Field(
        None, description="words to predict tags for; its own tags are ignored"
    )
    word_column: int = Field(0, description="column of the word, from 0; -1 is the last; of CoNLL-U 1")
    tag_column: int = Field(-1, description="column of the tag; of CoNLL-U also NER=TAG in MISC")
    tag_scheme: Literal["iob1", "iob2", "iobes"] | None = Field(
        None, description="tag scheme of the files (default: detected; IOB2 for --do-predict, which reads no tags)"
    )
    document_context: bool = Field(False, description="read each sentence with its neighbours in the document")
    window_overlap: int | None = Field(
        None,
        ge=0,
        description="tokens that neighbouring windows of a long sentence share on each side (default: a quarter)",
    )

    @model_validator(mode="after")
    def _windows_move(self) -> "TaggedDataSettings":
        if self.window_overlap is not None and 2 * self.window_overlap >= self.max_seq_length - 2:
            raise ValueError(
                f"window_overlap={self.window_overlap} must be less than half of max_seq_length - 2 = "
                f"{self.max_seq_length - 2}, or windows do not advance; lower --window-overlap"
            )
        return self

    def layout(self, tagged: bool = True) -> ConllFormat:
        return ConllFormat(self.word_column, self.tag_column, self.tag_scheme, tagged, Decoding.of(self))


class TaggingConfig(FineTuningConfig):
    """Settings of a training that finds named entities or other spans of words."""

    data: TaggedDataSettings

    def stage(self) -> str:
        return "ner"

    def check_files(self) -> None:
        """Also refuse an evaluation and a prediction whose results would have one file name."""
        super().check_files()
        first, second = self.data.eval_file, self.data.predict_file
        if not (self.run.do_eval and self.run.do_predict) or first is None or second is None:
            return
        if first.stem == second.stem and not first.samefile(second):
            raise ValueError(
                f"predict_file={second} must have another name than eval_file={first}: the predictions of both would "
                f"be {second.stem}_predictions.conll; rename one, or predict in a run with another --output-dir"
            )


def _implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings implied by the weights, and for a training also by the number of sentences."""
    modes = modes_of_files(values)
    implied, usage = modes | implied_settings(values), usage_in_training({**modes, **values}, "ner")
    implied |= implied_decoding({**implied, **values}, usage)
    file = Path(str(values.get("train_file"))).expanduser()
    if is_on({**implied, **values}, "do_train") and file.is_file() and not values.keys() >= {*USUAL_SETTINGS}:
        sentences = count_sentences(file, decoding_of({**implied, **values}))
        implied |= usual_settings(sentences, {**implied, **values}) | settings_of_the_run(values, "ner")
    if usage.max_seq_length is not None:
        implied["max_seq_length"] = usage.max_seq_length
    return implied | {"document_context": usage.document_context}


_TASK = "bert.finetuning.ner.task:TaggingTask"
ENTRY = EntryPoint(
    script="run_ner.py",
    config_class=TaggingConfig,
    task=_TASK,
    recipes=NER_RECIPES,
    examples=(
        "--from-pretrained-params bert-base-cased --do-train --train-file train.conll --do-eval --eval-file dev.conll",
        "--from-pretrained-params results/ner --do-predict --predict-file new.conll --output-dir results/new",
    ),
    inquiries=inquiries(_TASK),
    rules=(Rule(implies=_implied),),
    usage="[--config RECIPE] --from-pretrained-params WEIGHTS --do-train --train-file FILE --do-eval --eval-file FILE",
    description="Fine-tune BERT to find named entities, or other spans of words.",
)
