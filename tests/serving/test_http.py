"""Tests of the server over HTTP with a fake model process: answers, limits, failures and the shutdown."""

import base64
import concurrent.futures
import contextlib
import json
import re
import signal
import socket
import time

import numpy as np
import psutil
import pytest
import requests

from bert import MESSAGES, REPOSITORY
from bert.serving import __main__
from bert.serving.settings import parse_settings
from tests.serving.servers import serving, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Run a classifier with small limits."""
    flags = ("--max-characters", 300, "--max-inputs", 8, "--max-queue", 12, "--max-body-bytes", 16_000)
    with serving(tmp_path_factory.mktemp("server"), "sequence-classification", *flags, fake=True) as running:
        yield running


def test_results_come_in_order_and_the_schema_is_published(server):
    answer = server.post({"text": "one"}, {"text": "two"})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert [result["label"] for result in answer.json()["results"]] == ["good", "good"]
    vectors = server.post({"text": "four"}, {"text": "seventy"}, path="/encode").json()["results"]
    assert [result["vector"][0] for result in vectors] == [4.0, 7.0]
    for texts, truncated in ((["one"], 0), (["cut", "one", "cut off"], 2)):
        for path in ("/predict", "/encode"):
            answer = server.post(*({"text": text} for text in texts), path=path).json()
            assert answer["truncated"] == truncated and len(answer["results"]) == len(texts)
    schema = server.get("/openapi.json").json()
    operations = {path: list(methods) for path, methods in schema["paths"].items()}
    assert operations["/predict"] == operations["/encode"] == ["post"]
    responses = schema["paths"]["/predict"]["post"]["responses"]
    assert set(responses) == {"200", "413", "415", "422", "429", "500", "503", "504"}
    assert schema["components"]["schemas"]["PredictInput"]["properties"]["text"]["maxLength"] == 300


def test_the_client_of_the_readme_runs_as_written(server):
    (client,) = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / "docs/howto/serve.md").read_text(), re.M | re.S)
    assert len(client.splitlines()) <= 12
    names: dict = {}
    exec(client.replace("http://localhost:8000", server.url), names)
    assert [result["label"] for result in names["results"]] == ["good"] * len(names["texts"])


def test_vectors_come_as_openais_clients_ask_for_them(server):
    """The client of openai 3.57 sends these bodies; it asks for base64 by itself."""

    def ask(path="/v1/embeddings", **body):
        return requests.post(f"{server.url}{path}", json=body, timeout=30)

    found = ask(input=["four", "seventy"], model="any", encoding_format="base64").json()
    vectors = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4").tolist() for each in found["data"]]
    assert vectors == [[4.0, 0.5], [7.0, 0.5]] and [each["index"] for each in found["data"]] == [0, 1]
    assert (found["object"], found["model"], found["truncated"]) == ("list", "fake", 0)
    assert ask(input=["cut", "one"], model="any").json()["truncated"] == 1
    assert found["usage"] == {"prompt_tokens": 11, "total_tokens": 11}
    answer = ask(input="four", model="any", dimensions=1, user="me", input_type="query")  # "query: four"
    assert answer.json()["data"] == [{"object": "embedding", "index": 0, "embedding": [1.0]}]
    assert answer.json()["usage"]["total_tokens"] == 11 and answer.headers["x-bert-model"] == "f"
    results = ask("/encode", inputs=["four"], input_type="query").json()["results"]
    assert results == [{"vector": [11.0, 0.5], "tokens": 11}]
    for body, where, reason in (
        ({"input": "four", "dimensions": 3}, ["dimensions"], "2 or 1"),
        ({"input": [[5, 6]]}, ["input"], "must be texts, not tokens"),  # of another vocabulary
        ({"input": [5, 6]}, ["input"], "must be texts, not tokens"),
        ({"input": []}, ["input"], "at least 1 item"),
        ({"input": ["a", " "]}, ["input", 1, "text"], "the text is empty"),
        ({"input": "a", "encoding_format": "hex"}, ["encoding_format"], "'float' or 'base64'"),
        ({"input": ["a"] * 20 + ["b" * 301]}, ["input", 20, "text"], "at most 300 characters"),
    ):
        answer = ask(**body)
        error = answer.json()["error"]
        assert answer.status_code == 422 and error["type"] == "invalid_request_error" and error["code"] is None
        assert error["param"] == where[0] and error["message"].startswith(".".join(map(str, where)) + ": "), error
        assert reason in error["message"]


def test_openais_clients_send_many_texts_and_ask_for_the_models(server):
    """The server divides them: /encode takes 8 at a time. Keys of other servers are ignored."""
    body = {"input": [f"{'x' * (n % 7 + 1)}" for n in range(100)], "truncate": True, "model": "any"}
    found = requests.post(f"{server.url}/v1/embeddings", json=body, timeout=30).json()
    assert [each["embedding"][0] for each in found["data"]] == [n % 7 + 1 for n in range(100)]
    assert [each["index"] for each in found["data"]] == [*range(100)]
    assert found["usage"]["total_tokens"] == sum(n % 7 + 1 for n in range(100))
    schema = server.get("/openapi.json").json()["components"]["schemas"]["EmbeddingsRequest"]
    assert schema["properties"]["input"]["maxItems"] == 2048
    listed = server.get("/v1/models").json()
    assert listed["object"] == "list" and [each["id"] for each in listed["data"]] == ["fake"]
    assert server.get("/v1/models/fake").json() == listed["data"][0] and listed["data"][0]["object"] == "model"
    for path, reason in (
        ("/v1/models/other", "model=other is not served here; it is fake"),
        ("/v1/files", "Not Found"),
    ):
        answer = server.get(path)
        assert answer.status_code == 404 and answer.json()["error"]["message"] == reason
        assert answer.json()["error"]["type"] == "not_found_error"


@pytest.fixture(scope="module")
def client(server):
    """Make OpenAI's own client, as its users do."""
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_openais_client_gets_vectors_and_the_models(client):
    found = client.embeddings.create(model="fake", input=["four", "seventy"])  # it asks for base64
    assert [each.embedding for each in found.data] == [[4.0, 0.5], [7.0, 0.5]]
    assert (found.model, found.usage.prompt_tokens, found.usage.total_tokens) == ("fake", 11, 11)
    plain = client.embeddings.create(model="fake", input="four", dimensions=1, encoding_format="float")
    assert plain.data[0].embedding == [1.0]
    others = client.embeddings.create(model="fake", input="four", extra_body={"truncate": True, "a": {"b": 1}})
    assert others.data[0].embedding == [4.0, 0.5]  # keys of other servers
    many = client.embeddings.create(model="fake", input=["x" * (n % 7 + 1) for n in range(2048)])
    assert [each.embedding[0] for each in many.data] == [n % 7 + 1 for n in range(2048)]
    assert [each.id for each in client.models.list()] == ["fake"] and client.models.retrieve("fake").id == "fake"


