"""The server behind `trainings`: reads requests as JSON lines, forks a training for each, answers with JSON lines."""

import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import bert  # noqa: F401 - before Paddle, whichever module loads it
from bert.arrays.compiled import load_numba
from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.config.command_line import parse_arguments
from bert.config.entry_point import load_task
from bert.finetuning import run as finetuning
from bert.finetuning.ner import task as ner
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.squad import task as squad
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.glue.config import ENTRY as GLUE
from bert.labels import task as labels
from bert.pretraining import task as pretraining
from bert.pretraining.entry import ENTRY as PRETRAINING
from bert.runtime import distributed
from bert.training import trainer as training
from bert.training import training_run as runs
from bert.training.fused_kernels import choose_kernels
from tests.faults.boundaries import Boundaries, signals_at

COMMANDS = {  # entry, and the other program that it builds
    "run_pretraining": (PRETRAINING, pretraining, "build_evaluation_program"),
    "run_glue": (GLUE, finetuning, "build_prediction_program"),
    "run_ner": (NER, finetuning, "build_prediction_program"),
    "run_squad": (SQUAD, finetuning, "build_prediction_program"),
}
finetuning.build_prediction_program = lru_cache(maxsize=None)(finetuning.build_prediction_program)
pretraining.build_evaluation_program = lru_cache(maxsize=None)(pretraining.build_evaluation_program)
runs.build_training_program = lru_cache(maxsize=None)(runs.build_training_program)


def warm(command: str, argv: list[str]) -> None:
    """Build the programs of a command once, so that forks have them."""
    load_numba()
    (entry, evaluating, build_other), group = COMMANDS[command], distributed.Group(0, 1, "cpu")
    task = load_task(entry.task).open(parse_arguments(entry, argv), group)
    config, objective = task.config, replace(task.objective, kernels=choose_kernels(task.config, group))
    distributed.initialize(group)
    getattr(evaluating, build_other)(objective, config.precision)
    runs.build_training_program(
        objective,
        config.optimizer,
        config.precision,
        group,
        gradient_accumulation_steps=config.batch.gradient_accumulation_steps(1),
        num_scheduled_steps=config.run.max_steps,
        seed=config.run.seed + 1,
        recompute=config.hardware.recompute,
    )


def train(argv: list[str], options: dict[str, Any]) -> int:
    """Run the command in the fork, with faults.

    Options:
        command: the module; by default run_pretraining.
        part, signals_at: one of `_parts`, by default saves; boundary there -> numbers of the signals that come then.
        hangs_at: as of `_parts`.
        boundaries_file: where the numbers of boundaries passed are written at the end, by part.
        stall: [step, how] - the update of that step hangs: "python", "foreign" (outside of Python), "a while".
        clock: seed of a clock that jumps by days at every look.
        visualdl_raises: VisualDL fails when it is opened.
        no_space_check: the free space is not looked at before a save.
        file_system: variables of `file_system.c`.
        fsync_fails_at: from this fsync on, each raises EIO.
    """
    signals = {int(at): numbers for at, numbers in options.get("signals_at", {}).items()}
    parts = _parts(options.get("part", "save"), signals_at(signals), options.get("hangs_at", 0))
    for module in (labels, ner, squad):
        module.WINDOW_EXAMPLES = 9
    if "stall" in options:
        _stall(*options["stall"])
    if "clock" in options:
        _jumping_clock(options["clock"])
    if options.get("no_space_check"):
        checkpoint_files.require_space = lambda parent, num_bytes: None
        checkpoint_files.make_room = lambda parent, num_bytes, keep: None
    os.environ.update(options.get("file_system", {}))
    if "fsync_fails_at" in options:
        os.fsync = _failing(os.fsync, options["fsync_fails_at"])
    if options.get("visualdl_raises"):
        sys.modules["visualdl"] = None  # type: ignore[assignment]
    try:
        code = importlib.import_module(options.get("command", "run_pretraining")).main(argv)
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    for thread in threading.enumerate():  # what the interpreter does at its end
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    if "boundaries_file" in options:
        Path(options["boundaries_file"]).write_text(json.dumps({name: part.seen for name, part in parts.items()}))
    return code


def _parts(chosen: str, act: Callable[[int], None], hangs_at: int) -> dict[str, Boundaries]:
    """Map the parts of a run to boundaries at which it can be killed; `act` is called at the boundaries of one part.

    Args:
        hangs_at: which batch of an evaluation or prediction never comes; 0: none.
    """
    run = finetuning.FineTuningEvaluation
    wrapped: dict[str, list[tuple[Any, str]]] = {
        "save": [(checkpoint, "save"), (checkpoint_files, "prune"), (checkpoint_files, "set_aside_newer")],
        "best": [(checkpoint, "amend"), (checkpoint_files, "name_step")],
        "results": [(run, "_finish_evaluation")],
        "stream": [(run, "_write_predictions")],
        "batches": [],
    }
    parts = {name: Boundaries(act if name == chosen else lambda number: None) for name in wrapped}
    for name, places in wrapped.items():
        for owner, attribute in places:
            setattr(owner, attribute, parts[name].wrap(getattr(owner, attribute)))
    batches = finetuning.prediction_batches

    def counted(*arguments):
        for batch in batches(*arguments):
            parts["batches"].reach()
            while parts["batches"].seen == hangs_at:
                time.sleep(1)
            yield batch

    finetuning.prediction_batches = counted
    return parts


def _stall(step: int, how: str) -> None:
    import ctypes

    real = training.Trainer._update

    def update(self, batch):
        if self._step == step and how == "a while":
            time.sleep(1.5)
        elif self._step == step:
            while how == "python":
                time.sleep(0.05)
            ctypes.CDLL(None).sleep(3600)
        return real(self, batch)

    training.Trainer._update = update


def _failing(real, after: int):
    calls = iter(range(10**6))

    def fsync(descriptor):
        if next(calls) >= after:
            raise OSError(5, "Input/output error")
        return real(descriptor)

    return fsync


def _jumping_clock(seed: int) -> None:
    import random

    generator, real = random.Random(seed), time.time
    time.time = lambda: real() + generator.uniform(-1, 1) * 10 * 86400


def _fork(argv: list[str], options: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        console = os.open(options["console"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (console, 1), (console, 2)):
            os.dup2(source, target)
        if options.get("closed_pipe"):
            reader, writer = os.pipe()
            os.dup2(writer, 1)
            os.close(reader)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = train(argv, options)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _wait(pid: int, timeout: float) -> int | None:
    deadline = time.monotonic() + timeout
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.005)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Paddle prints is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the harness's, which closes us
    for line in sys.stdin:
        request = json.loads(line)
        answer: Any = True
        if request["do"] == "warm":
            warm(request["command"], request["argv"])
        elif request["do"] == "start":
            answer = _fork(request["argv"], request["options"])
        else:
            answer = _wait(request["pid"], request["timeout"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
