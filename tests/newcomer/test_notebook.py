"""data/examples/notes_to_server.ipynb: a folder of text becomes a classifier behind a server, cell by cell."""

import ast
import json
import os
import re

import pytest

from bert import REPOSITORY

NOTEBOOK = REPOSITORY / "data/examples/notes_to_server.ipynb"


def cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(notebook):
    return [output for cell in cells(notebook) for output in cell["outputs"]]


def texts(notebook):
    return "".join(
        "".join(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in outputs(notebook)
    )


def check_what_it_shows(notebook):
    assert not [output for output in outputs(notebook) if output["output_type"] == "error"]
    pictures = [output for output in outputs(notebook) if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    shown = texts(notebook)
    assert "precision" in shown and shown.rstrip().endswith("True")
    (right,) = re.findall(r"(\d+)% of 200 unseen notes are right", shown)
    assert int(right) >= 40  # a guess is right in 25


def test_the_notebook_is_whole_and_has_its_outputs():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for cell in cells(notebook):
        ast.parse("".join(cell["source"]))
    check_what_it_shows(notebook)
    assert NOTEBOOK.stat().st_size < 200_000 and "/tmp/" not in NOTEBOOK.read_text(encoding="utf-8")


@pytest.mark.long
def test_the_notebook_runs(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="bash scripts/setup.sh notebook")
    from nbclient import NotebookClient

    (tmp_path / "path").mkdir()
    (tmp_path / "path/bert_on_paddle").symlink_to(REPOSITORY / "bert/package")  # as in an editable install
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"), prepend=os.pathsep)
    notebook = nbformat.read(NOTEBOOK, 4)
    for cell in cells(notebook):
        cell["outputs"] = []
    NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    check_what_it_shows(notebook)
