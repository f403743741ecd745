"""Tests of the index routes over HTTP with a fake model process: JSON, limits, refusals, key and host."""

import json

import pytest
import requests

from tests.serving.servers import serving, wait_until

ROUTES = ("/search", "/index/add", "/index/delete")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    flags = ("--index", tmp_path_factory.mktemp("index"), "--max-characters", 300, "--max-inputs", 3)
    flags = (*flags, "--max-body-bytes", 20_000)
    with serving(tmp_path_factory.mktemp("server"), "encoder", *flags, fake=True, BERT_API_KEY="secret") as running:
        yield running


def ask(server, path, body=None, **headers):
    headers = {"authorization": "Bearer secret", **headers}
    if body is None:
        return requests.get(server.url + path, headers=headers, timeout=60)
    if isinstance(body, (str, bytes)):
        headers = {"content-type": "application/json", **headers}
        return requests.post(server.url + path, data=body, headers=headers, timeout=60)
    return requests.post(server.url + path, json=body, headers=headers, timeout=60)


def test_requests_become_the_options_of_the_index(server):
    def options_of(**body):
        answer = ask(server, "/search", {"query": "a", **body})
        assert answer.status_code == 200, answer.text
        return json.loads(answer.json()["hits"][0]["text"])

    assert options_of() == [10, {}, "hybrid", None]
    filters = {"a": 1, "b": ["x", 2.5, True], "c": {"from": 1}, "d": {"from": 1.5, "to": 3}, "e": False, "f": "1"}
    assert options_of(top_k=100, ranking="words", filters=filters, rerank=20) == [100, filters, "words", 20]
    assert options_of(rerank=False)[3] is False
    added = ask(server, "/index/add", {"rows": [{"id": "a", "text": "b"}, {"text": "c", "year": 1990, "no": None}]})
    assert added.json() == {"ids": ["a", "new"], "replaced": 0, "generation": 2}
    assert ask(server, "/index/delete", {"ids": ["a", "b"]}).json() == {"deleted": 2, "generation": 3}
    assert ask(server, "/index").json()["generation"] == 3
    assert ask(server, "/search", {"query": "a"}).headers["x-bert-model"] == "f"


@pytest.mark.parametrize(
    ("path", "body", "place", "reason"),
    [
        ("/search", {}, ["query"], "Field required"),
        ("/search", {"query": " "}, ["query"], "the text is empty"),
        ("/search", {"query": "x" * 301}, ["query"], "at most 300 characters"),
        ("/search", {"query": "a", "top_k": 101}, ["top_k"], "less than or equal to 100"),
        ("/search", {"query": "a", "top_k": 0}, ["top_k"], "greater than or equal to 1"),
        ("/search", {"query": "a", "top_k": "3"}, ["top_k"], "valid integer"),
        ("/search", {"query": "a", "ranking": "magic"}, ["ranking"], "'hybrid', 'vectors' or 'words'"),
        ("/search", {"query": "a", "rerank": 0}, ["rerank"], "valid"),
        ("/search", {"query": "a", "more": 1}, ["more"], "not permitted"),
        ("/search", {"query": "a", "filters": {"a": None}}, ["filters", "a"], "valid"),
        ("/search", {"query": "a", "filters": {"a": {"from": "1"}}}, ["filters", "a"], "valid"),
        ("/search", {"query": "a", "filters": {"a": {"least": 1}}}, ["filters", "a"], "valid"),
        ("/search", {"query": "a", "filters": {str(n): n for n in range(17)}}, ["filters"], "at most 16 items"),
        ("/search", {"query": "a", "filters": {"a": [1] * 101}}, ["filters", "a"], "valid"),
        ("/search", {str(n): n for n in range(40)}, [], "the object has 40 keys"),
        ("/search", '{"query": "a", "filters": {"a": NaN}}', ["filters", "a"], "valid"),
        ("/search", '{"query": "\\ud800"}', ["query"], "valid string"),
        ("/index/add", {"rows": []}, ["rows"], "at least 1 item"),
        ("/index/add", {"rows": [{"text": "a"}] * 4}, ["rows"], "at most 3 items"),
        ("/index/add", {"rows": [{"id": "a"}]}, ["rows", 0, "text"], "Field required"),
        ("/index/add", {"rows": [{"id": "", "text": "a"}]}, ["rows", 0, "id"], "at least 1 character"),
        ("/index/add", {"rows": [{"id": 7, "text": "a"}]}, ["rows", 0, "id"], "valid string"),
        ("/index/add", {"rows": [{"text": "a", "b": {"c": 1}}]}, ["rows", 0, "b"], "valid"),
        ("/index/add", {"rows": [{"text": "a", "b": "x" * 1001}]}, ["rows", 0, "b"], "valid"),
        ("/index/add", {"rows": [{"text": "a"} | {str(n): n for n in range(40)}]}, ["rows", 0], "41 keys"),
        ("/index/add", '{"rows": [{"text": "a", "b": Infinity}]}', ["rows", 0, "b"], "valid"),
        ("/index/delete", {"ids": []}, ["ids"], "at least 1 item"),
        ("/index/delete", {"ids": ["a"] * 1001}, ["ids"], "at most 1000 items"),
        ("/index/delete", {"ids": [None]}, ["ids", 0], "valid string"),
    ],
    ids=str,
)
def test_wrong_bodies_are_refused_by_their_place(server, path, body, place, reason):
    answer = ask(server, path, body)
    assert answer.status_code == 422, answer.text
    mistakes = answer.json()["detail"]
    assert len(mistakes) <= 10 and len(answer.content) < 5000
    assert mistakes[0]["loc"][1 : 1 + len(place)] == place or not place, mistakes
    assert reason in mistakes[0]["msg"] or reason == "valid", mistakes


