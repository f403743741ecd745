"""Tests of run_predict.py: one record for each line in order, named bad lines, resumed files, and the terminal."""

import csv
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import run_predict
from bert import REPOSITORY
from bert.checkpoints import directories as checkpoint_files
from bert.commands import predict
from bert.conversion.reading import read_pretrained
from bert.inference import heads
from bert.inference.heads import load_model
from bert.inference.paddle_program import Network
from bert.inference.terminal import talk
from bert.model.head_specs import HEADS
from bert.tokenization.vocabulary_files import read_vocabulary
from bert.tokenization.wordpiece import reference_tokenizer
from tests.inference import models
from tests.inference.models import records
from tests.support.peak_memory import peak_of
from tests.support.waiting import wait_until

folders = models.folders  # fixture


def run(capsys, *arguments, code: int = 0) -> tuple[list[dict], str]:
    """Return the records and the standard error of the command."""
    capsys.readouterr()
    try:
        assert run_predict.main([str(argument) for argument in arguments]) == code
    except SystemExit as ended:
        assert ended.code == code
    out, err = capsys.readouterr()
    return records(out), err


def test_every_line_has_its_record_in_order_and_bad_ones_are_named(folders, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(predict, "WINDOW_EXAMPLES", 4)
    texts = ["word3 " * length for length in (5, 1, 9, 2, 7, 3, 8, 4, 6)]
    requests = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)]
    requests[2:2] = ["", '{"id": 7, "text": ""}', "{oops", '{"id": "\\ud800", "text": "\\ud800"}']
    (tmp_path / "in.jsonl").write_text("\n".join(requests) + "\n")
    found, err = run(capsys, folders["sequence-classification"], tmp_path / "in.jsonl")
    assert [record.get("id") for record in found] == [0, 1, None, 7, None, "\ud800", *range(2, 9)]
    classifier = load_model(folders["sequence-classification"])
    for record in found:
        assert ("label" in record) != ("error" in record)
        if "label" in record:
            (alone,) = classifier.predict([record["text"]])
            assert record["label"] == alone["label"] and record["text"] == texts[record["id"]]
            assert record["probabilities"] == pytest.approx(alone["probabilities"], abs=3e-6)
    assert [record["line"] for record in found if "error" in record] == [3, 4, 5, 6]
    assert f"{tmp_path / 'in.jsonl'}:3: the line is empty" in err and "13 lines, 4 of them bad" in err


def test_only_bad_lines_are_a_failure(folders, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("word1\n\n")
    found, _ = run(capsys, folders["pretraining"], tmp_path / "in.txt", code=2)
    assert all("error" in record for record in found) and len(found) == 2


def test_a_text_at_which_a_foreign_tokenizer_panics_is_a_bad_line(tmp_path, capsys):
    folder = models.model(tmp_path / "model", "sequence-classification")
    content = json.loads(reference_tokenizer(read_vocabulary(folder / "vocab.txt")).to_str())
    (folder / "vocab.txt").unlink()
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / checkpoint_files.MANIFEST).unlink()
    checkpoint_files.write_manifest(folder, step=7)
    (tmp_path / "in.txt").write_text(f"word1\n{'a' * 40}!\nword2\n")
    found, err = run(capsys, folder, tmp_path / "in.txt", "--output", tmp_path / "out.jsonl")
    found = records((tmp_path / "out.jsonl").read_text())
    assert [("label" in record, record.get("line")) for record in found] == [(True, None), (False, 2), (True, None)]
    assert "in.txt:2: the text 'aaaa" in err and "retry-limit-in-match over" in err and "3 lines, 1 of them bad" in err


