"""An earlier run in the output folder: finished, resumable, or another run."""

import json
import re
from pathlib import Path

import pytest

from bert.checkpoints.directories import BEST, name_step, write_checkpoint
from bert.commands.pretrain import parse_launch_arguments
from bert.config.architecture import BUILT_IN_MODELS
from bert.config.command_line import parse_arguments
from bert.config.flags import flat_fields
from bert.config.run_file import dump_yaml
from bert.config.settings_base import MAY_DIFFER
from bert.config.training_settings import derive
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.ner.config import TaggingConfig
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.finetuning.squad.config import SquadConfig
from bert.glue.config import ENTRY as GLUE
from bert.glue.config import GlueConfig
from bert.launching import previous_run
from bert.launching.previous_run import is_done, kept_start, refuse_other_run, settings_asked_for, without_effect
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY as PRETRAINING


@pytest.fixture
def config(tmp_path):
    """Return the settings of phase 1 of the quickstart."""
    return derive(parse_launch_arguments([]).phases[0], output_dir=tmp_path)


@pytest.fixture
def trained(config):
    """Return the same settings after update 7 of a start that recorded its settings."""
    settings_asked_for(config).write_text(dump_yaml(config))
    (config.checkpoint_dir() / "7").mkdir(parents=True)
    return config


def saved(config, step):
    def write(folder):
        for name in ("weights", "optimizer"):
            (folder / name).write_text(f"{name} {step}")

    return write_checkpoint(config.checkpoint_dir(), step, write)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 64
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def test_done_means_all_steps_and_their_valid_checkpoint(config, caplog):
    config = derive(config, max_steps=7)
    config.stage_dir().mkdir(parents=True)
    (config.stage_dir() / "summary.json").write_text(json.dumps({"steps": 7}))
    assert not is_done(config)
    newest = saved(config, 7)
    assert is_done(config) and not is_done(derive(config, benchmark=True))
    assert not is_done(derive(config, max_steps=8)) and caplog.text == ""
    saved(config, 5)
    whole = {path: path.read_bytes() for path in newest.iterdir()}
    damages = ((Path.unlink, "weights"), (Path.unlink, "optimizer"), (Path.unlink, "manifest.json"))
    for damage, name in (*damages, (flip, "weights"), (flip, "optimizer"), (cut, "manifest.json")):
        damage(newest / name)
        assert not is_done(config)
        (message,) = caplog.messages
        assert message.startswith(f"checkpoint refused, trying an older one: {newest}") and name in message
        caplog.clear()
        for path, content in whole.items():
            path.write_bytes(content)
    name_step(config.checkpoint_dir(), BEST, 5, {"is_final": True})
    assert is_done(config) and caplog.text == ""
    flip(config.checkpoint_dir() / "5" / "weights")
    assert is_done(config) and f"{config.checkpoint_dir()}/5/weights does not have" in caplog.text


def test_a_large_checkpoint_is_said_to_be_verified(config, monkeypatch, capsys):
    saved(config, 7)
    monkeypatch.setattr(previous_run, "_LARGE_BYTES", 10)
    assert previous_run.newest_saved(config) == 7
    assert re.fullmatch(r"verifying \S+/7, \d+ bytes \.\.\.\n", capsys.readouterr().out)


def test_another_global_batch_is_refused_before_anything_starts(trained):
    """A finished run loads no checkpoint, so nothing else would notice the other batch."""
    progress = trained.checkpoint_dir() / "7" / f"{trained.run.model_prefix}_progress.json"
    progress.write_text(json.dumps({"global_batch_size": trained.batch.resolved_global_batch_size(2)}))
    refuse_other_run(trained, 2)
    refuse_other_run(derive(trained, benchmark=True), 1)
    with pytest.raises(ValueError, match="global_batch_size=128 differs from 64 of the run in .*; pass another"):
        refuse_other_run(derive(trained, global_batch_size=128), 2)


def test_settings_that_a_finished_run_uses_no_more_are_named(trained):
    assert without_effect(trained) == ""
    other = derive(trained, eval_freq=3, input_dir="elsewhere", cpu_threads=1, output_dir=trained.run.output_dir)
    lines = without_effect(other).splitlines()
    assert lines[0] == f"eval_freq=3 has no effect on the finished phase1, which had {trained.run.eval_freq}"
    assert "input_dir=elsewhere has no effect on the finished phase1, which had " in lines[1]
    assert len(lines) == 2 and without_effect(other, {"eval_freq"}) == f"{lines[0]}\n"


