"""The public functions, as bert/package/README.md shows them: what the commands do, from Python and in notebooks.

Trainings, evaluations of fine-tuned models and servers run in processes of their own, as the console commands do: a
training has several ranks, and can be stopped and resumed. The other functions load the model into this process. Where
a file or texts are taken, a pandas table is taken too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from bert.checkpoints.directories import weights_folder
from bert.conversion.locating import resolve
from bert.conversion.model_description import READER_FILE, read_usage
from bert.files import read_json, write_atomically
from bert.finetuning.glue.task_table import task_name
from bert.inference.tables import flat, free_name
from bert.launching.calls import OnLog, Server, run_task
from bert.reporting.run_record import SCORES_FILE, SUMMARY
from bert.samples.manifest import MANIFEST_NAME

if TYPE_CHECKING:  # Paddle takes a second to load
    import numpy as np
    import pandas as pd

    from bert.inference.heads import AnsweredQuestion
    from bert.inference.trained_model import TrainedModel

TASKS = ("pretraining", "squad", "glue", "classify", "ner")
PRETRAINING = ("pretraining", "phase1", "phase2")


def train(task: str, *, output_dir: str | Path, on_log: OnLog | None = None, **settings: Any) -> dict[str, Any]:
    """Train a model as the command of the task does; the same call resumes a stopped run.

    Args:
        task: pretraining, squad, glue, classify or ner.
        output_dir: the folder of all results; it is what the other functions take as the model.
        on_log: called with each record that is logged: step, loss ..., and stage, the name of its folder. If it raises,
            the training saves a checkpoint and stops.
        settings: the flags of the command, with underscores: `text="mine"`, `train_file="train.json"`, `epochs=3`.
            True is a flag without a value, a list is a flag with several values, and None leaves the flag out. A
            pandas table becomes a file in output_dir.
    Returns:
        The content of summary.json; of pre-training, by phase; of a classifier also `scores`, those of each class.
    Raises:
        ValueError: wrong settings or data; the lines of the command's errors.
        bert.exit_codes.Failure: the training ended with another exit code, its `exit_code`.
        KeyboardInterrupt: stopped by Ctrl-C, after a checkpoint was saved.
    """
    if task not in TASKS:
        raise ValueError(f"task={task} must be one of {', '.join(TASKS)}; pass one")
    folder = Path(output_dir).expanduser()
    settings = {name: _as_file(value, folder / "tables" / name) for name, value in settings.items()}
    own = {} if task == "pretraining" else _defaults(task, folder, settings)
    run_task(task, on_log=on_log, **{"output_dir": folder, **own, **settings})
    return _summary(folder, task, {**own, **settings})


def pretrain(
    text: str | Path | Sequence[str | Path] | pd.DataFrame, *, output_dir: str | Path, **settings: Any
) -> dict[str, Any]:
    """Pre-train on files, folders or a table of text, as `bert-on-paddle pretrain --text`; the rest as of `train`."""
    return train("pretraining", output_dir=output_dir, text=text, **settings)


def classify(
    train_file: str | Path | pd.DataFrame,
    *,
    output_dir: str | Path,
    eval_file: str | Path | pd.DataFrame | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Fine-tune on a table of labelled texts, as `bert-on-paddle classify`; the rest as of `train`.

    Args:
        eval_file: None: a part of the table is held out.
        settings: `from_pretrained_params` is the model to start from.
    """
    return train("classify", output_dir=output_dir, train_file=train_file, eval_file=eval_file, **settings)


