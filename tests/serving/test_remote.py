"""run_predict.py and the Python functions with the address of a server in place of a model."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import run_predict
from bert import REPOSITORY, api
from bert.finetuning import prediction_stream
from bert.inference import streaming
from bert.inference.command_line import MODEL_HEADER
from bert.inference.remote import RemoteModel
from tests.serving.servers import serving

DOCUMENT = (REPOSITORY / "bert/serving/MEASUREMENTS.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A classifier with small limits."""
    flags = ("--max-characters", 300, "--max-inputs", 8, "--max-body-bytes", 1500)
    with serving(tmp_path_factory.mktemp("server"), "sequence-classification", *flags, fake=True) as running:
        yield running


def test_a_table_is_sent_in_requests_and_comes_back_with_columns(server, tmp_path, capsys):
    texts = [f"note {number} {'w' * (120 * (number % 3))}" for number in range(50)]
    texts[7], texts[20], texts[33], texts[41] = "refuse", "fail", "x" * 301, ""
    table = pd.DataFrame({"id": range(100, 150), "note": texts})  # the column of the training
    table.to_csv(tmp_path / "in.csv", sep=";", index=False)
    before = len(server.batches())
    assert run_predict.main([server.url, str(tmp_path / "in.csv"), "--output", str(tmp_path / "out.csv")]) == 0
    shown = capsys.readouterr().err
    assert f"{server.url}: a fake for sequence-classification" in shown and "50 lines, 4 of them bad" in shown
    assert "in.csv:9: no [MASK] in the text\n" in shown and "in.csv:22: the model failed" in shown
    found = pd.read_csv(tmp_path / "out.csv", sep=";", index_col="id")
    assert found.index.tolist() == table["id"].tolist()
    assert found["label"].dropna().eq("good").all() and found["probability_bad"].dropna().eq(0.2).all()
    assert found["error"].dropna().to_dict() == {
        107: "no [MASK] in the text",
        120: "the model failed at this input",
        133: "the text has 301 characters; the server takes 300",
        141: "the text is empty",
    }
    assert found["label"].isna().sum() == 4
    sent = [text for _, _, batch in server.batches()[before:] for text in batch]
    assert max(len(batch) for _, _, batch in server.batches()[before:]) > 1 and set(texts[:7]) <= set(sent)


