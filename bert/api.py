"""The public functions, as docs/howto/python.md shows them: what the commands do, from Python and in notebooks.

`load_model`, `predict`, `encode` and `fill_mask` load the model into this process. The other functions run their
commands in processes of their own: a training has several ranks, and can be stopped and resumed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK, Failure
from bert.files import read_json, write_atomically
from bert.inference.given_texts import checked_texts, list_of_texts, one_text, refuse_nothing, whole_number
from bert.inference.records import flat, free_name
from bert.interpreter import COMMANDS, isolated_environment
from bert.launching.processes import flags_of
from bert.parent_death import CALLER_VARIABLE
from bert.reporting.run_record import SCORES_FILE, SUMMARY_FILE

if TYPE_CHECKING:  # Paddle takes a second to load
    import numpy as np
    import pandas as pd

    from bert.api_settings import (
        ClassifySettings,
        ConvertSettings,
        ExportSettings,
        LoadSettings,
        PretrainSettings,
        ServeSettings,
    )
    from bert.inference.trained_model import TrainedModel
    from bert.search import Ranking

__all__ = [
    "Server",
    "classify",
    "convert",
    "encode",
    "export",
    "fill_mask",
    "load_model",
    "predict",
    "pretrain",
    "report",
    "rerank",
    "search",
    "serve",
]
_READY = re.compile(r"(http://\S+) is ready: ")

# ---- a model in this process -----------------------------------------------------------------------------------------


def load_model(model: str | Path, task: str | None = None, **settings: Unpack[LoadSettings]) -> TrainedModel:
    """Load a model once for many calls. `predict`, `encode` and `fill_mask` take the result as their model.

    Args:
        model: the output folder of a training, a checkpoint, an export, or another library's model.
        task: what it is used for; None: what its head is for. "encoder" makes vectors with any model.
        settings: arguments of `bert.inference.heads.load_model`: device, max_seq_length, batch_size ...

    Raises:
        ValueError: names what was found and what is needed.
    """
    from bert.inference import heads

    return heads.load_model(model, task, **settings)


Texts = Sequence[str | Sequence[str] | Mapping[str, Any]]


@overload
def predict(model: str | Path | TrainedModel, texts: Texts) -> list[dict[str, Any]]: ...
@overload
def predict(model: str | Path | TrainedModel, texts: pd.DataFrame) -> pd.DataFrame: ...
def predict(model: str | Path | TrainedModel, texts: Any) -> Any:
    """Predict each text by the model's head: classes with probabilities, entities, answers, filled masks or a vector.

    Args:
        texts: texts; pairs of texts; for a model of questions, pairs of a question and a paragraph. A pandas table with
            the columns of the training.

    Returns:
        A dictionary of plain values for each text, in their order. A table with these values as further columns.

    Raises:
        ValueError: the model, or a text that its head cannot take.

    Warns:
        UserWarning: texts were longer than the model's sequences, and their ends were not read.
    """
    if not _is_table(texts):
        several = list_of_texts(texts)
        refuse_nothing(several)
        with _warned_of_cut_texts(_as_model(model)) as loaded:
            return loaded.predict(several)
    with _warned_of_cut_texts(_as_model(model)) as loaded:
        results = loaded.predict(texts.to_dict("records"))
    rows = [{**flat(result), **{k: v for k, v in result.items() if isinstance(v, list)}} for result in results]
    added = type(texts)(rows)
    return texts.assign(**{free_name(name, texts.columns): added[name].array for name in added.columns})


def encode(model: str | Path | TrainedModel, texts: Sequence[str]) -> np.ndarray:
    """Make vectors of texts, float32 [texts, hidden size]. An empty list gives [0, hidden size].

    A model that was trained for search makes the vectors that it was trained for. Any other model gives the mean of the
    last hidden states of a text's tokens.

    Raises:
        ValueError: the model, or something in the list that is no text.

    Warns:
        UserWarning: texts were longer than the model's sequences, and their ends were not read.
    """
    several = list_of_texts(texts)
    with _warned_of_cut_texts(_as_model(model, "encoder")) as loaded:
        return loaded.encode(several)


def fill_mask(model: str | Path | TrainedModel, text: str, top_k: int = 5) -> list[list[dict[str, Any]]]:
    """The likeliest tokens at each [MASK] of a text, best first: {"token": ..., "probability": ...}."""
    checked, number = one_text(text), whole_number("top_k", top_k)
    return _as_model(model, "masked-lm").fill_mask(checked, number)


def search(
    model: str | Path | TrainedModel,
    queries: str | Sequence[str],
    texts: Sequence[str],
    top_k: int = 5,
    ranking: Ranking | None = None,
) -> list[list[dict[str, Any]]]:
    """Find the texts that answer each query, best first: {"text": ..., "score": ..., "similarity": ...}.

    Args:
        queries: texts, or one text, which gives a list with one list.
        ranking: by words (BM25), by vectors, or by both; None: hybrid if the model was trained for search, otherwise
            vectors. `score` is there if words count, `similarity`, a cosine, if vectors count.
    Raises:
        ValueError: the model, the ranking, or something in the lists that is no text.
    Warns:
        UserWarning: texts were longer than the model's sequences, and their ends were not read.
    """
    from bert.inference import nearest

    asked = checked_texts([queries] if isinstance(queries, str) else list_of_texts(queries))
    several, number = checked_texts(list_of_texts(texts)), whole_number("top_k", top_k)
    if not several:
        raise ValueError("texts=[] has nothing to search among; give at least one text")
    with _warned_of_cut_texts(_as_model(model, "encoder")) as loaded:
        chosen = nearest.ranking_of(loaded, ranking)
        vectors = None if chosen == "words" else loaded.encode(several)
        found = nearest.NearestSentences(loaded, several, vectors, ranking=chosen)
        results = found.run([(query,) for query in asked], itself=True, top_k=number)
    return [result["nearest"] for result in results]


def rerank(model: str | Path | TrainedModel, query: str, passages: Sequence[str]) -> list[dict[str, Any]]:
    """Sort passages by how well they answer a query, best first: {"row": ..., "score": ..., "text": ...}.

    Args:
        model: a reranker, such as OUTPUT_DIR/reranker of `run_vectors.sh --reranker`.
        passages: texts; `row` is the place of a text in this list, counted from 0.
    Raises:
        ValueError: the model is no reranker, or something in the list is no text.
    Warns:
        UserWarning: texts were longer than the model's sequences, and their ends were not read.
    """
    texts = checked_texts(list_of_texts(passages))
    with _warned_of_cut_texts(_as_model(model)) as loaded:
        scores = loaded.rank_scores(one_text(query), texts)
    order = (-scores).argsort(kind="stable").tolist()
    return [{"row": row, "score": round(float(scores[row]), 6), "text": texts[row]} for row in order]


def _as_model(model: str | Path | TrainedModel, task: str | None = None) -> TrainedModel:
    if isinstance(model, (str, Path)):
        return load_model(model, task)
    if not hasattr(model, "opened"):
        raise ValueError(f"model={model!r} must be a folder, a published name, or what load_model gives; pass one")
    return model


@contextmanager
def _warned_of_cut_texts(model: TrainedModel) -> Iterator[TrainedModel]:
    """Context manager that warns the caller of a public function if a text read in the block is truncated."""
    read, truncated = model.num_read, model.num_truncated
    yield model
    if line := model.cut_texts(read, truncated):
        warnings.warn(line, stacklevel=4)  # at the caller, beyond contextlib and the function of this module


def _is_table(value: Any) -> bool:
    """Whether a value is a pandas table, found out without importing pandas."""
    return "pandas" in sys.modules and isinstance(value, sys.modules["pandas"].DataFrame)


def _as_file(value: Any, path: Path) -> Any:
    """Write a pandas table to a Parquet file, unless an equal call has written it; return any other value as it is."""
    if not _is_table(value):
        return value
    content = value.to_parquet(None, index=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != content:
        write_atomically(path, content)
    return path


# ---- commands in processes of their own ------------------------------------------------------------------------------


def pretrain(
    text: str | Path | Sequence[str | Path],
    *,
    output_dir: str | Path,
    quiet: bool = False,
    **settings: Unpack[PretrainSettings],
) -> dict[str, Any]:
    """Pre-train on files or folders of text, as `bert-on-paddle pretrain --text`; the same call resumes a stopped run.

    Args:
        output_dir: the folder of all results; it is what the other functions take as the model.
        quiet: print nothing; a failure has the errors.
        settings: the flags of the command, with underscores: `hours=4`, `max_steps=300`. True is a flag without a
            value, a list is a flag with several values, and None leaves the flag out.

    Returns:
        The content of summary.json, by phase.

    Raises:
        ValueError: wrong settings or data; the lines of the command's errors.
        bert.exit_codes.Failure: the training ended with another exit code, its `exit_code`.
        KeyboardInterrupt: stopped by Ctrl-C, after a checkpoint was saved.
    """
    paths = [text] if isinstance(text, (str, Path)) else text
    if not isinstance(paths, Sequence) or not paths or not all(isinstance(path, (str, Path)) for path in paths):
        raise ValueError(f"text={text!r} must be a file or folder, or a list of them; name what to train on")
    _run("pretrain", [], {"text": paths, "output_dir": output_dir, **settings}, quiet)
    return read_json(Path(output_dir).expanduser() / SUMMARY_FILE)


def classify(
    train_file: str | Path | pd.DataFrame,
    *,
    output_dir: str | Path,
    quiet: bool = False,
    **settings: Unpack[ClassifySettings],
) -> dict[str, Any]:
    """Fine-tune on a table of labelled texts, as `bert-on-paddle classify`. Other arguments and errors: see `pretrain`.

    Args:
        train_file: a file, or a pandas table, which becomes one in output_dir.
        settings: `from_pretrained_params` is the model to start from; without `eval_file` a part is held out.

    Returns:
        The content of summary.json, and `scores`: the scores of each class.
    """
    folder = Path(output_dir).expanduser()
    train_file = _as_file(train_file, folder / "tables/train_file.parquet")
    if not isinstance(train_file, (str, Path)):
        raise ValueError(f"train_file={train_file!r} must be a file or a pandas table; name the labelled texts")
    _run("classify", [], {"train_file": train_file, "output_dir": folder, **settings}, quiet)
    scores = read_json(folder / "glue-custom" / SCORES_FILE)
    return read_json(folder / "glue-custom" / SUMMARY_FILE) | ({"scores": scores} if scores else {})


def export(
    model: str | Path,
    *,
    output_dir: str | Path,
    output_format: str,
    quiet: bool = False,
    **settings: Unpack[ExportSettings],
) -> Path:
    """Export a model for serving, as `bert-on-paddle export`; returns the folder of the export.

    Args:
        output_format: paddle-inference, onnx, openvino, triton, hf or paddlenlp.
        settings: the other flags of the command, with underscores.
    """
    given = {"model": model, "output_dir": output_dir, "output_format": output_format}
    _run("export", [], {**given, **settings}, quiet)
    return Path(output_dir).expanduser()


def convert(
    model: str | Path,
    *,
    output_dir: str | Path,
    output_format: str,
    quiet: bool = False,
    **settings: Unpack[ConvertSettings],
) -> Path:
    """Write a model in another library's format, as `bert-on-paddle convert`; returns the folder.

    Args:
        output_format: native, hf, paddlenlp or another of the command's formats.
        settings: the other flags of the command, with underscores.
    """
    given = {"model": model, "output_dir": output_dir, "output_format": output_format}
    _run("convert", [], {**given, **settings}, quiet)
    return Path(output_dir).expanduser()


def report(
    run: str | Path | Sequence[str | Path],
    *,
    html: str | Path | None = None,
    markdown: str | Path | None = None,
    quiet: bool = False,
) -> Path:
    """Write the report of one training or of several, as `bert-on-paddle report`; returns its file.

    Args:
        run: the folder of a training, or several folders.
        html: the HTML file to write (default: report.html in the folder of the first run).
        markdown: the Markdown file to write in place of HTML.
        quiet: print nothing of the command's messages.
    """
    runs = [run] if isinstance(run, (str, Path)) else list(run)
    _run("report", [str(Path(each).expanduser()) for each in runs], {"html": html, "markdown": markdown}, quiet)
    return Path(html or markdown or Path(runs[0]) / "report.html").expanduser()


def serve(model: str | Path, *, port: int = 0, quiet: bool = False, **settings: Unpack[ServeSettings]) -> Server:
    """Serve a model, as `bert-on-paddle serve`. It ends with `stop`, a `with` block, or this process.

    Args:
        port: 0: any that is free.
        quiet: print nothing of the server's messages.
        settings: the flags of the command, with underscores.

    Raises:
        ValueError: the model or a setting; the lines of the command's errors.
    """
    return Server(_start_command("serve", [str(model)], {"port": port, **settings}), quiet)


class Server:
    """A server in a process of its own, whose page and API are at `url`."""

    def __init__(self, process: subprocess.Popen[str], quiet: bool = False) -> None:
        self._process, lines = process, list[str]()
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if ready := _READY.search(line):
                self.url = ready[1]
                threading.Thread(target=_echo_lines, args=(process, quiet), daemon=True).start()
                return
        raise _failure("the server", process.wait(), lines)

    def __repr__(self) -> str:
        return f"<Server: {self.url}>"

    def stop(self) -> None:
        """Answer the requests that have already arrived, then end the server."""
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _run(name: str, words: Sequence[str], settings: Mapping[str, Any], quiet: bool) -> None:
    """Run a command of `bert.interpreter.COMMANDS` to its end and print its output here, which a notebook shows."""
    process, lines = _start_command(name, words, settings), list[str]()
    try:
        while True:
            try:
                lines += _echo_lines(process, quiet)
                process.wait()
                break
            except KeyboardInterrupt:  # the command saves, then ends
                process.send_signal(signal.SIGINT)
    finally:
        process.terminate()
    if process.returncode == INTERRUPTED:
        raise KeyboardInterrupt("stopped; the same call continues from here")
    if process.returncode != OK:
        raise _failure(f"the {name} run", process.returncode, lines)


def _start_command(name: str, words: Sequence[str], settings: Mapping[str, Any]) -> subprocess.Popen[str]:
    start = next(command.words() for command in COMMANDS if command.name == name)
    return subprocess.Popen(
        [sys.executable, *start, *words, *flags_of(settings)],
        env={**isolated_environment(), CALLER_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # Ctrl-C reaches this process, whose it is
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",  # whatever the locale of this process
        errors="replace",
    )


def _echo_lines(process: subprocess.Popen[str], quiet: bool) -> list[str]:
    """Read the lines of a process, and print them unless `quiet`. Error lines are left to the exception."""
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if not quiet and not line.startswith("error: "):
            print(line, end="", flush=True)
    return lines


def _failure(what: str, code: int, lines: Sequence[str]) -> Exception:
    text = "".join(line.removeprefix("error: ") for line in lines if line.startswith("error: ")).rstrip()
    if code == BAD_INPUT:
        return ValueError(text or f"{what} was refused; the reason is above")
    failure = Failure(text or f"{what} ended with exit code {code}; the reason is above")
    failure.exit_code = code
    return failure
