"""run_convert.py: there and back bit for bit, heads and labels kept, every change listed."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

import run_convert
from bert.checkpoints import directories as checkpoint_files
from bert.conversion.reading import read_pretrained
from bert.conversion.task_file import read_usage
from bert.conversion.tensor_names import heads_of
from tests.support import foreign

TASKS = {
    "pretraining": ("pooler", "cls"),
    "question-answering": ("qa",),
    "encoder": ("pooler",),
    "sequence-classification": ("pooler", "classifier"),
    "token-classification": ("classifier",),
}


def native(folder: Path, heads: tuple[str, ...], **changes) -> Path:
    """Write a checkpoint of ours whose padded rows have been trained, so that a loss of these rows would show."""
    folder.mkdir(parents=True)
    tensors = foreign.parameters(heads)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        if name in tensors:
            tensors[name] = np.concatenate([tensors[name], np.full((3, *tensors[name].shape[1:]), 0.25, "float32")])
    tensors.update(changes)
    save_file(tensors, folder / "bert_paddle.safetensors", metadata={"format": "pd"})
    (folder / "bert_config.json").write_text(json.dumps(foreign.CONFIG))
    (folder / "vocab.txt").write_text("\n".join(foreign.TOKENS) + "\n")
    if "classifier" in heads:
        (folder / "labels.json").write_text('["cat", "dog", "fox"]')
    checkpoint_files.write_manifest(folder, step=7)
    return folder


def convert(source: Path, target: Path, to_format: str, *flags: str) -> Path:
    arguments = ["--from", str(source), "--to", str(target), "--to-format", to_format, *flags]
    assert run_convert.main(arguments) == 0
    return target


def refusal(capsys, source: Path, target: Path, to_format: str, *flags: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        convert(source, target, to_format, *flags)
    assert stopped.value.code == 2
    return capsys.readouterr().err


def weights(folder: Path) -> bytes:
    return (folder / "bert_paddle.safetensors").read_bytes()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("through", ["hf", "paddlenlp"])
def test_there_and_back_is_bit_for_bit(tmp_path, task, through):
    """With the padding kept, every byte returns; without it, every real row, and padding as an import fills it."""
    source = native(tmp_path / "ours", TASKS[task])
    kept = convert(source, tmp_path / "kept", through, "--keep-padding")
    assert weights(convert(kept, tmp_path / "kept_back", "native")) == weights(source)
    there = convert(source, tmp_path / "there", through)
    back = convert(there, tmp_path / "back", "native")
    again = convert(convert(back, tmp_path / "there2", through), tmp_path / "back2", "native")
    assert weights(back) == weights(again)
    before, after = (load_file(folder / "bert_paddle.safetensors") for folder in (source, back))
    assert before.keys() == after.keys()
    for name, array in before.items():
        is_padded = name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")
        rows = foreign.VOCAB if is_padded else len(array)
        assert after[name][:rows].tobytes() == array[:rows].tobytes(), name
    found = read_pretrained(back)
    assert (found.task, found.config) == (task, read_pretrained(source).config)
    assert found.labels == (("cat", "dog", "fox") if "classifier" in TASKS[task] else None)
    checkpoint_files.verify(back)


def test_the_tokenizer_that_hugging_face_gets_makes_our_tokens(tmp_path):
    there = convert(native(tmp_path / "ours", TASKS["encoder"]), tmp_path / "hf", "hf")
    tokenizer = Tokenizer.from_file(str(there / "tokenizer.json"))
    assert tokenizer.encode("WORD3 word4", "nothing").tokens == ["[CLS]", "word3", "word4", "[SEP]", "[UNK]", "[SEP]"]
    assert json.loads((there / "tokenizer_config.json").read_text())["do_lower_case"] is True


def test_equal_letters_stay_equal_on_the_way_to_other_libraries_and_back(tmp_path, capsys):
    source = native(tmp_path / "ours", TASKS["encoder"])
    rules = {"do_lower_case": True, "strip_accents": False, "equal_letters": True}
    (source / "tokenizer_config.json").write_text(json.dumps(rules))
    (source / "manifest.json").unlink()
    checkpoint_files.write_manifest(source, step=7)
    there = convert(source, tmp_path / "hf", "hf")
    tokenizer = Tokenizer.from_file(str(there / "tokenizer.json"))
    assert tokenizer.normalizer.normalize_str("E\u0301 \ufb01 ΑΣ") == "é fi ας"
    back = convert(there, tmp_path / "back", "native")
    assert json.loads((back / "tokenizer_config.json").read_text()) == rules
    assert "PaddleNLP's tokenizer composes no letters" not in capsys.readouterr().out
    paddle = convert(source, tmp_path / "paddlenlp", "paddlenlp")
    assert "PaddleNLP's tokenizer composes no letters: give it text in NFC" in capsys.readouterr().out
    assert json.loads((paddle / "tokenizer_config.json").read_text())["equal_letters"] is True


def test_the_report_lists_everything_on_paper_and_on_screen(tmp_path, capsys):
    there = convert(native(tmp_path / "ours", ("pooler", "cls")), tmp_path / "hf", "hf")
    shown = capsys.readouterr().out
    report = json.loads((there / "conversion.json").read_text())
    assert (report["source_format"], report["to_format"], report["task"]) == ("native", "hf", "pretraining")
    assert report["tensors"] == len(foreign.shapes()) and all(note in shown for note in report["notes"])
    assert "padding of the vocabulary removed: cls.predictions.bias from 32 to 29 rows" in report["notes"]
    assert any(note.startswith("do_lower_case=true: inferred") for note in report["notes"])


def test_heads_that_the_task_does_not_use_are_left_out_by_name(tmp_path, capsys):
    source = native(tmp_path / "ours", ("pooler", "cls"))
    there = convert(source, tmp_path / "hf", "hf", "--task", "encoder")
    assert not any(name.startswith("cls.") for name in load_file(there / "model.safetensors"))
    shown = capsys.readouterr().out
    assert "left out: masked-LM head, not used by encoder" in shown
    assert "left out: next-sentence head, not used by encoder" in shown
    message = refusal(capsys, source, tmp_path / "qa", "hf", "--task", "question-answering")
    assert "task=question-answering needs a question-answering head; the source has pooler, masked-LM head" in message


def test_a_classifier_that_could_be_several_things_must_be_named(tmp_path, capsys):
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(foreign.CONFIG))
    tensors = foreign.paddlenlp(foreign.parameters(("pooler", "classifier"), num_labels=2))
    (folder / "model_state.pdparams").write_bytes(pickle.dumps(tensors, protocol=4))
    assert "pass --task" in refusal(capsys, folder, tmp_path / "x", "native")
    for task, head in (("question-answering", "qa_outputs"), ("token-classification", "classifier")):
        convert(folder, tmp_path / task, "native", "--task", task)
        assert f"{head}.weight" in read_pretrained(tmp_path / task).parameters


def test_a_folder_that_holds_something_is_not_overwritten_and_a_checkpoint_gets_none_inside(tmp_path, capsys):
    source = native(tmp_path / "ours", ("pooler",))
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    (tmp_path / "link").symlink_to("nowhere")
    for target in (source, tmp_path / "link"):
        message = refusal(capsys, source, target, "hf")
        assert "is there already; nothing was overwritten: name a new folder" in message
    message = refusal(capsys, source, source / "for transformers" / "hf", "hf")
    assert f"would lie in {source}, which has to hold what its manifest.json lists" in message
    assert before == {path.name: path.read_bytes() for path in source.iterdir()}


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    source = native(tmp_path / "ours", ("pooler",))

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bert.conversion.writers.save_file", fail)
    with pytest.raises(SystemExit):
        convert(source, tmp_path / "hf", "hf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours"]


def test_a_description_that_says_less_than_the_weights_hold_loses_no_head(tmp_path):
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in foreign.hugging_face(foreign.parameters()).items()
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps({**foreign.CONFIG, "architectures": ["BertForMaskedLM"]}))
    found = read_pretrained(convert(tmp_path, tmp_path / "ours", "native"))
    assert found.task == "pretraining" and "next-sentence head" in heads_of(found.parameters)


def test_several_labels_stay_several_and_another_class_is_noted(tmp_path, capsys):
    source = tmp_path / "theirs"
    source.mkdir()
    tensors = foreign.hugging_face(foreign.parameters(("pooler", "classifier")))
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    kind = {"problem_type": "multi_label_classification", "architectures": ["BertForMultipleChoice"]}
    (source / "config.json").write_text(json.dumps({**foreign.CONFIG, **kind}))
    back = convert(convert(source, tmp_path / "ours", "native"), tmp_path / "back", "hf")
    assert "architectures=['BertForMultipleChoice'] is no task that is known here" in capsys.readouterr().out
    for folder in (source, tmp_path / "ours", back):
        assert read_usage(folder).label_separator, "each label has a probability of its own"
    assert json.loads((back / "config.json").read_text())["problem_type"] == "multi_label_classification"


def test_what_a_reader_of_paragraphs_needs_goes_along(tmp_path):
    source = native(tmp_path / "ours", ("qa",))
    settings = {"windows": {"max_seq_length": 99, "lowercase": False}, "answers": {"n_best_size": 7}}
    (source / "question_answering.json").write_text(json.dumps(settings))
    (source / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    (source / "manifest.json").unlink()
    checkpoint_files.write_manifest(source, step=7)
    back = convert(convert(source, tmp_path / "hf", "hf"), tmp_path / "back", "native")
    assert json.loads((back / "question_answering.json").read_text()) == settings
    assert json.loads((tmp_path / "hf/tokenizer_config.json").read_text())["do_lower_case"] is False


def test_an_activation_that_paddlenlp_lacks_is_refused(tmp_path, capsys):
    source = tmp_path / "m"
    source.mkdir()
    save_file(foreign.parameters(("pooler",)), source / "m.safetensors", metadata={"format": "pd"})
    (source / "bert_config.json").write_text(json.dumps({**foreign.CONFIG, "hidden_act": "gelu_new"}))
    message = refusal(capsys, source, tmp_path / "x", "paddlenlp")
    assert "hidden_act=gelu_tanh: PaddleNLP's BERT has only gelu and relu" in message
    assert json.loads((convert(source, tmp_path / "hf", "hf") / "config.json").read_text())["hidden_act"] == "gelu_new"


BIAS, LAYER = "bert.pooler.dense.bias", "bert.encoder.layer"
WRONG: dict[str, tuple[dict, dict, str]] = {  # FAULTS: tensors to change (None: remove), settings to change, message
    "shape": ({BIAS: np.zeros(9, "f4")}, {}, "bert.pooler.dense.bias is [9], must be [8]"),
    "dtype": ({BIAS: np.zeros(8, "i8")}, {}, "dense.bias is int64, must be a float"),
    "unknown name": ({"bert.adapter.weight": np.zeros(8, "f4")}, {}, "unknown: bert.adapter.weight [8]"),
    "misspelt": ({BIAS: None, "bert.pooler.dens.bias": np.zeros(8, "f4")}, {}, "unknown: bert.pooler.dens.bias [8]"),
    "missing in the encoder": ({f"{LAYER}.1.output.dense.bias": None}, {}, f"missing: {LAYER}.1.output.dense.bias [8]"),
    "half a head": ({"cls.predictions.bias": None}, {}, "missing: cls.predictions.bias [29]"),
    "a layer too many": (
        {f"{LAYER}.4.output.dense.bias": np.zeros(8, "f4")},
        {},
        f"unknown: {LAYER}.4.output.dense.bias [8]",
    ),
    "a single number": ({BIAS: np.array(1, "f4")}, {}, "must be an array"),
    "a vocabulary of one number": (
        {"bert.embeddings.word_embeddings.weight": np.array(1, "f4")},
        {},
        "must be an array",
    ),
    "NaN": ({BIAS: np.full(8, np.nan, "f4")}, {}, "bert.pooler.dense.bias holds NaN"),
    "vocabulary": ({}, {"vocab_size": 99}, "has 29 rows, must have 99 (vocab_size) or 104"),
    "layers": ({}, {"num_hidden_layers": 3}, "2 layers, num_hidden_layers is 3"),
    "positions": ({}, {"max_position_embeddings": 13}, "position_embeddings.weight is [12, 8], must be [13, 8]"),
    "heads": ({}, {"num_attention_heads": 3}, "config.json: hidden_size=8 must be a multiple of num_attention_heads=3"),
    "token types": (
        {},
        {"type_vocab_size": 1},
        "type_vocab_size=1 must be greater than or equal to 2; change it in this",
    ),
    "another network": ({}, {"model_type": "deberta"}, "camembert; no other network is built here"),
    "tensors of another network": (
        {"electra.x": np.zeros(8, "f4")},
        {"model_type": "electra"},
        "model_type='electra' in",
    ),
    "relative positions": ({}, {"position_embedding_type": "relative_key"}, 'must be "absolute"'),
    "untied decoder": (
        {"cls.predictions.decoder.weight": np.zeros((29, 8), "f4")},
        {},
        "an untied decoder cannot be represented here",
    ),
    "two spellings": ({"pooler.dense.bias": np.zeros(8, "f4")}, {}, "under two spellings"),
}


def test_what_does_not_fit_is_refused_with_the_difference(tmp_path, capsys):
    for name, (changes, config, message) in WRONG.items():
        tensors = {key: array for key, array in {**foreign.parameters(), **changes}.items() if array is not None}
        save_file(foreign.hugging_face(tensors), tmp_path / "model.safetensors", metadata={"format": "pt"})
        (tmp_path / "config.json").write_text(json.dumps({**foreign.CONFIG, **config}))
        shown = refusal(capsys, tmp_path, tmp_path / "x", "native")
        assert message in shown and shown.startswith("error: ") and "Traceback" not in shown, name


def test_unknown_tensors_can_be_left_out_on_request(tmp_path, capsys):
    save_file(
        {**foreign.hugging_face(foreign.parameters()), "adapter.weight": np.zeros(3, "f4")},
        tmp_path / "model.safetensors",
        metadata={"format": "pt"},
    )
    (tmp_path / "config.json").write_text(json.dumps(foreign.CONFIG))
    convert(tmp_path, tmp_path / "ours", "native", "--allow-unknown")
    assert "left out: adapter.weight [3], unknown" in capsys.readouterr().out


def test_a_vocabulary_that_does_not_belong_is_refused(tmp_path, capsys):
    source = native(tmp_path / "ours", ("pooler",))
    for vocabulary, message in (
        ("\n".join([*foreign.TOKENS, "one"]), "has 30 tokens, the model 29"),
        ("\r\n".join(foreign.TOKENS), "ends in CR LF"),
        ("\n".join(foreign.TOKENS[:4]), "[MASK]"),
    ):
        (tmp_path / "v.txt").write_text(vocabulary + "\n", newline="")
        assert message in refusal(capsys, source, tmp_path / "x", "hf", "--vocab-file", str(tmp_path / "v.txt"))
