"""Published models by name, against a server that behaves as the Hugging Face hub does, and fails as it does."""

import hashlib
import json
import random
from pathlib import Path

import pytest

from data.fetching import model_cache, published_models, transfer
from data.fetching.model_cache import cached_model, fetch_model
from data.fetching.published_models import Pin, parse_name
from data.fetching.transfer import DownloadError
from tests.support import tokenizer_files
from tests.support.fake_hub import COMMIT, VOCABULARY, hub, num_requests, put_in_cache, set_hub, small_files, weights
from tests.support.faulty_server import Served, serving

NAME = "someone/tiny-bert"
DATA = random.Random(1).randbytes(50_021)
FILES = {**small_files(), "model.safetensors": DATA, "pytorch_model.bin": DATA[::-1], "tf_model.h5": b"x"}
API = f"/api/models/{NAME}/revision/main?blobs=True"


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    set_hub(monkeypatch, offline=False, cache=tmp_path / "hf/hub")
    model_cache._is_sound.cache_clear()
    monkeypatch.setattr(transfer.Retry, "sleep", lambda self, response=None: None)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)


def fetched(served: dict[str, Served], monkeypatch, name: str = NAME, **options) -> Path:
    with serving(served) as url:
        set_hub(monkeypatch, url=url)
        return fetch_model(parse_name(name), **options)


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_model_comes_whole_verified_and_once(tmp_path, monkeypatch):
    served = hub(NAME, FILES)
    folder = fetched(served, monkeypatch)
    assert folder == tmp_path / f"cache/hub/models--someone--tiny-bert/snapshots/{COMMIT}"
    assert kept(folder) == {"config.json", "vocab.txt", "tokenizer_config.json", "model.safetensors"}
    assert all((folder / name).read_bytes() == FILES[name] for name in kept(folder))
    before = num_requests(served)
    assert fetched(served, monkeypatch) == folder and num_requests(served) == before
    set_hub(monkeypatch, offline=True)
    assert fetched({}, monkeypatch) == folder  # no server, and not allowed to ask one