REFUSALS = {  # what is asked of the client -> what its user reads
    "tokens": ({"input": [101, 102]}, 422, "input: must be texts, not tokens; with LangChain pass"),
    "lists of tokens": ({"input": [[101], [102]]}, 422, "input: must be texts, not tokens"),
    "an empty text": ({"input": ""}, 422, "input.0.text: String should have at least 1 character"),
    "a blank text": ({"input": ["a", " "]}, 422, "input.1.text: the text is empty"),
    "2,049 texts": ({"input": ["a"] * 2049}, 422, "input: List should have at most 2048 items"),
    "a long text": ({"input": "a" * 301}, 422, "input.0.text: String should have at most 300 characters"),
    "a size that the model lacks": ({"input": "a", "dimensions": 3}, 422, "dimensions: Input should be 2 or 1"),
    "a large body": ({"input": ["a" * 299] * 900}, 413, "the body must have at most 16,000 bytes"),
    "a text at which the model fails": ({"input": "fail"}, 500, "the model failed at this input"),
    "a text that the model refuses": ({"input": "refuse"}, 422, "no [MASK] in the text"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_openais_client_shows_the_reason_of_a_refusal(client, case):
    openai = pytest.importorskip("openai")
    asked, status, reason = REFUSALS[case]
    with pytest.raises(openai.APIStatusError) as raised:
        client.embeddings.create(model="fake", **asked)
    assert raised.value.status_code == status and reason in str(raised.value)


def test_openais_client_shows_why_a_model_is_not_there(client):
    openai = pytest.importorskip("openai")
    with pytest.raises(openai.NotFoundError, match="model=other is not served here; it is fake"):
        client.models.retrieve("other")


def test_openais_client_shows_that_the_key_is_wrong_and_that_the_model_is_loaded(tmp_path):
    openai = pytest.importorskip("openai")
    with serving(tmp_path, "encoder", fake=True, ready=False, BERT_API_KEY="right", FAKE_START="60") as server:
        for key, kind, reason in (
            ("wrong", openai.AuthenticationError, "the key of this server .BERT_API_KEY. is missing or wrong"),
            ("right", openai.InternalServerError, "the model is being loaded"),
        ):
            with openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client:
                with pytest.raises(kind, match=reason):
                    client.embeddings.create(model="fake", input="a")


@pytest.mark.parametrize(("headers", "size", "status"), [({"content-type": "text/plain"}, 9, 415), ({}, 16_001, 413)])
def test_every_refusal_below_v1_has_openais_form(server, headers, size, status):
    headers = {"content-type": "application/json", **headers}
    answer = requests.post(f"{server.url}/v1/embeddings", data=b" " * size, headers=headers, timeout=30)
    error = answer.json()["error"]
    assert answer.status_code == status and set(error) == {"message", "type", "param", "code"}
    assert len(answer.content) == int(answer.headers["content-length"]) and "x-content-type-options" in answer.headers
    ours = requests.post(f"{server.url}/encode", data=b" " * size, headers=headers, timeout=30).json()["detail"]
    assert error["message"] == ours


def test_the_pages_need_nothing_from_elsewhere(server):
    for path in ("/", "/docs", "/page.js", "/page.css"):
        page = server.get(path)
        assert page.status_code == 200 and "default-src 'self'" in page.headers["content-security-policy"]
        assert "http://" not in page.text and "https://" not in page.text, path
    script = requests.get(f"{server.url}/static-offline-docs/swagger-ui-bundle.js", timeout=30)
    assert script.status_code == 200 and len(script.content) > 500_000


@pytest.mark.parametrize(
    "body,where,reason",
    [
        ({}, ["inputs"], "Field required"),
        ({"inputs": []}, ["inputs"], "at least 1 item"),
        ({"inputs": {}}, ["inputs"], "valid list"),
        ({"inputs": [7]}, ["inputs", 0], "dictionary"),
        ({"inputs": ["good", " "]}, ["inputs", 1, "text"], "the text is empty"),
        ({"inputs": [{"text": 3}]}, ["inputs", 0, "text"], "valid string"),
        ({"inputs": [{"text": None}]}, ["inputs", 0, "text"], "valid string"),
        ({"inputs": [{"text": "  \n"}]}, ["inputs", 0, "text"], "the text is empty"),
        ({"inputs": [{"text": "x" * 301}]}, ["inputs", 0, "text"], "at most 300 characters"),
        ({"inputs": [{"text": "a"}] * 9}, ["inputs"], "at most 8 items"),
        ({"inputs": [{"text": "a", "txt": "b"}]}, ["inputs", 0, "txt"], "not permitted"),
        ({"inputs": [{"text": "a"}], "top_k": 3}, ["top_k"], "not permitted"),
        ({"inputs": [{str(n): n for n in range(500)}]}, ["inputs", 0], "the object has 500 keys"),
        ([1, 2], [], "dictionary"),
        ("text", [], "dictionary"),
    ],
)
def test_mistakes_are_named_with_their_place(server, body, where, reason):
    answer = requests.post(f"{server.url}/predict", json=body, timeout=30)
    (mistake,) = answer.json()["detail"]
    assert answer.status_code == 422 and mistake["loc"] == ["body", *where] and reason in mistake["msg"]
    assert "input" not in mistake


@pytest.mark.parametrize(
    "data,status",
    [
        (b"", 422),
        (b"{", 422),
        (b"\xff\xfe", 422),
        (b'{"inputs": [{"text": "\\ud800"}]}', 422),
        (b"[" * 4000 + b"]" * 4000, 400),
        (b'{"inputs": ' + b'[{"text": ' * 300 + b'"a"' + b"}]" * 300 + b"}", 422),
        (b'{"inputs": [{"text": NaN}]}', 422),
        (b'{"inputs": [{"text": "a"}]' + b" " * 20_000 + b"}", 413),
    ],
)
def test_bodies_that_are_not_requests(server, data, status):
    answer = requests.post(f"{server.url}/predict", data=data, headers={"content-type": "application/json"}, timeout=30)
    assert answer.status_code == status and "detail" in answer.json() and len(answer.content) < 500, answer.text


def test_other_types_paths_and_methods(server):
    assert server.get("/nowhere").status_code == 404 and server.get("/predict").status_code == 405
    assert requests.get(f"{server.url}/../../setup.py", timeout=30).status_code == 404


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "content-type: (none) must be application/json; curl: -H 'content-type: application/json'"),
        ({"content-type": "application/x-www-form-urlencoded"}, "content-type: application/x-www-form-urlencoded must"),
        ({"content-type": "application/json", "content-encoding": "gzip"}, "content-encoding: gzip is not read; send"),
        ({"content-type": "application/json; charset=latin-1"}, "charset=latin-1 must be utf-8"),
    ],
)
def test_a_header_that_announces_no_plain_json_is_named(server, headers, reason):
    answer = requests.post(f"{server.url}/predict", data=b'{"inputs": ["a text"]}', headers=headers, timeout=30)
    assert answer.status_code == 415 and reason in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["application/json", 'Application/JSON; Charset="UTF-8"', "application/vnd.api+json"])
