"""Checkpoints of a run with three variables: when they are saved, what is restored, which are the best."""

import errno
import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from bert.checkpoints import state
from bert.checkpoints.directories import BEST, MANIFEST, STABLE, list_steps, named_step
from bert.checkpoints.progress import DecayState, LoopState
from bert.checkpoints.writer import CheckpointWriter
from bert.config.training_settings import derive
from bert.model.head_specs import TOKEN_WEIGHTS
from bert.model.optimization import COUNTERS
from bert.runtime.distributed import Collective, Group
from bert.runtime.paddle_api import place_of, read_variable, static
from bert.training.devices import Device
from bert.training.saving import Checkpoints, progress_at_start, use_best_weights
from tests.support import runs, tiny
from tests.support.messages import messages

PROGRAM = SimpleNamespace(
    parameters=("a", "b"), optimizer_state={"a/moment": "m"}, loss_scale=None, loss_scale_counters=()
)


class Run:
    """Holds a rank's scope and checkpoints; the value of its variables is a number."""

    def __init__(self, config, texts=None, metric="eval_loss", resumed=None, rank=0, writer=None, fitted=None):
        self.config, self.group, place, scope = config, Group(rank, 1, "cpu"), place_of("cpu"), static.Scope()
        self.device = Device(None, scope, place, self.group, Collective(self.group, None), 1.0)
        self.put(0)
        self.start = runs.fresh_progress(config)
        self.writer = writer or CheckpointWriter(asynchronous=False)
        task = SimpleNamespace(texts={} if texts is None else texts, fitted={} if fitted is None else fitted)
        self.checkpoints = Checkpoints(
            config, PROGRAM, self.device, self.start, self.writer, task, metric, resumed=resumed
        )

    def put(self, number: float) -> None:
        for name in ("a", "b", "m"):
            self.device.scope.var(name).get_tensor().set(np.full(3, number, "float32"), self.device.place)
        for name in COUNTERS:
            self.device.scope.var(name).get_tensor().set(np.array([int(number)]), self.device.place)

    def value(self, name="a") -> float:
        return read_variable(self.device.scope, name)[0].item()

    def save(self, step: int, loop: LoopState | None = None) -> None:
        self.put(step)
        self.checkpoints.save(step, 1, loop or LoopState())


@pytest.fixture
def config(tmp_path):
    return tiny.pretraining_config(tmp_path, keep_checkpoints=2)


def best(step: int, value: float) -> LoopState:
    loop = LoopState()
    loop.evaluations.best = loop.evaluations.last = (step, value)
    return loop


def steps_of(config) -> list[int]:
    return list_steps(config.checkpoint_dir())


def test_a_run_begins_with_what_its_checkpoints_must_agree_with(config):
    progress = progress_at_start(derive(config, batch_size=6, gradient_merge_steps=2), "data", Group(0, 3, "cpu"))
    assert (progress.stage, progress.step, progress.epoch, progress.seed) == ("phase1", 0, 0, 42)
    assert (progress.global_batch_size, progress.data_fingerprint) == (36, "data")
    assert progress.settings["run"]["seed"] == 42 and progress.counters == {} and progress.carried == LoopState()


def test_a_save_has_the_state_of_its_moment_and_keeps_two(config):
    run, loop = Run(config, texts={"labels.txt": "old"}), best(3, 2.5)
    for step in (3, 4, 5, 6):
        run.save(step, loop)
    assert steps_of(config) == [3, 5, 6], "the newest two and the best"
    parameters, optimizer, progress = state.load(config.checkpoint_dir() / "5")
    assert (parameters["a"] == 5).all() and (optimizer["a/moment"] == 5).all()
    assert (progress.step, progress.epoch, progress.counters["applied_updates"]) == (5, 1, 5)
    assert progress.carried == loop and progress.settings == run.start.settings
    assert (config.checkpoint_dir() / "5/labels.txt").read_text() == "old"
    assert (config.checkpoint_dir() / "5/vocab.txt").read_bytes() == config.data.vocab_file.read_bytes()
    assert json.loads((config.checkpoint_dir() / BEST).read_text()) == {"step": 3, "eval_loss": 2.5, "is_final": False}
    assert [times.step for times in run.checkpoints.saved()] == [3, 4, 5, 6] and run.checkpoints.saved() == []


