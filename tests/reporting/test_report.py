"""The report reads finished, resumed and damaged runs."""

import base64
import io
import json
import re
from pathlib import Path

import pytest

from bert.reporting import report
from bert.reporting.logs import Log, append
from bert.reporting.report import blocks_of, draw, main, to_html, to_markdown, updates_before
from bert.reporting.run_record import find_runs, read_log, read_run, read_runs

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def without_pictures(monkeypatch):
    """Draw no pictures: each takes a second."""
    monkeypatch.setattr(report, "_png", lambda figure, title: report.picture(title, b""))


def make_run(directory: Path, *, legs=((1, 6), (5, 8)), seed=42, rate=1e-3, finished=True) -> Path:
    """Write a run of 8 updates, killed after step 6 and continued from step 4; it is evaluated every 4."""
    for number, (first, last) in enumerate(legs):
        log = Log(directory, None, total_steps=8, stream=io.StringIO())
        log.parameters({"run": {"seed": seed}})
        for step in range(first, last + 1):
            rates = {"learning_rate": rate, "gradient_norm": 2.0 + step, "seqs_per_sec": 100.0}
            counts = {"loss_scale": 1024.0, "skipped_steps": 1.0}
            log.train(step, 0, {"loss": 9.0 - step / 10 + number, **rates, **counts}, 1.0)
            if step % 4 == 0:
                log.evaluation(step, 0, {"eval_masked_lm_loss": 6.0 - step / 10})
    if finished:
        figures = {"steps": 8, "finished": True, "final_loss": 9.2, "skipped_steps": 1.0, "world_size": 2}
        losses = {"eval_masked_lm_loss": 5.2, "unigram_entropy": 5.9}
        log.summary({**figures, **losses, "training_sequences_per_second": 123.4})
    log.close()
    config = f"# run\nseed: {seed}\nlearning_rate: {rate}\nmax_steps: 8\nbert_model: bert-test\n"
    (directory / "config.yaml").write_text(config)
    for step in (4, 8):
        checkpoint = directory.parent / "bert-test" / directory.name / str(step)
        checkpoint.mkdir(parents=True)
        (checkpoint / "manifest.json").write_text("x" * 1000)
    return directory


def run_of(directory: Path, name: str = "a", **options):
    return read_run(make_run(directory, **options), name)


def results(*runs) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in report.results(runs)}


def test_what_a_continued_run_did_again_replaces_what_was_lost(tmp_path):
    run = run_of(tmp_path / "phase1")
    assert [step for step, _ in run.curve("loss")] == list(range(1, 9))
    assert dict(run.curve("loss"))[4] == pytest.approx(8.6) and dict(run.curve("loss"))[5] == pytest.approx(9.5)
    assert [step for step, _ in run.curve("eval_masked_lm_loss")] == [4, 8]
    assert [(leg.first_step, leg.last_step) for leg in run.legs] == [(1, 6), (5, 8)]
    assert run.checkpoints == [4, 8] and run.checkpoint_bytes == 2000 and not run.complaints


def test_an_unfinished_run_is_reported_from_its_rows(tmp_path):
    shown = results(run_of(tmp_path / "phase1", finished=False))
    assert shown["updates"] == ["8 of 8, not finished"] and shown["sequences a second"] == ["100"]
    assert shown["training loss"] == ["9.2"]  # the last one logged


def test_a_live_run_that_was_continued_is_not_reported_by_its_old_summary(tmp_path, without_pictures):
    directory = make_run(tmp_path / "phase1")
    append(directory / "metrics.jsonl", json.dumps({"step": 9, "epoch": 0, "loss": 7.75}) + "\n")
    append(directory / "metrics.jsonl", json.dumps({"step": 9, "epoch": 0, "eval_masked_lm_loss": 4.5}) + "\n")
    parameters = {"type": "LOG", "timestamp": "1", "step": "PARAMETER", "data": {"unigram_entropy": 5.875}}
    append(directory / "log.jsonl", f"DLLL {json.dumps(parameters)}\n")
    run = read_run(directory, "a")
    shown = results(run)
    assert shown["updates"] == ["9 of 8, not finished"] and shown["training loss"] == ["7.75"]
    assert shown["masked-LM loss, held out (nats)"] == ["4.5"] and shown["unigram entropy, to be below (nats)"] == [
        "5.875"
    ]
    assert "summary.json is of update 8, and the run went on to 9" in run.complaints[0]
    assert "a until update 9." in blocks_of([run])[1].html


