"""The public functions, with a script in place of the commands; tests/test_package.py runs the commands."""

import math
import os
import re
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bert import REPOSITORY, api, package
from bert.exit_codes import Failure
from tests.inference.models import model
from tests.support import foreign
from tests.support.waiting import wait_until


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a shell script in the place of the interpreter that runs commands."""

    def put(script):
        fake = tmp_path / "python"
        fake.write_text(f"#!/bin/bash\n{script}\n")
        fake.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(fake))

    return put


def test_the_package_offers_the_functions_of_the_api():
    assert sorted(package.__all__) == sorted([*api.__all__, "__version__"]) == dir(package)
    assert all(getattr(package, name) is getattr(api, name) for name in api.__all__)


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


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return api.load_model(model(tmp_path_factory.mktemp("classifier") / "model", "sequence-classification"))


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    return api.load_model(model(tmp_path_factory.mktemp("filler") / "model", "pretraining"))


NO_LISTS = {
    "None": (None, "texts=None must be a list of texts; pass a list such as"),
    "NaN": (math.nan, "texts=nan must be a list of texts"),
    "a number": (5, "texts=5 must be a list of texts"),
    "bytes": (b"text", "texts=b'text' must be a list of texts; put it into brackets"),
    "an object": ({"text": "a"}, "must be a list of texts; put it into brackets"),
    "None in it": (["a", None], "text 1, counted from 0: None must be text; replace what is missing, or leave it out"),
    "NaN in it": ([math.nan], "text 0, counted from 0: nan must be text"),
    "a number in it": (["a", "b", 5], "text 2, counted from 0: 5 must be text"),
    "bytes in it": ([b"a"], "text 0, counted from 0: b'a' must be text"),
    "a blank in it": (["a", " \n"], "text 1, counted from 0: the text is empty"),
    "half a pair": (["\ud83d"], "text 0, counted from 0: the text holds bytes that are not UTF-8"),
}


@pytest.mark.parametrize("case", NO_LISTS)
def test_predict_and_encode_refuse_the_same_with_the_same_words(classifier, case):
    texts, reason = NO_LISTS[case]
    for function in (api.predict, api.encode):
        with pytest.raises(ValueError, match=re.escape(reason)):
            function(classifier, texts)


def test_what_only_one_of_them_refuses(classifier):
    with pytest.raises(ValueError, match=r"texts=\[\] must have at least one text; skip the call"):
        api.predict(classifier, [])
    with pytest.raises(ValueError, match=r"text 0, counted from 0: \('a', 'b'\) must be text"):
        api.encode(classifier, [("a", "b")])
    with pytest.raises(ValueError, match="text 0, counted from 0: 0 text.s. in a request; this model takes"):
        api.predict(classifier, [()])
    with pytest.raises(ValueError, match="texts is a table; pass one of its columns"):
        api.encode(classifier, pd.DataFrame({"text": ["a"]}))
    with pytest.raises(ValueError, match="texts=.* must have at least one text"):
        api.predict(classifier, pd.DataFrame({"text": []}))


def test_texts_whose_ends_are_not_read_are_counted_in_a_warning(classifier):
    """A text has [CLS] and [SEP] beside its words: 7 words are 9 tokens."""
    model = api.load_model(classifier.opened.path, max_seq_length=8)
    texts = ["word3 " * number for number in (1, 6, 7, 30)]
    table = pd.DataFrame({"text": texts[2:]})
    for call, counted in ((lambda: api.encode(model, texts), "2 of 4"), (lambda: api.predict(model, texts), "2 of 4")):
        with pytest.warns(UserWarning, match=f"^{counted} texts were longer than 8 tokens: their ends were not read$"):
            call()
    with pytest.warns(UserWarning, match="^2 of 2 texts") as warned:
        api.predict(model, table)
    assert [each.filename for each in warned if each.category is UserWarning and "texts" in str(each.message)] == [
        __file__
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*texts were longer")
        api.encode(model, texts[:2])
        api.predict(model, texts[:2])


def test_vectors_of_no_text_have_the_models_width(classifier, filler):
    for each in (classifier, filler):
        empty, one = api.encode(each, []), api.encode(each, ["word1"])
        assert empty.shape == (0, one.shape[1]) and empty.dtype == one.dtype
        assert np.concatenate([empty, one]).shape == one.shape


@pytest.mark.parametrize(
    ("text", "top_k", "reason"),
    [
        (None, 5, "text=None must be one text; call it once for each text"),
        (["a [MASK]"], 5, "text=['a [MASK]'] must be one text"),
        (5, 5, "text=5 must be one text"),
        ("a [MASK]", 0, "top_k=0 must be a whole number of at least 1"),
        ("a [MASK]", 2.5, "top_k=2.5 must be a whole number"),
        ("a [MASK]", None, "top_k=None must be a whole number"),
        ("a", 5, "no [MASK] in the text; write [MASK] for the word to fill"),
        ("", 5, "the text is empty"),
    ],
)
def test_fill_mask_takes_one_text_and_a_whole_number(filler, text, top_k, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        api.fill_mask(filler, text, top_k)


@pytest.mark.parametrize(
    ("source", "task", "settings", "reason"),
    [
        (None, None, {}, "model=None must be a folder or the name of a published model"),
        (5, None, {}, "model=5 must be a folder"),
        ("m", "foo", {}, "task=foo must be one of masked-lm, "),
        ("m", ["encoder"], {}, "task=['encoder'] must be one of"),
        (
            "m",
            None,
            {"foo": 1},
            "foo is not a setting of load_model; they are max_seq_length, batch_size, top_k, device",
        ),
        ("m", None, {"batchsize": 1}, "batchsize is not a setting of load_model; did you mean batch_size?"),
    ],
)
def test_load_model_refuses_what_it_does_not_know_before_it_reads(source, task, settings, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        api.load_model(source, task, **settings)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"batch_size": 0}, "batch_size=0 must be a whole number of at least 1"),
        ({"batch_size": "8"}, "batch_size='8' must be a whole number"),
        ({"max_seq_length": 2.0}, "max_seq_length=2.0 must be a whole number"),
        ({"top_k": True}, "top_k=True must be a whole number"),
    ],
)
def test_numbers_of_load_model_are_whole(classifier, settings, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        api.load_model(classifier.opened.path, **settings)


@pytest.mark.parametrize("other", [None, 5, {"model": "m"}])
def test_a_model_that_is_none_is_refused(other):
    for call in (
        lambda: api.predict(other, ["a"]),
        lambda: api.encode(other, ["a"]),
        lambda: api.fill_mask(other, "a"),
    ):
        with pytest.raises(ValueError, match="model=.* must be a folder, a published name, or what load_model gives"):
            call()


def test_a_model_says_what_it_is(classifier, filler):
    path = classifier.opened.path
    assert repr(classifier) == f"<Classifier: {path}: a classifier of texts (cat, dog, fox), lower-cased>"
    assert repr(filler).startswith("<MaskFiller: ") and "a masked-LM head" in repr(filler)


@pytest.mark.parametrize("text", [None, [], 5, [None], pd.DataFrame({"text": ["a"]})], ids=str)
def test_pretrain_needs_files_to_train_on(text, tmp_path):
    """Without files the command would train the quickstart."""
    with pytest.raises(ValueError, match=r"(?s)text=.* must be a file or folder, or a list of them; name what"):
        api.pretrain(text, output_dir=tmp_path)


def test_output_is_silenced_and_errors_are_still_the_exception(stand_in, tmp_path, capfd):
    stand_in("echo a line; echo another >&2; echo 'error: epochs=no must be a number' >&2; exit 2")
    for call in (
        lambda: api.pretrain("notes", output_dir=tmp_path, quiet=True),
        lambda: api.classify("train.csv", output_dir=tmp_path, quiet=True),
        lambda: api.export("m", output_dir=tmp_path, output_format="onnx", quiet=True),
        lambda: api.convert("m", output_dir=tmp_path, output_format="hf", quiet=True),
        lambda: api.report("m", quiet=True),
        lambda: api.serve("m", quiet=True),
    ):
        with pytest.raises(ValueError, match="^epochs=no must be a number$"):
            call()
    assert capfd.readouterr() == ("", "")


def test_export_convert_and_report_are_the_commands(stand_in, tmp_path):
    stand_in(f"printf '%s\\n' \"$*\" >> '{tmp_path}/words'")
    given = {"output_dir": tmp_path / "to", "quiet": True}
    assert api.export("m", output_format="onnx", precision="int8", **given) == tmp_path / "to"
    assert api.convert("m", output_format="hf", keep_padding=True, **given) == tmp_path / "to"
    assert api.report(["r", "s"], quiet=True) == Path("r/report.html")
    assert api.report("r", markdown="r.md", quiet=True) == Path("r.md")
    to = f"--output-dir {tmp_path}/to"
    assert (tmp_path / "words").read_text().splitlines() == [
        f"{REPOSITORY}/run_export.py --model m {to} --output-format onnx --precision int8",
        f"{REPOSITORY}/run_convert.py --model m {to} --output-format hf --keep-padding",
        "-m bert.reporting r s",
        "-m bert.reporting r --markdown r.md",
    ]


@pytest.mark.long
def test_a_model_is_converted_exported_and_used(classifier, tmp_path, capfd):
    path = classifier.opened.path
    folder = api.convert(path, output_dir=tmp_path / "hf", output_format="hf", quiet=True)
    assert (folder / "model.safetensors").is_file()
    exported = api.export(folder, output_dir=tmp_path / "onnx", output_format="onnx", quiet=True)
    assert capfd.readouterr().out == ""
    (found,), (expected,) = (api.predict(each, ["word1 word2"]) for each in (exported, classifier))
    assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
    with pytest.raises(ValueError, match="is there already"):
        api.convert(path, output_dir=tmp_path / "hf", output_format="hf", quiet=True)
