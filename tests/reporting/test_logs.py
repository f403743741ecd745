"""Logs can be parsed, hold no NaN, and never end a run."""

import io
import json
import math
import resource
import shlex
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from bert import MESSAGES, REPOSITORY
from bert.reporting.logs import Log
from bert.reporting.progress import RunProgress, megabytes, progress
from bert.reporting.results import next_commands
from tests.support.waiting import wait_until

METRICS = {"loss": 7.25, "learning_rate": 1e-4, "seqs_per_sec": 12.5}


def open_log(directory, report_file=None, **options) -> Log:
    return Log(directory, report_file, **{"total_steps": 20, "stream": io.StringIO(), **options})


def strict(text: str):
    """Parse JSON by the standard: NaN and Infinity are errors."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def dllogger(path: Path) -> list[dict]:
    lines = path.read_text().splitlines()
    assert all(line.startswith("DLLL {") for line in lines)
    return [strict(line.removeprefix("DLLL ")) for line in lines]


def write_everything(log: Log) -> None:
    log.parameters({"seed": 42, "input_dir": Path("/data"), "threads": np.int64(2)})
    log.train(1, 0, {**METRICS, "gradient_norm": np.float32(1.5)}, 90.0)
    log.train(2, 0, {**METRICS, "loss": float("nan"), "gradient_norm": float("inf")}, math.inf)
    log.evaluation(2, 0, {"eval_masked_lm_loss": 6.5})
    log.advance(2, 80.0, 7.25)
    log.summary({"final_loss": 7.25, "mfu": float("nan"), "unigram_entropy": None})
    log.close()


def test_dllogger_lines_have_the_fields_its_parsers_read(tmp_path):
    write_everything(open_log(tmp_path, report_file=tmp_path / "elsewhere" / "report.json"))
    lines = dllogger(tmp_path / "log.jsonl")
    assert lines == dllogger(tmp_path / "elsewhere" / "report.json")
    assert all(set(line) == {"timestamp", "datetime", "elapsedtime", "type", "step", "data"} for line in lines)
    assert [line["step"] for line in lines] == ["PARAMETER", [0, 1], [0, 2], [0, 2], []]
    assert lines[0]["data"] == {"seed": 42, "input_dir": "/data", "threads": 2}
    assert lines[1]["data"] == {**METRICS, "gradient_norm": 1.5}
    assert lines[2]["data"]["loss"] is None and lines[2]["data"]["gradient_norm"] is None
    float(lines[0]["timestamp"]), float(lines[0]["elapsedtime"])


def test_rows_progress_and_summary_are_strict_json(tmp_path):
    write_everything(open_log(tmp_path))
    rows = [strict(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    shown = [(row["step"], row.get("loss"), row.get("eval_masked_lm_loss")) for row in rows]
    assert shown == [(1, 7.25, None), (2, None, None), (2, None, 6.5)]
    progress = strict((tmp_path / "progress.json").read_text())
    assert progress == {"step": 2, "first_step": 0, "total_steps": 20, "eta_seconds": 80.0, "loss": 7.25}
    assert strict((tmp_path / "summary.json").read_text()) == {"final_loss": 7.25, "mfu": None, "unigram_entropy": None}


def test_while_the_time_decides_the_last_step_is_not_shown(tmp_path, capsys):
    stream, now = io.StringIO(), [0.0]
    log = open_log(tmp_path, total_steps=4582, stream=stream, clock=lambda: now[0])
    log.total_steps = None
    log.train(10, 0, METRICS, 90.0)
    log.evaluation(10, 0, {"eval_masked_lm_loss": 6.5})
    bar = RunProgress(tmp_path, "phase 1")
    log.advance(10, 90.0, 7.25)
    first, second = stream.getvalue().splitlines()
    assert first.startswith("step 10  loss 7.2500") and first.endswith("eta 1.5 minutes")
    assert second == "step 10  held out: masked_lm_loss 6.5000"
    shown = ""

    def printed() -> str:
        nonlocal shown
        shown += capsys.readouterr().out
        return shown

    wait_until(lambda: "loss 7.250, 1.5 minutes left" in printed())
    now[0] += 1.0
    log.total_steps = 12
    log.advance(12, 0.0, 7.0)
    bar.close()
    assert "12/12" in printed() and "4582" not in shown


def test_a_line_for_people_has_the_step_the_loss_and_the_time_left(tmp_path):
    stream = io.StringIO()
    write_everything(open_log(tmp_path, stream=stream))
    first = stream.getvalue().splitlines()[0]
    assert first == "step 1/20  loss 7.2500  learning_rate 1.00e-04  seqs_per_sec 12.5  eta 1.5 minutes"
    second = stream.getvalue().splitlines()[1]
    assert second == "step 2/20  loss -  learning_rate 1.00e-04  seqs_per_sec 12.5  eta unknown", "nothing was measured"
    assert "step 2/20  held out: masked_lm_loss 6.5000" in stream.getvalue()


# Sinks that fail


@pytest.mark.parametrize("name", ["log.jsonl", "metrics.jsonl", "progress.json", "summary.json"])
def test_a_file_that_cannot_be_written_is_dropped_alone(tmp_path, capsys, name):
    """Root may write anything, so a folder stands in the file's place."""
    (tmp_path / name / "x").mkdir(parents=True)
    write_everything(open_log(tmp_path))
    then = "is switched off" if name == "summary.json" else "will be tried again"
    assert capsys.readouterr().err.count(f"{name} failed and {then}") == 1
    others = {"log.jsonl", "metrics.jsonl", "progress.json", "summary.json"} - {name}
    assert all((tmp_path / other).stat().st_size > 0 for other in others)


