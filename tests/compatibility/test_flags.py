"""Flags of NVIDIA's run_pretraining.py and run_squad.py, as its README and scripts type them."""

from pathlib import Path

import pytest

from bert.config.architecture import BUILT_IN_MODELS
from bert.config.command_line import parse_arguments
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.pretraining.entry import ENTRY as PRETRAINING
from bert.pretraining.recipes import RECIPES

PHASE_1 = ["--phase1", "--max-steps", "9", "--input-dir", "shards"]
LARGE = BUILT_IN_MODELS["bert-large-uncased"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", str(tmp_path / "data"))
    return tmp_path


def pretraining(*words):
    return parse_arguments(PRETRAINING, [*PHASE_1, *words])


def test_without_a_model_it_is_large_as_there(folder):
    config = pretraining("--vocab-file", "v.txt")
    assert (config.run.bert_model, config.model) == ("bert-large-uncased", LARGE)
    assert pretraining("--vocab-file", "v.txt", "--bert-model", "bert-base-cased").run.bert_model == "bert-base-cased"


def test_a_custom_model_comes_with_its_description(folder, capsys):
    config = pretraining(
        "--vocab-file", "v.txt", "--bert-model", "custom", "--config-file", "bert_configs/bert-base-cased.json"
    )
    assert (config.run.bert_model, config.model) == ("custom", BUILT_IN_MODELS["bert-base-cased"])
    with pytest.raises(SystemExit):
        pretraining("--vocab-file", "v.txt", "--bert-model", "custom")
    assert "bert_model=custom must be a built-in model, or come with --config-file" in capsys.readouterr().err


def test_the_files_of_their_image_are_known_by_name(folder):
    config = pretraining(
        "--config-file=bert_configs/bert-large-cased.json", "--vocab-file=vocab/bert-large-uncased-vocab.txt"
    )
    assert config.model == BUILT_IN_MODELS["bert-large-cased"]
    assert config.data.vocab_file == folder / "data/vocab/bert-large-uncased-vocab.txt"


def test_a_file_that_is_there_is_taken_as_it_is(folder):
    (folder / "vocab").mkdir()
    (folder / "vocab/bert-large-uncased-vocab.txt").write_text("[PAD]")
    assert str(pretraining("--vocab-file", "vocab/bert-large-uncased-vocab.txt").data.vocab_file).startswith("vocab/")


@pytest.mark.parametrize("word", ["True", "False", "true"])
def test_show_config_with_a_value_goes_on(folder, word):
    assert pretraining("--vocab-file", "v", "--show-config", word).run.max_steps == 9
    assert pretraining("--vocab-file", "v", f"--show-config={word}").run.max_steps == 9


def test_underscores_are_dashes_as_in_an_example_of_their_readme(folder):
    assert pretraining("--vocab_file", "a_b", "--learning_rate=3e-4").optimizer.learning_rate == 3e-4
    assert str(pretraining("--vocab_file", "a_b").data.vocab_file) == "a_b"


def test_the_named_arguments_of_their_readme_are_the_published_recipe(folder):
    words = """--input-dir=/path/to/dataset/phase1 --vocab-file=vocab/bert-large-uncased-vocab.txt
        --output-dir=./results --bert-model=bert-large-uncased --from-checkpoint=./results/bert-large-uncased/phase1
        --last-step-of-checkpoint=auto --batch-size=256 --max-steps=7038 --num-steps-per-checkpoint=200 --log-freq=1
        --max-seq-length=128 --max-predictions-per-seq=20 --gradient-merge-steps=32 --amp --use-dynamic-loss-scaling
        --optimizer=Lamb --phase1 --scale-loss=1048576 --learning-rate=6e-3 --warmup-proportion=0.2843
        --report-file=./results/dllogger_p1.json"""
    config, recipe = parse_arguments(PRETRAINING, words.split()), RECIPES["phase1_large"]()
    assert (config.model, config.optimizer, config.precision) == (recipe.model, recipe.optimizer, recipe.precision)
    assert config.batch.resolved_global_batch_size(8) == recipe.batch.global_batch_size
    assert config.checkpoint_dir() == Path("results/bert-large-uncased/phase1")
    assert config.data.vocab_file == Path("vocab/bert-large-uncased-vocab.txt")  # no weights, nothing downloaded yet


def test_flags_of_their_squad_scripts_are_accepted(folder, capsys):
    words = ["--do-train", "--train-file", "t.json", "--verbose-logging", "--eval-script", "evaluate-v1.1.py"]
    config = parse_arguments(SQUAD, [*words, "--vocab-file", "v.txt", "--enable-cpu-affinity", "False"])
    assert config.run.bert_model == "bert-large-uncased"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--optimizer", "DistributedFusedLamb"], "optimizer=DistributedFusedLamb must be Lamb, the same method"),
        (["--phase2"], "phase1"),
        (["--show-config", "maybe"], "show_config=maybe must be"),
    ],
)
def test_what_is_refused_on_purpose_says_so_in_a_line(folder, capsys, words, message):
    with pytest.raises(SystemExit) as stop:
        pretraining("--vocab-file", "v", *words)
    assert stop.value.code == 2 and message in capsys.readouterr().err
