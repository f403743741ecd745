"""The plan of a fine-tuning: its time, ways to shorten it, and the use of the cores."""

import pytest

from bert.config.setting_sources import resolve_config
from bert.config.training_settings import derive
from bert.finetuning import inquiries
from bert.finetuning.inquiries import dry_run_report
from bert.glue.config import ENTRY
from bert.tokenization.vocabulary import SPECIAL_TOKENS


@pytest.fixture
def config(tmp_path):
    words = ["tree", "lamp", "river"]
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]) + "\n")
    rows = "".join(f"{words[n % 3]} {words[n % 2]},{'ab'[n % 2]}\n" for n in range(60))
    (tmp_path / "table.csv").write_text("text,label\n" + rows)
    given = {"bert_model": "bert-tiny", "vocab_file": tmp_path / "vocab.txt", "train_file": tmp_path / "table.csv"}
    given |= {"text_column": "text", "task_name": "custom", "device": "cpu", "epochs": 1e6, "lr_schedule": "wsd"}
    given |= {"do_train": True, "do_eval": True, "output_dir": tmp_path / "out", "eval_file": tmp_path / "table.csv"}
    return resolve_config(given, ENTRY)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(inquiries, "usable_cores", lambda allowed: [None, None])


def report(config, ranks: int = 1) -> str:
    return " ".join(dry_run_report(config, ranks, ENTRY.task).split())


def test_a_long_training_names_what_makes_it_shorter(config):
    assert "; --hours, fewer --epochs, a lower --max-seq-length or a smaller model make it shorter" in report(config)
    assert "; --hours, fewer --max-steps, a lower" in report(derive(config, max_steps=10**7))
    assert "make it shorter" not in report(derive(config, epochs=2))


def test_a_clock_is_what_the_plan_shows(config):
    """With --hours 0.2 the ranks get 12 minutes."""
    shown = report(derive(config, finish_in=720))
    assert "time 12.0 minutes, in which about " in shown and "make it shorter" not in shown


def test_the_second_core_is_explained(config):
    idle = "cores matrix products use 2 of 2, the rest of an update 1; the scripts' --num-processes 2 uses 2 for all"
    assert idle in report(config)
    assert "cores matrix products use 1 of 2" in report(derive(config, cpu_threads=1))
    assert " cores " not in report(config, ranks=2)
    assert " cores " not in report(derive(config, device="gpu"))
