"""The executor of jobs: order of steps, finished steps, resuming, and how a job ends."""

import contextlib
import errno
import json

import pytest

from bert.exit_codes import BAD_INPUT, INTERRUPTED, NOT_SAVED, OK
from bert.files import only_writer
from bert.jobs import job as execution
from bert.jobs.job import Group, Job
from bert.launching.ranks import Ranks
from tests.support.commands import refused
from tests.support.jobs import StandInRunner, StandInStep


@pytest.fixture
def runner(monkeypatch) -> StandInRunner:
    runner = StandInRunner()
    monkeypatch.setattr(execution, "Runner", lambda: runner)
    return runner


@pytest.fixture
def step(tmp_path, runner):
    """Return a function that makes a step; `step.ran` has the names of the steps that ran, in order."""
    ran = []

    def make(name, *codes, **options):
        return StandInStep(name, tmp_path, ran, list(codes), **options)

    make.ran = ran
    return make


def execute(folder, *steps, **options) -> int:
    return execution.execute(Job("test", folder, steps, **options))


def test_steps_run_in_order_each_after_what_it_needs(tmp_path, step):
    steps = (step("train 1", first=(step("text"), step("shards 1"))), step("train 2", first=(step("shards 2"),)))
    assert execute(tmp_path, *steps, step("results")) == OK
    assert step.ran == ["text", "shards 1", "train 1", "shards 2", "train 2", "results"]


def test_what_is_done_is_skipped_with_what_it_needs(tmp_path, step):
    (tmp_path / "train 1").touch()
    steps = (step("train 1", first=(step("shards 1"),)), step("train 2", first=(step("shards 2"),)))
    assert execute(tmp_path, *steps) == OK and step.ran == ["shards 2", "train 2"]
    assert execute(tmp_path, *steps) == OK and len(step.ran) == 2


def test_a_stopped_job_continues_at_the_step_where_it_stopped(tmp_path, step):
    steps = (step("train 1", first=(step("shards 1"),)), step("train 2", INTERRUPTED, first=(step("shards 2"),)))
    assert execute(tmp_path, *steps, step("results")) == INTERRUPTED
    assert step.ran == ["shards 1", "train 1", "shards 2", "train 2"]
    assert execute(tmp_path, *steps, step("results")) == OK
    assert step.ran[4:] == ["train 2", "results"]


@pytest.mark.parametrize("code", [3, 137, INTERRUPTED, BAD_INPUT])
def test_a_failure_ends_the_job_with_its_code(tmp_path, step, code):
    assert execute(tmp_path, step("a", first=(step("data", code),)), step("b")) == code
    assert step.ran == ["data"]


def test_an_error_that_the_user_can_mend_is_one_line(tmp_path, step, capsys):
    assert execute(tmp_path, step("a", ValueError("eval_dir=x has no shards; pass another")), step("b")) == BAD_INPUT
    assert step.ran == ["a"] and capsys.readouterr().err == "error: eval_dir=x has no shards; pass another\n"


def test_a_refused_first_start_leaves_no_folder(tmp_path, runner):
    place = tmp_path / "new/folder"
    refusing = StandInStep("a", tmp_path, [], 2 * [ValueError("shards have no masks")])
    assert execute(place, refusing) == BAD_INPUT and not (tmp_path / "new").exists()
    failing = StandInStep("b", tmp_path, [], [70])
    assert execute(place, failing) == 70 and (place / "job.json").exists()
    assert execute(place, refusing) == BAD_INPUT and (place / "job.json").exists()  # it has the time that was used


def test_a_step_that_is_not_finished_keeps_later_ones_waiting(tmp_path, step, capsys):
    assert execute(tmp_path, step("phase 1", leaves="phase 1 has steps left"), step("phase 2")) == OK
    assert step.ran == ["phase 1"] and "phase 1 has steps left" in capsys.readouterr().out


def test_after_a_request_to_stop_nothing_is_begun(tmp_path, step, runner):
    runner.stopped_by = "Ctrl-C"
    assert execute(tmp_path, step("a")) == INTERRUPTED and step.ran == []


