"""A folder with text, in which own text is started with stand-ins for data, training and the measurement."""

import contextlib
import io
import json
from pathlib import Path

import yaml

from bert.checkpoints.directories import write_checkpoint
from bert.commands import own_text as command
from bert.config.run_file import dump_yaml
from bert.jobs import job as execution
from bert.jobs import training
from bert.launching.previous_run import settings_asked_for
from bert.own_text import constants, corpus, start
from bert.own_text.facts import MachineFacts
from bert.reporting import results
from bert.samples.manifest import Manifest, ShardRecord, write_manifest
from tests.support.launching import line_of

SENTENCE = "The committee read the report twice before anybody asked where the figures came from. "
STOPPED = {"stopped_early": True, "ends_with_best": True, "early_stopping": 5}  # of a summary
PREPARE = corpus.prepare
LAPTOP = MachineFacts(cores=2, memory_bytes=16 * 10**9, disk_bytes=10**11)


class Workplace:
    """Notes the requests to the stand-ins.

    Attributes:
        trained: the settings of every start.
        ran: the commands.
        speed: sequences per second that the training has.
        figures: further ones of every summary.
        stops: exit codes of the next trainings instead of success.
    """

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder, self.out, self.speed, self.figures = folder, folder / "out", 200.0, {}
        self.trained, self.ran, self.stops = [], [], []
        self.text = folder / "text"
        self.text.mkdir()
        for number in range(60):
            (self.text / f"{number}.txt").write_text(SENTENCE * 100 + str(number))
        monkeypatch.setattr(start, "machine_facts", lambda output_dir: LAPTOP)
        monkeypatch.setattr(
            start, "measure_speeds", lambda candidates, batches: ({one.name: 200 for one in candidates}, 1.0)
        )
        monkeypatch.setattr(constants, "MOST_SLOWNESS", 1.0)  # no slow machine, whatever else it does
        monkeypatch.setattr(corpus, "prepare", self._prepare)
        monkeypatch.setattr(execution, "Runner", lambda: self)
        monkeypatch.setattr(training, "launch", self._train)
        monkeypatch.setattr(results, "draw", lambda *_: None)
        self.stop_requested, self.stopped_by = False, None

    def start(self, words: str = "") -> int:
        return command.main(line_of("--text", str(self.text), "--output-dir", str(self.out), *words.split()))

    def refused(self, words: str) -> str:
        """Return the error of a start that is refused."""
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                code = self.start(words)
            except SystemExit as ended:  # of the plan; a step returns it
                code = ended.code
        assert code == 2
        return errors.getvalue()

    def spend(self, seconds: float) -> None:
        """Record `seconds` as the time of all starts."""
        self._write_job(self._job() | {"seconds_used": seconds})

    def seconds_used(self) -> float:
        return self._job()["seconds_used"]

    def record(self) -> dict:
        """Return the job's facts about own text."""
        return self._job()["facts"]["own_text"]

    def write_record(self, **changes) -> None:
        job = self._job()
        job["facts"]["own_text"] |= changes
        self._write_job(job)

    def leave_old_record(self, facts: dict, seconds_used: float) -> None:
        """Write the record as commit 88b30792 wrote it."""
        (self.out / "job.json").unlink()
        (self.out / "own_text.json").write_text(json.dumps({**facts, "seconds_used": seconds_used}))

    def _job(self) -> dict:
        return json.loads((self.out / "job.json").read_text())

    def _write_job(self, job: dict) -> None:
        (self.out / "job.json").write_text(json.dumps(job))

    def settings(self) -> dict:
        return yaml.safe_load((self.out / "phase1.yaml").read_text())

    def run(self, command) -> int:
        self.ran.append(command)
        return 0

    def _prepare(self, request, plan, config, run, *, files, keep_existing) -> int:
        folder = corpus.shards(request, "train")
        folder.mkdir(parents=True, exist_ok=True)
        samples = round(plan.updates * plan.settings["global_batch_size"] / plan.epochs * plan.duplicate_factor)
        (folder / "shard-0.parquet").touch()
        write_manifest(folder, Manifest({"shard-0.parquet": ShardRecord(samples, 1, "")}, None))
        return 0

    def _train(self, script, config, ranks, runner, **start) -> int:
        """Stand in for the training: it runs to its last step, or as far as the time allows."""
        self.trained.append(config)
        run, in_time = config.run, 10**9
        code = self.stops.pop(0) if self.stops else 0
        before = max((int(path.name) for path in config.checkpoint_dir().glob("*")), default=0)
        if run.finish_in is not None:
            in_time = round(run.finish_in * self.speed / config.batch.global_batch_size)
        last = min(before + min(run.steps_this_run or 10**9, in_time), run.max_steps)
        step = last // 2 if code else last
        if not (config.checkpoint_dir() / str(step)).exists():
            write_checkpoint(config.checkpoint_dir(), step, lambda folder: (folder / "weights").write_text("weights"))
        config.stage_dir().mkdir(exist_ok=True)
        finished = not code and (run.finish_in is not None or step == run.max_steps)
        figures = {"steps": step, "max_steps": run.max_steps, "finished": finished}
        figures |= {"eval_masked_lm_loss": 5.25, "unigram_entropy": 6.0, "e2e_train_time": 1.0, **self.figures}
        (config.stage_dir() / "summary.json").write_text(json.dumps(figures))
        settings_asked_for(config).write_text(dump_yaml(config))
        return code


def unwrapped(shown: str) -> str:
    """Return the printed text, with each row of the plan's table on one line."""
    rows = list[list[str]]()
    for line in shown.splitlines():
        cells = [line[:16], line[16:43], line[43:70], line[70:]]
        if line.startswith(" " * 16) and rows:
            rows[-1] = [f"{above.strip()} {cell.strip()} " for above, cell in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
    return "\n".join("".join(row) for row in rows)
