"""The best checkpoint by held-out loss, and early stopping."""

import json
from collections import Counter

import pytest

from bert.checkpoints import state
from bert.checkpoints.chosen_weights import weights_folder
from bert.checkpoints.directories import BEST, final_step, list_steps, verify
from tests.support import runs, tiny

LOSSES = {2: 5.0, 4: 4.0, 6: 4.5, 8: 4.6, 10: 4.7, 12: 4.8, 14: 4.9}


def settings(directory, **changes):
    values = {"max_steps": 14, "eval_freq": 2, "num_steps_per_checkpoint": 5, "keep_checkpoints": 1, "log_freq": 3}
    return tiny.pretraining_config(directory, **{**values, **changes})


def evaluate(step):
    return {"eval_masked_lm_loss": LOSSES[step]}


def best_of(config):
    return json.loads((config.checkpoint_dir() / BEST).read_text())


def test_the_best_checkpoint_is_saved_at_its_evaluation_and_never_pruned(tmp_path):
    config = settings(tmp_path)
    run = runs.run(config, 14, evaluate=evaluate, early_stopping=0)
    assert list_steps(config.checkpoint_dir()) == [4, 14], "the best, and the newest"
    assert best_of(config) == {"step": 4, "eval_masked_lm_loss": 4.0, "is_final": False}
    assert run.outcome.evaluations == {"best_eval_masked_lm_loss": 4.0, "best_step": 4}
    assert final_step(config.checkpoint_dir()) == 14
    assert weights_folder(config.run.output_dir).name == "14", "phase 2 and fine-tuning start from the last"


def test_early_stopping_ends_the_phase_and_its_best_weights_are_the_result(tmp_path):
    config = settings(tmp_path)
    run = runs.run(config, 14, evaluate=evaluate, early_stopping=3)
    outcome = run.outcome
    assert (outcome.step, outcome.finished, outcome.interrupted_by) == (10, True, None)
    assert outcome.evaluations["stopped_early"] and outcome.evaluations["best_step"] == 4
    assert list_steps(config.checkpoint_dir()) == [4, 10]
    assert best_of(config)["is_final"] and weights_folder(config.run.output_dir).name == "4"
    assert any("early stopping after update 10: 3 evaluations without" in line for line in run.said)
    second = tiny.pretraining_config(tmp_path, phase=2, from_phase1_final_params=config.checkpoint_dir())
    started = runs.run(second, 1, train=False, start=runs.fresh_progress(second))
    assert f"starting from the weights of {config.checkpoint_dir() / '4'}" in started.said
    resumed = settings(tmp_path, from_checkpoint=config.run.output_dir)
    again = runs.run(resumed, 14, evaluate=evaluate, early_stopping=3).outcome
    assert (again.step, again.finished) == (10, True), "it stays stopped"
    more = runs.run(resumed, 14, evaluate=evaluate, early_stopping=0).outcome
    assert more.step == 14 and not best_of(config)["is_final"], "unless it is told to go on"


@pytest.mark.parametrize("stop", [3, 6])
def test_a_resumed_run_keeps_the_same_best(tmp_path, stop):
    config = settings(tmp_path)
    runs.run(config, stop, evaluate=evaluate, early_stopping=0)
    resumed = settings(tmp_path, from_checkpoint=config.run.output_dir)
    run = runs.run(resumed, 14, evaluate=evaluate, early_stopping=0)
    assert list_steps(config.checkpoint_dir()) == [4, 14]
    assert run.outcome.evaluations == {"best_eval_masked_lm_loss": 4.0, "best_step": 4}


def test_a_run_that_was_killed_before_it_named_its_last_step_the_best_names_it(tmp_path):
    config = settings(tmp_path)
    runs.run(config, 14, evaluate=lambda step: {"eval_masked_lm_loss": 20.0 - step}, early_stopping=0)
    expected = best_of(config)
    assert expected["step"] == 14
    (config.checkpoint_dir() / BEST).write_text(json.dumps({**expected, "step": 12}))
    resumed = settings(tmp_path, from_checkpoint=config.run.output_dir)
    runs.run(resumed, 14, evaluate=lambda step: {"eval_masked_lm_loss": 20.0 - step}, early_stopping=0)
    assert best_of(config) == expected


