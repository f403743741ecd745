"""The public functions, with a script in place of the commands; tests/test_package.py runs the commands."""

import os
import signal
import sys
import threading

import pandas as pd
import pytest

from bert import api
from bert.exit_codes import Failure
from tests.inference.models import model
from tests.support import foreign
from tests.support.waiting import wait_until


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Puts a shell script in the place of the interpreter that runs commands."""

    def put(script):
        fake = tmp_path / "python"
        fake.write_text(f"#!/bin/bash\n{script}\n")
        fake.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(fake))

    return put


def test_output_is_printed_and_errors_are_the_exception(stand_in, tmp_path, capsys):
    stand_in("echo a line; echo 'error: epochs=no must be a number' >&2; exit 2")
    with pytest.raises(ValueError, match="^epochs=no must be a number$"):
        api.pretrain("notes", output_dir=tmp_path / "out")
    assert capsys.readouterr().out == "a line\n"
    stand_in("exit 9")
    with pytest.raises(Failure, match="the classify run ended with exit code 9") as ended:
        api.classify("train.csv", output_dir=tmp_path / "out")
    assert ended.value.exit_code == 9


def test_an_interrupt_of_this_process_alone_stops_the_run_which_saves_first(stand_in, tmp_path, capsys):
    stand_in("trap 'echo saved; exit 75' INT; touch '%s/up'; while :; do sleep 0.05; done" % tmp_path)

    def interrupt():
        wait_until((tmp_path / "up").exists)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests before this one may have set another
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt, match="the same call continues from here"):
            api.pretrain("notes", output_dir=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "saved\n" in capsys.readouterr().out


def test_a_table_in_memory_becomes_a_file_that_an_equal_call_leaves_as_it_is(stand_in, tmp_path):
    stand_in(f"""echo "$*" > '{tmp_path}/words'; mkdir -p '{tmp_path}/out/glue-custom'; cd '{tmp_path}/out/glue-custom'
        echo '{{"eval_accuracy": 0.5}}' > summary.json; echo '{{"accuracy": 0.5}}' > scores.json""")
    table, file = (
        pd.DataFrame({"note": ["a", "b"], "kind": [0, 1]}, index=[7, 9]),
        tmp_path / "out/tables/train_file.parquet",
    )
    for _ in range(2):
        summary = api.classify(table, output_dir=tmp_path / "out", eval_file="dev.csv", epochs=2)
        os.utime(file, (1, 1)) if file.stat().st_mtime != 1 else None
    words = (
        f"-m bert.commands classify --train-file {file} --output-dir {tmp_path}/out --eval-file dev.csv --epochs 2\n"
    )
    assert (tmp_path / "words").read_text() == words and file.stat().st_mtime == 1
    assert summary == {"eval_accuracy": 0.5, "scores": {"accuracy": 0.5}}
    assert pd.read_parquet(file).equals(table.reset_index(drop=True))


def test_a_server_is_known_by_its_address_until_it_is_stopped(stand_in, tmp_path):
    stand_in("trap 'exit 0' TERM; echo 'http://127.0.0.1:9 is ready: predictions'; while :; do sleep 0.05; done")
    with api.serve("model") as server:
        assert server.url == "http://127.0.0.1:9"
    stand_in("echo 'error: model does not exist'; exit 2")
    with pytest.raises(ValueError, match="^model does not exist$"):
        api.serve("model")


def test_a_table_of_texts_comes_back_with_the_results_as_columns(tmp_path):
    classifier = api.load_model(model(tmp_path / "model", "sequence-classification"))
    table = pd.DataFrame({"id": [4, 5], "text": ["word1", "word2 word3"], "label": ["x", "y"]}, index=[10, 10])
    found, alone = api.predict(classifier, table), api.predict(classifier, table["text"])
    assert found.index.tolist() == [10, 10] and found["label"].tolist() == ["x", "y"]
    assert found["predicted_label"].tolist() == [result["label"] for result in alone]
    assert found["probability_fox"].tolist() == [result["probabilities"]["fox"] for result in alone]
    vectors = api.predict(api.load_model(tmp_path / "model", "encoder"), table[["text"]])["vector"]
    assert vectors.map(len).tolist() == [foreign.CONFIG["hidden_size"]] * 2
    with pytest.raises(ValueError, match="the object has the keys id, label; it must have"):
        api.predict(classifier, table[["id", "label"]])
    with pytest.raises(ValueError, match="^text 1, counted from 0: None must be text"):
        api.predict(classifier, table.assign(text=["word1", None]))
    with pytest.raises(ValueError, match="texts='text' must be a list of texts; put it into brackets"):
        api.predict(classifier, "text")