def test_without_BERT_CACHE_it_is_in_hugging_faces_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("BERT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert fetched(hub(NAME, FILES), monkeypatch).is_relative_to(tmp_path / "hf/hub")


def test_what_an_earlier_version_fetched_is_used_and_verified(tmp_path, monkeypatch):
    folder = put_in_cache(tmp_path / "cache", NAME, FILES)
    assert fetched({}, monkeypatch) == folder
    (folder / "model.safetensors").write_bytes(DATA[::-1])
    with pytest.raises(DownloadError, match="model.safetensors is not the file whose checksum is sha256"):
        fetched({}, monkeypatch)
    (folder / "model.json").write_text('{"files": {"model.safetensors": 1}}')
    with pytest.raises(DownloadError, match="model.json is damaged; remove "):
        fetched({}, monkeypatch)


def test_the_description_alone_is_small_and_the_weights_follow(monkeypatch):
    served = hub(NAME, FILES)
    folder = fetched(served, monkeypatch, weights=False)
    assert not (folder / "model.safetensors").exists() and not weights(served).requests
    assert fetched(served, monkeypatch) == folder and (folder / "model.safetensors").read_bytes() == DATA


def test_a_cut_connection_is_asked_for_the_rest(monkeypatch):
    served = hub(NAME, FILES)
    served[API].statuses = [429]
    weights(served).drops = [20_000, 20_001]
    assert (fetched(served, monkeypatch) / "model.safetensors").read_bytes() == DATA


@pytest.mark.parametrize("name, kind", [("model.safetensors", "sha256"), ("vocab.txt", "git-sha1")])
def test_wrong_bytes_are_deleted_and_named(monkeypatch, name, kind):
    served = hub(NAME, FILES)
    file = weights(served) if kind == "sha256" else served[f"/{NAME}/resolve/main/{name}"]
    file.data = file.data[::-1]
    with pytest.raises(
        DownloadError, match=f"{name} is not the file whose checksum is {kind}:.*; remove .* start again"
    ):
        fetched(served, monkeypatch)
    file.data = file.data[::-1]
    folder = fetched(served, monkeypatch)
    (folder / name).resolve().write_bytes(b"damage")
    with pytest.raises(DownloadError, match=f"{name} is not the file .* remove .*/blobs/"):
        fetched(served, monkeypatch)
    (folder / name).resolve().unlink()
    fetched(served, monkeypatch)


@pytest.mark.parametrize(
    "status, headers, text",
    [
        (401, {"X-Error-Code": "RepoNotFound"}, "has no model someone/tiny-bert, or it is private: then set HF_TOKEN"),
        (404, {"X-Error-Code": "RepoNotFound"}, "has no model someone/tiny-bert"),
        (404, {"X-Error-Code": "RevisionNotFound"}, "no revision main of someone/tiny-bert; check what follows @"),
        (403, {"X-Error-Code": "GatedRepo"}, "is gated, and your account has no access: ask for it"),
        (503, {}, r"cannot be reached \(.*503.*\); .* on a machine with network run .*data.download_model"),
    ],
)
def test_refusals_are_explained_and_leave_nothing(monkeypatch, tmp_path, status, headers, text):
    refused = Served(b"", statuses=[status] * 9, status_headers=headers)
    with pytest.raises(DownloadError, match=text) as error:
        fetched({API: refused}, monkeypatch)
    assert "\n" not in str(error.value) and not (tmp_path / "cache").exists()


def test_no_network_and_offline_are_one_line(monkeypatch, tmp_path):
    set_hub(monkeypatch, url="http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="cannot be reached .*Connection refused.* copy DIR here") as error:
        fetch_model(parse_name(NAME))
    assert "\n" not in str(error.value) and not (tmp_path / "cache").exists()
    served = hub(NAME, FILES)
    fetched(served, monkeypatch, weights=False)
    asked = num_requests(served)
    set_hub(monkeypatch, offline=True)
    fetched(served, monkeypatch, weights=False)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE forbids downloads; unset it, or on a machine") as error:
        fetched(served, monkeypatch)
    assert "\n" not in str(error.value) and num_requests(served) == asked


def test_a_server_that_is_no_hub_is_named(monkeypatch):
    page = Served(b"<html>Welcome", headers={"Content-Type": "text/html"})
    with pytest.raises(DownloadError, match="does not answer as the Hugging Face hub does"):
        fetched({API: page}, monkeypatch)
    with pytest.raises(DownloadError, match="cannot be reached .*; the same command resumes"):
        fetched({API: Served(b"{}", extra_length=9)}, monkeypatch)


def test_a_gated_model_needs_a_token_which_only_the_hub_receives(monkeypatch):
    served = hub(NAME, FILES, gated="manual")
    with pytest.raises(DownloadError, match="is gated: accept its terms at .*/someone/tiny-bert, then set HF_TOKEN"):
        fetched(served, monkeypatch)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    # The content stands on another host, as at the hub: it must not see the token.
    with serving({path: one for path, one in served.items() if path.startswith("/cdn/")}) as other:
        for one in {id(one): one for one in served.values()}.values():
            one.redirect = one.redirect and other.replace("127.0.0.1", "localhost") + one.redirect
        fetched(served, monkeypatch)
    assert served[API].requests[-1]["authorization"] == "Bearer hf_secret"
    received = {name.lower() for one in weights(served).requests for name in one}
    assert received and "authorization" not in received


@pytest.mark.parametrize(
    "there, taken",
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["pytorch_model.bin", "tf_model.h5"], ["pytorch_model.bin"]),
        (["model_state.pdparams", "pytorch_model.bin"], ["model_state.pdparams"]),
        (
            ["model.safetensors.index.json", "model-00002-of-2.safetensors", "model-00001-of-2.safetensors"],
            ["model-00001-of-2.safetensors", "model-00002-of-2.safetensors", "model.safetensors.index.json"],
        ),
    ],
)
def test_formats_that_cannot_hold_code_are_preferred(monkeypatch, there, taken):
    folder = fetched(hub(NAME, small_files() | {name: name.encode() for name in there}), monkeypatch)
    assert sorted(name for name in kept(folder) if name.startswith("model") or "bin" in name) == taken


def test_names_that_lead_out_of_the_folder_are_not_taken(monkeypatch):
    bad = {"model.safetensors.index.json": b"{}", "model-/../../../evil.safetensors": b"x", "model-1.safetensors": b"y"}
    folder = fetched(hub(NAME, small_files() | bad), monkeypatch)
    assert "model-1.safetensors" in kept(folder) and not list(folder.parents[4].rglob("evil*"))


@pytest.mark.parametrize(
    "missing, text",
    [
        ("config.json", "has no description that can be read .config.json"),
        ("vocab.txt", "has no vocabulary that can be read"),
        ("model.safetensors", "has no weights that can be read .* it has .*tf_model.h5"),
    ],
)
def test_a_repository_without_a_part_is_refused(monkeypatch, missing, text):
    files = {name: data for name, data in FILES.items() if name not in (missing, "pytorch_model.bin")}
    with pytest.raises(DownloadError, match=text):
        fetched(hub(NAME, files), monkeypatch)


