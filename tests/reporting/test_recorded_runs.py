"""Recorded metrics of real runs: today's code reads them and makes the report that is stored with them."""

import json
import re

import pytest

from bert import REPOSITORY
from bert.reporting.__main__ import main
from tests.golden.runs import record

RUNS = REPOSITORY / "tests/golden/runs"
FILES = sorted(path for path in RUNS.rglob("*") if path.is_file() and path.suffix not in (".png", ".py", ".pyc"))
RECORDED = sorted(path.parent for path in RUNS.glob("*/run.json"))


def test_todays_report_shows_the_last_figures_of_each_phase(tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    main(["tests/golden/runs/quickstart", "--markdown", str(tmp_path / "report.md")])
    text = (tmp_path / "report.md").read_text()
    summaries = [json.loads((RUNS / f"quickstart/phase{phase}/summary.json").read_text()) for phase in (1, 2)]
    (row,) = re.findall(r"^\| masked-LM loss, held out \(nats\) \|.*", text, re.M)
    assert row.split(" | ")[-2:] == [
        f"{s['eval_masked_lm_loss']:.4g}{end}" for s, end in zip(summaries, ("", " |"), strict=True)
    ]


def test_the_model_of_the_quickstart_learned_more_than_frequencies():
    for phase in (1, 2):
        summary = json.loads((RUNS / f"quickstart/phase{phase}/summary.json").read_text())
        rows = (RUNS / f"quickstart/phase{phase}/metrics.jsonl").read_text().splitlines()
        held_out = [row["eval_masked_lm_loss"] for row in map(json.loads, rows) if "eval_masked_lm_loss" in row]
        assert summary["finished"] and summary["eval_masked_lm_loss"] == held_out[-1]
        assert summary["eval_masked_lm_loss"] < 0.7 * summary["unigram_entropy"]


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_a_recorded_run_says_how_it_was_made(folder):
    facts = json.loads((folder / "run.json").read_text())
    assert facts["command"].startswith(record.COMMANDS[folder.name]) and re.fullmatch(r"[0-9a-f]{7,}", facts["commit"])
    assert facts["versions"].keys() >= {"python", "paddlepaddle"} and (folder / "loss.png").stat().st_size > 1000
    assert any(json.loads(path.read_text()) for path in folder.rglob("summary.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RUNS)))
def test_nothing_of_the_machine_is_in_them(path):
    text = path.read_text(encoding="utf-8")
    assert (
        not re.search(r"(?<![\w.])/(tmp|root|home|opt|work|var)/|\b\d+\.\d+\.\d+\.\d+\b", text) or path.suffix == ".md"
    )
