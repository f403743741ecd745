"""`run_convert.py --to-hub`: what the hub receives from its own client, failures, and reading back by transformers."""

import json
from pathlib import Path

import pytest
import yaml

import run_convert
from data.fetching import transfer
from tests.conversion.test_round_trips import TASKS, native
from tests.support import writable_hub as writable_hub_module
from tests.support.commands import refused
from tests.support.fake_hub import set_hub
from tests.support.writable_hub import ACCOUNT, TOKEN, Repository, writable_hub

NAME = f"{ACCOUNT}/letters"


@pytest.fixture
def hub(monkeypatch):
    with writable_hub() as hub:
        set_hub(monkeypatch, url=hub.url, offline=False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(transfer.Retry, "sleep", lambda self, response=None: None)
        yield hub


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return native(tmp_path_factory.mktemp("shared") / "ours", TASKS["pretraining"])


def push(source: Path, *flags: str, name: str = "letters") -> int:
    return run_convert.main(["--from", str(source), "--to-hub", name, *flags])


def test_one_commit_has_all_files_and_a_card(hub, source, capsys):
    assert push(source, "--license", "cc-by-4.0", "--language", "de", "en", "--hub-private") == 0
    repository = hub.repositories[NAME]
    assert repository.private and repository.commits == 1
    assert {*repository.files} == {".gitattributes", "README.md", "config.json", "model.safetensors"} | {
        *("special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
    }
    _, front, body = repository.files["README.md"].decode().split("---\n", 2)
    assert yaml.safe_load(front) == {
        "language": ["de", "en"],
        "license": "cc-by-4.0",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert", "bert-on-paddle", "pretraining"],
    }
    assert f'pipeline("fill-mask", "{NAME}")' in body
    assert not any(str(source.parent).encode() in data for data in repository.files.values())
    shown = capsys.readouterr()
    assert f"pushed: {hub.url}/{NAME} (private)" in shown.out and TOKEN not in shown.out + shown.err


def test_a_token_file_wins_and_is_not_printed(hub, source, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert push(source, "--hub-token-file", str(file)) == 0
    assert "public: everybody can download it" in capsys.readouterr().out
    file.write_text("two words of a secret")
    with refused("must be a token alone"):
        push(source, "--hub-token-file", str(file))
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "statuses", "rule"),
    [
        ("whoami", [401], "does not accept the token .401."),
        ("repos/create", [403], "may not write there .403."),
        ("PUT /lfs", [403], "may not write there"),
        ("batch", [500, 500, 500], "cannot be reached .*too many 500 error responses"),
        ("POST .*commit", [500, 500, 500], "The same command tries again"),
        ("POST .*commit", [413], "it answered 413 .a fault of the test."),
    ],
)
def test_a_push_that_fails_is_one_sentence_and_can_be_repeated(hub, source, capsys, fault, statuses, rule):
    hub.faults += [(fault, status) for status in statuses]
    with refused(rule):
        push(source)
    assert not any(repository.commits for repository in hub.repositories.values())
    sent = len([request for request in hub.requests if request.startswith("PUT /lfs")])
    assert push(source) == 0 and hub.repositories[NAME].commits == 1
    if "commit" in fault:  # the weights are there
        assert len([request for request in hub.requests if request.startswith("PUT /lfs")]) == sent


def test_another_model_is_not_overwritten_unless_it_is_said(hub, source):
    stale = (
        "pytorch_model.bin",
        "merges.txt",
        "added_tokens.json",
        "labels.json",
        "task.json",
        "question_answering.json",
        "spiece.model",
    )
    hub.repositories[NAME] = Repository(
        files={"notes.txt": b"kept", "README.md": b"old", **dict.fromkeys(stale, b"{}")}
    )
    with refused(f"{NAME} is taken on .*it has added_tokens.json, labels.json, merges.txt.*--hub-update"):
        push(source)
    with refused("is public .*whatever --hub-private says"):
        push(source, "--hub-update", "--hub-private")
    assert push(source, "--hub-update") == 0
    files = hub.repositories[NAME].files
    assert {"model.safetensors", "vocab.txt", "notes.txt"} <= files.keys() and not files.keys() & {*stale}
    assert b"## Limits" in files["README.md"]


def test_a_card_of_a_new_repository_is_kept(hub, source, capsys):
    hub.repositories[NAME] = Repository(files={"README.md": b"By hand."})
    assert push(source) == 0 and hub.repositories[NAME].files["README.md"] == b"By hand."
    assert "its README.md is kept" in capsys.readouterr().out


def test_the_reason_of_a_refused_card_and_no_signature_are_shown(hub, source, monkeypatch, capsys):
    refusal = {"errors": [{"message": "license must be one of the list"}], "warnings": []}
    routes = [
        (path, lambda self, _: self._answer(400, refusal)) if "yaml" in path else (path, handle)
        for path, handle in writable_hub_module._ROUTES
    ]
    with monkeypatch.context() as patch:
        patch.setattr(writable_hub_module, "_ROUTES", routes)
        with refused("it refuses the card .*license must be one of the list"):
            push(source)

    def sign(self, body, name):
        objects = [
            {**item, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{item['oid']}?X-Signature=Secret"}}}
            for item in json.loads(body)["objects"]
        ]
        self._answer(200, {"objects": objects, "transfer": "basic"})

    routes = [(path, sign if "batch" in path else handle) for path, handle in writable_hub_module._ROUTES]
    monkeypatch.setattr(writable_hub_module, "_ROUTES", routes)
    hub.faults += [("PUT /lfs", 410)]
    with refused("it answered 410"):
        push(source)
    shown = capsys.readouterr()
    assert "Secret" not in shown.out + shown.err


def test_mistakes(hub, source):
    for words, rule in {
        "--to-hub a/b/c": "to_hub=a/b/c must be NAME or OWNER/NAME",
        "--to-hub bob/letters": "may not write there",
        "--to-hub letters --to x": "--to-hub NAME: one of them",
        "--to-hub letters --to-format paddlenlp": "--to-hub writes hf",
        "--to x": "--output-dir DIR needs --output-format",
        "--to x --to-format hf --hub-private": "are for --to-hub NAME",
        "--to-hub letters --license Mine!": "license=Mine! must be a name",
        "--to-hub letters --language English": "language=English must be a code",
        "--to-hub letters --language xx": "language='xx' must be a code of ISO 639",
    }.items():
        with refused(rule):
            run_convert.main(["--from", str(source), *words.split()])
    assert not hub.repositories


def test_without_a_token_a_network_or_permission_to_use_it(hub, source, monkeypatch, tmp_path):
    hub_url = hub.url
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    with refused("HF_TOKEN is not set: a token that may write is needed"):
        push(source)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    set_hub(monkeypatch, offline=True)
    with refused("HF_HUB_OFFLINE forbids connections"):
        push(source)
    set_hub(monkeypatch, offline=False, url="http://127.0.0.1:9")
    with refused("was not pushed to http://127.0.0.1:9: it cannot be reached"):
        push(source)
    assert not hub.requests, hub_url
