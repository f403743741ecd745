"""The public functions that need no process of their own; tests/test_package.py has those of the installed package."""

import json
import math
import os
import signal
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest

from bert import api
from bert.exit_codes import Failure
from bert.launching import calls
from tests.inference.models import model
from tests.support import corpora, foreign
from tests.support.fake_hub import put_in_cache, tiny_model
from tests.support.waiting import wait_until


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_published_model_is_evaluated_by_its_name(offline):
    put_in_cache(offline / "cache", "bert-base-uncased", tiny_model())
    shards = corpora.write_shards(offline / "shards", [corpora.random_table(20, seed=1)])
    found = api.evaluate("bert-base-uncased", shards, batch_size=4)
    assert abs(found["masked_lm_loss"] - math.log(len(corpora.vocabulary()))) < 1.0


def test_a_name_that_is_neither_a_path_nor_known_is_refused(offline):
    with pytest.raises(ValueError, match="bert-base-uncasd does not exist; did you mean .*bert-base-uncased"):
        api.evaluate("results/bert-base-uncasd", "x")


@pytest.mark.parametrize("spelling", ["SST-2", "sst2", "SST_2"])
def test_a_task_of_glue_has_its_metrics_in_any_spelling(offline, monkeypatch, spelling):
    def leave_a_summary(task, *, output_dir, **settings):
        (stage := Path(output_dir) / "glue-sst-2").mkdir(parents=True)
        (stage / "summary.json").write_text(json.dumps({"eval_accuracy": 0.75}))

    monkeypatch.setattr(api, "run_task", leave_a_summary)
    (offline / "model").mkdir()
    assert api.evaluate(offline / "model", offline, task_name=spelling) == {"accuracy": 0.75}
    assert api.train("glue", output_dir=offline / "out", task_name=spelling)["eval_accuracy"] == 0.75


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Puts a shell script in the place of the interpreter that runs commands."""

    def put(script):
        fake = tmp_path / "python"
        fake.write_text(f"#!/bin/bash\n{script}\n")
        fake.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(fake))

    return put


def test_a_silent_run_that_fails_without_an_error_line_has_its_last_lines_as_the_reason(stand_in, tmp_path):
    stand_in("seq 30; echo 'RuntimeError: no memory'; exit 9")
    with pytest.raises(Failure, match=r"(?s)^12\n13\n.*30\nRuntimeError: no memory$") as ended:
        calls.run_task("glue", is_silent=True, output_dir=tmp_path)
    assert ended.value.exit_code == 9


def test_an_interrupt_of_this_process_alone_stops_the_run_which_saves_first(stand_in, tmp_path):
    stand_in("trap 'exit 75' INT; touch '%s/up'; while :; do sleep 0.05; done" % tmp_path)

    def interrupt():
        wait_until((tmp_path / "up").exists)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests before this one may have set another
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt, match="the same call continues from here"):
            calls.run_task("glue", is_silent=True, output_dir=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)


def test_records_reach_the_caller_and_a_notebook_shows_a_bar(stand_in, tmp_path, capsys):
    (stage := tmp_path / "out/glue-custom").mkdir(parents=True)
    (stage / "metrics.jsonl").write_text('{"step": 1, "loss": 9}\n')  # of an earlier start
    stand_in(f"""cd '{stage}'
        echo quiet=$BERT_QUIET_STEPS; echo '{{"step": 2, "loss": 8}}' >> metrics.jsonl; echo -n '{{"st' >> metrics.jsonl
        echo '{{"first_step": 1, "step": 2, "total_steps": 3, "loss": 8, "eta_seconds": 1}}' > progress.json; sleep 1.5
        echo 'ep": 3}}' >> metrics.jsonl""")
    records = []
    assert api.train("glue", output_dir=tmp_path / "out", on_log=records.append) == {}
    assert records == [{"stage": "glue-custom", "step": 2, "loss": 8}, {"stage": "glue-custom", "step": 3}]
    shown = capsys.readouterr().out
    assert "quiet=1\n" in shown and "glue-custom:  67%" in shown and "2/3" in shown and "loss 8.000" in shown


def test_an_exception_from_the_callback_lets_the_run_save_and_stop(stand_in, tmp_path):
    (stage := tmp_path / "out/phase1").mkdir(parents=True)
    stand_in(f"""cd '{stage}'; trap 'echo saved > saved; exit 75' TERM
        echo '{{"step": 1}}' >> metrics.jsonl; for i in {{1..300}}; do sleep 0.1; done""")
    with pytest.raises(ZeroDivisionError):
        api.pretrain("notes", output_dir=tmp_path / "out", on_log=lambda record: 1 / 0)
    assert (stage / "saved").is_file()


def test_tables_in_memory_become_files_that_an_equal_call_leaves_as_they_are(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(api, "run_task", lambda task, **settings: called.append((task, settings)))
    table = pd.DataFrame({"note": ["a", "b"], "kind": [0, 1]}, index=[7, 9])
    for _ in range(2):
        api.classify(table, output_dir=tmp_path, eval_file="dev.csv", epochs=2)
        (file,) = (tmp_path / "tables").iterdir()
        os.utime(file, (1, 1)) if len(called) == 1 else None
    task, settings = called[1]
    assert task == "classify" and settings["train_file"] == file and settings["eval_file"] == "dev.csv"
    assert file.stat().st_mtime == 1 and pd.read_parquet(file).equals(table.reset_index(drop=True))
    assert "do_train" not in settings and settings["epochs"] == 2


def test_a_table_of_texts_comes_back_with_the_results_as_columns(tmp_path):
    classifier = api.load(model(tmp_path / "model", "sequence-classification"))
    table = pd.DataFrame({"id": [4, 5], "text": ["word1", "word2 word3"], "label": ["x", "y"]}, index=[10, 10])
    found, alone = api.predict(classifier, table), api.predict(classifier, table["text"])
    assert found.index.tolist() == [10, 10] and found["label"].tolist() == ["x", "y"]
    assert found["predicted_label"].tolist() == [result["label"] for result in alone]
    assert found["probability_fox"].tolist() == [result["probabilities"]["fox"] for result in alone]
    vectors = api.predict(api.load(tmp_path / "model", "encoder"), table[["text"]])["vector"]
    assert vectors.map(len).tolist() == [foreign.CONFIG["hidden_size"]] * 2
    with pytest.raises(ValueError, match="the object has the keys id, label; it must have"):
        api.predict(classifier, table[["id", "label"]])
    with pytest.raises(ValueError, match="^text 1, counted from 0: None must be text"):
        api.predict(classifier, table.assign(text=["word1", None]))
