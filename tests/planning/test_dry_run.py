"""What --dry-run and --plan print of every recipe fits a terminal of 100 columns."""

import pytest

from bert.commands import glue, ner, pretrain, squad
from bert.planning.dry_run import report_text

# Those that differ in rows: ranks, precision, growing batches, missing data; quickstarts also say what they lack.
RECIPES = {
    pretrain: ("quickstart", "base", "large_pytorch", "modernbert_base", "dgxa100-80g_32x8gpu_tf32"),
    squad: ("squad_large", "squad_quickstart"),
    glue: ("mnli_large", "quickstart_pairs"),
    ner: ("conll2003", "quickstart_entities"),
}


@pytest.mark.parametrize("question", ["--dry-run", "--plan --hardware 1xH100-80GB --price-per-hour 3"])
@pytest.mark.parametrize("command", RECIPES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_plans_fit_100_columns(command, question, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for recipe in RECIPES[command]:
        assert command.main(["--config", recipe, *question.split()]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert len(shown) > 8 and not [line for line in shown if len(line) > 100]


def test_rows_are_continued_below_their_text():
    lines = report_text({"data": f"{'word ' * 30}\n           a note", "none": ""}).splitlines()
    assert [line[:14] for line in lines] == ["data       wor", "           wor", "           a n"]