def test_lines_that_could_not_be_written_follow_once_in_their_order(tmp_path, capsys):
    """First the file cannot be opened; then a line is cut off, as on a full disk."""
    file, log = tmp_path / "metrics.jsonl", open_log(tmp_path)
    file.mkdir()
    for step in (1, 2):
        log.train(step, 0, {"loss": 1.0}, 1.0)
    file.rmdir()
    log.train(3, 0, {"loss": 1.0}, 1.0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 5, limits[1]))
    try:
        log.train(4, 0, {"loss": 1.0}, 1.0)
        log.train(5, 0, {"loss": 1.0}, 1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(file.read_bytes().splitlines()) == 3
    log.close()
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2, 3, 4, 5]
    assert capsys.readouterr().err.count("metrics.jsonl failed and will be tried again") == 2


RUN_INTO_PIPE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from bert.reporting.logs import Log
log = Log(Path(sys.argv[2]), None, total_steps=20)
sys.stdin.readline()
for step in range(1, 6):
    log.train(step, 0, {"loss": 1.0}, 1.0)
log.summary({"final_loss": 1.0})
log.close()
"""


def test_a_reader_that_went_away_does_not_stop_the_process(tmp_path):
    """`run | head -1`: the pipe breaks, all files are complete."""
    command, pipe = [sys.executable, "-c", RUN_INTO_PIPE, str(REPOSITORY), str(tmp_path)], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
    process.stdout.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    code = process.wait(30)
    assert len(dllogger(tmp_path / "log.jsonl")) == 6
    assert "console output failed and is switched off" in errors
    assert code == 0, errors


# Parts


def test_the_progress_is_never_half_written(tmp_path, monkeypatch):
    log, replaced = Log(tmp_path, total_steps=2, stream=io.StringIO()), []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda old, new: replaced.append(strict(old.read_text())) or replace(old, new))
    for step, eta_seconds in ((1, 3.0), (2, 0.0)):
        log.advance(step, eta_seconds, 0.5)
    log.close()
    assert [values["step"] for values in replaced] == [1, 2]
    assert strict((tmp_path / "progress.json").read_text()) == replaced[1] and not list(tmp_path.glob(".*"))


def test_the_progress_is_replaced_once_a_second_and_at_the_end(tmp_path):
    now = [0.0]
    log, found = Log(tmp_path, total_steps=9, stream=io.StringIO(), clock=lambda: now[0]), []
    for step, passed, eta_seconds in ((1, 0.0, 9.0), (2, 0.9, 8.0), (3, 0.1, 7.0), (4, 0.5, 5.0), (5, 0.1, 0.0)):
        now[0] += passed
        log.advance(step, eta_seconds, 0.5)
        found.append(strict((tmp_path / "progress.json").read_text())["step"])
    assert found == [1, 1, 3, 3, 5]


def test_long_work_writes_lines_to_a_log(capsys, monkeypatch):
    """Lines come at most every ten seconds, by the clock of the meter."""
    now = [0.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    for _ in progress("quick", 3, "blocks", range(3)):
        now[0] += 3.0
    assert capsys.readouterr().err == ""
    for _ in progress("samples", 60, "blocks", range(60)):
        now[0] += 0.5
    with progress("file.txt", 4_000_000, done=1_000_000) as meter:
        now[0] += 11.0
        meter.update(2_000_000)
    printed = capsys.readouterr().err
    assert 3 <= printed.count("samples: ") <= 4 and "samples: 100% 60/60 [" in printed and "blocks/s]\n" in printed
    assert "file.txt:  75% 3.00M/4.00M [" in printed and "kB/s]\n" in printed
    assert "\r" not in printed and "\n\n" not in printed


@pytest.mark.parametrize(
    ("size", "text"),
    [(105, "105 bytes"), (4_200, "4.2 kB"), (110_000, "0.1 MB"), (12_300_000, "12.3 MB"), (17_800_000_000, "17.8 GB")],
)
def test_sizes_in_words(size, text):
    assert megabytes(size) == text


@pytest.mark.parametrize("where", ["import", "open", "add_scalar", "close"])
def test_visualdl_that_raises_is_dropped(tmp_path, capsys, monkeypatch, where):
    class LogWriter:
        def __init__(self, logdir):
            self.fail("open")

        def fail(self, at):
            if at == where:
                raise RuntimeError(f"no {at}")

        def add_scalar(self, *_):
            self.fail("add_scalar")

        def close(self):
            self.fail("close")

    module = types.SimpleNamespace(LogWriter=LogWriter) if where != "import" else None
    monkeypatch.setitem(sys.modules, "visualdl", module)
    write_everything(open_log(tmp_path, trackers=["visualdl"]))
    assert capsys.readouterr().err.count("VisualDL failed and is switched off") == 1
    assert len(dllogger(tmp_path / "log.jsonl")) == 5


def test_what_is_shown_fits_the_terminal_and_long_commands_stay_commands(tmp_path):
    log = open_log(tmp_path)
    log.evaluation(2, 0, {f"eval_{name}_of_a_long_name": 0.5 for name in ("loss", "accuracy", "f1", "sequences")})
    begin, end = f"read: /tmp/{8 * 'folder/'}my texts/a.csv;", f"Picture: {9 * 'folder/'}loss.png"
    MESSAGES.info(f"{begin} {end}, at 4 sequences/s and 7/40")
    MESSAGES.info(f"continuing /{20 * 'folder/'} at step 3")
    MESSAGES.info("   precision")
    log.close()
    *shown, first, second, third, continuing, path, step, table_head = log._stream.getvalue().splitlines()
    assert len(shown) == 2 and all(len(line) <= 100 for line in shown) and shown[1].startswith("  ")
    assert (first, second, third) == (begin, f"  {end},", "  at 4 sequences/s and 7/40")
    assert (continuing, path, step) == ("continuing", f"  /{20 * 'folder/'}", "  at step 3")
    assert table_head == "   precision"
    commands = [
        ("use it", "run x.csv"),
        ("train on, " + 20 * "twice as long ", f"run --in 'my  notes' {40 * '--flag 1 '}last"),
    ]
    title, short, *lines = next_commands(commands).splitlines()
    assert (title, short) == ("Next, try:", "  run x.csv   # use it") and all(len(line) <= 100 for line in lines)
    script = "\n".join(['run() { printf "%s\\0" "$@"; }', *lines])
    words = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=True).stdout.split("\0")
    assert ["run", *words[:-1]] == shlex.split(commands[1][1])
