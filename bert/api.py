"""The public functions: train, evaluate, load, predict, encode, fill_mask, answer; bert/package/README.md has examples.

Training and evaluation of fine-tuned models run in processes of their own, as the console commands do: a training has
several ranks, and can be stopped and resumed. The other functions load the model into this process.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.checkpoints.directories import weights_folder
from bert.conversion.locating import resolve
from bert.conversion.model_description import READER_FILE, read_usage
from bert.finetuning.glue.task_table import task_name
from bert.launching.process_runner import run_task
from bert.samples.manifest import MANIFEST_NAME

if TYPE_CHECKING:  # Paddle takes a second to load
    import numpy as np

    from bert.inference.heads import AnsweredQuestion
    from bert.inference.trained_model import TrainedModel

TASKS = ("pretraining", "squad", "glue", "ner")
PRETRAINING = ("pretraining", "phase1", "phase2")


def train(task: str, *, output_dir: str | Path, **settings: Any) -> dict[str, Any]:
    """Train a model as `bert-on-paddle pretrain`, `squad`, `glue` or `ner` does; the same call resumes a stopped run.

    Args:
        task: pretraining, squad, glue or ner.
        output_dir: the folder of all results; it is what the other functions take as the model.
        settings: the flags of the command, with underscores: `text="mine"`, `train_file="train.json"`, `epochs=3`.
            True is a flag without a value, a list is a flag with several values, and None leaves the flag out.
    Returns:
        The content of summary.json; of pre-training, by phase.
    Raises:
        ValueError: wrong settings or data; the lines of the command's errors.
        bert.exit_codes.Failure: the training ended with another exit code, its `exit_code`.
        KeyboardInterrupt: stopped by Ctrl-C, after a checkpoint was saved.
    """
    if task not in TASKS:
        raise ValueError(f"task={task} must be one of {', '.join(TASKS)}; pass one")
    folder = Path(output_dir).expanduser()
    own = {} if task == "pretraining" else _defaults(task, folder, settings)
    run_task(task, **{"output_dir": folder, **own, **settings})
    return _summary(folder, task, {**own, **settings})


def evaluate(model: str | Path, data: str | Path, **settings: Any) -> dict[str, float]:
    """The metrics of a fine-tuned model on labelled data, or of a pre-trained model on held-out shards.

    Args:
        model: the output folder of a training, a checkpoint, a folder that the export or the conversion wrote, or a
            published name.
        data: what the model's task reads: a SQuAD file; a folder of GLUE's task; a .tsv, .csv or .jsonl file of your
            own task; a file in CoNLL's format; a folder of shards.
        settings: further flags of `run_squad`, `run_glue` or `run_ner`; `task_name` for a model that does not
            remember its task.
    Returns:
        Metric -> value: `exact_match` and `F1`, `accuracy`, `masked_lm_loss` in nats ...
    Raises:
        ValueError: the model, its task or the data cannot be used.
    """
    folder = weights_folder(resolve(model))
    usage = read_usage(folder if folder.is_dir() else folder.parent)
    name = settings.pop("task_name", None) or usage.name or _guess(folder, Path(data))
    if name in PRETRAINING:
        from bert.inference.shard_evaluation import evaluate_on_shards  # loads Paddle

        return evaluate_on_shards(folder, Path(data), **settings)
    task, flags = _data_flags(name if name in TASKS else task_name(name), Path(data))
    with tempfile.TemporaryDirectory() as output_dir:
        fixed = {"from_pretrained_params": folder, "do_eval": True, "output_dir": output_dir}
        fixed["report_file"] = Path(output_dir) / "report.json"
        run_task(task, is_silent=True, **{**fixed, **flags, **settings})
        summary = _summary(Path(output_dir), task, flags)
    scores = {key: value for key, value in summary.items() if isinstance(value, float)}
    return {key.removeprefix("eval_"): value for key, value in scores.items() if not key.endswith("_per_second")}


def load(model: str | Path, task: str | None = None, **settings: Any) -> TrainedModel:
    """A model loaded once, for many calls: its methods are the functions below, which take it as their model.

    Args:
        model: the output folder of a training, a checkpoint, an export, or another library's model.
        task: what it is used for; None: what its head is for. "encoder" makes vectors with any model.
        settings: arguments of `bert.inference.model_folder.load_model`: device, max_seq_length, batch_size ...
    Raises:
        ValueError: names what was found and what is needed.
    """
    from bert.inference.heads import load_model

    return load_model(model, task, **settings)


def predict(
    model: str | Path | TrainedModel, texts: Sequence[str | Sequence[str] | Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What a model's head says about each text: classes with probabilities, entities, answers, filled masks, a vector.

    Args:
        texts: texts; pairs of texts; for a model of questions, pairs of a question and a paragraph.
    Returns:
        A dictionary of plain values for each text, in their order.
    Raises:
        ValueError: the model, or a text that its head cannot take.
    """
    several = _several(texts)
    return _loaded(model).predict(several)