def test_another_network_is_refused_before_its_weights(monkeypatch):
    served = hub(NAME, {**FILES, **small_files(model_type="electra")})
    with pytest.raises(DownloadError, match="'electra', which is not read here; choose .* bert, modernbert, roberta"):
        fetched(served, monkeypatch)
    assert not weights(served).requests


def test_a_tokenizer_json_alone_is_enough(monkeypatch):
    tokens = VOCABULARY.decode().split()
    wordpiece = {"model": {"type": "WordPiece", "vocab": {token: place for place, token in enumerate(tokens)}}}
    for number, content in enumerate((json.dumps(wordpiece).encode(), tokenizer_files.content("roberta"))):
        files = {**FILES, **small_files(model_type="roberta" if number else "bert"), "tokenizer.json": content}
        del files["vocab.txt"]
        folder = fetched(hub(f"{NAME}{number}", files), monkeypatch, f"{NAME}{number}")
        assert (folder / "tokenizer.json").read_bytes() == content and not (folder / "vocab.txt").exists()


def test_a_revision_can_be_named(monkeypatch):
    served = hub(NAME, FILES, revisions=("v2",))
    fetched(served, monkeypatch, f"{NAME}@v2")
    with pytest.raises(DownloadError):
        fetched(served, monkeypatch)  # main is not there


def hugging_face_cache(folder: Path, repository: str, files: dict[str, bytes], commit: str = COMMIT) -> Path:
    """Write the layout of huggingface_hub: blobs named by their hash, a snapshot of links, and a reference."""
    model = folder / "hub" / f"models--{repository.replace('/', '--')}"
    snapshot = model / "snapshots" / commit
    for path in (model / "blobs", snapshot, model / "refs"):
        path.mkdir(parents=True)
    for name, data in files.items():
        blob = model / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (snapshot / name).symlink_to(Path("../../blobs") / blob.name)
    (model / "refs/main").write_text(commit)
    return snapshot


def test_what_hugging_faces_tools_have_downloaded_is_used_if_it_is_complete(tmp_path, monkeypatch):
    snapshot = hugging_face_cache(tmp_path / "hf", NAME, FILES)
    set_hub(monkeypatch, offline=True)
    assert fetched({}, monkeypatch) == snapshot
    snapshot.joinpath("model.safetensors").unlink()
    snapshot.joinpath("model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1-of-2.safetensors"}}')
    assert cached_model(parse_name(NAME)) is None and cached_model(parse_name(NAME), weights=False) == snapshot


def test_a_pinned_model_is_fetched_at_its_revision_and_nothing_else_is_accepted(monkeypatch):
    sha256, pins = hashlib.sha256(DATA).hexdigest(), {}
    monkeypatch.setattr(published_models, "_pins", lambda: pins)
    pins[NAME] = Pin(COMMIT, {"model.safetensors": (sha256, len(DATA))})
    other = hub(NAME, {**FILES, "model.safetensors": DATA[::-1]}, revisions=())
    with pytest.raises(DownloadError, match=f"not the file whose checksum is sha256:{sha256}"):
        fetched(other, monkeypatch)
    fetched(hub(NAME, FILES, revisions=()), monkeypatch)
    pins[NAME] = Pin("f" * 40, {})
    with pytest.raises(DownloadError, match=f"asked for {'f' * 40} of {NAME}, it describes '{COMMIT}'"):
        fetched(hub(NAME, FILES, revisions=("f" * 40,)), monkeypatch)


def test_models_of_paddlenlp_are_recorded_at_the_first_download(monkeypatch):
    name = "uer/chinese-roberta-tiny"
    paths = {
        "/paddlenlp/models/transformers/uer/chinese_roberta_tiny.pdparams": Served(DATA),
        "/paddlenlp/models/transformers/uer/chinese_roberta_vocab.txt": Served(VOCABULARY),
    }
    with serving(paths) as url:
        monkeypatch.setenv("PPNLP_ENDPOINT", f"{url}/paddlenlp")
        folder = fetched({}, monkeypatch, name)
        assert folder.parent.name == "paddlenlp" and (folder / "model_state.pdparams").read_bytes() == DATA
        assert json.loads((folder / "config.json").read_text())["hidden_size"] == 128
        assert fetched({}, monkeypatch, name) == folder and num_requests(paths) == 2
        (folder / "model_state.pdparams").write_bytes(DATA[::-1])
        with pytest.raises(DownloadError, match="pdparams is not the file whose checksum is sha256:"):
            fetched({}, monkeypatch, name)
        (folder / "model_state.pdparams").unlink()
        paths["/paddlenlp/models/transformers/uer/chinese_roberta_tiny.pdparams"].data = DATA[::-1]
        with pytest.raises(DownloadError, match="the file received is not the one"):
            fetched({}, monkeypatch, name)