# ---- trainings of which one may fail ----


def test_a_job_that_goes_on_names_what_failed_and_ends_with_the_worst_code(tmp_path, step, capsys):
    steps = [Group(name, (step(name, *codes),)) for name, codes in (("seed 1", ()), ("seed 2", (3,)), ("seed 3", (1,)))]
    assert execute(tmp_path, *steps, step("report"), goes_on=True) == 3
    assert step.ran == ["seed 1", "seed 2", "seed 3", "report"]
    failed = capsys.readouterr().err
    assert "seed 2: exit code 3" in failed and "seed 3: exit code 1" in failed and "seed 1" not in failed
    assert execute(tmp_path, *steps, step("report"), goes_on=True) == OK
    assert step.ran[4:] == ["seed 2", "seed 3"], "the same command tries them again"


def test_a_request_to_stop_ends_a_job_that_goes_on(tmp_path, step):
    assert execute(tmp_path, step("seed 1", INTERRUPTED), step("seed 2"), goes_on=True) == INTERRUPTED
    assert step.ran == ["seed 1"]


def test_a_family_is_refused_together(tmp_path, step):
    """A task whose settings are wrong is tried with one seed; another task is tried all the same."""
    names = [(f"{task} {seed}", task) for task in ("cola", "mrpc") for seed in (1, 2)]
    codes = {"cola 1": [BAD_INPUT], "mrpc 1": [1]}
    steps = [step(name, *codes.get(name, ()), family=task) for name, task in names]
    assert execute(tmp_path, *steps, goes_on=True) == BAD_INPUT
    assert step.ran == ["cola 1", "mrpc 1", "mrpc 2"], "a training that fails otherwise does not stop its family"


def test_a_group_ends_at_its_first_failure_and_is_done_with_all_its_steps(tmp_path, step):
    group = Group("seed 1", (step("train", 4), step("score")))
    assert execute(tmp_path, group) == 4 and step.ran == ["train"]
    assert execute(tmp_path, group) == OK and execute(tmp_path, group) == OK
    assert step.ran == ["train", "train", "score"]


# ---- checks ----


def test_the_mistakes_of_all_steps_are_shown_together(tmp_path, step, monkeypatch):
    asked = []

    def refuse(self, here):
        asked.append((self.name, here))
        raise ValueError(f"{self.name} is wrong; change it")

    monkeypatch.setattr(StandInStep, "check", refuse)
    job = Job("test", tmp_path, (step("a", first=(step("b"),)), step("c")))
    for here in (False, True):
        with pytest.raises(ValueError, match="b is wrong; change it; a is wrong; change it; c is wrong; change it"):
            job.check(here)
        assert asked == [("b", here), ("a", here), ("c", here)], "each step is asked once"
        asked.clear()


def test_the_lines_of_a_job_are_its_steps_with_their_products(tmp_path, step):
    job = Job("test", tmp_path, (step("a", first=(step("shards"),)), step("b", first=(step("shards"),))))
    assert job.lines() == [
        f"{number}. doing {name}: {tmp_path}/{name}" for number, name in enumerate(("shards", "a", "b"), 1)
    ]


# ---- the lock and the clock ----


def test_one_start_of_a_job_runs_at_a_time(tmp_path, step, monkeypatch):
    monkeypatch.setattr("bert.files._SECONDS_FOR_WORKERS", 0.1)
    with only_writer(tmp_path), refused("another run is writing to it; wait until it ends"):
        execute(tmp_path, step("a"))
    assert step.ran == [] and not (tmp_path / "job.json").exists()
    assert execute(tmp_path, step("a")) == OK


def test_the_folder_is_locked_while_steps_run(tmp_path, step, monkeypatch):
    monkeypatch.setattr("bert.files._SECONDS_FOR_WORKERS", 0.1)

    class Trying(StandInStep):
        def run(self, execution):
            with pytest.raises(ValueError, match="another run is writing"), only_writer(tmp_path):
                pass
            return super().run(execution)

    assert execute(tmp_path, Trying("a", tmp_path, step.ran)) == OK and step.ran == ["a"]


