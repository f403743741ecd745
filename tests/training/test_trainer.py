"""The training loop: its counts, saves, evaluations and stops."""

import json
import math
import shutil

import numpy as np
import pytest

from bert.checkpoints.directories import list_steps, step_directory
from bert.config.training_settings import derive
from bert.model.dropout import Dropout
from bert.model.objectives import PretrainingObjective
from bert.pretraining.task import evaluate_pretraining
from bert.randomness import stream_key
from bert.reporting.logs import Log
from bert.runtime.distributed import Collective
from bert.runtime.paddle_api import static
from bert.training.interruption import StopRequest
from bert.training.loss_guards import TrainingDiverged
from program import build_evaluation_program
from tests.support import runs, tiny


def rows(config) -> list[dict]:
    return [json.loads(line) for line in (config.stage_dir() / "metrics.jsonl").read_text().splitlines()]


def logged_run(config, last_step, **options):
    log = Log(config.stage_dir(), None, total_steps=config.run.max_steps)
    run = runs.run(config, last_step, log=log, **options)
    log.close()
    return run


def test_it_saves_on_schedule_and_at_the_end_and_evaluates_in_between(tmp_path):
    config = tiny.pretraining_config(
        tmp_path, max_steps=7, num_steps_per_checkpoint=3, eval_freq=2, log_freq=2, keep_checkpoints=9
    )
    evaluations = iter(range(100))
    run = logged_run(config, 7, evaluate=lambda step: {"eval_masked_lm_loss": float(next(evaluations))})
    assert list_steps(config.checkpoint_dir()) == [3, 6, 7]
    assert [row["step"] for row in rows(config) if "loss" in row] == [2, 3, 4, 6, 7]  # each save ends an interval
    assert [row["step"] for row in rows(config) if "eval_masked_lm_loss" in row] == [2, 4, 6, 7]
    assert run.outcome.finished and run.outcome.interrupted_by is None
    assert run.outcome.metrics["eval_masked_lm_loss"] == 3.0
    assert (run.outcome.totals.sequences, run.outcome.step) == (7 * 12, 7)
    assert 0 < run.outcome.totals.seconds <= run.outcome.totals.total_seconds


def folder(parent, name):
    (parent / name).mkdir()
    return parent / name


def test_the_saving_schedule_counts_from_step_0_not_from_the_resumed_step(tmp_path):
    config = tiny.pretraining_config(tmp_path, num_steps_per_checkpoint=4, keep_checkpoints=9)
    runs.run(config, 3)
    resumed = tiny.pretraining_config(
        tmp_path, num_steps_per_checkpoint=4, keep_checkpoints=9, from_checkpoint=config.run.output_dir
    )
    run = runs.run(resumed, 9)
    assert list_steps(config.checkpoint_dir()) == [3, 4, 8, 9]
    assert not run.outcome.finished


def test_a_killed_run_logs_and_counts_what_it_would_have(tmp_path):
    """Saves come at steps that are no multiples of the log interval: sums since the last line are not lost."""
    settings = {"max_steps": 7, "num_steps_per_checkpoint": 3, "log_freq": 2}
    config = tiny.pretraining_config(tmp_path, **settings)
    whole = logged_run(config, 7)
    expected = [(row["step"], row["loss"]) for row in rows(config)]
    for step in (6, 7):
        shutil.rmtree(step_directory(config.checkpoint_dir(), step))
    (config.stage_dir() / "metrics.jsonl").unlink()
    again = logged_run(tiny.pretraining_config(tmp_path, **settings, from_checkpoint=config.run.output_dir), 7)
    assert [(row["step"], row["loss"]) for row in rows(config)] == expected[2:]
    assert (again.outcome.totals.sequences, again.outcome.totals.tokens) == (
        whole.outcome.totals.sequences,
        whole.outcome.totals.tokens,
    )


def test_logged_metrics_do_not_depend_on_how_often_they_are_logged(tmp_path):
    """Metrics are means over the interval, not the last micro-step: two rows of one step average to one row of two."""
    often, seldom = (tiny.pretraining_config(folder(tmp_path, str(n)), log_freq=n) for n in (1, 2))
    logged_run(often, 2)
    logged_run(seldom, 2)
    (first, second), (both,) = rows(often), rows(seldom)
    for name in ("loss", "masked_lm_loss", "next_sentence_loss", "next_sentence_accuracy"):
        assert both[name] == pytest.approx((first[name] + second[name]) / 2, rel=1e-6)
    for name in ("learning_rate", "gradient_norm", "skipped_steps"):
        assert both[name] == second[name]


