"""What a source means: a path if it exists, otherwise the name of a published model."""

import ast
import importlib.util
from pathlib import Path

import pytest

from bert.conversion import locating
from bert.conversion.raw_tensors import ConversionError
from data.download_vocabulary import VOCABULARIES
from data.fetching import model_cache
from data.fetching.published_models import PADDLENLP, PINS_FILE, ModelName, known_names, parse_name, pin_of
from data.fetching.transfer import check_checksum


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def asked(monkeypatch) -> list[ModelName]:
    """The models that would be fetched."""
    models: list[ModelName] = []
    monkeypatch.setattr(locating, "fetch_model", lambda model, **options: models.append(model))
    return models


@pytest.mark.parametrize(
    "name, repository",
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("bert-large-cased-whole-word-masking", "google-bert/bert-large-cased-whole-word-masking"),
        ("google-bert/bert-base-chinese", "google-bert/bert-base-chinese"),
        ("google/bert_uncased_L-2_H-128_A-2", "google/bert_uncased_L-2_H-128_A-2"),
        ("prajjwal1/bert-tiny", "prajjwal1/bert-tiny"),
        ("dmis-lab/biobert-v1.1@main", "dmis-lab/biobert-v1.1@main"),
        ("macbert-base-chinese", "paddlenlp/macbert-base-chinese"),
        ("uer/chinese-roberta-mini", "paddlenlp/uer/chinese-roberta-mini"),
        ("paddlenlp/bert-base-uncased", "paddlenlp/bert-base-uncased"),
    ],
)
def test_names_of_published_models(asked, name, repository):
    folder = locating.resolve(name)
    assert [str(model) for model in asked] == [repository]
    assert folder == model_cache.model_folder(asked[0]) and locating.resolve(Path(name)) == folder


def test_a_folder_of_that_name_wins(asked, tmp_path):
    Path("google-bert/bert-base-uncased").mkdir(parents=True)
    Path("bert-base-cased").mkdir()
    assert locating.resolve("google-bert/bert-base-uncased") == Path("google-bert/bert-base-uncased")
    assert locating.resolve("bert-base-cased") == Path("bert-base-cased")
    assert not asked


@pytest.mark.parametrize(
    "source, text",
    [
        ("./results/phse1", r"results/phse1 does not exist; did you mean results/phase1\?"),
        ("results/phse1", r"did you mean results/phase1\?"),
        ("reslts/phase1", r"reslts/phase1 does not exist; did you mean results/phase1\?"),
        ("results/phase1/99", "results/phase1/99 does not exist"),
        ("bert-base-uncasd", r"did you mean bert-base-uncased or"),
        ("model.safetensors", "does not exist; name a checkpoint"),
        ("mine/model.bin", "mine/model.bin does not exist"),
        ("data/weights", "data/weights does not exist"),
        ("/no/such/path", "/no/such/path does not exist"),
        ("~/nothing", "~/nothing does not exist"),
        ("../somewhere", "does not exist"),
        ("a/b/c", "a/b/c does not exist"),
        ("owner/..", "does not exist"),
        ("phse1", "phse1 does not exist"),
        ("paddlenlp/unknown", "does not exist"),
        ("https://host/model", "does not exist"),
        ("", "'' does not exist; name a checkpoint directory"),
    ],
)
def test_a_mistyped_path_is_not_looked_for_on_a_hub(asked, source, text):
    Path("results/phase1").mkdir(parents=True)
    with pytest.raises(ConversionError, match=text) as error:
        locating.resolve(source)
    assert not asked and "\n" not in str(error.value)


def test_the_pins_are_well_formed():
    assert PINS_FILE.is_file() and pin_of(parse_name("bert-base-uncased")).files["model.safetensors"][1] == 440_449_768
    for name in known_names():
        pin = pin_of(parse_name(name))
        assert pin is None or len(pin.revision) == 40
        for sha256, num_bytes in pin.files.values() if pin else ():
            assert check_checksum(f"sha256:{sha256}") and num_bytes > 10
        if pin and name in VOCABULARIES:
            assert pin.files["vocab.txt"] == VOCABULARIES[name]


def test_the_table_of_paddlenlps_models_is_that_of_paddlenlp():
    """Read from its source: importing it takes seconds."""
    spec = importlib.util.find_spec("paddlenlp")
    if spec is None:
        pytest.skip("PaddleNLP is not installed, as with Paddle 3")
    folder = spec.submodule_search_locations[0]
    tree = ast.parse(Path(folder, "transformers/bert/configuration.py").read_text(encoding="utf-8"))
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id.startswith("BERT_PRETRAINED")
    }
    addresses = values["BERT_PRETRAINED_RESOURCE_FILES_MAP"]["model_state"]
    assert PADDLENLP.keys() == addresses.keys()
    for name, model in PADDLENLP.items():
        known = values["BERT_PRETRAINED_INIT_CONFIGURATION"][name]
        sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        assert model.addresses()["model_state.pdparams"] == addresses[name].replace("http://", "https://")
        assert model.sizes == tuple(known[size] for size in sizes)