def test_plain_strings_are_texts(server, kind):
    headers, body = {"content-type": kind}, '{"inputs": ["a text", {"text": "täxt"}]}'.encode()
    answer = requests.post(f"{server.url}/predict", data=body, headers=headers, timeout=30)
    assert [result["label"] for result in answer.json()["results"]] == ["good", "good"]


def test_pages_of_other_origins_may_ask_only_where_they_are_allowed(server, tmp_path):
    page = {"origin": "https://page.example"}
    asked = {**page, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    assert requests.options(f"{server.url}/predict", headers=asked, timeout=30).status_code == 405
    flags = ("--allow-origin", "https://page.example, http://localhost:3000")
    with serving(tmp_path, "masked-lm", *flags, fake=True, BERT_API_KEY="sesame") as other:
        asked["access-control-request-headers"] = "authorization, content-type"
        preflight = requests.options(f"{other.url}/predict", headers=asked, timeout=30)
        assert preflight.status_code == 200 and "POST" in preflight.headers["access-control-allow-methods"]
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        headers = {**page, "authorization": "Bearer sesame"}
        answer = requests.post(f"{other.url}/predict", json={"inputs": ["a [MASK]"]}, headers=headers, timeout=30)
        assert answer.headers["access-control-allow-origin"] == "https://page.example" and answer.json()["results"]
        for refused in ({**asked, "origin": "https://page.example.org"}, {**asked, "origin": "null"}):
            assert requests.options(f"{other.url}/predict", headers=refused, timeout=30).status_code == 400
    with pytest.raises(ValueError, match="--allow-origin page.example must be as a browser sends it"):
        parse_settings(["model", "--allow-origin", "page.example"])


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/nowhere"])
def test_head_is_answered_as_get_without_a_body(server, path):
    answer, same = requests.head(server.url + path, timeout=30), server.get(path)
    assert answer.status_code == same.status_code and not answer.content
    assert answer.headers["content-type"] == same.headers["content-type"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "attacker.example"}, 421),
        ({"host": "localhost.attacker.example:80"}, 421),
        ({"host": "[::1"}, 421),
        ({"host": "LOCALHOST:1"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"host": "10.1.2.3"}, 200),
        ({"x-large": "a" * 64_000}, 431),
        ({f"x{number}": "a" for number in range(3000)}, 431),
        ({"x-large": "a" * 12_000}, 200),
    ],
)
def test_other_hosts_and_endless_headers_are_refused(server, headers, status):
    assert requests.get(f"{server.url}/health", headers=headers, timeout=30).status_code == status


