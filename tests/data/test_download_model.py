import pytest

from data import download_model
from data.fetching import model_cache
from tests.support.commands import refused
from tests.support.fake_hub import COMMIT, hub, num_requests, set_hub, tiny_model
from tests.support.faulty_server import serving

NAME = "someone/tiny-bert"


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    set_hub(monkeypatch, offline=False, cache=tmp_path / "hf/hub")
    model_cache._is_sound.cache_clear()
    files = hub(NAME, tiny_model())
    with serving(files) as url:
        set_hub(monkeypatch, url=url)
        yield files


def test_the_cache_is_filled_and_the_result_is_described(tmp_path, served, capsys):
    download_model.main([NAME])
    shown = capsys.readouterr().out
    folder = tmp_path / f"cache/hub/models--someone--tiny-bert/snapshots/{COMMIT}"
    assert "someone/tiny-bert: 2 layers of 8, 2 heads, 106 tokens" in shown and "\n  model.safetensors " in shown
    assert shown.endswith(f"complete: --from-pretrained-params {folder}\n")


def test_a_folder_is_a_copy_of_the_cache_and_works_alone(tmp_path, served, monkeypatch):
    download_model.main([NAME])
    asked = num_requests(served)
    for _ in range(2):
        download_model.main([NAME, "--output-dir", str(tmp_path / "copy")])
        assert num_requests(served) == asked
        monkeypatch.setenv("BERT_CACHE", str(tmp_path / "elsewhere"))
        set_hub(monkeypatch, offline=True)
    assert (tmp_path / "copy/model.safetensors").read_bytes() == tiny_model()["model.safetensors"]
    assert not list((tmp_path / "copy").glob(".*"))
    with refused("holds someone/tiny-bert; choose another folder for google-bert/bert-large-cased"):
        download_model.main(["bert-large-cased", "--output-dir", str(tmp_path / "copy")])