@pytest.mark.parametrize("words", ["run_predict.py", "-m bert.serving --port 0"])
def test_an_older_step_is_used_only_with_a_warning_and_is_named(folders, tmp_path, words):
    steps = tmp_path / "bert-test" / "phase1"
    for step in ("5", "7"):
        shutil.copytree(folders["pretraining"], steps / step)
    (weights,) = (steps / "7").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    command = [sys.executable, *words.split(), str(tmp_path)]
    with open(tmp_path / "log", "w+b") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=REPOSITORY)
        try:
            wait_until(lambda: "cased\n" in (tmp_path / "log").read_text(), 90)
        finally:
            process.kill()
            process.wait()
    text = (tmp_path / "log").read_text()
    assert f"warning: {tmp_path}: checkpoint refused, trying an older one: {weights} does not have" in text
    assert f"\n{steps / '5'}: {HEADS['masked-lm'].noun}, lower-cased\n" in text and f"{steps / '7'}: " not in text


def test_questions_and_entities_from_the_command_line(folders, tmp_path, capsys):
    (tmp_path / "q.tsv").write_text("word1?\tword2  word3, word4\n")
    (found,), _ = run(capsys, folders["question-answering"], tmp_path / "q.tsv", "--top-k", "2")
    assert "word2  word3, word4"[found["start"] : found["end"]] == found["answer"]
    assert found["question"] == "word1?" and len(found["answers"]) == 2
    text = "word5, word6 (word7)."
    (tmp_path / "s.txt").write_text(text)
    (found,), _ = run(capsys, folders["token-classification"], tmp_path / "s.txt")
    for entity in found["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"] and entity["type"] == "PER"


def test_texts_whose_ends_were_not_read_are_counted(folders, tmp_path, capsys):
    """A text has [CLS] and [SEP] beside its words: 10 words are 12 tokens, and fit."""
    (tmp_path / "in.txt").write_text("".join("word3 " * number + "\n" for number in (1, 10, 11, 30)))
    words = (tmp_path / "in.txt", "--max-seq-length", 12, "--output")
    _, err = run(capsys, folders["sequence-classification"], *words, tmp_path / "classes.csv")
    assert err.splitlines()[-1] == "2 of 4 texts were longer than 12 tokens: their ends were not read"
    _, err = run(capsys, folders["token-classification"], *words, tmp_path / "v.npy", "--encode")
    assert err.splitlines()[-1] == "2 of 4 texts were longer than 12 tokens: their ends were not read"
    record = json.loads((tmp_path / "v.npy.json").read_text())
    assert (record["texts_read"], record["texts_cut"]) == (4, 2)
    (tmp_path / "in.txt").write_text("word3 word4\n")
    assert "were not read" not in run(capsys, folders["sequence-classification"], *words, tmp_path / "short.csv")[1]