@pytest.mark.long
def test_a_key_is_needed_where_there_is_one_and_other_names_where_they_are_allowed(tmp_path, monkeypatch):
    flags = ("--allowed-hosts", "Bert.example, other.example")
    with serving(tmp_path, "masked-lm", *flags, fake=True, BERT_API_KEY="open sesame\n") as server:  # from a file
        statuses = {}
        for name, headers in {
            "none": {},
            "wrong": {"authorization": "Bearer open"},
            "key": {"authorization": "Bearer open sesame"},
            "no base64": {"authorization": "Basic open sesame"},
            "scheme": {"authorization": "Anything open sesame"},
        }.items():
            statuses[name] = requests.get(f"{server.url}/model", headers=headers, timeout=30).status_code
        statuses["password"] = requests.get(f"{server.url}/", auth=("", "open sesame"), timeout=30).status_code
        assert statuses == {"none": 401, "wrong": 401, "key": 200, "no base64": 401, "scheme": 401, "password": 200}
        assert "Basic" in server.get("/").headers["www-authenticate"]
        for host in ("bert.example:80", "other.example."):
            assert requests.get(f"{server.url}/ready", headers={"host": host}, timeout=30).status_code == 200


@pytest.mark.parametrize(("key", "problem"), [(" ", "is set but empty"), ("k\udcff", "has bytes that are not UTF-8")])
def test_a_key_that_cannot_be_one_opens_no_server(monkeypatch, key, problem):
    monkeypatch.setenv("BERT_API_KEY", key)
    with pytest.raises(ValueError, match=f"BERT_API_KEY {problem}.*; give it the key, or unset it"):
        parse_settings(["model"])