def test_of_a_step_that_was_saved_only_what_came_later_is_written(config, monkeypatch):
    written, texts = [], {"labels.txt": "old"}
    save = state.save
    monkeypatch.setattr(state, "save", lambda *arguments: written.append(arguments[4].step) or save(*arguments))
    run = Run(config, texts=texts)
    run.save(3)
    run.save(3)
    assert written == [3] and not (config.checkpoint_dir() / BEST).exists()
    texts["labels.txt"] = "of the evaluation"
    run.save(3, best(3, 1.5))
    loop = best(3, 1.5)
    loop.decay = DecayState(3, 9, 3, 3, 0.1)
    run.save(3, loop)
    assert written == [3] and state.load(config.checkpoint_dir() / "3")[2].carried == loop
    assert (config.checkpoint_dir() / "3/labels.txt").read_text() == "of the evaluation"
    assert {named_step(config.checkpoint_dir(), name) for name in (BEST, STABLE)} == {3}
    run.save(4, loop)
    assert written == [3, 4]


def test_what_changes_while_a_save_is_written_is_not_in_it(config, monkeypatch):
    """The thread writes a copy of the loop's state and of the texts."""
    may_write, save, texts = threading.Event(), state.save, {"labels.txt": "old"}
    monkeypatch.setattr(state, "save", lambda *arguments: may_write.wait(60) and save(*arguments))
    run, loop = Run(config, texts=texts, writer=CheckpointWriter(asynchronous=True)), best(3, 2.5)
    run.save(3, loop)
    loop.evaluations.best, texts["labels.txt"] = (3, 1.0), "new"
    run.put(9)
    may_write.set()
    run.checkpoints.finish()
    parameters, _, progress = state.load(config.checkpoint_dir() / "3")
    assert parameters["a"][0] == 3 and progress.carried.evaluations.best == (3, 2.5)
    assert (config.checkpoint_dir() / "3/labels.txt").read_text() == "old"


def test_a_checkpoint_has_the_fitted_parameters_and_gives_them_back(config):
    """The parameters and texts are as at the save; an evaluation after the save replaces them."""
    fitted = {TOKEN_WEIGHTS: np.full((2, 2), 3, "float32")}
    run = Run(config, fitted=fitted, metric="")
    run.save(3)
    fitted[TOKEN_WEIGHTS] = np.full((2, 2), 5, "float32")
    run.save(5)
    kept = [state.load_fitted(config.checkpoint_dir() / step)[TOKEN_WEIGHTS][0, 0] for step in ("3", "5")]
    assert kept == [3, 5] and state.load(config.checkpoint_dir() / "5")[0].keys() == {"a", "b"}
    fitted[TOKEN_WEIGHTS] = np.full((2, 2), 6, "float32")
    run.save(5, best(5, 1.0))
    assert state.load_fitted(config.checkpoint_dir() / "5")[TOKEN_WEIGHTS][0, 0] == 6
    run.checkpoints.restore(4)
    assert fitted[TOKEN_WEIGHTS].tolist() == [[3, 3], [3, 3]]
    resumed, given = derive(config, from_checkpoint=config.run.output_dir), dict[str, np.ndarray]()
    Run(resumed, fitted=given, resumed=state.load(config.checkpoint_dir() / "3")[2])
    assert given[TOKEN_WEIGHTS].tolist() == [[3, 3], [3, 3]]
    fitted.clear()
    run.save(7)
    assert state.load_fitted(config.checkpoint_dir() / "7") == {}


