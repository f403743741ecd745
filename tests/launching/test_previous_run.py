"""What an earlier start left: a run that is done, that is continued, or that is another."""

import json

import pytest

from bert.config.command_line import dump_yaml
from bert.config.flags import flat_fields
from bert.config.training_settings import derive
from bert.finetuning.glue.config import GlueConfig
from bert.finetuning.ner.config import TaggingConfig
from bert.finetuning.squad.config import SquadConfig
from bert.launching.pretraining_plan import parse_launch_arguments
from bert.launching.previous_run import MAY_DIFFER, MAY_DIFFER_SECTIONS, is_done, refuse_other_run, settings_asked_for
from bert.pretraining.config import PretrainingConfig


def test_done_means_all_steps_and_their_checkpoint(tmp_path):
    config = derive(parse_launch_arguments([]).phases[0], output_dir=tmp_path, max_steps=7)
    config.stage_dir().mkdir(parents=True)
    (config.stage_dir() / "summary.json").write_text(json.dumps({"steps": 7}))
    assert not is_done(config)
    (config.checkpoint_dir() / "7").mkdir(parents=True)
    assert is_done(config) and not is_done(derive(config, benchmark=True))
    assert not is_done(derive(config, max_steps=8))


def decides(config_class) -> set[str]:
    """Settings that a continued run must repeat, besides those of the model, the optimizer and the precision."""
    return {
        name
        for name, (section, _) in flat_fields(config_class).items()
        if section not in ("model", "optimizer", "precision", *MAY_DIFFER_SECTIONS) and name not in MAY_DIFFER
    }


def test_the_settings_that_a_continued_run_must_repeat():
    of_every_run = {"max_steps", "seed", "bert_model", "max_seq_length"}
    assert decides(PretrainingConfig) == of_every_run | {
        "phase",
        "input_dir",
        "max_predictions_per_seq",
        "masking",
        "whole_word_masking",
        "masked_lm_ratio",
    }
    for task in (SquadConfig, GlueConfig, TaggingConfig):
        assert of_every_run | {"epochs", "keep_best", "do_lower_case", "train_file"} <= decides(task)


def test_every_name_in_the_list_is_a_setting():
    tasks = (PretrainingConfig, SquadConfig, GlueConfig, TaggingConfig)
    assert set(MAY_DIFFER) <= {name for task in tasks for name in flat_fields(task)}
    assert set(MAY_DIFFER_SECTIONS) <= PretrainingConfig.model_fields.keys()


def test_another_run_is_refused_once_there_is_a_checkpoint(tmp_path):
    config = derive(parse_launch_arguments([]).phases[0], output_dir=tmp_path)
    settings_asked_for(config).write_text(dump_yaml(config))
    other = derive(config, masked_lm_ratio=0.5)
    refuse_other_run(other)  # nothing was trained yet
    (config.checkpoint_dir() / "7").mkdir(parents=True)
    refuse_other_run(derive(config, batch_size=4, num_workers=0, cpu_threads=1, from_checkpoint="elsewhere"))
    with pytest.raises(ValueError, match="masked_lm_ratio=0.5 differs from 0.15 of the run in .*; pass another"):
        refuse_other_run(other)