_CHUNKED = b"host: %s\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
_NO_CHUNKS = (b"zz\r\n", b"-1\r\n\r\n", b"0x5\r\nabcde\r\n", b"5\r\nabcdefgh\r\n", b"0\r\nno trailer\r\n\r\n")
_NO_CHUNKS += (b"0\r\n" + b"a" * 20_000,)


@pytest.mark.parametrize("body", _NO_CHUNKS)
def test_a_malformed_body_after_an_early_refusal_writes_nothing_to_the_log(server, body):
    before = server.log()
    for host in (b"elsewhere", b"localhost"):  # 421 before the body is read; the other one is read
        answer = raw(server, b"POST /predict HTTP/1.1\r\n" + _CHUNKED % host + b"\r\n" + body)
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 421")), answer[:80]
        assert answer.count(b"HTTP/1.1") == 1
    assert server.get("/health").status_code == 200 and server.log() == before


def test_a_request_with_two_lengths_ends_its_connection(server):
    head = b"POST /predict HTTP/1.1\r\n" + _CHUNKED % b"localhost"
    body = b'{"inputs": ["one"]}'
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    next_one = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    both = raw(server, head + b"content-length: 4\r\n\r\n" + chunks + next_one)
    assert both.count(b"HTTP/1.1 200") == 1 and b"connection: close" in both
    assert raw(server, head + b"\r\n" + chunks + next_one).count(b"HTTP/1.1 200") == 2


