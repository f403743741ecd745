"""Rows, curves and tables of the report from records written by hand."""

from pathlib import Path

import pytest

from bert.reporting import report
from bert.reporting.report import blocks_of, classification, draw, results, table, table_of_runs, updates_before
from bert.reporting.run_record import Leg, RunRecord

LEGS = [Leg(0.0, 60.0, 1, 6), Leg(100.0, 160.0, 5, 8)]


def record(name="a", training=(), held_out=(), summary=None, settings=None, **values) -> RunRecord:
    folder = values.pop("directory", Path("out") / name)
    values = {"legs": [], "checkpoints": [], "checkpoint_bytes": 0, "complaints": [], **values}
    return RunRecord(name, folder, list(training), list(held_out), settings or {}, summary or {}, **values)


def rows(**metrics) -> list[dict]:
    """Return a row for each value, of steps 10, 20 ..."""
    (name, series), *others = metrics.items()
    return [
        {"step": 10 * (number + 1), name: value, **{other: more[number] for other, more in others}}
        for number, value in enumerate(series)
    ]


def found(*runs) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in results(runs)}


@pytest.mark.parametrize(
    ("settings", "summary", "shown"),
    [
        ({"max_steps": 1234}, {"steps": 1234, "finished": True}, "1,234 of 1,234"),
        ({"max_steps": 1234}, {"steps": 1234}, "1,234 of 1,234"),
        ({"max_steps": -1}, {"steps": 7, "finished": False}, "7, not finished"),
        ({"max_steps": 9}, {"steps": 7, "interrupted_by": "SIGTERM", "finished": False}, "7 of 9, stopped by SIGTERM"),
        ({"max_steps": 89061, "finish_in": 60.0}, {}, "30, not finished"),  # the time decides the total
        (
            {"max_steps": 89061, "finish_in": 60.0},
            {"steps": 4010, "decay_from": 3400, "last_step": 4010, "finished": True},
            "4,010, all that its time allowed",
        ),
        (
            {"max_steps": 89061},
            {"steps": 4010, "decay_from": 3400, "last_step": 4010, "finished": True},
            "4,010, ended by a file FINISH",
        ),
        ({"max_steps": 89061}, {"steps": 4010, "finished": True}, "4,010, stopped early"),
        ({}, {}, "30, not finished"),
        ({"max_steps": 0}, {}, "30, not finished"),
    ],
)
def test_updates_are_of_the_summary_or_of_the_rows(settings, summary, shown):
    run = record(training=rows(loss=[3.0, 2.0, 1.0]), settings=settings, summary=summary)
    assert found(run)["updates"] == [shown]


def test_figures_of_the_summary_come_before_those_of_the_curves():
    speeds = rows(
        seqs_per_sec=[5.0, 900.0, 3.0, 4.0], loss=[4.0, 3.0, 2.0, 1.5], loss_scale=[1.0, 2.0, 4.0, 8.0], mfu=[0.5] * 4
    )
    unfinished = record("a", speeds, legs=LEGS, checkpoints=[10, 20], checkpoint_bytes=2_600_000)
    summary = {
        "training_sequences_per_second": 12_345.6,
        "final_loss": 0.123456,
        "mfu": 0.125,
        "world_size": 8,
        "skipped_steps": 0,
        "steps": 40,
        "verdict": "better",
    }
    shown = found(unfinished, record("b", speeds, summary=summary))
    assert shown == {
        "updates": ["40, not finished", "40"],
        "training loss": ["1.5", "0.1235"],
        "sequences a second": ["5", "12,346"],  # of four the upper median
        "verdict": ["-", "better"],
        "model FLOPs utilisation": ["50.0%", "12.5%"],
        "updates skipped for overflow": ["-", "0"],
        "loss scale": ["8", "8"],
        "ranks": ["-", "8"],
        "starts": ["2", "-"],
        "time, all starts": ["2.0 minutes", "-"],
        "checkpoints": ["10, 20 (3 MB)", "-"],
        "folder": ["out/a", "out/b"],
    }


def test_held_out_metrics_have_their_own_forms_and_last_values():
    held_out = rows(eval_accuracy=[0.25, 0.5], eval_masked_lm_loss=[3.0, 2.5])
    summary = {"eval_accuracy": 0.75, "last_eval_accuracy": 0.625, "unigram_entropy": 6.0}
    shown = found(record(held_out=held_out, summary=summary))
    assert shown["accuracy, held out"] == ["75.0%"] and shown["accuracy, held out, last update"] == ["62.5%"]
    assert shown["masked-LM loss, held out (nats)"] == ["2.5"] and shown["unigram entropy, to be below (nats)"] == ["6"]
    assert "masked-LM loss, held out (nats), last update" not in shown
    squad = found(record(held_out=rows(eval_exact=[50.0], eval_f1=[61.125], eval_loss=[0.5])))
    assert (squad["exact match, held out"], squad["F1, held out"], squad["loss, held out"]) == (
        ["50.00"],
        ["61.12"],
        ["0.5"],
    )