def evaluate(model: str | Path, data: str | Path | pd.DataFrame, **settings: Any) -> dict[str, float]:
    """The metrics of a fine-tuned model on labelled data, or of a pre-trained model on held-out shards.

    Args:
        model: the output folder of a training, a checkpoint, a folder that the export or the conversion wrote, or a
            published name.
        data: what the model's task reads: a SQuAD file; a folder of GLUE's task; a .tsv, .csv or .jsonl file of your
            own task, or a pandas table; a file in CoNLL's format; a folder of shards.
        settings: further flags of `run_squad`, `run_glue` or `run_ner`; `task_name` for a model that does not
            remember its task.
    Returns:
        Metric -> value: `exact_match` and `F1`, `accuracy`, `masked_lm_loss` in nats ...
    Raises:
        ValueError: the model, its task or the data cannot be used.
    """
    folder = weights_folder(resolve(model))
    usage = read_usage(folder if folder.is_dir() else folder.parent)
    with tempfile.TemporaryDirectory() as output_dir:
        data = Path(_as_file(data, Path(output_dir) / "data"))
        name = settings.pop("task_name", None) or usage.name or _guess(folder, data)
        if name in PRETRAINING:
            from bert.inference.shard_evaluation import evaluate_on_shards  # loads Paddle

            return evaluate_on_shards(folder, data, **settings)
        task, flags = _data_flags(name if name in TASKS else task_name(name), data)
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


Texts = Sequence[str | Sequence[str] | Mapping[str, Any]]


@overload
def predict(model: str | Path | TrainedModel, texts: Texts) -> list[dict[str, Any]]: ...
@overload
def predict(model: str | Path | TrainedModel, texts: pd.DataFrame) -> pd.DataFrame: ...
def predict(model: str | Path | TrainedModel, texts: Any) -> Any:
    """What a model's head says about each text: classes with probabilities, entities, answers, filled masks, a vector.

    Args:
        texts: texts; pairs of texts; for a model of questions, pairs of a question and a paragraph. A pandas table with
            the columns of the training.
    Returns:
        A dictionary of plain values for each text, in their order. A table with these values as further columns.
    Raises:
        ValueError: the model, or a text that its head cannot take.
    """
    if not _is_table(texts):
        several = _several(texts)
        return _loaded(model).predict(several)
    results = _loaded(model).predict(texts.to_dict("records"))
    rows = [{**flat(result), **{k: v for k, v in result.items() if isinstance(v, list)}} for result in results]
    added = type(texts)(rows)
    return texts.assign(**{free_name(name, texts.columns): added[name].array for name in added.columns})


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


def serve(model: str | Path, *, port: int = 0, **settings: Any) -> Server:
    """Serve a model as `bert-on-paddle serve` does: the page and the API are at the `url` of the result.

    Args:
        port: 0: any that is free.
        settings: the flags of the command, with underscores.
    Raises:
        ValueError: the model or a setting; the lines of the command's errors.
    """
    return Server(model, {"port": port, **settings})


def _is_table(value: Any) -> bool:
    """Whether it is a pandas table; pandas is not imported for it."""
    return "pandas" in sys.modules and isinstance(value, sys.modules["pandas"].DataFrame)


def _as_file(value: Any, path: Path) -> Any:
    """The value; of a table, the Parquet file that holds it, which an equal call leaves as it is."""
    if not _is_table(value):
        return value
    path, content = path.with_suffix(".parquet"), value.to_parquet(None, index=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != content:
        write_atomically(path, content)
    return path


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
    if task != "classify" and given & {"train_file", "data_dir", "squad_dir"}:
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
    """summary.json of the run that ended last, with its scores; of pre-training, that of all phases."""
    named = settings.get("task_name")
    stage = f"glue-{task_name(named).lower() if named else '*'}" if task in ("glue", "classify") else task
    files = [output_dir / SUMMARY] if task == "pretraining" else list(output_dir.glob(f"{stage}/{SUMMARY}"))
    newest = max((file for file in files if file.is_file()), key=lambda file: file.stat().st_mtime, default=None)
    if newest is None:
        return {}
    scores = read_json(newest.with_name(SCORES_FILE))
    return json.loads(newest.read_text(encoding="utf-8")) | ({"scores": scores} if scores else {})
