"""Published models by name, against a server that behaves as the Hugging Face hub does, and fails as it does."""

import hashlib
import json
import random
from pathlib import Path

import pytest

from data.fetching import model_cache, published_models, transfer
from data.fetching.model_cache import LISTING_FILE, fetch_model, model_folder
from data.fetching.published_models import Pin, parse_name, pin_of, write_pin
from data.fetching.transfer import DownloadError
from tests.support import tokenizer_files
from tests.support.fake_hub import COMMIT, VOCABULARY, hub, num_requests, set_hub, small_files, weights
from tests.support.faulty_server import Served, serving

NAME = "someone/tiny-bert"
DATA = random.Random(1).randbytes(50_021)
FILES = {**small_files(), "model.safetensors": DATA, "pytorch_model.bin": DATA[::-1], "tf_model.h5": b"x"}


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))  # of other processes
    monkeypatch.delenv("HF_TOKEN", raising=False)
    set_hub(monkeypatch, offline=False, cache=tmp_path / "hf/hub")
    model_cache._verify.cache_clear()


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """The seconds that would have been waited."""
    seconds: list[float] = []
    monkeypatch.setattr(transfer, "sleep", seconds.append)
    monkeypatch.setattr(transfer, "ATTEMPTS", 4)
    return seconds


def fetched(served: dict[str, Served], monkeypatch, name: str = NAME, **options) -> Path:
    model = parse_name(name)
    with serving(served) as url:
        set_hub(monkeypatch, url=url)
        fetch_model(model, **options)
    return model_folder(model)


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_model_comes_whole_verified_and_once(monkeypatch):
    served = hub(NAME, FILES)
    folder = fetched(served, monkeypatch)
    wanted = {"config.json", "vocab.txt", "tokenizer_config.json", "model.safetensors"}
    assert kept(folder) == wanted | {LISTING_FILE}
    assert all((folder / name).read_bytes() == FILES[name] for name in wanted)
    listing = json.loads((folder / LISTING_FILE).read_text())
    assert (listing["revision"], listing["licence"]) == (COMMIT, "apache-2.0")
    assert listing["files"]["model.safetensors"]["checksum"] == "sha256:" + hashlib.sha256(DATA).hexdigest()
    before = num_requests(served)
    assert fetched(served, monkeypatch) == folder and num_requests(served) == before
    set_hub(monkeypatch, offline=True)
    assert fetched({}, monkeypatch) == folder  # no server, and not allowed to ask one


def test_the_description_alone_is_small_and_the_weights_follow(monkeypatch):
    served = hub(NAME, FILES)
    folder = fetched(served, monkeypatch, weights=False)
    assert not (folder / "model.safetensors").exists() and not weights(served).requests
    asked = num_requests(served)
    assert (fetched(served, monkeypatch) / "model.safetensors").read_bytes() == DATA
    assert num_requests(served) == asked + 2  # the address and its redirection; nothing else again


def test_a_cut_connection_resumes_behind_the_redirection(monkeypatch):
    served = hub(NAME, FILES)
    weights(served).drops = [20_000, 20_001]
    fetched(served, monkeypatch)
    assert [one.get("Range") for one in weights(served).requests] == [None, "bytes=20000-", "bytes=40001-"]


def test_too_many_requests_wait_as_long_as_the_server_asks(monkeypatch, waits):
    served = hub(NAME, FILES)
    for file, seconds in ((served[f"/api/models/{NAME}/revision/main?blobs=True"], "17"), (weights(served), "29")):
        file.statuses, file.status_headers = [429], {"Retry-After": seconds}
    fetched(served, monkeypatch)
    assert waits == [17.0, 29.0]
    weights(served).statuses, weights(served).status_headers = [429], {"Retry-After": "7200"}
    (model_folder(parse_name(NAME)) / "model.safetensors").unlink()
    with pytest.raises(DownloadError, match="asks to wait 7200 seconds"):
        fetched(served, monkeypatch)


@pytest.mark.parametrize("name, kind", [("model.safetensors", "sha256"), ("vocab.txt", "git-sha1")])
def test_wrong_bytes_are_deleted_and_named(monkeypatch, name, kind):
    served = hub(NAME, FILES)
    file = weights(served) if kind == "sha256" else served[f"/{NAME}/resolve/{COMMIT}/{name}"]
    file.data = file.data[::-1]
    with pytest.raises(DownloadError, match=f"not the one whose checksum is {kind}:"):
        fetched(served, monkeypatch)
    assert not (model_folder(parse_name(NAME)) / name).exists()
    file.data = file.data[::-1]
    fetched(served, monkeypatch)


def test_damage_in_the_cache_is_found_at_the_next_use(monkeypatch):
    folder = fetched(hub(NAME, FILES), monkeypatch)
    (folder / "model.safetensors").write_bytes(DATA[:100] + b"!" + DATA[101:])
    with pytest.raises(DownloadError, match="model.safetensors: is there, but is not the file .* remove it"):
        fetched({}, monkeypatch)
    (folder / "model.safetensors").unlink()
    fetched(hub(NAME, FILES), monkeypatch)