def test_a_state_that_never_changes_and_a_count_have_no_chart(figures):
    constant = rows(loss=[2.0, 1.0], skipped_steps=[0.0, 0.0], loss_scale=[1.0, 1.0])
    counts = rows(eval_total=[9, 9], eval_sequences=[9, 9])
    blocks_of([record(training=constant, held_out=counts)])
    assert [title for _, title in figures] == ["training loss"]
    figures.clear()
    blocks_of([record(training=rows(skipped_steps=[0.0, 1.0], loss_scale=[2.0, 1.0]))])
    assert [title for _, title in figures] == ["loss scale", "updates skipped for overflow"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (True, "True"), (1234, "1,234"), (9999.6, "1e+04"), (10_000.4, "10,000"), (0.000123456, "0.0001235")],
)
def test_values_in_cells(value, shown):
    assert report._cell_text(value) == shown


def test_many_runs_are_rows_and_few_are_columns():
    few, many = ([record(f"r{number}") for number in range(count)] for count in (6, 7))
    cells = [["loss", *"123456"], ["updates", *"abcdef"]]
    assert table_of_runs("", few, cells) == table(["", *(run.name for run in few)], cells)
    wide = [["loss", *"1234567"], ["updates", *"abcdefg"]]
    turned = [[f"r{number}", "1234567"[number], "abcdefg"[number]] for number in range(7)]
    assert table_of_runs("x", many, wide) == table(["run", "loss", "updates"], turned)


@pytest.fixture
def figures(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        report, "_png", lambda figure, title: drawn.append((figure.axes[0], title)) or report.text(title)
    )
    return drawn


def test_phase_2_is_drawn_behind_phase_1_and_levels_to_the_end(figures):
    first = record("p1", rows(loss=[3.0, 2.0]), directory=Path("out/phase1"), summary={"unigram_entropy": 6.0})
    second = record("p2", rows(loss=[1.0]), rows(eval_masked_lm_loss=[2.0]), directory=Path("out/phase2"))
    other = record("p3", rows(loss=[1.0]), directory=Path("elsewhere/phase2"))
    runs = [first, second, other]
    assert [updates_before(run, runs) for run in runs] == [0, 20, 0] and updates_before(second, [second]) == 0
    draw("loss", runs)
    axes, title = figures.pop()
    assert title == "training loss" and axes.get_yscale() == "linear"
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert lines == {"p1": ([10, 20], [3.0, 2.0]), "p2": ([30], [1.0]), "p3": ([10], [1.0])}
    draw("eval_masked_lm_loss", [first, second])
    axes, title = figures.pop()
    assert title == "masked-LM loss, held out (nats)" and axes.get_legend() is not None
    assert [list(line.get_xdata()) for line in axes.lines] == [[30]]  # only a run with the curve has its level
    entropy = record("p", [], rows(eval_masked_lm_loss=[4.0, 3.0]), {"unigram_entropy": 6.0})
    draw("eval_masked_lm_loss", [entropy])
    axes, _ = figures.pop()
    level = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}[
        "p: unigram entropy"
    ]
    assert level == ((0, 20), (6.0, 6.0)) or level == ([0, 20], [6.0, 6.0])
    assert draw("none", runs) is None


def test_a_long_curve_is_thinned_and_scales_fit(figures):
    for count, points in ((2_000, 2_000), (2_001, 1_001), (4_001, 1_334)):
        draw("loss", [record(training=rows(loss=[1.0] * count))])
        (line,) = figures.pop()[0].lines
        assert len(line.get_xdata()) == points
    for name, values, scale in (
        ("gradient_norm", [1.0, 2.0], "log"),
        ("gradient_norm", [1.0, 0.0], "linear"),
        ("loss_scale", [1.0, 2.0], "log"),
        ("learning_rate", [1.0, 2.0], "linear"),
    ):
        draw(name, [record(training=rows(**{name: values}))])
        axes = figures.pop()[0]
        assert axes.get_yscale() == scale
        assert scale == "linear" or axes.yaxis.get_transform().base == (2 if name == "loss_scale" else 10)


