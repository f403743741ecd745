"""Files of safetensors, shards of an index, and what the description of the model decides."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from bert.conversion.raw_tensors import BFLOAT16
from bert.conversion.reading import read_pretrained, read_safetensors
from bert.conversion.tensor_names import HEAD_TENSORS
from bert.conversion.untrusted_files import ConversionError
from tests.support import foreign

POSITIONS = "bert.embeddings.position_embeddings.weight"
TYPES = "bert.embeddings.token_type_embeddings.weight"


def write_safetensors(path, entries, metadata=None):
    """Write a file by the format's own description: length of the header, header, data."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (dtype, shape, content) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_tensors_of_each_dtype_are_read(tmp_path):
    values = {
        "a": ("F32", [2, 2], np.array([1, 2, 3, 4], "<f4").tobytes()),
        "b": ("F16", [1], np.array([1.5], "<f2").tobytes()),
        "c": ("BF16", [2], np.array([0x3FC0, 0xC000], "<u2").tobytes()),
        "d": ("I64", [1], np.array([-7], "<i8").tobytes()),
        "e": ("F64", [1], np.array([0.1], "<f8").tobytes()),
        "f": ("U8", [3], b"\x01\x02\xff"),
    }
    raw = read_safetensors(write_safetensors(tmp_path / "w", values, {"format": "pt", "by": "hand"}))
    assert raw.metadata == {"format": "pt", "by": "hand"} and raw.source == tmp_path / "w"
    assert raw.tensors["a"].tolist() == [[1, 2], [3, 4]] and raw.tensors["b"].tolist() == [1.5]
    assert raw.tensors["c"].dtype == BFLOAT16 and raw.tensors["c"]["bfloat16"].tolist() == [0x3FC0, 0xC000]
    assert (raw.tensors["d"].tolist(), raw.tensors["e"].tolist()) == ([-7], [0.1])
    assert raw.tensors["f"].tolist() == [1, 2, 255]
    assert read_safetensors(write_safetensors(tmp_path / "w", values)).metadata == {}


def test_a_dtype_of_other_programs_and_a_cut_file_are_refused(tmp_path):
    path = write_safetensors(tmp_path / "w", {"a": ("F8_E4M3", [1], b"\x01")})
    with pytest.raises(ConversionError, match="a has dtype F8_E4M3; only float32, float16 and bfloat16 are read"):
        read_safetensors(path)
    path = write_safetensors(tmp_path / "w", {"a": ("F32", [1], b"\x01\x02\x03\x04")})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConversionError, match="is not a complete safetensors file"):
        read_safetensors(path)


@pytest.fixture
def shards(tmp_path):
    """Return a function that writes an index of two shards of a whole model, with changes, and returns the folder."""
    tensors = foreign.hugging_face(foreign.parameters())
    names = sorted(tensors)
    (tmp_path / "config.json").write_text(json.dumps(foreign.CONFIG))

    def write(weight_map=None, again=()):
        for number in range(2):
            part = {name: tensors[name] for name in [*names[number::2], *again]}
            save_file(part, tmp_path / f"part-{number}.safetensors", {"format": "pt"})
        full = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(names)}
        weight_map = full if weight_map is None else weight_map
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return tmp_path

    return write


def test_all_shards_are_read(shards):
    found = read_pretrained(shards()).parameters
    assert found.keys() == foreign.parameters().keys()


@pytest.mark.parametrize(
    ("weight_map", "text"),
    [
        (
            {"a": "part-0.safetensors", "b": "none.safetensors", "c": "no.safetensors"},
            "names no.safetensors, none.safet",
        ),
        ({"a": "../part-0.safetensors"}, "names the shard '../part-0.safetensors'; shards must be in the folder"),
        ({"a": ".."}, "names the shard '..'"),
        ({"a": ""}, "names the shard ''"),
        ({"a": 1}, "must be JSON with a weight_map"),
        ({}, "must be JSON with a weight_map"),
        ([], "must be JSON with a weight_map"),
    ],
)
def test_an_index_that_names_other_files_is_refused(shards, weight_map, text):
    with pytest.raises(ConversionError, match=text):
        read_pretrained(shards(weight_map))


def test_a_tensor_in_two_shards_is_refused(shards):
    with pytest.raises(
        ConversionError, match="part-1.safetensors holds bert.pooler.dense.bias again, which an earlier"
    ):
        read_pretrained(shards(again=["bert.pooler.dense.bias"]))


def test_unused_positions_of_a_roberta_are_in_other_libraries_files_alone(tmp_path):
    ours = {name: array for name, array in foreign.parameters().items() if "seq_relationship" not in name}
    ours[TYPES] = ours[TYPES][:1]
    padding, rows = 1, len(ours[POSITIONS])
    description = {"model_type": "roberta", "type_vocab_size": 1, "max_position_embeddings": rows + padding + 1}
    description["pad_token_id"] = padding
    theirs = foreign.hugging_face(ours)
    theirs[POSITIONS] = np.concatenate(
        [np.full((padding + 1, theirs[POSITIONS].shape[1]), 9, np.float32), ours[POSITIONS]]
    )
    for name, tensors, library in (("theirs", theirs, "pt"), ("ours", ours, "pd")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({**foreign.CONFIG, **description}))
        contiguous = {key: np.ascontiguousarray(array) for key, array in tensors.items()}
        save_file(contiguous, tmp_path / name / "model.safetensors", {"format": library})
        found = read_pretrained(tmp_path / name)
        assert found.format == ("huggingface" if name == "theirs" else "native")
        assert (found.parameters[POSITIONS] == ours[POSITIONS]).all()
        assert any("which no token has" in note for note in found.notes) == (name == "theirs")


def test_without_a_description_the_weights_show_the_sizes(tmp_path):
    save_file(foreign.hugging_face(foreign.parameters()), tmp_path / "model.safetensors", {"format": "pt"})
    found = read_pretrained(tmp_path)
    assert found.config is None and len(found.parameters["cls.predictions.bias"]) == -(-foreign.VOCAB // 8) * 8
    assert any(note.startswith("no model description (bert_config.json, config.json,") for note in found.notes)


def test_a_classifier_of_hugging_face_stays_one(tmp_path):
    """Only PaddleNLP calls the question-answering head a classifier."""
    ours = foreign.parameters()
    hidden = len(ours["bert.pooler.dense.bias"])
    heads = [name for names in HEAD_TENSORS.values() for name in names if not name.startswith("bert.pooler")]
    tensors = {name: array for name, array in foreign.hugging_face(ours).items() if name not in heads}
    tensors |= {"classifier.weight": np.ones((2, hidden), np.float32), "classifier.bias": np.zeros(2, np.float32)}
    (tmp_path / "config.json").write_text(json.dumps({**foreign.CONFIG, "architectures": ["BertForQuestionAnswering"]}))
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    found = read_pretrained(tmp_path)
    assert found.task == "question-answering" and "classifier.weight" in found.parameters
