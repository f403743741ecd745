"""Weights of every library are read as the same tensors, and every change is noted."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert import REPOSITORY
from bert.conversion.reading import read_pretrained
from bert.conversion.tensor_names import heads_of
from bert.conversion.tensorflow_file import BundleEntry, masked_crc32c, read_tensor
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.vocabulary_padding import PADDED_BIAS
from tests.support import foreign

GOLDEN = REPOSITORY / "tests" / "golden" / "foreign"
EXPECTED = foreign.parameters()


def described(folder: Path, **changes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**foreign.CONFIG, **changes}))
    return folder


def assert_is_the_model(found: dict[str, np.ndarray], expected: dict[str, np.ndarray] = EXPECTED, **tolerance) -> None:
    """Check for the expected tensors, padded by three rows."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        have = found[name]
        assert have.dtype == np.float32 and have.flags.c_contiguous, name
        if name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
            assert len(have) == foreign.PADDED
            assert (have[foreign.VOCAB :] == (PADDED_BIAS if name.endswith("bias") else 0)).all()
            have = have[: foreign.VOCAB]
        if tolerance:
            np.testing.assert_allclose(have, array, **tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(have, array, err_msg=name)


def hugging_face_folder(folder: Path, tensors: dict[str, np.ndarray], **config) -> Path:
    save_file(tensors, described(folder, **config) / "model.safetensors", metadata={"format": "pt"})
    return folder


def old_spelling(name: str) -> str:
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


# ---- Hugging Face -------------------------------------------------------------------------------------------------


def test_hugging_face_weights_are_turned_and_padded(tmp_path):
    folder = hugging_face_folder(tmp_path / "m", foreign.hugging_face(EXPECTED), architectures=["BertForPreTraining"])
    (folder / "vocab.txt").write_text("\n".join(foreign.TOKENS) + "\n")
    found = read_pretrained(folder)
    assert_is_the_model(found.parameters)
    assert (found.format, found.task, found.vocab_file) == ("huggingface", "pretraining", folder / "vocab.txt")
    assert found.config.num_attention_heads == foreign.HEADS and found.config.layer_norm_eps == 1e-12
    assert found.notes == [
        "the model has no question-answering head, classifier",
        "vocabulary padded: bert.embeddings.word_embeddings.weight from 29 to 32 rows, filled with 0",
        "vocabulary padded: cls.predictions.bias from 29 to 32 rows, filled with -100",
    ]


@pytest.mark.parametrize(
    "spell",
    [
        old_spelling,
        lambda name: name.removeprefix("bert."),
        lambda name: f"module._orig_mod.{name}",
        lambda name: f"_orig_mod.module.{name}",
        lambda name: old_spelling(name.removeprefix("bert.")),
    ],
    ids=["gamma-beta", "bare", "wrapped", "wrapped-otherwise", "bare-gamma-beta"],
)
def test_spellings_of_other_versions(tmp_path, spell):
    tensors = {spell(name): array for name, array in foreign.hugging_face(EXPECTED).items()}
    assert_is_the_model(read_pretrained(hugging_face_folder(tmp_path / "m", tensors)).parameters)


def test_tied_copies_and_constants_are_left_out_with_a_note(tmp_path):
    tensors = foreign.hugging_face(EXPECTED)
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()
    tensors["bert.embeddings.position_ids"] = np.arange(12)[None]
    found = read_pretrained(hugging_face_folder(tmp_path / "m", tensors))
    assert_is_the_model(found.parameters)
    assert {
        "left out: cls.predictions.decoder.weight, equal to bert.embeddings.word_embeddings.weight",
        "left out: cls.predictions.decoder.bias, equal to cls.predictions.bias",
        "left out: bert.embeddings.position_ids, a constant",
    } <= set(found.notes)


def test_shards_of_an_index(tmp_path):
    folder, tensors = described(tmp_path / "m"), foreign.hugging_face(EXPECTED)
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, folder / f"model-{number}.safetensors", {"format": "pt"})
    index = {"weight_map": {name: f"model-{number % 2}.safetensors" for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_is_the_model(read_pretrained(folder).parameters)


def test_orientation_is_inferred_from_shapes_whatever_the_metadata_says(tmp_path):
    path = described(tmp_path / "m") / "model.safetensors"
    save_file(foreign.hugging_face(EXPECTED), path, metadata={"format": "pd"})
    assert read_pretrained(tmp_path / "m").format == "huggingface"


def test_pytorch_files_of_torchs_own_writer():
    found = read_pretrained(GOLDEN / "torch")
    assert_is_the_model(found.parameters)
    assert (found.format, found.task) == ("huggingface", "pretraining")
    legacy = read_pretrained(GOLDEN / "torch_legacy.bin", config_file=GOLDEN / "torch/config.json")
    assert_is_the_model(legacy.parameters)


def test_a_training_checkpoint_in_bfloat16():
    found = read_pretrained(GOLDEN / "torch_training.pt", config_file=GOLDEN / "torch/config.json")
    assert_is_the_model(found.parameters, rtol=2**-8, atol=0)
    assert "torch_training.pt: read 'model'; left out beside it: 'epoch'" in found.notes
    assert "removed the prefix `module.` from all names" in found.notes
    assert any(note.endswith("tensors in bfloat16, converted to float32") for note in found.notes)


# ---- Google, PaddleNLP, NVIDIA ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "bert_model.ckpt", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"]
)
def test_google_checkpoint_of_tensorflows_own_writer(name):
    found = read_pretrained(GOLDEN / "tensorflow" / name)
    assert_is_the_model(found.parameters)
    assert found.format == "tensorflow"
    assert "left out: 3 tensors of the optimizer and its step" in found.notes


def test_a_tensor_before_its_data_file_is_refused():
    data = np.arange(4, dtype="<f4").tobytes()
    entry = BundleEntry(dtype=1, offset=8, size=8, crc32c=masked_crc32c(data[8:]))
    entry.shape.dim.add(size=2)
    assert read_tensor(entry, memoryview(data)).tolist() == [2, 3]
    entry.offset = -8
    with pytest.raises(ConversionError, match="beyond the end of its data file"):
        read_tensor(entry, memoryview(data))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_paddlenlp_weights(tmp_path, protocol):
    folder = described(tmp_path / "m", architectures=["BertForPretraining"], pool_act="tanh")
    tensors = foreign.paddlenlp(EXPECTED)
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["bert.encoder.layers.1.linear1.weight"] = np.asfortranarray(tensors["bert.encoder.layers.1.linear1.weight"])
    tensors["StructuredToParameterName@@"] = {"bert.pooler.dense.bias": "linear_0.b_0"}
    (folder / "model_state.pdparams").write_bytes(pickle.dumps(tensors, protocol=protocol))
    found = read_pretrained(folder)
    assert_is_the_model(found.parameters)
    assert (found.format, found.task) == ("paddlenlp", "pretraining")


def test_paddlenlp_calls_the_question_answering_head_a_classifier(tmp_path):
    expected = foreign.parameters(heads=("pooler", "qa"))
    folder = described(tmp_path / "m", architectures=["BertForQuestionAnswering"])
    (folder / "model_state.pdparams").write_bytes(pickle.dumps(foreign.paddlenlp(expected), protocol=4))
    assert_is_the_model(read_pretrained(folder).parameters, expected)


def test_older_paddlenlp_description_with_nested_sizes(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    nested = {"init_class": "BertForPretraining", "init_args": [{**foreign.CONFIG, "init_class": "BertModel"}]}
    (folder / "model_config.json").write_text(json.dumps(nested))
    (folder / "model_state.pdparams").write_bytes(pickle.dumps(foreign.paddlenlp(EXPECTED), protocol=2))
    found = read_pretrained(folder)
    assert_is_the_model(found.parameters)
    assert found.task == "pretraining"


def nvidia_names(ours: dict[str, np.ndarray], fuse: str | None = None) -> dict[str, np.ndarray]:
    """Return generated names in the order in which NVIDIA's network creates its layers; static.save has no other."""
    theirs, counts = {}, {"linear": 0, "layer_norm": 0, "embedding": 0}

    def add(kind: str, weight: np.ndarray, bias: np.ndarray | None = None) -> None:
        theirs[f"{kind}_{counts[kind]}.w_0"] = weight
        if bias is not None:
            theirs[f"{kind}_{counts[kind]}.b_0"] = bias
        counts[kind] += 1

    def take(kind: str, name: str) -> None:
        add(kind, ours[f"{name}.weight"], ours.get(f"{name}.bias"))

    for kind in ("word", "position", "token_type"):
        take("embedding", f"bert.embeddings.{kind}_embeddings")
    take("layer_norm", "bert.embeddings.LayerNorm")
    for index in range(foreign.LAYERS):
        layer = f"bert.encoder.layer.{index}"
        parts = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        if fuse is None:
            for part in parts:
                take("linear", part)
        else:
            heads = foreign.HEADS if fuse == "heads" else 1
            fused = {}
            for kind in ("weight", "bias"):
                split = [ours[f"{part}.{kind}"].reshape(-1, heads, foreign.HIDDEN // heads) for part in parts]
                fused[kind] = np.stack(split, axis=2).reshape(-1, 3 * foreign.HIDDEN).squeeze()
            add("linear", fused["weight"], fused["bias"])
        for part in ("attention.output.dense", "intermediate.dense", "output.dense"):
            take("linear", f"{layer}.{part}")
        take("layer_norm", f"{layer}.attention.output.LayerNorm")
        take("layer_norm", f"{layer}.output.LayerNorm")
    for name in ("bert.pooler.dense", "cls.predictions.transform.dense", "cls.seq_relationship", "qa_outputs"):
        if f"{name}.weight" in ours:
            take("linear", name)
    if "cls.predictions.bias" in ours:
        take("layer_norm", "cls.predictions.transform.LayerNorm")
        theirs["bert_lm_prediction_head_0.b_0"] = ours["cls.predictions.bias"]
    return theirs


def nvidia_file(folder: Path, tensors: dict[str, np.ndarray]) -> Path:
    (described(folder) / "bert_paddle.pdparams").write_bytes(pickle.dumps(tensors, protocol=4))
    return folder


@pytest.mark.parametrize("heads", [("pooler", "cls"), ("pooler", "qa"), ("pooler",)])
def test_nvidia_paddle_weights_are_known_by_their_order(tmp_path, heads):
    expected = foreign.parameters(heads)
    folder = nvidia_file(tmp_path / "m", nvidia_names(expected))
    assert heads_of(read_pretrained(folder / "bert_paddle").parameters)  # the prefix, as its users name checkpoints
    found = read_pretrained(folder)
    assert_is_the_model(found.parameters, expected)
    assert found.format == "nvidia-paddle"


@pytest.mark.parametrize("fuse,layout", [("blocks", "blocks"), ("heads", f"heads:{foreign.HEADS}")])
def test_fused_attention_needs_its_layout_named(tmp_path, fuse, layout):
    folder = nvidia_file(tmp_path / "m", nvidia_names(EXPECTED, fuse))
    assert_is_the_model(read_pretrained(folder, fused_qkv=layout).parameters)
    with pytest.raises(ConversionError, match="not say in which order its columns lie. Name it: .*--fused-qkv blocks"):
        read_pretrained(folder)
    plain = read_pretrained(nvidia_file(tmp_path / "plain", nvidia_names(EXPECTED)), fused_qkv=layout)
    assert "--fused-qkv was not needed" in " ".join(plain.notes)


def test_structure_that_is_not_nvidias_is_refused(tmp_path):
    swapped = nvidia_names(EXPECTED)
    swapped["linear_4.w_0"], swapped["linear_5.w_0"] = swapped["linear_5.w_0"], swapped["linear_4.w_0"]
    with pytest.raises(ConversionError, match="its layers are not in the known order"):
        read_pretrained(nvidia_file(tmp_path / "swapped", swapped))
    fewer = {name: array for name, array in nvidia_names(EXPECTED).items() if not name.startswith("linear_14.")}
    with pytest.raises(ConversionError, match="14 linear layers do not make a BERT of 2 layers"):
        read_pretrained(nvidia_file(tmp_path / "fewer", fewer))


# ---- where things lie ---------------------------------------------------------------------------------------------


def test_the_file_that_cannot_hold_code_is_preferred(tmp_path):
    folder = hugging_face_folder(tmp_path / "m", foreign.hugging_face(EXPECTED))
    (folder / "pytorch_model.bin").write_bytes(b"anything")
    notes = read_pretrained(folder).notes
    assert any("pytorch_model.bin, not read: model.safetensors is taken" in note for note in notes)


def test_a_folder_of_steps_gives_the_newest_valid_one(tmp_path):
    from bert.checkpoints.directories import write_checkpoint

    def write(folder: Path) -> None:
        (folder / "bert_config.json").write_text(json.dumps(foreign.CONFIG))
        save_file(EXPECTED, folder / "bert_paddle.safetensors", metadata={"format": "pd"})

    for step in (10, 20):
        write_checkpoint(tmp_path / "phase1", step, write)
    (tmp_path / "phase1/20/bert_paddle.safetensors").write_bytes(b"torn")
    found = read_pretrained(tmp_path / "phase1")
    assert found.format == "native" and any(note.startswith("step 10 of ") for note in found.notes)
    assert_is_the_model(found.parameters)
    found = read_pretrained(tmp_path)  # the output folder of the run
    assert found.folder == tmp_path / "phase1/10"
    assert load_file(tmp_path / "phase1/10/bert_paddle.safetensors").keys() == EXPECTED.keys()