def test_given_weights_are_evaluated_before_the_first_update(tmp_path):
    config = settings(tmp_path)
    runs.run(config, 2, evaluate=evaluate, early_stopping=0)
    given = settings(tmp_path, output_dir=tmp_path / "second", from_pretrained_params=config.run.output_dir)
    evaluated = []
    run = runs.run(
        given, 4, evaluate=lambda step: evaluated.append(step) or {"eval_masked_lm_loss": 9.0 - step}, early_stopping=0
    )
    assert evaluated == [0, 2, 4]
    assert run.outcome.evaluations == {
        "initial_eval_masked_lm_loss": 9.0,
        "best_eval_masked_lm_loss": 5.0,
        "best_step": 4,
    }


@pytest.fixture
def written(monkeypatch):
    """Return how often the tensors of each step were written."""
    steps, save = Counter(), state.save

    def counted(parent, prefix, parameters, optimizer, progress, *rest):
        steps[progress.step] += 1
        return save(parent, prefix, parameters, optimizer, progress, *rest)

    monkeypatch.setattr(state, "save", counted)
    return steps


def test_the_last_evaluation_is_added_to_a_checkpoint_whose_tensors_are_written_once(tmp_path, written):
    config = settings(tmp_path, max_steps=4)
    run = runs.run(config, 4, evaluate=evaluate, early_stopping=0)
    assert written == {2: 1, 4: 1} and best_of(config)["step"] == 4
    assert run.said.count(f"saved {config.checkpoint_dir() / '4'}") == 1
    assert list_steps(config.checkpoint_dir()) == [4], "the best before it is surplus now"
    _, _, progress = state.load(verify(config.checkpoint_dir() / "4"))
    assert progress.step == 4 and progress.carried.evaluations.best == (4, 4.0)


def test_an_evaluation_that_fails_at_the_end_does_not_save_again_and_is_made_up_for(tmp_path, written):
    config = settings(tmp_path, max_steps=4)

    def fail(step):
        if step == 4:
            raise RuntimeError("no kernel")
        return evaluate(step)

    with pytest.raises(RuntimeError, match="no kernel"):
        runs.run(config, 4, evaluate=fail, early_stopping=0)
    assert written == {2: 1, 4: 1} and best_of(config)["step"] == 2
    resumed = settings(tmp_path, max_steps=4, from_checkpoint=config.run.output_dir)
    runs.run(resumed, 4, evaluate=evaluate, early_stopping=0)
    assert written == {2: 1, 4: 1} and best_of(config)["step"] == 4, "only what the evaluation adds"
    runs.run(resumed, 4, evaluate=evaluate, early_stopping=0)
    assert state.load(config.checkpoint_dir() / "4")[2].carried.evaluations.last == (4, 4.0)


def test_the_checkpoint_of_another_run_is_not_taken_for_the_own_of_that_step(tmp_path):
    """A run that continues from another folder saves even a step that its own folder has."""
    other, own = settings(tmp_path, seed=2, output_dir=tmp_path / "other"), settings(tmp_path)
    runs.run(other, 2, early_stopping=0)
    runs.run(own, 2, early_stopping=0)
    source = other.checkpoint_dir() / "2"
    continued = settings(tmp_path, seed=2, from_checkpoint=source)
    runs.run(continued, 2, evaluate=evaluate, early_stopping=0)
    assert state.load(own.checkpoint_dir() / "2")[2].seed == 2
    parameters, copies = (state.load(folder)[0] for folder in (source, own.checkpoint_dir() / "2"))
    assert all((parameters[name] == copies[name]).all() for name in parameters)