def test_vectors_as_json_and_as_npy(folders, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("\nword1\n\nword2 word3\n")
    found, _ = run(capsys, folders["token-classification"], tmp_path / "in.txt", "--encode")
    run(capsys, folders["token-classification"], tmp_path / "in.txt", "--encode", "--output", tmp_path / "v.npy")
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (4, 8) and vectors.dtype == "float32" and np.isnan(vectors[[0, 2]]).all()
    np.testing.assert_allclose(vectors[[1, 3]], [record["vector"] for record in found if "vector" in record], rtol=1e-6)


def test_states_of_layers_are_those_of_shorter_networks_and_are_pooled(folders, tmp_path, capsys):
    folder, texts = folders["pretraining"], ["word1 word2 word3 word4 word5 word6", "word4"]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    encoder, read = load_model(folder, "encoder"), read_pretrained(folder)
    config = read.config.model_copy(update={"num_hidden_layers": 1})
    names = [name for name in read.parameters if name.startswith("bert.e") and ".layer.1." not in name]
    shorter = Network({name: read.parameters[name] for name in names}, config, "cpu")

    def states_of(network, text):
        (_, feed) = next(encoder.batches(encoder.table([(text,)])))
        return network("encoder", feed)["last_hidden_state"][0, : feed["attention_mask"].sum()]

    wanted = [np.concatenate([states_of(encoder.forward, text), states_of(shorter.run, text)], -1) for text in texts]
    layers = ("--encode", "--layers", "-1,1")
    for pooling, pool in (("mean", lambda s: s.mean(0)), ("max", lambda s: s.max(0)), ("cls", lambda s: s[0])):
        output = tmp_path / f"{pooling}.npy"
        run(capsys, folder, tmp_path / "in.txt", *layers, "--pooling", pooling, "--output", output)
        np.testing.assert_allclose(np.load(output), [pool(states) for states in wanted], rtol=1e-4, atol=1e-5)
    found, _ = run(capsys, folder, tmp_path / "in.txt", *layers, "--pooling", "none")
    for record, states in zip(found, wanted, strict=True):
        assert record["tokens"] == ["[CLS]", *record["text"].split(), "[SEP]"]
        np.testing.assert_allclose(record["vectors"], states, rtol=1e-4, atol=1e-5)
    tensors = [
        read.parameters[f"bert.embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    ]
    summed = tensors[0][encoder.vocabulary.id_of("[CLS]")] + tensors[1][0] + tensors[2][0]
    norm = [read.parameters[f"bert.embeddings.LayerNorm.{part}"] for part in ("weight", "bias")]
    wanted_first = (summed - summed.mean()) / np.sqrt(summed.var() + config.layer_norm_eps) * norm[0] + norm[1]
    found, _ = run(capsys, folder, tmp_path / "in.txt", "--encode", "--layers=0", "--pooling", "cls")
    np.testing.assert_allclose(found[0]["vector"], wanted_first, rtol=1e-4, atol=1e-5)


def test_an_export_says_that_it_has_no_layers(folders, tmp_path, capsys):
    exported = models.export(folders["encoder"], tmp_path / "e", "--format", "paddle-inference")
    (tmp_path / "in.txt").write_text("word1\n")
    _, err = run(capsys, exported, tmp_path / "in.txt", "--encode", "--layers", "-2", code=2)
    assert "layers=-2: " in err and "is an export, which gives the last layer's states alone; use the checkpoint" in err
    found, _ = run(capsys, exported, tmp_path / "in.txt", "--encode", "--layers", "-1", "--pooling", "max")
    assert len(found[0]["vector"]) == 8


def test_the_nearest_lines_of_a_file(folders, tmp_path, capsys):
    sentences = [f"word{i} word{i + 1} word{2 * i}" for i in range(12)]
    (tmp_path / "all.txt").write_text("\n".join([*sentences, sentences[3], ""]))
    (tmp_path / "in.txt").write_text(sentences[3] + "\nword3 word4 word6 word6\n")
    found, _ = run(
        capsys, folders["pretraining"], tmp_path / "in.txt", "--nearest", tmp_path / "all.txt", "--top-k", "3"
    )
    assert [len(record["nearest"]) for record in found] == [3, 3]
    assert sentences[3] not in [near["text"] for near in found[0]["nearest"]]  # never the text itself
    encoder = load_model(folders["pretraining"], "encoder")
    center = encoder.encode(sentences).mean(0)
    query = encoder.encode(["word3 word4 word6 word6"])[0] - center
    others = encoder.encode(sentences) - center
    cosines = [float(query @ other / np.linalg.norm(query) / np.linalg.norm(other)) for other in others]
    best = np.argsort(cosines)[::-1][:3]
    assert [near["text"] for near in found[1]["nearest"]] == [sentences[index] for index in best]
    assert [near["similarity"] for near in found[1]["nearest"]] == pytest.approx([cosines[i] for i in best], abs=1e-3)
    similarities = [near["similarity"] for near in found[0]["nearest"]]
    assert similarities == sorted(similarities, reverse=True)


WRONG = {
    "{model} nowhere.txt": "FILE nowhere.txt must be an existing file",
    "{model} --nearest nowhere": "--nearest nowhere must be an existing file",
    "{model} --encode --task masked-lm": "--encode makes vectors, --task masked-lm something else",
    "{model} {file} --encode --layers 3": "layers=3: the model has the layers 1 to 2 (or -2 to -1), and its embeddings",
    "{model} {file} --encode --layers a": "layers=a must be numbers with commas between them; pass --layers -1,-2",
    "{model} {file} --layers -1": "--layers and --pooling are for vectors; pass --encode",
    "{model} {file} --encode --pooling none --output x.npy": "x.npy has a vector for each line; name a .jsonl",
    "{model} --output no/where.jsonl": "--output no/where.jsonl: the folder does not exist",
    "{model} --output {empty}": "empty is a folder; name a file in it",
    "{model} {file} --output {file}": "in.txt is an input, which it would replace; name another file",
    "{model} --output x.npy": "--output x.npy is for vectors; pass --encode",
    "{model} --nearest words": "--nearest words must be an existing file",
    "{model} {file} --nearest words --in {file}": "--nearest 'words' needs a text and --in FILE, without another FILE",
    "{model} --show x --output y": "--show prints what the model can do",
    "{model} --top-k 0 {file}": "top_k=0 must be greater than or equal to 1; change --top-k",
    "{empty} {file}": "holds no weights of a known format",
    "": "MODEL must be given (a checkpoint, the output folder of a run",
    "http://localhost:8000 {file}": "http://localhost:8000 is an address, not a model; ask a server with curl",
    "{model} --url http://a:1": "the client of ten lines in docs/howto/serve.md, or name the folder",
}


def test_a_wrong_command_line_is_one_line(folders, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "in.txt").write_text("word1\n")
    places = {"model": folders["pretraining"], "empty": tmp_path / "empty", "file": tmp_path / "in.txt"}
    said = {words: run(capsys, *words.format(**places).split(), code=2)[1] for words in WRONG}
    assert {words: err for words, err in said.items() if WRONG[words] not in err or err.count("\n") > 1} == {}


def test_a_conversation_with_every_head(folders):
    typed = {
        "pretraining": ("word1 [MASK]\n\nword1\n", ["no [MASK] in the text"]),
        "sequence-classification": ("word1\tword2\n", ["%  cat", "%  dog", "%  fox"]),
        "token-classification": ("word1\n", []),
        "question-answering": ("word2 word3.\n\nword1?\n", ["question (empty", "%"]),
    }
    for task, (words, shown) in typed.items():
        out = io.StringIO()
        assert talk(load_model(folders[task]), io.StringIO(words), out) == 0
        assert all(part in out.getvalue() for part in shown), out.getvalue()
    out = io.StringIO()
    assert talk(load_model(folders["pretraining"], "encoder"), io.StringIO("word1\nword1\n"), out) == 0
    assert "8 numbers:" in out.getvalue() and "cosine with the sentence before: 1.000" in out.getvalue()
    assert "the end was not read" not in out.getvalue()
    assert talk(load_model(folders["pretraining"], "encoder"), io.StringIO("word1 " * 11 + "\n"), out) == 0
    assert "longer than 12 tokens: the end was not read" in out.getvalue()


@pytest.mark.long
@pytest.mark.parametrize("last", ["\x04", "\x03"])
def test_a_terminal_gets_a_prompt_and_is_left_cleanly(folders, last):
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(REPOSITORY)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job ignores it
        os.execv(sys.executable, [sys.executable, "run_predict.py", str(folders["pretraining"])])
    shown = b""

    def wait_for(part: bytes) -> None:
        nonlocal shown
        deadline = time.monotonic() + 120
        while part not in shown:
            assert time.monotonic() < deadline and select.select([terminal], [], [], 120)[0], shown
            shown += os.read(terminal, 1 << 16)
        shown = shown.split(part, 1)[1]

    wait_for(b"with [MASK] in the place of a word (Ctrl-D ends):\r\n")
    wait_for(b"> ")
    os.write(terminal, "größe [MASK] —\n".encode())
    wait_for("größe word".encode())
    wait_for(b"> ")
    time.sleep(0.2)
    os.write(terminal, last.encode())
    deadline = time.monotonic() + 60
    while not (status := os.waitpid(process, os.WNOHANG))[0]:
        assert time.monotonic() < deadline, shown
        time.sleep(0.1)
    assert os.waitstatus_to_exitcode(status[1]) == 0


@pytest.mark.long
def test_memory_does_not_grow_with_the_number_of_lines(folders, tmp_path):
    peaks = []
    for number in (5_000, 40_000):
        (tmp_path / "in.txt").write_text("".join(f"word{i % 20} word{i % 7}\n" for i in range(number)))
        arguments = [folders["sequence-classification"], tmp_path / "in.txt", "--batch-size", "256"]
        code = "import run_predict; run_predict.main(sys.argv[1:])"
        peaks.append(peak_of(code, *arguments, "--output", tmp_path / "out.jsonl"))
        with open(tmp_path / "out.jsonl", encoding="utf-8") as file:
            assert sum(1 for _ in file) == number
    assert peaks[1] < peaks[0] + 20_000, peaks  # kilobytes; the results alone would be more


def interrupting(head: type[heads.TrainedModel], window: int):
    """Stands in for `head.run`: a Ctrl-C arrives in the given window."""
    whole, seen = head.run, []

    def run_or_interruption(model, requests):
        seen.append(requests)
        if len(seen) == window:
            raise KeyboardInterrupt
        return whole(model, requests)

    return run_or_interruption


@pytest.fixture(params=["out.jsonl", "out.npy", "out.csv", "out.parquet"])
def interrupted(request, folders, tmp_path, monkeypatch):
    """Return a command whose windows have four lines, its output, and the head that it runs."""
    monkeypatch.setattr(predict, "WINDOW_EXAMPLES", 4)
    source = folders["sequence-classification"]
    folder = shutil.copytree(source, tmp_path / "model", ignore=lambda *_: ["manifest.json"])  # the output goes there
    output = folder / request.param
    if output.suffix in (".csv", ".parquet"):
        rows = pd.DataFrame({"id": range(40), "text": [f'word{i} "word1"\nword2' * (i % 7 < 6) for i in range(40)]})
        table = tmp_path / f"a{output.suffix}"
        rows.to_csv(table, index=False) if output.suffix == ".csv" else rows.to_parquet(table)
        files = [table]
    else:
        requests = [json.dumps({"id": number, "text": f"word{number} word1"}) for number in range(17)]
        requests[0:0], requests[9:9] = ["", "{oops"], [""]
        files = [tmp_path / "a.data", tmp_path / "b.data"]
        for file in files:
            file.write_text("\n".join(requests) + "\n")
    encode = ["--encode"] if output.suffix == ".npy" else []
    return [folder, *files, *encode, "--output", output], output, heads.SentenceEncoder if encode else heads.Classifier


def test_an_interrupted_file_is_continued_and_equals_an_uninterrupted_one(interrupted, capsys, monkeypatch):
    arguments, output, head = interrupted
    summary = run(capsys, *arguments)[1].splitlines()[-1]
    whole = output.read_bytes()
    output.unlink()
    for window in (2, 3, 1, 4):  # stops again where it stopped before, and later
        with monkeypatch.context() as broken:
            broken.setattr(head, "run", interrupting(head, window))
            _, err = run(capsys, *arguments, code=75)
        assert "start again to continue" in err and not output.exists()
    with open(f"{output}.partial", "ab") as partial:
        partial.write(b'"torn')
    assert "holds the results of another command" in run(capsys, *arguments, "--top-k", 3, code=2)[1]
    _, err = run(capsys, *arguments)
    assert "continuing after 24 lines, whose results are in" in err and err.splitlines()[-1] == summary
    assert re.fullmatch("40 lines, [56] of them bad", summary)
    assert output.read_bytes() == whole and not list(output.parent.glob("*.partial*"))


@pytest.mark.long
def test_a_prediction_that_is_killed_is_continued(folders, tmp_path, capsys):
    """The command counts the rows of its output; the window that the kill cut is predicted again."""
    (tmp_path / "in.csv").write_text("id,text\n" + "".join(f'{i},"word{i % 20}\nword1"\n' for i in range(12_000)))
    arguments = [str(folders["sequence-classification"]), str(tmp_path / "in.csv"), "--output"]
    partial = tmp_path / "out.csv.partial"
    command = [sys.executable, "run_predict.py", *arguments, str(tmp_path / "out.csv")]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL) as process:
        while not partial.exists() or partial.stat().st_size < 250_000:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    with open(partial, "r+b") as file:
        file.truncate(partial.stat().st_size - 20)  # in the middle of a row
    _, err = run(capsys, *arguments, tmp_path / "out.csv")
    assert re.search("continuing after [0-9,]+ lines", err) and "12,000 lines\n" in err
    run(capsys, *arguments, tmp_path / "whole.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


TABLE = [("a7", "word1, word2", "x"), ("a8", 'word3 "word4"\nword5', "y"), ("a9", " ", "x")]  # the last has no text


def write_table(path, delimiter=",", encoding="utf-8"):
    """Write a table with an id, a text and a column with the name of a result."""
    rows = pd.DataFrame(TABLE, columns=["id", "text", "label"])
    if path.suffix == ".parquet":
        rows.assign(day=pd.Timestamp("2024-05-06")).to_parquet(path)
    elif path.suffix == ".json":
        rows.to_json(path, orient="records")
    else:
        path.write_bytes(rows.to_csv(index=False, sep=delimiter).replace("word5", "wörd5").encode(encoding))


def read_table(path):
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    kinds = {"sep": None, "engine": "python", "encoding": "utf-8-sig"} if path.suffix in (".csv", ".tsv") else {}
    return pd.read_csv(path, **kinds) if kinds else pd.DataFrame(records(path.read_text()))


@pytest.mark.parametrize(
    ("name", "output", "delimiter", "encoding"),
    [
        ("in.csv", "out.csv", ",", "utf-8"),
        ("in.csv", "out.csv", ";", "cp1252"),
        ("in.csv", "out.tsv", ",", "utf-8-sig"),
        ("in.tsv", "out.tsv", "\t", "cp1252"),
        ("in.parquet", "out.parquet", "", ""),
        ("in.parquet", "out.csv", "", ""),
        ("in.json", "out.jsonl", "", ""),
    ],
)
def test_a_table_comes_back_with_the_results_as_columns(folders, tmp_path, capsys, name, output, delimiter, encoding):
    write_table(tmp_path / name, delimiter, encoding)
    _, err = run(capsys, folders["sequence-classification"], tmp_path / name, "--output", tmp_path / output)
    assert "3 lines, 1 of them bad" in err and ": the text is empty" in err
    found = read_table(tmp_path / output)
    assert found["id"].tolist() == ["a7", "a8", "a9"] and found["label"].tolist() == ["x", "y", "x"]
    assert found["text"].tolist()[0] == TABLE[0][1] and found["text"].tolist()[1].startswith('word3 "word4"\nw')
    texts = found["text"].tolist()[:2]
    for row, alone in enumerate(load_model(folders["sequence-classification"]).predict(texts)):
        assert found["predicted_label"][row] == alone["label"]
        if output.endswith("jsonl"):
            assert found["probabilities"][row] == pytest.approx(alone["probabilities"], abs=3e-6)
        else:
            for label, value in alone["probabilities"].items():
                assert found[f"probability_{label}"][row] == pytest.approx(value, abs=3e-6)
    assert pd.isna(found["predicted_label"][2]) and found["error"][2] == "the text is empty"
    if output.endswith("parquet"):
        assert found["day"].tolist() == [pd.Timestamp("2024-05-06")] * 3
    elif output.endswith("csv"):
        first = (tmp_path / output).read_bytes().split(b"\n")[0]
        assert first.startswith(b"\xef\xbb\xbf") == (encoding == "cp1252") and (delimiter or ",").encode() in first


def test_formulas_become_text_if_asked_for_and_numbers_stay(folders, tmp_path, capsys):
    rows = [["text", "=1+1", "n"], ["word1", "-5", "+x"], ['=HYPERLINK("http://e","x")', "@SUM(1)", "word"]]
    with open(tmp_path / "in.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    for flags in ([], ["--escape-formulas"]):
        run(capsys, folders["sequence-classification"], tmp_path / "in.csv", "--output", tmp_path / "out.csv", *flags)
        with open(tmp_path / "out.csv", newline="") as file:
            found = [row[:3] for row in csv.reader(file)]
        (tmp_path / "out.csv").unlink()
        escaped = [["text", "'=1+1", "n"], ["word1", "-5", "'+x"], [f"'{rows[2][0]}", "'@SUM(1)", "word"]]
        assert found == (escaped if flags else rows)


@pytest.mark.parametrize("name", ["labels.json", "config.json"])
def test_labels_that_drive_the_terminal_are_refused(folders, tmp_path, capsys, name):
    folder = shutil.copytree(folders["sequence-classification"], tmp_path / "model")
    labels = ["cat", "dog\n\x1b[2J error: fake", "fox"]
    if name == "labels.json":
        (folder / name).write_text(json.dumps(labels))
    else:
        (folder / "labels.json").unlink()
        config = json.loads((folder / "bert_config.json").read_text())
        (folder / "bert_config.json").write_text(json.dumps(config | {"id2label": dict(enumerate(labels))}))
    (folder / checkpoint_files.MANIFEST).unlink()
    checkpoint_files.write_manifest(folder, step=7)
    (tmp_path / "in.txt").write_text("word1\n")
    _, err = run(capsys, folder, tmp_path / "in.txt", code=2)
    assert r"the label 'dog\n\x1b[2J error: fake' has a control character; correct it there" in err
    assert "\x1b" not in err and err.count("\n") == 1


def test_a_csv_on_standard_input_is_answered_with_a_csv(folders, tmp_path, capsys, monkeypatch):
    write_table(tmp_path / "in.csv", ";", "utf-8-sig")
    with open(tmp_path / "in.csv", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert run_predict.main([str(folders["sequence-classification"]), "--input-format", "csv"]) == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out), sep=";")
    assert found["id"].tolist() == ["a7", "a8", "a9"] and found["predicted_label"].isna().tolist() == [0, 0, 1]


def test_a_row_of_too_many_fields_keeps_its_columns_beside_the_error(folders, tmp_path, capsys):
    (tmp_path / "in.csv").write_text("id,text\n1,word1\n2,word1, and more\n3,word2\n")
    run(capsys, folders["sequence-classification"], tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    found = read_table(tmp_path / "out.csv")
    assert found["id"].tolist() == [1, 2, 3] and found["text"].tolist() == ["word1", "word1", "word2"]
    assert found["label"].isna().tolist() == [False, True, False]
    assert found["error"][1].startswith("has 3 fields, the first row 2; quote a text with ',' in it")


def test_a_table_with_predictions_is_predicted_again(folders, tmp_path, capsys):
    (tmp_path / "0.csv").write_text("text,label\nword1,x\n")
    for number in range(3):
        arguments = [tmp_path / f"{number}.csv", "--output", tmp_path / f"{number + 1}.csv"]
        run(capsys, folders["sequence-classification"], *arguments)
    found = read_table(tmp_path / "3.csv")
    names = [name for name in found.columns if name.endswith(("label", "label_2", "label_3"))]
    assert names == ["label", "predicted_label", "predicted_label_2", "predicted_label_3"]
    assert found["label"][0] == "x" and found["predicted_label"][0] == found["predicted_label_3"][0]


def test_a_table_without_rows_gives_the_header_with_the_columns_of_the_results(folders, tmp_path, capsys):
    (tmp_path / "in.csv").write_text("id;text\n")
    arguments = [str(folders["sequence-classification"]), str(tmp_path / "in.csv")]
    run(capsys, *arguments, "--output", tmp_path / "out.csv")
    assert run_predict.main(arguments) == 0
    out = capsys.readouterr().out
    assert out == (tmp_path / "out.csv").read_text() and out.startswith("id;text;label;probability;probability_")
    assert out.endswith(";error\n") and out.count("\n") == 1


def test_rows_that_leave_out_their_last_fields_keep_the_columns_of_the_first_line(folders, tmp_path, capsys):
    """The model's label never lands in a column of the table, whichever row comes first."""
    for name, rows in (
        ("short_last", "1,good film,old\n2,bad film\n"),
        ("short_first", "2,bad film\n1,good film,old\n"),
    ):
        (tmp_path / f"{name}.csv").write_text(f"id,text,label\n{rows}")
        arguments = [
            folders["sequence-classification"],
            tmp_path / f"{name}.csv",
            "--output",
            tmp_path / f"{name}.out.csv",
        ]
        run(capsys, *arguments)
        with open(tmp_path / f"{name}.out.csv", newline="") as file:
            read = {row["id"]: row for row in csv.DictReader(file)}
        assert (read["1"]["label"], read["2"]["label"]) == ("old", "")
        assert read["1"]["predicted_label"] and read["2"]["predicted_label"]


def test_tables_of_other_columns_are_refused_before_the_first_prediction(folders, tmp_path, capsys, monkeypatch):
    (tmp_path / "a.csv").write_text("text\nword1\n")
    (tmp_path / "b.csv").write_text("text,more\nword2,x\n")
    first, second, output = tmp_path / "a.csv", tmp_path / "b.csv", ("--output", tmp_path / "out.csv")
    run(capsys, folders["sequence-classification"], second, first, *output)
    assert read_table(tmp_path / "out.csv")["more"].fillna("").tolist() == ["x", ""]
    monkeypatch.setattr(predict, "windows_of", lambda rows: pytest.fail("it began"))
    _, err = run(capsys, folders["sequence-classification"], first, second, *output, code=2)
    assert "b.csv has the columns more, which" in err and "put it first" in err
    monkeypatch.undo()
    (tmp_path / "spaced.csv").write_text("text , more\nword2,x\n")
    (tmp_path / "no_rows.csv").write_text("text\n")
    run(capsys, folders["sequence-classification"], tmp_path / "no_rows.csv", second, tmp_path / "spaced.csv", *output)
    assert read_table(tmp_path / "out.csv")["more"].tolist() == ["x", "x"]


def test_a_csv_that_is_none_is_named_whichever_comes_first(folders, tmp_path, capsys):
    broken = {"empty": ("", "is empty"), "two": ('id,"te\nxt"\n1,a\n', "has a line break in the name of a column")}
    (tmp_path / "good.csv").write_text("text\nword1\n")
    for name, (content, problem) in broken.items():
        (tmp_path / f"{name}.csv").write_text(content)
        for form, order in (("csv", (name, "good")), ("csv", ("good", name)), ("jsonl", ("good", name))):
            files = [tmp_path / f"{each}.csv" for each in order]
            arguments = [folders["sequence-classification"], *files, "--output", tmp_path / f"out.{form}"]
            assert f"{tmp_path}/{name}.csv {problem}" in run(capsys, *arguments, code=2)[1]
    assert not list(tmp_path.glob("out*"))


def test_the_column_of_the_text_is_named_or_suggested(folders, tmp_path, capsys):
    (tmp_path / "in.csv").write_text("id,texts\n1,word1\n2,word2\n")
    arguments = [folders["sequence-classification"], tmp_path / "in.csv", "--output", tmp_path / "out.csv"]
    _, err = run(capsys, *arguments, code=2)
    assert (
        f"{tmp_path / 'in.csv'} has no column 'text' and 'text_pair', only ['id', 'texts']; did you mean texts?" in err
    )
    assert not list(tmp_path.glob("out*"))
    run(capsys, *arguments, "--text-column", "texts")
    assert read_table(tmp_path / "out.csv")["label"].notna().all()
    for file in ('{\n"data": []}', '{"data": []}'):
        (tmp_path / "q.json").write_text(file)
        err = run(capsys, folders["question-answering"], tmp_path / "q.json", code=2)[1]
        assert "run_squad.py --predict-file" in err
