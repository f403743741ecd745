"""Tests of the server's limits: the last value that passes, and the first value that is refused."""

from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from bert.serving import connections
from bert.serving.connections import Connections
from bert.serving.messages import ENCODE, PREDICT
from bert.serving.schemas import embeddings_schema, request_schemas
from bert.serving.settings import Limits, ServerSettings, parse_settings
from tests.serving.fake_model import description

LEAST = {"port": 0, "max_body_bytes": 1, "max_inputs": 1, "max_characters": 1, "max_queue": 1, "timeout_seconds": 1}
LEAST |= {"read_seconds": 1, "max_connections": 1, "max_batch_size": 1, "max_batch_tokens": 1, "max_wait_ms": 0}


@pytest.mark.parametrize("name", LEAST)
def test_each_limit_has_a_least_value(name):
    given = {"model": "m", "max_inputs": 1}
    assert getattr(ServerSettings(**{**given, name: LEAST[name]}), name) == LEAST[name]
    with pytest.raises(ValidationError, match=name):
        ServerSettings(**{**given, name: LEAST[name] - 0.5 if "seconds" in name or "ms" in name else LEAST[name] - 1})


def test_the_last_port_and_a_full_request_in_the_queue_are_taken():
    assert ServerSettings(model="m", port=65535).port == 65535
    with pytest.raises(ValidationError, match="port"):
        ServerSettings(model="m", port=65536)
    assert Limits(max_inputs=7, max_queue=7).max_queue == 7
    with pytest.raises(
        ValidationError, match="--max-inputs 8 must be at most --max-queue 7: a full request could never"
    ):
        Limits(max_inputs=8, max_queue=7)


def test_the_limits_of_a_command_without_flags(monkeypatch):
    """Clients on other machines rely on these limits, and so does the choice of a machine."""
    monkeypatch.delenv("BERT_API_KEY", raising=False)
    settings = parse_settings(["model"])
    assert {name: getattr(settings, name) for name in Limits.model_fields} == {
        "max_body_bytes": 4 * 1024**2,
        "max_inputs": 64,
        "max_characters": 10_000,
        "max_queue": 512,
        "timeout_seconds": 30,
        "read_seconds": 10,
        "max_connections": 1000,
        "max_batch_size": 64,
        "max_batch_tokens": 4096,
        "max_wait_ms": 0,
    }
    assert (settings.host, settings.port, settings.allowed_hosts) == ("127.0.0.1", 8000, "localhost")


def accepted(schema, **body) -> bool:
    try:
        schema.model_validate(body)
    except ValidationError:
        return False
    return True


LIMITS = Limits(max_inputs=3, max_characters=5)


def test_a_request_has_so_many_texts_of_so_many_characters():
    request, _ = request_schemas(description("sequence-classification"), PREDICT, LIMITS)
    assert accepted(request, inputs=["abcde", {"text": "x"}, "äöüßé"])
    for inputs in (["a"] * 4, [], ["abcdef"], [""], [" \n"], ["a", {"text": "abcdef"}], [{"text": None}], [3]):
        assert not accepted(request, inputs=inputs), inputs
    pairs, _ = request_schemas(description("question-answering"), PREDICT, LIMITS)
    assert accepted(pairs, inputs=[{"question": "a", "context": "b"}])
    assert not accepted(pairs, inputs=[{"question": "a"}]) and not accepted(pairs, inputs=["a"])
    assert not accepted(pairs, inputs=[{"question": "a", "context": "abcdef"}])


def test_a_request_asks_for_1_to_100_candidates():
    for task, inputs in (("masked-lm", ["a"]), ("question-answering", [{"question": "a", "context": "b"}])):
        request, _ = request_schemas(description(task), PREDICT, LIMITS)
        assert [accepted(request, inputs=inputs, top_k=number) for number in (0, 1, 100, 101)] == [
            False,
            True,
            True,
            False,
        ]
        assert request.model_validate({"inputs": inputs}).top_k == 3  # that of the model
        assert not accepted(request, inputs=inputs, top_k=2.0)
    for task, kind in (("sequence-classification", PREDICT), ("masked-lm", ENCODE)):
        assert not accepted(request_schemas(description(task), kind, LIMITS)[0], inputs=["a"], top_k=1)


def test_an_object_has_at_most_16_keys():
    request, _ = request_schemas(description("encoder"), ENCODE, LIMITS)
    for number, reason in ((16, "Extra inputs are not permitted"), (17, "the object has 17 keys")):
        with pytest.raises(ValidationError, match=reason):
            request.model_validate({"inputs": ["a"], **{f"k{place}": 0 for place in range(number - 1)}})


def test_an_embedding_has_the_sizes_that_were_trained():
    model = description("encoder")
    schema = embeddings_schema(model, request_schemas(model, ENCODE, LIMITS)[0])
    sizes = [accepted(schema, input="a", dimensions=size) for size in (None, 0, 1, 2, 3)]
    assert sizes == [True, False, True, True, False]
    inputs = ("abcde", "abcdef", ["a"] * 2_048, ["a"] * 2_049)  # as many as OpenAI takes, whatever --max-inputs is
    assert [accepted(schema, input=given) for given in inputs] == [True, False, True, False]
    given = schema.model_validate({"input": "a"})
    assert (given.encoding_format, given.input_type, given.model) == ("float", "passage", "fake")


@pytest.fixture
def open_connections(monkeypatch):
    """Make Connections(LIMITS, FILES), and a function that opens a connection that waits with this many bytes."""
    files = {}
    stub = SimpleNamespace(
        RLIMIT_NOFILE="files",
        getrlimit=lambda name: files[name],
        setrlimit=lambda name, limits: files.update({name: limits}),
    )
    monkeypatch.setattr(connections, "resource", stub)

    def make(soft: int, hard: int, **limits):
        files["files"] = (soft, hard)
        every = Connections(Limits(**limits))
        closed = []

        def add(name: str, num_bytes: int | None = 0) -> None:
            """Open a connection that waits with `num_bytes`; None: its request is whole."""
            one = SimpleNamespace(name=name)

            def refuse():
                closed.append(name)
                every.open.discard(name)
                del every.waiting[one]

            one = type("One", (), {"refuse": staticmethod(refuse)})()
            every.open.add(name)
            if num_bytes is not None:
                every.waiting[one] = num_bytes
            every.make_room()

        return add, closed

    return make


def test_beyond_the_most_connections_those_that_waited_longest_are_closed(open_connections):
    add, closed = open_connections(1024, 4096, max_connections=3)
    for name in "abc":
        add(name)
    assert closed == []
    add("works", None)
    add("d")
    assert closed == ["a", "b"]
    for name in ("e", "f"):
        add(name, None)
    assert closed == ["a", "b", "c", "d"]
    add("g", None)
    assert closed == ["a", "b", "c", "d"], "none of them waits"


def test_connections_leave_64_files_of_those_that_the_system_allows(open_connections):
    """The limit is the system's maximum, which is more than a process gets at first."""
    add, closed = open_connections(10, 70, max_connections=1000)
    for number in range(7):
        add(str(number))
    assert closed == ["0"]


def test_requests_that_are_not_whole_hold_64_megabytes_together(open_connections):
    add, closed = open_connections(1024, 4096)
    add("small", 1)
    add("large", (64 << 20) - 1)
    assert closed == []
    add("more", 1)
    assert closed == ["small"]
