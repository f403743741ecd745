"""Missing shards are made once, by the commands of data/."""

import contextlib

import pytest

from bert.commands.pretrain import parse_launch_arguments
from bert.pretraining.preparation import MissingShards, Vocabulary, data_steps
from tests.support.jobs import execution_of


def prepare(folder, plan, phase=0, run=lambda words: 0) -> list[str]:
    """Execute the steps that make the data of a phase; return the commands, each as one string."""
    execution = execution_of(folder, run)
    for step in data_steps(plan.name, plan.phases[phase], plan.launch.shards, plan.ranks):
        if isinstance(step, MissingShards) and not step.is_done(execution):
            assert step.run(execution) == 0
    return [" ".join(words) for words in execution.runner.ran]


def test_missing_shards_are_made_from_wikipedia(tmp_path, capsys):
    source = tmp_path / "wikipedia"
    plan = parse_launch_arguments([*["-"] * 16, str(tmp_path / "one"), str(tmp_path / "two"), "-", "-", str(source)])
    with pytest.raises(ValueError, match="has no shards and wikipedia_source=.* no text to make them from; pass"):
        prepare(tmp_path, plan)
    source.mkdir()
    (source / "0.txt").write_text("wiki-1 text")
    commands = prepare(tmp_path, plan) + prepare(tmp_path, plan, phase=1)
    for text in ("--target-seq-length 128", "--num-shards 4096", "--sample-ratio 0.9", "--seed 12439", "--masking"):
        assert text in commands[0]
    assert "--bin-size" not in commands[0] and "--bin-size 64" in commands[1]
    assert "--target-seq-length 512" in commands[1] and "--max-predictions-per-seq 80" in commands[1]
    assert "--masked-lm-ratio" not in commands[0]


@pytest.mark.parametrize(("masking", "flags"), [("static", "40 --masked-lm-ratio 0.3"), ("dynamic", None)])
def test_shards_have_the_share_of_masked_tokens_that_the_training_predicts(tmp_path, masking, flags):
    words = ["--config", "large", "--masked-lm-ratio", "0.3", "--masking", masking, "--phase1-input-dir", "none"]
    plan = parse_launch_arguments([*words, "--wikipedia-source", str(tmp_path)])
    (tmp_path / "0.txt").write_text("wiki-1 text")
    commands = prepare(tmp_path, plan)
    assert plan.phases[0].data.max_predictions_per_seq == 40
    assert f"--max-predictions-per-seq {flags}" in commands[0] if flags else "--masked-lm-ratio" not in commands[0]


def test_missing_held_out_shards_are_an_error_before_the_training_shards_are_made(tmp_path):
    (tmp_path / "wikipedia").mkdir()
    (tmp_path / "wikipedia/0.txt").write_text("wiki-1 text")
    flags = ["--wikipedia-source", str(tmp_path / "wikipedia"), "--input-dir", str(tmp_path / "shards")]
    plan = parse_launch_arguments(["--config", "quickstart_phase1", *flags, "--eval-dir", str(tmp_path / "held_out")])
    with pytest.raises(ValueError, match=r"eval_dir=.*/held_out has no shards, .*--eval-dir none"):
        prepare(tmp_path, plan)
    plan = parse_launch_arguments(["--config", "quickstart_phase1", *flags, "--eval-dir", "none"])
    assert len(prepare(tmp_path, plan)) == 1


def test_shards_that_are_there_are_not_made_unless_unfinished(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one/part.0.parquet").write_text("")
    plan = parse_launch_arguments([*["-"] * 16, str(tmp_path / "one")])
    assert prepare(tmp_path, plan) == []
    (tmp_path / "one/.unfinished").mkdir()
    with pytest.raises(ValueError, match="no text to make them from"):
        prepare(tmp_path, plan)
    (tmp_path / "one/manifest.json").write_text("{}")  # vouches for all; only tidying up was left to do
    assert prepare(tmp_path, plan) == []


def test_an_unset_variable_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("BERT_PREP_WORKING_DIR", raising=False)
    plan = parse_launch_arguments(["256"])
    with pytest.raises(ValueError, match="set BERT_PREP_WORKING_DIR"):
        prepare(tmp_path, plan)


def test_shards_that_cannot_be_made_here_are_known_before_anything_runs(tmp_path):
    plan = parse_launch_arguments(["--config", "base", "--wikipedia-source", str(tmp_path / "wikipedia")])
    _, shards = data_steps(plan.name, plan.phases[0], plan.launch.shards, plan.ranks)
    with pytest.raises(ValueError, match=f"wikipedia_source={tmp_path}/wikipedia no text to make them from; pass"):
        shards.check(here=True)


def test_nodes_need_shards_that_one_of_them_has_made(tmp_path):
    (tmp_path / "0.txt").write_text("wiki-1 text")
    words = ["--config", "dgxa100-80g_4x8gpu_amp", "--master", "a:1", "--wikipedia-source", str(tmp_path)]
    plan = parse_launch_arguments(words)
    for for_all_nodes in (False, True):
        _, shards = data_steps(plan.name, plan.phases[0], plan.launch.shards, plan.ranks, for_all_nodes)
        refusal = (
            contextlib.nullcontext() if for_all_nodes else pytest.raises(ValueError, match="make them on one node")
        )
        with refusal:
            shards.check(here=True)


def test_a_missing_vocabulary_is_fetched(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr("bert.pretraining.preparation.provide_vocabulary", fetched.append)
    step, execution = Vocabulary(tmp_path / "vocab.txt"), execution_of(tmp_path)
    assert execution.run(step) == 0 and fetched == [tmp_path / "vocab.txt"]
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    assert execution.run(step) == 0 and len(fetched) == 1
