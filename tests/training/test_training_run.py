"""The summary of a training, from the state at the end of its last start."""

import json
from types import SimpleNamespace

import pytest

from bert.checkpoints.progress import DecayState, Totals
from bert.config.training_settings import derive
from bert.runtime.distributed import Group
from bert.training.trainer import LegOutcome
from bert.training.training_run import last_step_of_leg, summary
from tests.support import tiny
from tests.support.messages import messages

METRICS = {"loss": 2.5, "skipped_steps": 3.0, "learning_rate": 0.1, "eval_masked_lm_loss": 2.0, "epochs": 1.5}
TOTALS = Totals(sequences=120, tokens=900, flops=4e12, seconds=6.0, rank_seconds=12.0, total_seconds=10.0)
DEVICE = SimpleNamespace(peak_tflops=1.0, group=Group(0, 2, "cpu"))
PROGRAM = SimpleNamespace(parameters=("a", "b", "c"))


def outcome(**changes) -> LegOutcome:
    values = {"step": 10, "finished": True, "interrupted_by": None, "metrics": METRICS, "totals": TOTALS}
    values |= {"evaluations": {"best_step": 8}, "decay": None, "warmup_steps": None}
    return LegOutcome(**{**values, **changes})


def test_the_summary_has_rates_of_all_ranks_without_evaluations_and_saves(tmp_path):
    config = tiny.pretraining_config(tmp_path, max_steps=20, warmup_proportion=0.25)
    assert summary(config, outcome(), DEVICE, PROGRAM) == {
        "steps": 10,
        "max_steps": 20,
        "warmup_steps": 5,
        "finished": True,
        "interrupted_by": None,
        "e2e_train_time": 10.0,
        "raw_train_time": 6.0,
        "training_sequences_per_second": 20.0,
        "tokens_per_second": 150.0,
        "final_loss": 2.5,
        "skipped_steps": 3.0,
        "mfu": pytest.approx(4e12 / (1e12 * 12)),
        "peak_tflops_per_rank": 1.0,
        "parameters": tiny.MODEL.num_parameters(),
        "parameter_tensors": 3,
        "world_size": 2,
        "epochs": 1.5,
        "eval_masked_lm_loss": 2.0,
        "best_step": 8,
    }


def test_the_summary_of_a_leg_without_updates_reads_the_last_loss_from_the_log(tmp_path):
    config = tiny.pretraining_config(tmp_path)
    config.log_dir().mkdir(parents=True)
    rows = [{"step": 9, "loss": 4.0}, {"step": 10, "loss": 3.0, "skipped_steps": 1.0}, {"step": 10, "eval_x": 1.0}]
    (config.log_dir() / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    metrics = {"eval_masked_lm_loss": 2.0}
    found = summary(config, outcome(metrics=metrics, totals=Totals()), DEVICE, PROGRAM)
    assert (found["final_loss"], found["skipped_steps"], found["eval_masked_lm_loss"]) == (3.0, 1.0, 2.0)
    assert found["training_sequences_per_second"] is None is found["tokens_per_second"] is found["mfu"]
    assert "epochs" not in found


def test_the_summary_names_the_decay_and_the_warm_up_that_the_run_had(tmp_path):
    config = tiny.pretraining_config(tmp_path, lr_schedule="wsd")
    found = summary(config, outcome(decay=DecayState(8, 12, 8, 8, 0.1), warmup_steps=4), DEVICE, PROGRAM)
    assert (found["decay_from"], found["last_step"], found["warmup_steps"]) == (8, 12, 4)
    benchmark = derive(config, benchmark=True)
    assert summary(benchmark, outcome(), DEVICE, PROGRAM)["finished"] is False, "a benchmark trains nothing to use"
    assert "decay_from" not in summary(benchmark, outcome(), DEVICE, PROGRAM)


def test_a_benchmark_that_the_updates_cut_short_says_how_many_it_measures(tmp_path):
    config = tiny.pretraining_config(
        tmp_path, benchmark=True, benchmark_warmup_steps=4, benchmark_steps=5, max_steps=11
    )
    with messages() as said:
        assert last_step_of_leg(config, 2) == 11 and said == []
    with messages() as said:
        last_step_of_leg(config, 3)
    assert said == ["the benchmark measures 4 of 5 updates: max_steps=11"]
    with pytest.raises(ValueError, match="max_steps=11 leaves 4 updates after step 7"):
        last_step_of_leg(config, 7)