def test_slow_evaluations_and_saves_do_not_count_as_training(tmp_path):
    config, clock = tiny.pretraining_config(tmp_path, max_steps=3, eval_freq=1), [0.0]

    def take(seconds, value):
        clock[0] += seconds
        return value

    stop = StopRequest(lambda: clock[0])
    run = runs.run(
        config, 3, stop=stop, change=lambda step, feeds: take(2.0, feeds), evaluate=lambda step: take(60.0, {})
    )
    assert (run.outcome.totals.seconds, run.outcome.totals.total_seconds) == (6.0, 186.0)


def test_skipped_updates_and_the_loss_scale_are_logged_and_the_loss_stays_a_number(tmp_path):
    config = tiny.pretraining_config(tmp_path, max_steps=4, amp=True)
    logged_run(config, 4, change=lambda step, feeds: [tiny.overflowing(f) for f in feeds] if step == 1 else feeds)
    first, skipped, *rest = rows(config)
    assert [row["skipped_steps"] for row in (first, skipped, *rest)] == [0, 1, 1, 1]
    assert [row["loss_scale"] for row in (first, skipped, *rest)] == [2.0**20, 2.0**19, 2.0**19, 2.0**19]
    assert skipped["learning_rate"] == rest[0]["learning_rate"]
    assert skipped["loss"] is None  # null, which JSON has, not NaN, which it has not
    assert skipped["gradient_norm"] is None, "not the 0 to which an overflow clears the gradients"
    assert all(math.isfinite(row["loss"]) for row in (first, *rest))


def test_a_benchmark_saves_nothing_and_measures_after_its_warm_up(tmp_path):
    config = tiny.pretraining_config(
        tmp_path, benchmark=True, benchmark_warmup_steps=2, benchmark_steps=3, num_steps_per_checkpoint=1, eval_freq=1
    )
    run = runs.run(config, 5, evaluate=lambda step: pytest.fail("a benchmark does not evaluate"))
    assert list_steps(config.checkpoint_dir()) == []
    assert run.outcome.totals.sequences == 3 * 12


@pytest.mark.long
def test_dropout_is_drawn_anew_for_each_pass_and_step(tmp_path):
    """The batch stays the same, at a rate near 0: losses differ by their dropout masks alone, and repeat."""
    options = dict(model=tiny.MODEL_WITH_DROPOUT, max_steps=4, learning_rate=1e-12)
    (fixed,) = tiny.feeds(tiny.random_batch(0, 6))
    losses = []
    for seed, micro_steps in ((1, 2), (1, 2), (2, 2), (1, 1)):
        directory = tmp_path / str(len(losses))
        directory.mkdir()
        config = tiny.pretraining_config(
            directory, seed=seed, batch_size=6, gradient_merge_steps=micro_steps, **options
        )
        logged_run(config, 4, change=lambda step, feeds, micro_steps=micro_steps: [fixed] * micro_steps)
        losses.append([row["loss"] for row in rows(config)])
    assert len(set(losses[0])) == 4
    assert losses[0] == losses[1]
    assert not set(losses[0]) & set(losses[2]), "another seed, other masks"
    assert not set(losses[0]) & set(losses[3]), "the second micro-batch has masks of its own, so the mean is another"


def test_each_micro_step_of_each_update_has_a_key_for_its_dropout(tmp_path, monkeypatch):
    """The key is a function of seed, update, micro-step and rank, so that a resumed run draws the same."""
    keys = []
    monkeypatch.setattr(Dropout, "draw", lambda self, scope, place, feed, key: keys.append(int(key)))
    config = tiny.pretraining_config(tmp_path, seed=5, batch_size=6, gradient_merge_steps=2, keep_checkpoints=9)
    runs.run(config, 2)
    assert keys == [int(stream_key(5, "dropout", step, micro_step, 0)) for step in (0, 1) for micro_step in (0, 1)]
    keys.clear()
    again = derive(config, from_checkpoint=config.run.output_dir)
    runs.run(again, 3)
    assert keys == [int(stream_key(5, "dropout", 2, micro_step, 0)) for micro_step in (0, 1)]


