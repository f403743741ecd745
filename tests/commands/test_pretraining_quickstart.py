"""The quickstart's data is made once, however often it is started."""

import subprocess
import sys

import pytest

from bert import REPOSITORY
from bert.commands.__main__ import main
from bert.commands.pretrain import parse_launch_arguments
from bert.config.training_settings import derive
from bert.files import waiting_lock
from bert.pretraining import preparation
from bert.reporting import results
from tests.support.commands import refused
from tests.support.jobs import execution_of

SECOND_START = """
import sys
from pathlib import Path
from bert.config.training_settings import derive
from bert.pretraining.preparation import quickstart_steps
from bert.pretraining.recipes import RECIPES
from tests.support.jobs import execution_of
home = Path(sys.argv[1])
config = derive(RECIPES["quickstart_phase1"](), vocab_file=home / "vocab.txt")
execution = execution_of(home, lambda command: print("made" if (home / "product").exists() else "missing") or 2)
sys.exit(execution.run(quickstart_steps(config)[0]))
"""


def test_a_second_start_waits_for_the_first_and_finds_its_data(tmp_path):
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with waiting_lock(tmp_path / ".lock", "start"):
        second = subprocess.Popen([sys.executable, "-c", SECOND_START, str(tmp_path)], cwd=REPOSITORY, **output)
        assert second.stderr.readline() == f"waiting for another start that makes the data in {tmp_path}\n"
        (tmp_path / "product").touch()
    assert second.communicate(timeout=60) == ("collecting text from this machine\nmade\n", "")
    assert second.returncode == 2


@pytest.mark.parametrize("words", [[], ["--text", "text"]])
def test_an_output_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capfd, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text("A sentence. " * 5000)
    (tmp_path / "file").touch()
    for folder, refusing in (("file/results", "file"), ("/sys/results", "/sys")):  # /sys refuses even root
        with refused(rf"\Aerror: .*{refusing}(/results)?: .*\n\Z"):
            sys.exit(main(["pretraining", *words, "--output-dir", folder]))
        assert "measuring" not in capfd.readouterr().out


@pytest.mark.parametrize("words", [["--wikipedia-source", "x"], ["--phase2-bin-size", "32"]])
def test_settings_of_data_that_the_quickstart_does_not_make_are_refused(words):
    with pytest.raises(ValueError, match=f"{words[0]}.* has no effect with the quickstart"):
        parse_launch_arguments(words)
    assert parse_launch_arguments(["--config", "base", *words, "--dry-run"]).name == "base"


def test_the_quickstart_makes_its_data_once(tmp_path):
    config = derive(
        parse_launch_arguments([]).phases[1],
        input_dir=tmp_path / "s/train",
        eval_dir=tmp_path / "s/eval",
        vocab_file=tmp_path / "vocab.txt",
    )
    steps = preparation.quickstart_steps(config)
    products = iter([step.product for step in steps])

    def run(words):
        product = next(products)
        product.parent.mkdir(parents=True, exist_ok=True)
        product.write_text("made")
        return 0

    execution = execution_of(tmp_path, run)
    for _ in range(2):
        assert [execution.run(step) for step in steps] == [0] * 4
    modules = ["data.examples.documentation", "data.train_vocabulary", *["data.preprocess_bert_pretrain"] * 2]
    assert [words[2] for words in execution.runner.ran] == modules
    train, held_out = (step.command for step in steps[2:])
    assert train[train.index("--bin-size") + 1] == "32" and "--bin-size" not in held_out
    assert "held_out/source" in " ".join(held_out) and "held_out" not in " ".join(train)


def test_the_table_leaves_out_what_is_unknown(capsys):
    results.print_table({"phase1": {"steps": 7}, "phase2": {"eval_masked_lm_loss": 5.25}})
    out = capsys.readouterr().out
    assert "5.250" in out and "-" in out and "phase 2" in out
    assert "labelled lines" not in out and "before training" not in out  # which no phase has


def test_the_table_of_masked_lm_alone_has_no_next_sentences(capsys):
    results.print_table({"phase1": {"final_loss": 6.1, "eval_masked_lm_loss": 5.25}})
    out = capsys.readouterr().out
    assert "training loss (masked LM) " in out and "next" not in out
    both = {"final_loss": 6.1, "eval_masked_lm_loss": 5.25, "eval_next_sentence_accuracy": 0.6}
    results.print_table({"phase1": both})
    assert "masked LM + next sentence" in capsys.readouterr().out