def test_one_run_has_the_minutes_above_and_many_have_a_cut_legend(figures):
    draw("loss", [record(training=rows(loss=[2.0, 1.0]), legs=LEGS)])  # 120 s of 20 updates
    axes = figures.pop()[0]
    (above,) = axes.child_axes
    assert above.get_xlabel() == "minutes" and above._functions[0](20) == pytest.approx(2.0)
    assert above._functions[1](1.0) == pytest.approx(10) and axes.get_legend() is None
    for number, title in ((12, ""), (13, "the first of 13")):
        draw("loss", [record(f"r{n}", rows(loss=[1.0])) for n in range(number)])
        legend = figures.pop()[0].get_legend()
        assert len(legend.get_texts()) == 12 and legend.get_title().get_text().replace("None", "") == title


def test_a_plain_methods_figures_are_levels_of_the_metric_that_they_have(figures):
    held_out = rows(eval_f1=[0.5, 0.75], eval_macro_f1=[0.25, 0.5])
    summary = {
        "eval_words_alone_f1": 0.5,
        "eval_words_alone_macro_f1": 0.375,
        "eval_f1": 0.75,
        "eval_largest_class_f1": 1,
    }
    run = record(held_out=held_out, summary=summary)
    for name, level in (("eval_f1", 0.5), ("eval_macro_f1", 0.375)):
        draw(name, [run])
        lines = {line.get_label(): list(line.get_ydata()) for line in figures.pop()[0].lines}
        assert lines == {"a": [row[name] for row in held_out], "a: bag-of-words baseline": [level, level]}


SCORES = {
    "classes": {"a": {"precision": 0.5, "recall": 1.0, "f1-score": 0.25, "support": 1234}, "b": {"support": 2}},
    "verdict": "It is better.",
    "temperature": 1.5,
    "threshold": {"a": 0.25},
    "calibration_error": 0.0,
    "confusion": [[3, 1], [0, 2]],
    "worst": [{"row": 7, "text": "x", "label": "a", "prediction": "b", "probability_of_label": 0.001}],
}


def test_a_classifier_is_cell_text_with_its_classes_its_decision_and_its_errors(figures):
    shown = [block.markdown for block in classification("run", SCORES)]
    assert shown == [
        "## Classes of run",
        table(
            ["class", "precision", "recall", "f1-score", "auc", "support"],
            [["a", "0.5", "1", "0.25", "-", "1,234"], ["b", "-", "-", "-", "-", "2"]],
        ).markdown,
        "It is better.",
        table(["decision", "value"], [["temperature", "1.5"], ["threshold", "a 0.25"]]).markdown,
        table(["true \\ predicted", "a", "b"], [["a", "3", "1"], ["b", "0", "2"]]).markdown,
        "confusion matrix",
        "### The 1 worst errors of run",
        table(["row", "text", "label", "prediction", "probability of label"], [["7", "x", "a", "b", "0.001"]]).markdown,
    ]
    axes, _ = figures.pop()
    (image,) = axes.images
    assert image.get_array().tolist() == [[0.75, 0.25], [0.0, 1.0]]
    numbers = {(int(x.get_position()[0]), int(x.get_position()[1])): (x.get_text(), x.get_color()) for x in axes.texts}
    assert numbers == {(0, 0): ("3", "white"), (1, 0): ("1", "black"), (0, 1): ("0", "black"), (1, 1): ("2", "white")}
    few = [block.markdown for block in classification("run", {"classes": {"a": {}}})]
    assert len(few) == 3  # heading, classes, decision


def test_the_report_has_starts_and_the_settings_that_differ(figures):
    first = record("a", rows(loss=[2.0]), settings={"seed": 1, "x": 3}, legs=LEGS, complaints=["lost"])
    second = record("b", rows(loss=[1.0]), settings={"seed": 2, "x": 3, "y": 4})
    shown = [block.markdown for block in blocks_of([first, second])]
    assert any(block.endswith("a until update 10, b until update 10.") for block in shown)
    assert "a: lost" in shown
    differing = shown[shown.index("## Settings that differ") + 1]
    assert differing == table(["setting", "a", "b"], [["seed", "1", "2"], ["y", "-", "4"]]).markdown
    starts = shown[shown.index("## Starts") + 2].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in starts]
    assert [[row[0], *row[2:]] for row in cells] == [["a", "1", "6", "1.0 minutes"], ["a", "5", "8", "1.0 minutes"]]
    alone = [block.markdown for block in blocks_of([record("c")])]
    assert "There is nothing to draw yet." in alone and "No run has a readable config.yaml." == alone[-1]
    assert "## Settings that differ" not in alone
    same = [block.markdown for block in blocks_of([first, record("d", settings={"seed": 1, "x": 3})])]
    assert same[same.index("## Settings that differ") + 1] == "None."