def encode(model: str | Path | TrainedModel, texts: Sequence[str]) -> np.ndarray:
    """Vectors of texts: the means of the last hidden states, float32 [texts, hidden size]."""
    several = _several(texts)
    return _loaded(model, "encoder").encode(several)


def fill_mask(model: str | Path | TrainedModel, text: str, top_k: int = 5) -> list[list[dict[str, Any]]]:
    """The likeliest tokens at each [MASK] of a text, best first: {"token": ..., "probability": ...}."""
    return _loaded(model, "masked-lm").fill_mask(text, top_k)


def answer(model: str | Path | TrainedModel, question: str, paragraph: str) -> AnsweredQuestion:
    """The answer to a question about a paragraph: its text, its score, and where it starts and ends."""
    return _loaded(model, "question-answering").answer(question, paragraph)


def _loaded(model: str | Path | TrainedModel, task: str | None = None) -> TrainedModel:
    return load(model, task) if isinstance(model, (str, Path)) else model


def _several(texts: Any) -> Any:
    if isinstance(texts, (str, bytes, Mapping)):
        raise ValueError(f"texts={texts!r} must be a list of texts; put it into brackets")
    return list(texts)


def _defaults(task: str, folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a call for fine-tuning means: all files in one folder, train, and evaluate if there is a file for it."""
    own: dict[str, Any] = {"report_file": folder / "report.json"}
    given = settings.keys()
    if given & {"train_file", "data_dir", "squad_dir"}:
        labelled = {"predict_file", "squad_dir"} if task == "squad" else {"eval_file", "data_dir"}
        own |= {"do_train": True, "do_eval": True if given & labelled else None}
    return own


def _guess(folder: Path, data: Path) -> str:
    """The task of a model that does not say it: an older checkpoint, or one of another library."""
    if (folder / READER_FILE).is_file():
        return "squad"
    if (data / MANIFEST_NAME).is_file():
        return "pretraining"
    raise ValueError(f"{folder} does not say its task; pass task_name: squad, ner, custom, a task of GLUE, pretraining")


def _data_flags(name: str, data: Path) -> tuple[str, dict[str, Any]]:
    """The launcher's task and the flags that name the data."""
    if name == "squad":
        return "squad", {"predict_file": data, "mode": "eval"}
    if name == "ner":
        return "ner", {"eval_file": data}
    return "glue", {"task_name": name, "eval_file" if name == "custom" else "data_dir": data}


def _summary(output_dir: Path, task: str, settings: dict[str, Any]) -> dict[str, Any]:
    """summary.json of the run that ended last; of pre-training, that of all phases."""
    named = settings.get("task_name")
    stage = f"glue-{task_name(named).lower() if named else '*'}" if task == "glue" else task
    files = [output_dir / "summary.json"] if task == "pretraining" else list(output_dir.glob(f"{stage}/summary.json"))
    newest = max((file for file in files if file.is_file()), key=lambda file: file.stat().st_mtime, default=None)
    return {} if newest is None else json.loads(newest.read_text(encoding="utf-8"))
