"""Files of any size are predicted in parts: same bytes, each result once, in little memory."""

import os
import signal
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import run_glue
import run_ner
import run_squad
from bert.finetuning.ner import task as ner
from bert.finetuning.ner.conll import ConllFormat, read_tagged_text, tagged_windows
from bert.finetuning.squad import task as squad
from bert.glue.task_table import TASKS as TASKS_OF_GLUE
from bert.glue.task_table import Split
from bert.labels import task as glue
from bert.labels.examples import stream_examples
from bert.runtime.paddle_api import static
from data.text import contents, encodings, text_check
from data.text.compression import read_chunks
from tests.inference.models import model
from tests.support.squad_files import file_of, paragraph

SENTENCES = [" ".join(f"word{(7 * row + place) % 20}" for place in range(1 + row % 5)) for row in range(41)]
TABLE, TASK = Split((), ("sentence",)), TASKS_OF_GLUE["SST-2"]


def sentence_file(folder: Path, number: int = 41) -> Path:
    path = folder / "sentences.tsv"
    path.write_text("sentence\n" + "".join(f"{SENTENCES[row % 41]}\n" for row in range(number)))
    return path


def question_file(folder: Path, num_articles: int = 5) -> Path:
    """Write articles of three paragraphs each, the second without a question."""
    paragraphs = []
    for article in range(num_articles):
        for part in range(3):
            numbers = range(3 * (part != 1))
            questions = [{"id": f"{article}-{part}-{number}", "question": f"word{number} ?"} for number in numbers]
            paragraphs.append(paragraph(f"word{article % 20} word3 ünd word{part}. " * 3, *questions))
    return file_of(folder / "questions.json", *paragraphs, more=12)


def word_file(folder: Path, number: int = 41) -> Path:
    """Write sentences in documents of nine, some with two blank lines behind them."""
    lines = ["-DOCSTART-", ""]
    for row in range(number):
        lines += [*SENTENCES[row % 41].split(), *[""] * (1 + row % 2), *["-DOCSTART- -X-", ""] * (row % 9 == 8)]
    path = folder / "words.conll"
    path.write_text("\n".join(lines) + "\n")
    return path


TASKS = {
    "glue": (run_glue, glue, "sequence-classification", sentence_file, ["--task-name", "custom"]),
    "ner": (run_ner, ner, "token-classification", word_file, []),
    "squad": (run_squad, squad, "question-answering", question_file, ["--max-query-length", "4", "--doc-stride", "3"]),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {head: model(folder / head, head) for _, _, head, *_ in TASKS.values()}


def predict(name: str, models: dict[str, Path], source: Path, output: Path, *flags: str) -> int:
    command, _, head, _, more = TASKS[name]
    words = ["--do-predict", "--predict-file", source, "--from-pretrained-params", models[head], "--output-dir", output]
    words += ["--device", "cpu", "--report-file", output / "report.json", "--max-seq-length", "12", "--no-visualdl"]
    with static.scope_guard(static.Scope()):
        return command.main([*map(str, words), *more, *flags])


def results(output: Path) -> dict[str, bytes]:
    """Return the files of results, finished or not."""
    return {path.name: path.read_bytes() for path in output.rglob("*") if "predictions" in path.name}


def stopping(window: int, render):
    """Stands in for a task's rendering: SIGTERM arrives when the results of the given window are rendered.

    Row 33 of the fault matrix kills the same commands.
    """
    seen = 0

    def stop(*arguments):
        nonlocal seen
        seen += 1
        if seen == window:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("it went on")
        return render(*arguments)

    return stop


@pytest.mark.long
def test_partial_results_of_other_weights_are_kept_and_refused(models, tmp_path, monkeypatch, capsys):
    source = sentence_file(tmp_path)
    monkeypatch.setattr(glue, "WINDOW_EXAMPLES", 9)
    with monkeypatch.context() as broken, pytest.raises(SystemExit):
        broken.setattr(glue.LabelTask, "render", stopping(2, glue.LabelTask.render))
        predict("glue", models, source, tmp_path / "out")
    kept = results(tmp_path / "out")
    changed = {"classifier.bias": np.ones(3, "float32")}
    others = {"sequence-classification": model(tmp_path / "other", "sequence-classification", **changed)}
    with pytest.raises(SystemExit):
        predict("glue", others, source, tmp_path / "out")
    assert "results of another command" in capsys.readouterr().err and results(tmp_path / "out") == kept
    with pytest.raises(SystemExit):
        predict("glue", models, source, tmp_path / "out", "--max-seq-length", "10")
    with pytest.raises(SystemExit):  # the weights are the same
        predict("glue", models, source, tmp_path / "out", "--layer-norm-eps", "0.001")
    assert capsys.readouterr().err.count("results of another command") == 2
    assert predict("glue", models, source, tmp_path / "out", "--predict-batch-size", "3") == 0  # the same results


@pytest.mark.parametrize("name", TASKS)
def test_a_file_that_is_damaged_at_its_end_is_refused_before_anything_is_predicted(name, models, tmp_path, capsys):
    path = TASKS[name][3](tmp_path)
    damage = {"glue": "one\ttwo\n", "ner": "\nword one two\n", "squad": "]"}[name]
    with open(path, "a") as file:
        file.write(damage)
    with pytest.raises(SystemExit):
        predict(name, models, path, tmp_path / "out")
    assert str(path) in capsys.readouterr().err and not results(tmp_path / "out")


def test_windows_can_have_whole_documents(tmp_path):
    path, layout = word_file(tmp_path), ConllFormat(tagged=False)
    whole = read_tagged_text(path, layout)
    for whole_documents, sizes in ((True, [9, 9, 9, 9, 5]), (False, [4] * 10 + [1])):
        windows = list(tagged_windows(path, layout, 4, 1 << 20, whole_documents))
        assert [line for text in windows for line in text.lines] == whole.lines
        assert [len(text) for text in windows] == sizes


def peak_of(windows: Iterator) -> int:
    """Return the most bytes that are allocated while the windows are read, one after the other."""
    tracemalloc.start()
    try:
        for _ in windows:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


READERS = {
    "sentences": (sentence_file, lambda path: stream_examples(path, TABLE, TASK, 50, 1 << 20)),
    "words": (word_file, lambda path: tagged_windows(path, ConllFormat(tagged=False), 50, 1 << 20, False)),
}


@pytest.mark.parametrize("name", READERS)
def test_memory_does_not_grow_with_the_file(name, tmp_path, monkeypatch):
    # In place of a megabyte, and of 64 kB by which what is not text is recognised.
    monkeypatch.setattr(contents, "read_chunks", partial(read_chunks, chunk_bytes=1 << 12))
    monkeypatch.setattr(encodings, "_SAMPLE_BYTES", 1 << 12)
    monkeypatch.setattr(text_check, "_SAMPLE_CHARACTERS", 1 << 12)
    make, read = READERS[name]
    peaks = []
    for number in (300, 3000):
        path = make(tmp_path, number)
        peaks.append(peak_of(read(path)))
    assert peaks[1] < 1.5 * peaks[0], peaks  # ten times the lines