@pytest.mark.parametrize("path", ROUTES)
def test_what_is_no_json_is_refused(server, path):
    for body in (b'{"query": "\xff"}', "[" * 9000, "", "null", "[]", "3"):
        answer = ask(server, path, body)
        assert answer.status_code in (400, 422) and len(answer.content) < 2000


def test_the_limits_of_other_routes_hold_for_these(server):
    for path in ROUTES:
        assert ask(server, path, "{}", **{"content-type": "text/plain"}).status_code == 415
        assert ask(server, path, "x" * 20_001).status_code == 413
        assert ask(server, path, {}, authorization="Bearer wrong").status_code == 401
        assert ask(server, path, {}, host="evil.example").status_code == 421
        assert ask(server, path).status_code == 405
    assert ask(server, "/index", authorization="").status_code == 401
    assert ask(server, "/search", {"query": "refuse"}).json()["detail"][0]["msg"] == "no [MASK] in the text"
    assert ask(server, "/search", {"query": "fail"}).status_code == 500
    metrics = ask(server, "/metrics").text
    assert 'bert_requests_total{route="/search",status="500"}' in metrics
    assert 'bert_requests_total{route="/index/add",status="200"}' in metrics
    assert ask(server, "/search.js").status_code == 200


def test_a_lost_model_process_is_answered_and_the_index_served_again(server):
    assert ask(server, "/search", {"query": "die"}).status_code == 503
    server.wait_for("it is started again")
    wait_until(lambda: ask(server, "/search", {"query": "a"}).status_code == 200, 120)


def test_the_schema_has_the_routes_only_if_there_is_an_index(server, tmp_path):
    schema = ask(server, "/openapi.json").json()
    for path in ROUTES:
        assert set(schema["paths"][path]["post"]["responses"]) == {
            "200",
            "413",
            "415",
            "422",
            "429",
            "500",
            "503",
            "504",
        }
    assert schema["components"]["schemas"]["SearchRequest"]["properties"]["query"]["maxLength"] == 300
    assert set(schema["paths"]["/index"]["get"]["responses"]) == {"200", "429", "503", "504"}
    with serving(tmp_path, "encoder", fake=True) as without:
        paths = without.get("/openapi.json").json()["paths"]
        assert not {"/index", *ROUTES} & paths.keys() and without.get("/model").json()["index"] == ""
        assert requests.post(f"{without.url}/search", json={"query": "a"}, timeout=60).status_code == 404
        assert without.get("/index").status_code == 404
