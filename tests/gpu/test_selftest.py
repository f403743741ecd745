"""The self-test of a machine with GPUs runs checks, keeps results and writes its report: injected checks, this CPU."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bert import REPOSITORY
from tests.gpu.selftest import trainings
from tests.gpu.selftest.__main__ import chosen, main
from tests.gpu.selftest.checks import Bench, Check, Failed, Skipped, Verdict, json_in
from tests.gpu.selftest.machine import Machine

CPU = Machine("cpu", 2)


def check(name, action=lambda bench: Verdict("fine", {"answer": 42}), unable=lambda machine: ""):
    return Check(name, f"the check {name}", action, {"gpu": 10, "cpu": 10}, unable)


def failing(bench):
    raise Failed("it is wrong", {"loss": 3.5}, output="last line of the rank")


def broken(bench):
    raise ZeroDivisionError("no such thing")


def skipping(bench):
    raise Skipped("the card is too small")


def start(folder, checks, *arguments):
    return main(["--device", "cpu", "--output-dir", str(folder), *arguments], checks)


def statuses(folder):
    return {row["name"]: row["status"] for row in json.loads((folder / "results.json").read_text())["results"]}


# ---- running ---------------------------------------------------------------------------------------------------------


def test_a_failed_check_stops_no_other(tmp_path, capsys):
    checks = [check("first", failing), check("second", broken), check("third", skipping), check("fourth")]
    assert start(tmp_path, checks) == 1
    assert statuses(tmp_path) == {"first": "failed", "second": "failed", "third": "skipped", "fourth": "passed"}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[0].startswith("[ 1/4] first") and "failed" in lines[0] and "left" in lines[0]
    assert lines[3].endswith("passed, 0 seconds: fine") and lines[4].startswith(
        "2 of 4 failed: first, second. Send back"
    )


def test_only_passed_and_skipped_checks_give_code_0(tmp_path):
    assert start(tmp_path, [check("first"), check("second", unable=lambda machine: "there is one GPU")]) == 0
    assert statuses(tmp_path) == {"first": "passed", "second": "skipped"}


def test_finished_checks_are_kept_unless_they_are_asked_for_again(tmp_path, capsys):
    ran = []

    def noting(name, end):
        return check(name, lambda bench: ran.append((name, bench.again)) or end(bench))

    checks = [noting("good", lambda bench: Verdict("fine")), noting("bad", failing), noting("small", skipping)]
    for arguments, expected in (
        ((), [("good", False), ("bad", False), ("small", False)]),
        ((), [("small", True)]),
        (("--again", "failed"), [("bad", True), ("small", True)]),
        (("--again", "--only", "good"), [("good", True)]),
    ):
        ran.clear()
        assert start(tmp_path, checks, *arguments) == ("--only" not in arguments)
        assert ran == expected
    assert set(statuses(tmp_path)) == {"good", "bad", "small"}, "results of checks that were not chosen are kept"
    assert "passed, kept: fine" in capsys.readouterr().out


def test_an_interrupted_check_is_run_by_the_next_start(tmp_path, capsys):
    def interrupted(bench):
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        start(tmp_path, [check("first"), check("second", interrupted)])
    assert ended.value.code == 130 and "the same command continues" in capsys.readouterr().err
    assert statuses(tmp_path) == {"first": "passed"}
    assert start(tmp_path, [check("first", failing), check("second")]) == 0, "the first is not run again"


def test_results_of_another_machine_are_not_kept(tmp_path):
    assert start(tmp_path, [check("first")]) == 0
    record = json.loads((tmp_path / "results.json").read_text())
    record["machine"]["ranks"] = 8
    (tmp_path / "results.json").write_text(json.dumps(record))
    assert start(tmp_path, [check("first", failing)]) == 1


def test_a_damaged_record_of_results_is_replaced(tmp_path):
    (tmp_path / "results.json").write_text('{"machine"')
    assert start(tmp_path, [check("first")]) == 0 and statuses(tmp_path) == {"first": "passed"}


def test_the_report_has_all_for_people_and_for_programs(tmp_path):
    start(tmp_path, [check("first", failing), check("second")])
    text = (tmp_path / "report.md").read_text()
    assert "1 passed, 1 failed, 0 skipped" in text and "| `second`: the check second | passed |" in text
    assert "### first failed" in text and "last line of the rank" in text
    assert "Not covered: the speed of training on packed tokens" in text
    everything = json.loads(text.split("````json\n")[-1].split("\n````")[0])
    assert everything["machine"]["packages"]["numpy"] and everything["machine"]["device"] == "cpu"
    assert [(row["name"], row["figures"]) for row in everything["results"]] == [
        ("first", {"loss": 3.5}),
        ("second", {"answer": 42}),
    ]


def test_names_choose_checks():
    checks = [check(name) for name in ("kernels", "train-fp32", "train-fp32-more", "train-amp")]
    assert [found.name for found in chosen(checks, ["train-fp32", "kern"])] == ["kernels", "train-fp32"]
    assert [found.name for found in chosen(checks, ["train"])] == ["train-fp32", "train-fp32-more", "train-amp"]
    assert chosen(checks, []) == checks
    with pytest.raises(ValueError, match="only=trian must be the name of a check or its beginning; --list shows them"):
        chosen(checks, ["trian"])


# ---- commands of checks ----------------------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path):
    return Bench(CPU, tmp_path, tmp_path / "logs/check.log")


def test_a_command_that_fails_is_shown_by_its_last_lines(bench):
    command = [sys.executable, "-c", "import sys; [print(f'line {n}') for n in range(100)]; sys.exit(3)"]
    with pytest.raises(Failed, match="exit code 3: ") as failed:
        bench.run(command, 60)
    assert failed.value.output.splitlines()[0] == "line 60" and failed.value.output.endswith("line 99")
    assert "line 0\n" in bench.log_file.read_text()
    assert bench.run(command, 60, allowed_codes=(0, 3)).startswith("line 0\n")


def test_a_command_that_hangs_is_ended_with_its_children(bench):
    """The child leads a group of its own, as the ranks of Paddle's launcher do."""
    child = f"import time; time.sleep(60)  # {bench.folder}"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    begin = time.monotonic()
    with pytest.raises(Failed, match="not finished after 2 s"):
        bench.run([sys.executable, "-c", parent], 2)
    assert time.monotonic() - begin < 20
    running = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert [words for words in running if child in words] == []