def test_a_completed_decay_is_done_until_more_updates_are_asked_for(config):
    config = derive(config, max_steps=100, lr_schedule="wsd", finish_in=60)
    config.stage_dir().mkdir(parents=True)
    saved(config, 7)
    for last_step, done in ((7, True), (9, False)):
        summary = {"steps": 7, "max_steps": 100, "decay_from": 5, "last_step": last_step}
        (config.stage_dir() / "summary.json").write_text(json.dumps(summary))
        assert is_done(config) is done
        assert not is_done(derive(config, max_steps=101))


def decides(config_class) -> set[str]:
    """Return the settings that a continued run must repeat, besides model, optimizer and precision."""
    sections = {name for name, section in config_class.model_fields.items() if MAY_DIFFER not in section.metadata}
    return {
        name
        for name, (section, field) in flat_fields(config_class).items()
        if section in sections - {"model", "optimizer", "precision"} and MAY_DIFFER not in field.metadata
    }


def test_the_settings_that_a_continued_run_must_repeat():
    of_every_run = {"max_steps", "epochs", "seed", "bert_model", "max_seq_length"}
    own = "phase data_loader objective max_predictions_per_seq masking whole_word_masking masked_lm_ratio"
    assert decides(PretrainingConfig) == of_every_run | {*own.split(), "eval_masked_lm_ratio"}
    for task in (SquadConfig, GlueConfig, TaggingConfig):
        assert of_every_run | {"keep_best", "do_lower_case", "train_file"} <= decides(task)
        assert not decides(task) & {"batch_size", "from_checkpoint", "device", "predict_batch_size"}


def test_another_run_is_refused_once_there_is_a_checkpoint(config):
    settings_asked_for(config).write_text(dump_yaml(config))
    other = derive(config, masked_lm_ratio=0.1)
    refuse_other_run(other, 1)  # nothing was trained yet
    (config.checkpoint_dir() / "7").mkdir(parents=True)
    refuse_other_run(derive(config, batch_size=4, num_workers=0, cpu_threads=1, from_checkpoint="elsewhere"), 1)
    with pytest.raises(ValueError, match="masked_lm_ratio=0.1 differs from 0.15 of the run in .*; pass another"):
        refuse_other_run(other, 1)


def test_a_run_is_continued_whose_settings_have_tf32_as_a_boolean(config):
    """Rounding depends on the cards, as in a run that resumes on other cards."""
    written = dump_yaml(config).replace("tf32: auto", "tf32: false")
    assert "tf32: false" in written
    settings_asked_for(config).write_text(written)
    (config.checkpoint_dir() / "7").mkdir(parents=True)
    refuse_other_run(config, 1)


def test_a_run_of_another_model_is_refused_by_its_name(config):
    """An earlier version began such runs without a model's name, when the default was BERT-base."""
    settings_asked_for(config).write_text(dump_yaml(config))
    other = derive(config, bert_model="bert-large-uncased", model=BUILT_IN_MODELS["bert-large-uncased"])
    refuse_other_run(other, 1)  # nothing was trained yet
    (config.checkpoint_dir() / "7").mkdir(parents=True)
    with pytest.raises(ValueError, match="bert_model=bert-large-uncased differs from bert-quickstart of the run in"):
        refuse_other_run(other, 1)