def test_only_rank_0_saves(config):
    Run(config, rank=1).save(3)
    assert not config.checkpoint_dir().exists()


def test_a_roll_back_restores_and_sets_the_later_ones_aside(config):
    texts = {"labels.txt": "3"}
    run = Run(config, texts=texts, metric="")
    run.save(3)
    texts["labels.txt"] = "5"
    run.save(5)
    assert run.checkpoints.has(3) and not run.checkpoints.has(4)
    progress = run.checkpoints.restore(4)
    assert (progress.step, run.value("a"), run.value("m"), texts) == (3, 3.0, 3.0, {"labels.txt": "3"})
    assert steps_of(config) == [3] and (config.checkpoint_dir() / "5.set-aside-1").is_dir()
    assert run.checkpoints.restore(2) is None and run.value() == 3.0
    run.checkpoints.restore(3)
    run.put(8)
    run.checkpoints.save(3, 1, LoopState())
    assert state.load(config.checkpoint_dir() / "3")[0]["a"][0] == 8, "after a roll back a step is written anew"
    run.checkpoints.restore(3)
    run.put(9)
    run.checkpoints.save(3, 1, LoopState())
    assert state.load(config.checkpoint_dir() / "3")[0]["a"][0] == 9
    (config.checkpoint_dir() / "3" / MANIFEST).unlink()
    assert run.checkpoints.restore(9) is None, "it is damaged"


def test_a_run_that_goes_back_before_its_decay_sets_the_decayed_steps_aside(config):
    loop = LoopState(decay=DecayState(3, 9, 3, 3, 0.1))
    run = Run(config)
    run.save(3, loop)
    run.save(4, loop)
    resumed = derive(config, from_checkpoint=config.run.output_dir)
    progress = state.load(config.checkpoint_dir() / "3")[2]
    again = Run(resumed, resumed=progress)
    with messages() as said:
        again.save(5)
    assert steps_of(config) == [3, 5] and "newer checkpoint of the abandoned path is now" in said[0]
    assert (config.checkpoint_dir() / "4.set-aside-1").is_dir()


@pytest.mark.parametrize("is_final", [True, False])
def test_a_run_killed_before_it_named_its_best_names_it_when_it_is_resumed(config, is_final):
    loop = best(3, 2.5)
    loop.evaluations.ends_with_best = is_final
    Run(config).save(3, loop)
    (config.checkpoint_dir() / BEST).unlink()
    progress = state.load(config.checkpoint_dir() / "3")[2]
    Run(derive(config, from_checkpoint=config.run.output_dir), resumed=progress)
    facts = {"step": 3, "eval_loss": 2.5, "is_final": is_final}
    assert json.loads((config.checkpoint_dir() / BEST).read_text()) == facts


def test_the_best_weights_are_used_if_they_are_whole(config, monkeypatch):
    run = Run(config)
    with messages() as said:
        assert use_best_weights(config, run.device, 5) == 0
    assert said == [f"no complete best weights in {config.checkpoint_dir()}: using the weights of the last step"]
    run.save(3, best(3, 2.5))
    run.save(5, best(3, 2.5))
    with messages() as said:
        assert use_best_weights(config, run.device, 5) == 3
    assert (run.value("a"), run.value("m")) == (3.0, 5.0) and said == ["using the weights of step 3, the best"]
    run.put(7)
    with messages() as said:
        assert use_best_weights(config, run.device, 3) == 3 and run.value() == 7.0 and said == []
    (config.checkpoint_dir() / "3" / "vocab.txt").write_text("changed")
    with messages() as said:
        assert use_best_weights(config, run.device, 5) == 0 and run.value() == 7.0
    assert said[0].startswith("the best checkpoint was refused: ")

    def unreadable(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr("bert.checkpoints.directories.verify", unreadable)
    assert use_best_weights(config, run.device, 5) == 0 and run.value() == 7.0