def test_phase_2_follows_phase_1(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    drawn, plot = {}, Axes.plot

    def noting(axes, x, y, **options):
        drawn[options["label"]] = (min(x), max(x))
        return plot(axes, x, y, **options)

    runs = [run_of(tmp_path / name, name) for name in ("phase1", "phase2")]
    monkeypatch.setattr(Axes, "plot", noting)
    draw("eval_masked_lm_loss", runs)
    assert drawn == {
        "phase1": (4, 8),
        "phase1: unigram entropy": (0, 8),
        "phase2": (12, 16),
        "phase2: unigram entropy": (8, 16),
    }
    assert updates_before(runs[1], runs[1:]) == 0  # alone it begins at 0


def test_what_words_alone_reach_is_a_level_beside_the_curve(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    run, drawn = run_of(tmp_path / "run"), {}
    run.held_out[:] = [{"step": 4, "eval_f1": 0.6, "eval_macro_f1": 0.5}]
    run.summary.update(eval_f1=0.6, eval_macro_f1=0.5, eval_words_alone_f1=0.7, eval_words_alone_macro_f1=0.55)
    plot = Axes.plot

    def noting(axes, x, y, **options):
        drawn[options["label"]] = max(y)
        return plot(axes, x, y, **options)

    monkeypatch.setattr(Axes, "plot", noting)
    draw("eval_f1", [run])
    assert drawn == {"a": 0.6, "a: bag-of-words baseline": 0.7}


def test_runs_are_found_at_any_depth_and_listed(tmp_path, capsys, without_pictures):
    for name in ("a/phase1", "a/phase2", "b/deeper/squad"):
        make_run(tmp_path / name)
    (tmp_path / "a/phase1/benchmark").mkdir()
    (tmp_path / "a/phase1/benchmark/config.yaml").write_text("seed: 1\n")
    main([str(tmp_path), "--list"])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{tmp_path / name}   8 of 8" for name in ("a/phase1", "a/phase2", "b/deeper/squad")]
    main([str(tmp_path)])
    assert capsys.readouterr().out == f"wrote {tmp_path / 'report.html'}, of 3 runs (--list names them)\n"


def test_every_curve_is_drawn_once_for_all_runs(tmp_path):
    runs = [run_of(tmp_path / name / "phase1", name) for name in ("a", "b")]
    images = re.findall(r'<img alt="([^"]+)" src="data:image/png;base64,([^"]+)">', to_html("x", blocks_of(runs)))
    titles = ("training loss", "masked-LM loss, held out (nats)", "learning rate", "gradient norm")
    assert [title for title, _ in images] == [*titles, "sequences a second"]  # loss scale and skipped updates are flat
    assert all(base64.b64decode(image).startswith(PNG) and len(image) > 5000 for _, image in images)
    assert draw("nothing", runs) is None


def test_html_and_markdown_are_one_file_that_shows_everything(tmp_path, capsys):
    run = make_run(tmp_path / "phase1")
    main([str(run), "--html", str(tmp_path / "r.html")])
    main([str(run), "--markdown", str(tmp_path / "r.md")])
    page, text = (tmp_path / "r.html").read_text(), (tmp_path / "r.md").read_text()
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(images) == text.count("](data:image/png;base64,") == 5
    assert all(base64.b64decode(image).startswith(PNG) for image in images)
    assert "http" not in re.sub(r"base64,[^\")]+", "", page + text)  # nothing is loaded from elsewhere
    for words in ("8 of 8", "sequences a second", "Starts", "learning_rate"):
        assert words in page and words.replace("_", r"\_") in text
    assert capsys.readouterr().out.splitlines() == [f"wrote {tmp_path / 'r.html'}", f"wrote {tmp_path / 'r.md'}"]


def test_names_and_values_cannot_break_the_page():
    blocks = [report.table(["<b>", "a|b"], [["<script>", "x\ny"]]), report.text("1 < 2 & *3*"), report.heading("`x`")]
    page, text = to_html("<t>", blocks), to_markdown("<t>", blocks)
    assert "<script>" not in page and "&lt;script&gt;" in page and "<b>" not in page
    assert r"| \<b\> | a\|b |" in text and r"| \<script\> | x y |" in text


# Damaged and empty runs


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (
            "metrics.jsonl",
            b'{"step": 1, "loss": 2.0}\n{"step": 2, "lo\n\xff\xfe\n7\n',
            "3 damaged lines of metrics.jsonl",
        ),
        ("metrics.jsonl", b"", "metrics.jsonl has no rows"),
        ("summary.json", b"[1]", "summary.json is damaged"),
        ("summary.json", b"{", "summary.json is damaged"),
        ("config.yaml", b"a: [", "config.yaml is damaged"),
        ("config.yaml", b"word", "config.yaml is damaged"),
        ("config.yaml", b"\xff\xfe\x00", "config.yaml is damaged"),
        ("metrics.jsonl", None, "metrics.jsonl cannot be read: No such file"),
        ("summary.json", None, "summary.json cannot be read: No such file"),
        ("config.yaml", None, "config.yaml cannot be read: No such file"),
        ("log.jsonl", None, None),
    ],
)
def test_a_damaged_or_missing_file_is_named_and_the_rest_reported(tmp_path, name, content, complaint):
    directory = make_run(tmp_path / "phase1")
    (directory / name).unlink()
    if content is not None:
        (directory / name).write_bytes(content)
    run = read_run(directory, "a")
    assert complaint is None or any(line.startswith(complaint) for line in run.complaints), run.complaints
    assert results(run)["folder"] == [str(directory)]


# Which folders


def test_a_folder_of_runs_is_all_of_them_and_names_are_short(tmp_path):
    for name in ("phase1", "phase2"):
        make_run(tmp_path / "out" / name)
    found = find_runs([tmp_path / "out", tmp_path / "out/phase2"])
    assert [path.name for path in found] == ["phase1", "phase2"]
    assert [run.name for run in read_runs(found)] == ["phase1", "phase2"]
    assert [run.name for run in read_runs([make_run(tmp_path / "a/phase1"), make_run(tmp_path / "b/phase1")])] == [
        "a/phase1",
        "b/phase1",
    ]
    assert read_log(tmp_path / "none") == ([], {})


def test_runs_behind_links_are_found_and_a_link_to_a_folder_above_ends(tmp_path):
    run = make_run(tmp_path / "big_disk/phase1")
    (tmp_path / "results").mkdir()
    (tmp_path / "results/mine").symlink_to(run.parent)
    (tmp_path / "big_disk/loop").symlink_to(tmp_path / "big_disk")
    assert find_runs([tmp_path / "results"]) == [tmp_path / "results/mine/phase1"]


@pytest.mark.parametrize("path", ["nowhere", "empty"])
def test_a_folder_without_a_run_is_refused(tmp_path, capsys, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / path)])
    assert ended.value.code == 2 and f"run={tmp_path / path} must be a folder with" in capsys.readouterr().err
