"""--download fetches the data of GLUE and SQuAD once to the configured folder; without it errors name the flag."""

import hashlib
from pathlib import Path

import pytest

from bert.config.command_line import parser_of
from bert.config.setting_sources import resolve_config
from bert.finetuning.squad import config as squad
from bert.glue import config as glue
from data import download_glue, download_squad
from tests.support import corpora
from tests.support.faulty_server import Served, serving

DATA = {"train-v1.1.json": b"train" * 999, "dev-v1.1.json": b"dev" * 999, "AX.tsv": b"index\tsentence1\tsentence2\n"}


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BERT_PREP_WORKING_DIR", raising=False)
    corpora.write_vocabulary(tmp_path / "vocab.txt")


@pytest.fixture
def served(monkeypatch):
    """Serve a mirror with small files, whose checksums are the pinned checksums."""
    pins = {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in DATA.items()}
    monkeypatch.setitem(download_squad.FILES, "1.1", {name: pins[name] for name in DATA if name.endswith("json")})
    monkeypatch.setitem(download_glue.ARCHIVES, "AX", {"AX.tsv": pins["AX.tsv"]})
    files = {f"/{name}": Served(data) for name, data in DATA.items()}
    with serving(files) as url:
        monkeypatch.setenv("BERT_DATA_MIRROR", url)
        yield files


def settings(entry, tmp_path, *words: str):
    flags = f"--vocab-file {tmp_path}/vocab.txt --vocab-size {len(corpora.vocabulary())}".split()
    return resolve_config(parser_of(entry).read([*flags, *words]), entry)


def test_squad_is_fetched_to_the_cache_once_and_only_what_is_read(tmp_path, served):
    config = settings(squad.ENTRY, tmp_path, "--download", "--do-predict")
    config.fetch_data()
    assert config.data.predict_file == tmp_path / "cache/data/squad/v1.1/dev-v1.1.json"
    assert config.data.predict_file.read_bytes() == DATA["dev-v1.1.json"] and not config.data.train_file.exists()
    config = settings(squad.ENTRY, tmp_path, "--download", "--do-train", "--do-predict")
    config.fetch_data()
    assert config.data.train_file.read_bytes() == DATA["train-v1.1.json"]
    assert [len(served[f"/{name}"].requests) for name in ("train-v1.1.json", "dev-v1.1.json")] == [1, 1]


def test_the_data_folder_is_preferred_to_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", str(tmp_path / "data"))
    config = settings(squad.ENTRY, tmp_path, "--download", "--do-train")
    assert config.data.train_file == tmp_path / "data/download/squad/v1.1/train-v1.1.json"
    config = settings(glue.ENTRY, tmp_path, "--download", "--task-name", "mrpc", "--do-eval")
    assert config.data.data_dir == tmp_path / "data/download/glue/MRPC"


def test_files_that_are_named_are_fetched_there(tmp_path, served):
    words = ("--train-file", f"{tmp_path}/mine/train-v1.1.json", "--do-train", "--download")
    settings(squad.ENTRY, tmp_path, *words).fetch_data()
    assert (tmp_path / "mine/train-v1.1.json").read_bytes() == DATA["train-v1.1.json"]
    words = ("--train-file", f"{tmp_path}/mine/questions.json", "--do-train", "--download")
    with pytest.raises(ValueError, match="questions.json is not a file of SQuAD, which has train-v1.1.json"):
        settings(squad.ENTRY, tmp_path, *words).fetch_data()


@pytest.mark.parametrize("given", [False, True])
def test_a_task_of_glue_is_fetched(tmp_path, served, given):
    folder = tmp_path / "my sets/diagnostics" if given else tmp_path / "cache/data/glue/AX"
    words = ["--task-name", "ax", "--do-predict", "--download", *(["--data-dir", str(folder)] if given else [])]
    for _ in range(2):
        config = settings(glue.ENTRY, tmp_path, *words)
        config.fetch_data()
    assert config.data.data_dir == folder and (folder / "diagnostic.tsv").read_bytes() == DATA["AX.tsv"]
    assert len(served["/AX.tsv"].requests) == 1


@pytest.mark.parametrize(
    ("entry", "words", "text"),
    [
        (squad.ENTRY, "--do-train", "train_file; pass --train-file, or pass --download to fetch SQuAD"),
        (
            squad.ENTRY,
            "--do-train --train-file no.json",
            "must be an existing file; check --train-file, or pass --download",
        ),
        (glue.ENTRY, "--task-name rte --do-eval", "needs data_dir; pass --data-dir, or pass --download to fetch"),
        (glue.ENTRY, "--task-name rte --do-eval --data-dir no", "check --data-dir, or pass --download to fetch"),
        (squad.ENTRY, "--do-train --download --train-file $NO/train-v1.1.json", "environment variable .* is not set"),
    ],
)
def test_missing_data_name_the_flag_that_fetches_them(tmp_path, monkeypatch, entry, words, text):
    monkeypatch.chdir(tmp_path)
    config = settings(entry, tmp_path, *words.split())
    with pytest.raises(ValueError, match=text):
        config.prepare_files()
    assert {path.name for path in Path().iterdir()} == {"vocab.txt"}


def test_own_files_are_not_downloaded(tmp_path):
    with pytest.raises(ValueError, match="download=true is for GLUE's tasks; for task_name=custom"):
        settings(glue.ENTRY, tmp_path, "--task-name", "custom", "--do-eval", "--download")