def test_json_is_found_among_other_output():
    assert json_in('warning: {bad}\n{"a": 1}\nnoise\n{\n "b": {"c": 2}\n}\nend') == {"b": {"c": 2}}
    with pytest.raises(Failed, match="printed no JSON"):
        json_in("nothing {}")


def test_a_training_that_fails_shows_the_output_of_its_ranks(bench, monkeypatch):
    config = trainings.quickstart(bench, "name")

    def run(command, timeout_seconds, **environment):
        log_dir = Path(command[command.index("--log_dir") + 1])
        (log_dir / "workerlog.1").write_text("NCCL error: no route\n")
        raise Failed("exit code 1: python")

    monkeypatch.setattr(bench, "run", run)
    with pytest.raises(Failed, match="training name: exit code 1") as failed:
        trainings.train(bench, "name", config, num_ranks=2)
    assert "workerlog.1:\nNCCL error: no route" in failed.value.output


def test_the_error_of_a_training_is_its_reason(bench, monkeypatch):
    def run(command, timeout_seconds, **environment):
        log_dir = Path(command[command.index("--log_dir") + 1])
        (log_dir / "workerlog.0").write_text("step 1\nerror: device=gpu needs a GPU\n")
        raise Failed("exit code 2: python")

    monkeypatch.setattr(bench, "run", run)
    with pytest.raises(Failed, match="training name: error: device=gpu needs a GPU"):
        trainings.train(bench, "name", trainings.quickstart(bench, "name"))


def test_a_finished_training_is_read_again_unless_its_settings_differ(bench, monkeypatch):
    ran = []
    monkeypatch.setattr(bench, "run", lambda command, timeout_seconds, **environment: ran.append(command))
    for changes, number in (({}, 1), ({}, 1), ({"amp": True}, 2)):
        trainings.train(bench, "name", trainings.quickstart(bench, "name", **changes))
        assert len(ran) == number
    bench.again = True
    trainings.train(bench, "name", trainings.quickstart(bench, "name", amp=True))
    assert len(ran) == 3


@pytest.mark.slow  # the gate runs more of it by itself
def test_a_part_of_it_runs_on_this_cpu(tmp_path):
    """The whole way: programs, self-test of the kernels, synthetic shards, two ranks, report."""
    names = ("kernels", "fused-kernels-float16", "throughput-phase1_large", "train-pure-fp16")
    words = [word for name in names for word in ("--only", name)]
    done = subprocess.run(
        ["bash", "scripts/run_gpu_selftest.sh", "--device", "cpu", "--output-dir", str(tmp_path / "selftest"), *words],
        cwd=REPOSITORY,
        env={**os.environ, "BERT_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = {row["name"]: row for row in json.loads((tmp_path / "selftest/results.json").read_text())["results"]}
    assert [results[name]["status"] for name in names] == ["passed", "passed", "passed", "skipped"]
    figures = results["throughput-phase1_large"]["figures"]
    assert figures["sequences per second"] > 0 and figures["peak bytes"]["allocated"] > 50e6
    assert figures["ranks x micro-batches x sequences"] == [2, 2, 2]