def test_only_errors_of_the_server_are_a_failure(server, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("refuse\nfail\n")
    assert run_predict.main([server.url, str(tmp_path / "in.txt")]) == 2
    assert [json.loads(line)["error"] for line in capsys.readouterr().out.splitlines()] == [
        "no [MASK] in the text", "the model failed at this input"
    ]  # fmt: skip


def test_the_functions_take_an_address(server):
    model = api.load(f"{server.url}/")
    assert [result["label"] for result in api.predict(model, ["one", "two"])] == ["good", "good"]
    assert api.encode(server.url, ["four", "seventy"]).tolist() == [[4.0, 0.5], [7.0, 0.5]]
    with pytest.raises(ValueError, match="no .MASK. in the text"):
        api.encode(server.url, ["refuse"])
    with pytest.raises(ValueError, match="is a server, whose model has its own max_seq_length; omit"):
        api.load(server.url, max_seq_length=16)
    with pytest.raises(ValueError, match="serves a fake for .*, which task=masked-lm does not fit"):
        api.load(server.url, "masked-lm")
    with pytest.raises(ValueError, match="is a server, which answer cannot use; use predict"):
        api.answer(model, "Who?", "Anna.")


def test_questions_have_their_two_texts_and_top_k(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text(json.dumps({"question": "Anna", "context": "It was Anna.", "n": 3}) + "\n")
    with serving(tmp_path, "question-answering", fake=True) as server:
        assert run_predict.main([server.url, str(tmp_path / "in.jsonl"), "--top-k", "1"]) == 0
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (found["question"], found["answer"], found["n"], len(found["answers"])) == ("Anna", "Anna", 3, 1)


def test_a_server_that_loads_is_waited_for_and_one_that_is_gone_is_named(tmp_path, capsys, monkeypatch):
    with serving(tmp_path, "encoder", fake=True, ready=False, FAKE_START="1") as server:
        assert np.allclose(api.encode(server.url, ["four"]), [[4.0, 0.5]])
    with pytest.raises(SystemExit) as ended:
        run_predict.main([server.url])
    assert ended.value.code == 2 and re.search(r"^error: http.* does not answer \(.*\); start", capsys.readouterr().err)


def test_the_example_of_a_client_runs_as_written(server):
    (example,) = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.M | re.S)
    assert len(example.splitlines()) <= 12
    names = {}
    exec(example.replace("http://localhost:8000", server.url), names)
    assert [result["label"] for result in names["results"]] == ["good"] * len(names["texts"])


def test_a_prediction_does_not_mix_two_models(tmp_path, capsys, monkeypatch):
    """Neither that of an interrupted command and that of its next start, nor those before and after a crash."""
    monkeypatch.setattr(streaming, "WINDOW_EXAMPLES", 4)
    monkeypatch.setattr(prediction_stream, "_SECONDS_BETWEEN_SAVES", 0.0)
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("".join(f"word {number}\n" for number in range(12)))
    with serving(tmp_path, "encoder", fake=True) as server:
        words = [server.url, str(source), "--output", str(output)]
        with monkeypatch.context() as broken:
            whole, seen = RemoteModel.run, []

            def interrupted(model, requests):
                seen.append(requests)
                if len(seen) == 2:
                    raise KeyboardInterrupt
                return whole(model, requests)

            broken.setattr(RemoteModel, "run", interrupted)
            assert run_predict.main(words) == 75
        port = server.port
    with serving(tmp_path, "encoder", "--port", port, fake=True, FAKE_WEIGHTS="others") as server:
        with pytest.raises(SystemExit):
            run_predict.main(words)
        assert "holds the results of another command (other inputs, model" in capsys.readouterr().err
        model = RemoteModel(server.url)
        model.opened.fingerprint = "f"  # as the model process was before it was started again
        with pytest.raises(ConnectionError, match="serves another model than before; start again"):
            model.predict(["a"])
    with serving(tmp_path, "encoder", "--port", port, fake=True):
        assert run_predict.main(words) == 0
    assert "continuing after 4 lines" in capsys.readouterr().err and len(output.read_text().splitlines()) == 12


@pytest.mark.parametrize(
    ("status", "fingerprint", "words"),
    [
        (200, "others", "serves another model than before"),
        (200, None, "serves another model than before"),  # not a server of ours
        (502, None, "502 .*is it the address"),
        (401, None, "401 .*is it the address"),
    ],
)
def test_a_wrong_answer_of_a_server_leaves_what_is_written(
    server, tmp_path, capsys, monkeypatch, status, fingerprint, words
):
    monkeypatch.setattr(streaming, "WINDOW_EXAMPLES", 4)
    monkeypatch.setattr(prediction_stream, "_SECONDS_BETWEEN_SAVES", 0.0)
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("".join(f"word {number}\n" for number in range(12)))
    command, ask = [server.url, str(source), "--output", str(output)], RemoteModel._ask

    def wrong(model, path, body=None):
        answer = ask(model, path, body)
        if b"word 9" in (body or b""):
            answer.status_code = status
            del answer.headers[MODEL_HEADER]
            answer.headers.update({MODEL_HEADER: fingerprint} if fingerprint else {})
        return answer

    with monkeypatch.context() as broken, pytest.raises(SystemExit) as ended:
        broken.setattr(RemoteModel, "_ask", wrong)
        run_predict.main(command)
    assert ended.value.code == 2 and re.search(words, capsys.readouterr().err)
    assert run_predict.main(command) == 0
    assert "continuing after 8 lines" in capsys.readouterr().err and len(output.read_text().splitlines()) == 12
