"""The table, the summary and the next commands at the end of a pre-training."""

import json
from pathlib import Path

from bert.reporting.results import draw, next_commands, print_table, show_figures
from bert.reporting.run_record import RunRecord

SUMMARIES = {
    "phase1": {"steps": 1234, "final_loss": 3.25, "eval_masked_lm_loss": 2.5, "mfu": 0.125, "unigram_entropy": 6.25},
    "phase2": {"steps": 20, "eval_masked_lm_accuracy": 0.5, "skipped_steps": 3.0},
}


def test_the_table_of_the_phases_has_a_row_for_each_figure_that_one_of_them_has(capsys):
    print_table(SUMMARIES)
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in shown.splitlines() if "│" in line]
    assert rows == [
        ["updates", "1,234", "20"],
        ["training loss (masked LM)", "3.250", "-"],
        ["masked-LM loss, held out (nats)", "2.500", "-"],
        ["unigram entropy, to be below (nats)", "6.250", "-"],
        ["masked-LM accuracy, held out", "-", "50.0%"],
        ["model FLOPs utilisation", "12.5%", "-"],
        ["updates skipped for overflow", "-", "3"],
    ]
    assert "phase 1" in shown and "phase 2" in shown and "An update changes the weights once" in shown
    with_pairs = {"phase1": {**SUMMARIES["phase1"], "eval_next_sentence_accuracy": 0.75}}
    with_pairs["phase1"].pop("unigram_entropy")
    print_table(with_pairs)
    shown = capsys.readouterr().out
    assert "training loss (masked LM + next sentence)" in shown and "75.0%" in shown and "An update" not in shown


def test_a_long_command_goes_below_its_purpose():
    short, long = ("why", "python x.py"), ("a reason", "python x.py " + " ".join(f"--flag-{n} value" for n in range(9)))
    lines = next_commands([short, long]).splitlines()
    assert lines[:3] == ["Next, try:", "  python x.py   # why", "  # a reason"]
    assert max(map(len, lines)) <= 100 and all(line.endswith("\\") for line in lines[3:-1])
    joined = " ".join(line.strip(" \\") for line in lines[3:])
    assert joined == long[1]


class Phase:
    """Has the attributes that `show_figures` reads from a phase's settings."""

    def __init__(self, folder: Path, name: str):
        self.run, self._name = type("Run", (), {"output_dir": folder}), name

    def stage(self):
        return self._name

    def stage_dir(self):
        return self.run.output_dir / self._name


def test_figures_of_both_phases_stay_in_the_summary(tmp_path, capsys):
    for name, seconds in (("phase1", 3600.0), ("phase2", None)):
        (tmp_path / name).mkdir()
        summary = {"steps": 4, "e2e_train_time": seconds, "unigram_entropy": 6.0}
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
        row = {"step": 4, "masked_lm_loss": 3.0}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    show_figures("quickstart", [Phase(tmp_path, "phase1"), Phase(tmp_path, "phase2")], None)
    assert "Trained before. Summary: " in " ".join(capsys.readouterr().out.split())
    (tmp_path / "phase2/summary.json").write_text(json.dumps({"steps": 9, "e2e_train_time": 1800.0}))
    show_figures("quickstart", [Phase(tmp_path, "phase1"), Phase(tmp_path, "phase2")], None)
    assert "Trained before, in 1.5 hours. Summary: " in " ".join(capsys.readouterr().out.split())
    show_figures("own", [Phase(tmp_path, "phase2")], 120.0)
    assert "2.0 minutes. Summary: " in " ".join(capsys.readouterr().out.split())
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["preset"], summary["phase1"]["steps"], summary["phase2"]["steps"]) == ("own", 4, 9)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_has_the_phases_behind_each_other_and_what_guessing_costs(monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, dpi: drawn.append((figure.axes[0], path)))

    def phase(name, steps, entropy):
        training = [{"step": step, "masked_lm_loss": 9.0 - step} for step in (2, 4)]
        held_out = [{"step": 4, "eval_masked_lm_loss": 4.5}] if entropy else []
        summary = {"steps": steps} | ({"unigram_entropy": entropy} if entropy else {})
        return RunRecord(name, Path(name), training, held_out, {}, summary, [], [], 0, [])

    draw(Path("loss.png"), [phase("phase1", 5, 6.0), phase("phase2", 4, 6.5), phase("phase3", 1, None)])
    ((axes, path),) = drawn
    curves = [
        (line.get_label(), list(line.get_xdata()), list(line.get_ydata()), line.get_color()) for line in axes.lines
    ]
    lines = {label: rest for label, *rest in curves}
    assert path == Path("loss.png") and lines == {
        "phase 1, training": [[2, 4], [7.0, 5.0], "C0"],
        "phase 1, held out": [[4], [4.5], "C0"],
        "phase 2, training": [[7, 9], [7.0, 5.0], "C1"],
        "phase 2, held out": [[9], [4.5], "C1"],
        "phase 3, training": [[11, 13], [7.0, 5.0], "C2"],
    }
    levels = [(level.get_label(), level.get_segments()[0].tolist()) for level in axes.collections]
    assert levels == [("unigram entropy", [[0, 6.0], [5, 6.0]]), ("_", [[5, 6.5], [9, 6.5]])]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("update", "masked-LM loss (nats)")
