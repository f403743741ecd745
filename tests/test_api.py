"""The public functions that need no process of their own; tests/test_package.py has those of the installed package."""

import json
import math
import sys
from pathlib import Path

import pytest

from bert import api
from bert.exit_codes import Failure
from bert.launching import process_runner
from tests.support import corpora
from tests.support.fake_hub import put_in_cache, tiny_model


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


def test_a_silent_run_that_fails_without_an_error_line_has_its_last_lines_as_the_reason(tmp_path, monkeypatch):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/bash\nseq 30\necho 'RuntimeError: no memory'\nexit 9\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(Failure, match=r"(?s)^12\n13\n.*30\nRuntimeError: no memory$") as ended:
        process_runner.run_task("glue", is_silent=True)
    assert ended.value.exit_code == 9