def raw(server, data: bytes) -> bytes:
    """Return the server's answer until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(data)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_a_body_without_a_length_is_cut_off_too(server):
    def pieces():
        for _ in range(100):
            yield b" " * 1000

    headers = {"content-type": "application/json"}
    assert requests.post(f"{server.url}/predict", data=pieces(), headers=headers, timeout=30).status_code == 413


def test_inputs_that_the_model_refuses_or_fails_at(server):
    answer = server.post({"text": "good"}, {"text": "refuse"})
    assert answer.status_code == 422
    assert answer.json()["detail"] == [
        {"type": "value_error", "loc": ["body", "inputs", 1], "msg": "no [MASK] in the text"}
    ]
    answer = server.post({"text": "fail"}, {"text": "good"})
    assert (answer.status_code, answer.json()["detail"]) == (500, "the model failed at this input")


@contextlib.contextmanager
def busy(server, folder):
    """Keep the model at work until the function is called; return a future of its request, and that function."""
    go_on, before = folder / "go on", len(server.batches())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.post, {"text": f"until {go_on}"})
        wait_until(lambda: len(server.batches()) > before)
        yield running, go_on.touch
        go_on.touch()


def test_a_full_queue_is_429_and_requests_that_wait_run_together(server, tmp_path):
    with busy(server, tmp_path) as (running, go_on), concurrent.futures.ThreadPoolExecutor(6) as pool:
        before = len(server.batches())
        waiting = [pool.submit(server.post, {"text": f"{n} a"}, {"text": f"{n} b"}) for n in range(6)]
        wait_until(lambda: server.metric("bert_queue_inputs") == 12)
        refused = server.post({"text": "too many"})
        assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
        assert "12 inputs wait for the model" in refused.json()["detail"]
        go_on()
        assert running.result().status_code == 200
        assert [answer.result().status_code for answer in waiting] == [200] * 6
    assert [len(texts) for _, _, texts in server.batches()[before:]] == [12]


def test_a_client_that_leaves_costs_the_model_nothing(server, tmp_path):
    body = json.dumps({"inputs": [{"text": "nobody waits for this"}]}).encode()
    head = f"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with busy(server, tmp_path) as (running, go_on):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(head.encode() + b"\r\n\r\n" + body)
            wait_until(lambda: server.metric("bert_queue_inputs") == 1)
        wait_until(lambda: server.metric("bert_queue_inputs") == 0)
        go_on()
        assert running.result().status_code == 200 and server.post({"text": "after"}).status_code == 200
    assert "nobody waits for this" not in [text for _, _, texts in server.batches() for text in texts]
    assert "never retrieved" not in server.log() and "Traceback" not in server.log()


def test_metrics_count_what_happened(server):
    before = {name: server.metric(name) for name in ("bert_requests_total", "bert_batch_inputs_sum")}
    server.post({"text": "one"}, {"text": "two"})
    server.get("/no/such/path")
    assert server.metric("bert_requests_total") >= before["bert_requests_total"] + 2
    assert server.metric("bert_batch_inputs_sum") == before["bert_batch_inputs_sum"] + 2
    text = server.get("/metrics").text
    assert 'bert_requests_total{route="/predict",status="200"}' in text and "/no/such/path" not in text
    assert server.metric("bert_ready") == 1 and server.metric("bert_queue_inputs") == 0


@pytest.mark.long
def test_before_the_model_is_loaded_the_server_lives_and_is_not_ready(tmp_path):
    with serving(tmp_path, "masked-lm", fake=True, ready=False, FAKE_START="1.5") as server:
        ready = server.get("/ready")
        assert ready.status_code == 503 and ready.json()["detail"] == "the model is being loaded"
        assert server.get("/health").status_code == 200 and server.get("/").status_code == 200
        early = server.post({"text": "a [MASK]"})
        assert early.status_code == 503 and early.headers["retry-after"]
        server.wait_for(" is ready: ")
        assert server.post({"text": "a [MASK]"}).status_code == 200


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_the_requests_end_and_leaves_no_process(tmp_path, number):
    with (
        serving(tmp_path, "encoder", fake=True) as server,
        busy(server, tmp_path) as (running, go_on),
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        model = server.model_pid()
        behind = pool.submit(server.post, {"text": "behind"})
        wait_until(lambda: server.metric("bert_queue_inputs") == 1)
        server.process.send_signal(number)
        time.sleep(0.5)
        go_on()
        assert server.process.wait(60) == 0
        assert [answer.result().status_code for answer in (running, behind)] == [200, 200]
        assert not psutil.pid_exists(model)
        with pytest.raises(requests.ConnectionError):
            server.get("/health")


@pytest.mark.long
def test_a_killed_server_leaves_no_process(tmp_path):
    with serving(tmp_path, "encoder", fake=True) as server:
        model = psutil.Process(server.model_pid())
        server.process.kill()
        model.wait(10)


@pytest.mark.long
@pytest.mark.parametrize(
    "mode,reason", [("refuse", "error: nowhere does not exist"), ("die", "ended with code 7 before")]
)
def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path, mode, reason):
    with serving(tmp_path, "encoder", fake=True, ready=False, FAKE_START=mode) as server:
        assert server.process.wait(20) == 2
        assert reason in server.log() and "Traceback" not in server.log()


def test_a_port_in_use_and_wrong_flags_are_one_line(capsys):
    handlers = MESSAGES.handlers[:]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for flags, reason in (
            (["--port", str(port)], f"--port {port} cannot be listened on (Address already in use)"),
            (["--port", "70000"], "port=70000"),
            (["--timeout-seconds", "0"], "timeout_seconds=0"),
            (["--max-queue", "10"], "--max-inputs 64 must be at most --max-queue 10"),
            (["--max-batch-size", "many"], "max_batch_size=many"),
            (["--device", "tpu"], "device=tpu must be one of auto, cpu, gpu"),
        ):
            with pytest.raises(SystemExit) as ended:
                __main__.main(["model", *flags])
            err = capsys.readouterr().err
            assert ended.value.code == 2 and reason in err and err.count("\n") == 1, err
            assert MESSAGES.handlers == handlers, "the server's own ends with it"


def test_without_its_packages_the_server_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(__main__, "PACKAGES", ("no_such_package",))
    with pytest.raises(SystemExit) as ended:
        __main__.main(["model"])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.count("\n") == 1
    assert "the server needs no-such-package, not installed here; " in err
    assert "scripts/setup.sh" in err and "serve" in err