def test_nodes_share_a_folder_and_the_first_of_them_keeps_the_record(tmp_path, step):
    used = []

    class Timed(StandInStep):
        def run(self, execution):
            used.append(execution.record.used())
            return super().run(execution)

    for node, is_written in ((1, False), (0, True)):
        with only_writer(tmp_path) if node == 1 else contextlib.nullcontext():
            ranks = Ranks(num_nodes=2, node_rank=node, master="a:1")
            assert execute(tmp_path, Timed(f"node {node}", tmp_path, step.ran), ranks=ranks) == OK
        assert (tmp_path / "job.json").exists() == is_written
    assert len(used) == 2 and min(used) > 0, "each node knows the time that is left"


def test_looking_at_results_costs_no_hours(tmp_path, step):
    class Showing(StandInStep):
        takes_time = False

        def is_done(self, execution):
            return False

    results = Showing("results", tmp_path, step.ran)
    assert execute(tmp_path, step("train"), results) == OK
    before = (tmp_path / "job.json").read_bytes()
    assert execute(tmp_path, step("train"), results) == OK
    assert (tmp_path / "job.json").read_bytes() == before and step.ran == ["train", "results", "results"]


def test_a_damaged_record_is_refused_and_kept(tmp_path, step):
    (tmp_path / "job.json").write_text("{cut")
    with refused("job.json is damaged; restore it, or pass another --output-dir"):
        execute(tmp_path, step("a"))
    assert step.ran == [] and (tmp_path / "job.json").read_text() == "{cut"


@pytest.mark.parametrize("number", [1, 2])
def test_a_record_that_cannot_be_written_is_one_line(tmp_path, step, monkeypatch, number):
    """The error comes at the beginning of a start, before any step, or at its end."""
    written = []

    def write(path, data):
        written.append(path)
        if len(written) == number:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("bert.jobs.record.write_atomically", write)
    with refused("job.json: No space left on device; free space there or choose another folder", code=NOT_SAVED):
        execute(tmp_path, step("a"))
    assert step.ran == ["a"][: number - 1]


def test_what_steps_remember_is_kept(tmp_path, step):
    class Remembering(StandInStep):
        def run(self, execution):
            execution.record.facts["seen"] = self.name
            return super().run(execution)

    assert execute(tmp_path, Remembering("a", tmp_path, step.ran)) == OK
    assert json.loads((tmp_path / "job.json").read_text())["facts"] == {"seen": "a"}


# ---- commands ----


@pytest.mark.parametrize(
    ("code", "stopped_by", "expected", "said"),
    [
        (0, None, 0, ""),
        (BAD_INPUT, None, BAD_INPUT, ""),  # it has reported its error
        (NOT_SAVED, None, NOT_SAVED, ""),
        (1, None, 1, "error: -m data.import_text --to ... ended with exit code 1\n"),
        (137, None, 137, "ended with exit code 137, killed, often because memory ran out\n"),
        (INTERRUPTED, "SIGTERM", INTERRUPTED, "interrupted (SIGTERM); the same command resumes\n"),
        (143, "Ctrl-C", INTERRUPTED, "interrupted (Ctrl-C); the same command resumes\n"),
        (137, "Ctrl-C", INTERRUPTED, "interrupted (Ctrl-C); the same command resumes\n"),
    ],
)
def test_the_end_of_a_command_is_explained_once(tmp_path, runner, capsys, code, stopped_by, expected, said):
    runner.answer, runner.stopped_by = (lambda words: code), stopped_by
    started = execution.Execution(Job("test", tmp_path, ()), None, runner)
    assert started.command(["python", "-m", "data.import_text", "--to", "out"]) == expected
    shown = capsys.readouterr().err
    assert shown.endswith(said) and bool(shown) == bool(said)