@pytest.mark.parametrize("entry", [SQUAD, GLUE, NER], ids=lambda entry: entry.script)
def test_a_finished_training_is_followed_by_predictions(entry, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    words = ["--vocab-file", tmp_path / "vocab.txt", "--output-dir", tmp_path, "--do-train", "--train-file", "a"]
    config = parse_arguments(entry, list(map(str, words)))
    settings_asked_for(config).write_text(dump_yaml(config))
    (config.checkpoint_dir() / "7").mkdir(parents=True)
    refuse_other_run(derive(config, do_predict=True, predict_file="b"), 1)
    if entry is SQUAD:
        refuse_other_run(derive(config, n_best_size=3, max_answer_length=9, null_score_diff_threshold=0.5), 1)
        with pytest.raises(ValueError, match="predict_file=b differs from None"):  # it would choose the best weights
            refuse_other_run(derive(config, do_eval=True, predict_file="b"), 1)
    else:
        with pytest.raises(ValueError, match="eval_file=b differs from None"):
            refuse_other_run(derive(config, do_eval=True, eval_file="b"), 1)


def test_a_record_without_a_pooling_means_the_first_token_which_decides_in_a_fine_tuning_alone(trained, tmp_path):
    """Runs of ModernBERTs from before there was a choice; a recipe of today pools means."""

    def refuse(run, **settings):
        asked = settings_asked_for(run)
        lines = dump_yaml(run).splitlines()
        asked.write_text("\n".join(line for line in lines if not line.startswith("classifier_pooling")))
        (run.checkpoint_dir() / "7").mkdir(parents=True, exist_ok=True)
        refuse_other_run(derive(run, **settings), 1)

    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    words = ["--vocab-file", tmp_path / "vocab.txt", "--output-dir", tmp_path, "--do-train", "--train-file", "a"]
    fine_tuning = parse_arguments(GLUE, [*map(str, words), "--model-type", "modernbert"])
    refuse(trained, classifier_pooling="mean")
    refuse(fine_tuning, classifier_pooling="cls")
    with pytest.raises(ValueError, match="classifier_pooling=mean differs from cls of the run in"):
        refuse(fine_tuning, classifier_pooling="mean")
    new = ["--config", "quickstart_phase1", "--objective", "mlm"]
    for more, pooling in (
        ((), "cls"),
        (("--model-type", "modernbert"), "mean"),
        (("--bert-model", "modernbert-base"), "mean"),
    ):
        assert parse_arguments(PRETRAINING, [*new, *more]).model.classifier_pooling == pooling


def test_a_run_may_be_extended_and_shortened_to_what_it_has_not_made(trained):
    for steps in (7, 2000, 5000):
        refuse_other_run(derive(trained, max_steps=steps), 1)
    with pytest.raises(ValueError, match="max_steps=6 must be at least the 7 updates that the run in .* has made"):
        refuse_other_run(derive(trained, max_steps=6), 1)
    refuse_other_run(derive(trained, max_steps=-1, epochs=3), 1)  # counted once the shards are known


def test_settings_that_an_older_version_did_not_have_are_no_difference(trained):
    old = [line for line in dump_yaml(trained).splitlines() if not line.startswith("whole_word_masking")]
    settings_asked_for(trained).write_text("\n".join(old))
    refuse_other_run(trained, 1)
    with pytest.raises(ValueError, match="whole_word_masking=True differs from False"):
        refuse_other_run(derive(trained, whole_word_masking=True), 1)


def test_an_early_stopped_run_is_done_until_more_is_asked_for(config):
    config = derive(config, max_steps=100, early_stopping=3)
    config.stage_dir().mkdir(parents=True)
    summary = {"steps": 40, "max_steps": 100, "stopped_early": True, "early_stopping": 3}
    (config.stage_dir() / "summary.json").write_text(json.dumps(summary))
    saved(config, 40)
    assert is_done(config) and is_done(derive(config, early_stopping=2))
    for more in ({"early_stopping": 4}, {"early_stopping": 0}, {"max_steps": 101}):
        assert not is_done(derive(config, **more))


def test_phase_2_keeps_its_start_when_phase_1_is_extended_and_it_is_said(tmp_path):
    one, two = (derive(config, output_dir=tmp_path) for config in parse_launch_arguments([]).phases)
    assert kept_start(two, one) is None
    (one.checkpoint_dir() / "2500").mkdir(parents=True)
    (two.checkpoint_dir() / "500").mkdir(parents=True)
    progress = {"carried": {"started_from": str(one.checkpoint_dir() / "2500")}}
    (two.checkpoint_dir() / "500/bert_paddle_progress.json").write_text(json.dumps(progress))
    assert kept_start(two, one) is None
    (one.checkpoint_dir() / "5000").mkdir()
    assert "the weights of phase1 after update 2500, though phase1 now ends at 5000; to restart it, remove" in str(
        kept_start(two, one)
    )
