"""A micro-batch that does not fit in memory is halved before the training; the error is injected."""

import numpy as np
import pytest

from bert.model import objectives
from bert.runtime.paddle_api import place_of, static, unique_name
from bert.training import batch_fitting, training_run
from bert.training.batch_fitting import fitted, fullest_feed
from tests.support import tiny
from tests.support.messages import messages


@pytest.fixture
def fit(tmp_path, monkeypatch):
    """(most sequences that fit, settings) -> the settings that fit, and what the log says."""
    real = batch_fitting.Feeding.run

    def run(most, error=None, **settings):
        tried = []

        def run_or_fail(feeding, feed):
            size = len(feed["first_tokens"])  # of packed tokens
            tried.append(size)
            if size > most:
                raise error or MemoryError("ResourceExhaustedError: Out of memory error on GPU 0")
            real(feeding, feed)

        monkeypatch.setattr(batch_fitting.Feeding, "run", run_or_fail)
        config = tiny.pretraining_config(tmp_path, model=tiny.MODEL_WITH_DROPOUT, **settings)
        tiny.join(tiny.ONE_RANK)
        objective = objectives.PretrainingObjective(config.model)
        with messages() as said, static.scope_guard(static.Scope()):
            found = fitted(config, objective, tiny.ONE_RANK, training_run.build)
            name = "bert.embeddings.word_embeddings.weight"
            assert static.global_scope().find_var(name) is None, "a trial leaves nothing in the scope of the training"
            return found, tried, said

    return run


def test_the_micro_batch_is_halved_until_it_fits_and_the_update_stays(fit):
    config, tried, said = fit(3, batch_size=12, gradient_merge_steps=2)
    assert tried == [12, 6, 3]
    assert config.batch.batch_size == 3 and config.batch.gradient_accumulation_steps(1) == 8
    assert config.batch.resolved_global_batch_size(1) == 24
    assert "a micro-batch of 12 sequences does not fit in memory: 6 are tried" in said
    assert "an update has 8 micro-batches of 3 sequences: the same 24 as before" in said


def test_a_micro_batch_that_fits_stays(fit):
    config, tried, _ = fit(12, batch_size=12)
    assert tried == [12] and config.batch.global_batch_size is None


def test_what_cannot_be_halved_or_is_another_error_is_reported(fit):
    with pytest.raises(ValueError, match="batch_size=3 does not fit in memory and is odd"):
        fit(2, batch_size=6)
    with pytest.raises(RuntimeError, match="a broken kernel"):
        fit(2, RuntimeError("a broken kernel"), batch_size=6)


def test_updates_of_halved_micro_batches_are_those_of_whole_ones():
    whole, halves = (tiny.Session(optimizer=tiny.STEADY_LAMB, micro_steps=steps) for steps in (1, 2))
    for step in range(2):
        batch = tiny.random_batch(step, 12)
        for session, steps in ((whole, 1), (halves, 2)):
            session.update(tiny.feeds(batch, steps))
    assert tiny.relative_difference(whole.parameters(), halves.parameters()) < 1e-4


@pytest.mark.parametrize(
    "name",
    ["PretrainingObjective", "QuestionAnsweringObjective", "TokenClassificationObjective", "MultiLabelObjective"],
)
def test_a_program_of_any_task_takes_the_fullest_micro_batch(name, tmp_path):
    objective, executor = getattr(objectives, name)(tiny.MODEL), static.Executor(place_of("cpu"))
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        loss, _ = objective.forward(training=False)
    with static.scope_guard(static.Scope()):
        executor.run(startup)
        feed = fullest_feed(objective, tiny.pretraining_config(tmp_path))
        assert np.isfinite(executor.run(main, feed=feed, fetch_list=[loss])[0])