def test_an_evaluation_that_fails_loses_no_update(tmp_path):
    """The update is saved before the last evaluation, and after another evaluation that raised."""
    for name, last, error in (("middle", 9, ValueError), ("end", 4, SystemExit)):
        config = tiny.pretraining_config(folder(tmp_path, name), max_steps=last, eval_freq=4)

        def evaluate(step, error=error):
            raise error("no memory")

        with pytest.raises(error):
            runs.run(config, last, evaluate=evaluate)
        assert list_steps(config.checkpoint_dir()) == [4]


def test_a_run_that_was_killed_before_its_summary_evaluates_once_more(tmp_path):
    config, steps = tiny.pretraining_config(tmp_path, max_steps=2, eval_freq=1, log_freq=2), []

    def evaluate(step):
        steps.append(step)
        return {"eval_masked_lm_loss": 2.5}

    logged_run(config, 2, evaluate=evaluate)
    assert [row["step"] for row in rows(config) if "loss" in row] == [2], "an evaluation ends no interval of the log"
    again = runs.run(derive(config, from_checkpoint=config.run.output_dir), 2, evaluate=evaluate)
    assert steps == [1, 2, 2] and again.outcome.metrics == {"eval_masked_lm_loss": 2.5} and again.outcome.finished


def test_a_stop_request_ends_the_run_after_the_update_and_says_by_what(tmp_path):
    config, found = tiny.pretraining_config(tmp_path, max_steps=3), []
    for settings in (config, derive(config, from_checkpoint=config.run.output_dir)):
        stop = StopRequest()

        def change(step, feeds, stop=stop):
            stop.signal_name = "SIGTERM" if step in (1, 2) else None
            return feeds

        outcome = runs.run(settings, 3, stop=stop, change=change).outcome
        found.append((outcome.step, outcome.finished, outcome.interrupted_by))
    assert found == [(2, False, "SIGTERM"), (3, True, None)], "after the last update there is nothing to stop"
    assert 3 in list_steps(config.checkpoint_dir())


def test_evaluation_weighs_each_masked_token_and_each_sequence_alike():
    """However the sequences fall on batches, the held-out loss is the same."""
    session = tiny.Session()
    evaluation = build_evaluation_program(PretrainingObjective(tiny.MODEL))
    batch = tiny.random_batch(0, 12)
    results = []
    with static.scope_guard(session.scope):
        for micro_steps in (1, 2, 4):
            feeds = tiny.feeds(batch, micro_steps)
            for feed in feeds:  # a loader of held-out data normalises each batch by its own masked tokens
                feed["masked_lm_normalizer"] = np.maximum(feed["masked_lm_weights"].sum(keepdims=True), 1.0)
            batches, collective = map(tiny.micro_batch, feeds), Collective(tiny.ONE_RANK, session.executor)
            results.append(evaluate_pretraining(session.executor, evaluation, batches, collective))
    assert results[0]["eval_sequences"] == 12
    for other in results[1:]:
        assert other == pytest.approx(results[0], rel=1e-5)


def test_a_spike_at_the_end_is_rolled_back_before_the_run_counts_as_diverged(tmp_path):
    def change(step, feeds):
        factor = 100 if step == 11 else 1
        return [{**feed, "masked_lm_weights": feed["masked_lm_weights"] * factor} for feed in feeds]

    settings = {"max_steps": 12, "log_freq": 1, "num_steps_per_checkpoint": 4}
    rolls_back = tiny.pretraining_config(folder(tmp_path, "back"), **settings, loss_spike_action="rollback")
    outcome = runs.run(rolls_back, 12, change=change).outcome
    assert outcome.finished and outcome.metrics["skipped_steps"] == 1, "the batch of update 12, and no other"
    assert outcome.totals.sequences == (12 + 3) * 12, "updates 9 to 11 were made twice"
    with pytest.raises(TrainingDiverged, match="the training has diverged"):
        runs.run(tiny.pretraining_config(folder(tmp_path, "alert"), **settings), 12, change=change)