@pytest.mark.parametrize(
    "status, headers, text",
    [
        (401, {"X-Error-Code": "RepoNotFound"}, "has no model someone/tiny-bert, or it is private: then set HF_TOKEN"),
        (404, {"X-Error-Code": "RepoNotFound"}, "has no model someone/tiny-bert"),
        (404, {"X-Error-Code": "RevisionNotFound"}, "no revision main of someone/tiny-bert; check what follows @"),
        (403, {"X-Error-Code": "GatedRepo"}, "is gated, and your account has no access: ask for it"),
        (503, {}, r"cannot be reached \(3 attempts.*503.*\); on a machine with network run .*data.download_model"),
    ],
)
def test_refusals_are_explained_and_leave_nothing(monkeypatch, tmp_path, status, headers, text):
    refused = Served(b"", statuses=[status] * 9, status_headers=headers)
    with pytest.raises(DownloadError, match=text) as error:
        fetched({f"/api/models/{NAME}/revision/main?blobs=True": refused}, monkeypatch)
    assert "\n" not in str(error.value) and not (tmp_path / "cache").exists()


def test_no_network_is_one_line(monkeypatch, tmp_path):
    set_hub(monkeypatch, url="http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="cannot be reached .*Connection refused.* copy DIR here") as error:
        fetch_model(parse_name(NAME))
    assert "\n" not in str(error.value) and not (tmp_path / "cache").exists()


def test_offline_is_one_line_without_a_request(monkeypatch):
    set_hub(monkeypatch, offline=True)
    served = hub(NAME, FILES)
    with pytest.raises(
        DownloadError, match="HF_HUB_OFFLINE forbids downloads; unset it, or on a machine with"
    ) as error:
        fetched(served, monkeypatch)
    assert "\n" not in str(error.value) and not num_requests(served)


def test_offline_with_the_description_only_names_what_is_missing(monkeypatch):
    served = hub(NAME, FILES)
    fetched(served, monkeypatch, weights=False)
    set_hub(monkeypatch, offline=True)
    fetched(served, monkeypatch, weights=False)
    with pytest.raises(DownloadError, match="^model.safetensors of someone/tiny-bert is not in .* forbids downloads"):
        fetched(served, monkeypatch)


def test_a_gated_model_needs_a_token_which_only_the_hub_receives(monkeypatch):
    served = hub(NAME, FILES, gated="manual")
    with pytest.raises(DownloadError, match="is gated: accept its terms at .*/someone/tiny-bert, then set HF_TOKEN"):
        fetched(served, monkeypatch)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    # The content stands on another host, as at the hub: it must not see the token.
    with serving({path: one for path, one in served.items() if path.startswith("/cdn/")}) as other:
        for one in served.values():
            one.redirect = one.redirect and other.replace("127.0.0.1", "localhost") + one.redirect
        fetched(served, monkeypatch)
    api = served[f"/api/models/{NAME}/revision/main?blobs=True"]
    assert api.requests[-1]["authorization"] == "Bearer hf_secret"
    assert weights(served).requests and all("Authorization" not in one for one in weights(served).requests)


def test_a_refused_file_of_a_gated_model_says_where_to_ask(monkeypatch):
    served = hub(NAME, FILES, gated="manual")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    served[f"/{NAME}/resolve/{COMMIT}/config.json"].statuses = [403]
    with pytest.raises(DownloadError, match="(?s)403 .*is gated: ask for access at http"):
        fetched(served, monkeypatch)


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
    assert sorted(name for name in kept(folder) if name.startswith("model") or "bin" in name) == sorted(
        [*taken, LISTING_FILE]
    )


def test_names_that_lead_out_of_the_folder_are_not_taken(monkeypatch):
    bad = {"model.safetensors.index.json": b"{}", "model-/../../../evil.safetensors": b"x", "model-1.safetensors": b"y"}
    folder = fetched(hub(NAME, small_files() | bad), monkeypatch)
    assert "model-1.safetensors" in kept(folder) and not list(folder.parents[3].rglob("evil*"))


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


def test_a_vocabulary_is_made_from_tokenizer_json(monkeypatch):
    tokens = VOCABULARY.decode().split()
    content = {"model": {"type": "WordPiece", "vocab": {token: place for place, token in enumerate(tokens)}}}
    files = {name: data for name, data in FILES.items() if name != "vocab.txt"}
    folder = fetched(hub(NAME, files | {"tokenizer.json": json.dumps(content).encode()}), monkeypatch)
    assert (folder / "vocab.txt").read_bytes() == VOCABULARY


def test_a_roberta_keeps_its_tokenizer_json(monkeypatch):
    content = tokenizer_files.content("roberta")
    files = {**FILES, **small_files(model_type="roberta")}
    del files["vocab.txt"]
    folder = fetched(hub(NAME, files | {"tokenizer.json": content}), monkeypatch)
    assert (folder / "tokenizer.json").read_bytes() == content and not (folder / "vocab.txt").exists()


def test_a_revision_can_be_named(monkeypatch):
    served = hub(NAME, FILES, revisions=("v2",))
    folder = fetched(served, monkeypatch, f"{NAME}@v2")
    assert folder.name == "tiny-bert@v2"
    with pytest.raises(DownloadError):
        fetched(served, monkeypatch)  # main is not there


def hugging_face_cache(folder: Path, repository: str, files: dict[str, bytes], commit: str = COMMIT) -> Path:
    """The layout that huggingface_hub writes: blobs named by their hash, a snapshot of links, and a reference."""
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


def test_what_hugging_faces_tools_have_downloaded_is_used(tmp_path, monkeypatch):
    snapshot = hugging_face_cache(tmp_path / "hf", NAME, FILES)
    set_hub(monkeypatch, offline=True)
    folder = fetched({}, monkeypatch)
    assert (folder / "model.safetensors").samefile(snapshot / "model.safetensors")  # no second copy
    for path in snapshot.iterdir():
        path.unlink()
    assert fetched({}, monkeypatch) == folder  # it has become our own


def test_damage_in_hugging_faces_cache_is_not_taken(tmp_path, monkeypatch):
    snapshot = hugging_face_cache(tmp_path / "hf", NAME, FILES)
    (snapshot / "model.safetensors").write_bytes(DATA[::-1])
    set_hub(monkeypatch, offline=True)
    with pytest.raises(DownloadError, match="blobs/.* is there, but is not the file .* remove it"):
        fetched({}, monkeypatch)
    assert not (model_folder(parse_name(NAME)) / "model.safetensors").exists()


def test_an_incomplete_model_in_hugging_faces_cache_is_fetched_from_the_hub(tmp_path, monkeypatch):
    hugging_face_cache(tmp_path / "hf", NAME, small_files())
    assert (fetched(hub(NAME, FILES), monkeypatch) / "model.safetensors").read_bytes() == DATA


@pytest.fixture
def own_pins(tmp_path, monkeypatch):
    monkeypatch.setattr(published_models, "PINS_FILE", tmp_path / "pins.json")
    (tmp_path / "pins.json").write_text("{}")
    published_models._pins.cache_clear()
    yield
    published_models._pins.cache_clear()


def test_a_pinned_model_is_fetched_at_its_revision_and_nothing_else_is_accepted(monkeypatch, own_pins):
    sha256 = hashlib.sha256(DATA).hexdigest()
    write_pin(parse_name(NAME), Pin(COMMIT, {"model.safetensors": (sha256, len(DATA))}))
    assert pin_of(parse_name(NAME)).files == {"model.safetensors": (sha256, len(DATA))}
    only_pinned = hub(NAME, FILES, revisions=())
    fetched(only_pinned, monkeypatch, weights=False)
    other = hub(NAME, {**FILES, "model.safetensors": DATA[::-1]})
    model_folder(parse_name(NAME)).rename(model_folder(parse_name(NAME)).with_name("away"))
    with pytest.raises(DownloadError, match="model.safetensors of .* is not the file that is pinned"):
        fetched(other, monkeypatch)
    assert pin_of(parse_name(f"{NAME}@other")) is None


def test_a_hub_that_answers_with_another_commit_is_refused(monkeypatch, own_pins):
    write_pin(parse_name(NAME), Pin("f" * 40, {}))
    with pytest.raises(DownloadError, match=f"asked for {'f' * 40} of {NAME}, it describes '{COMMIT}'"):
        fetched(hub(NAME, FILES, revisions=("f" * 40,)), monkeypatch)


def test_a_pin_holds_against_a_hub_that_lies_about_it(monkeypatch, own_pins):
    write_pin(parse_name(NAME), Pin(COMMIT, {"vocab.txt": ("0" * 64, len(VOCABULARY))}))
    with pytest.raises(DownloadError, match="not the one whose checksum is sha256:0000"):
        fetched(hub(NAME, FILES), monkeypatch)


def test_models_of_paddlenlp_are_recorded_at_the_first_download(monkeypatch):
    paths = {
        "/paddlenlp/models/transformers/uer/chinese_roberta_tiny.pdparams": Served(DATA),
        "/paddlenlp/models/transformers/uer/chinese_roberta_vocab.txt": Served(VOCABULARY),
    }
    with serving(paths) as url:
        monkeypatch.setenv("PPNLP_ENDPOINT", f"{url}/paddlenlp")
        folder = fetched({}, monkeypatch, "uer/chinese-roberta-tiny")
    assert folder.parent.name == "paddlenlp" and (folder / "model_state.pdparams").read_bytes() == DATA
    assert json.loads((folder / "config.json").read_text())["hidden_size"] == 128
    fetched({}, monkeypatch, "uer/chinese-roberta-tiny")
    (folder / "model_state.pdparams").write_bytes(DATA[::-1])
    with pytest.raises(DownloadError, match="is not the file whose checksum is recorded in checksums.json"):
        fetched({}, monkeypatch, "uer/chinese-roberta-tiny")
