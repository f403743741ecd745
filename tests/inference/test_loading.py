"""Tests of load_model: all heads and sources give the network's outputs, and errors name what was found."""

import numpy as np
import pytest

import run_convert
from bert.checkpoints.directories import BEST, name_step
from bert.conversion.reading import read_pretrained
from bert.conversion.usage import Usage
from bert.finetuning.squad.answer_settings import ReaderSettings
from bert.inference.heads import load_model
from bert.inference.paddle_program import Network
from bert.inference.records import flat
from bert.inference.trained_model import probabilities
from tests.conversion import test_networks
from tests.conversion.test_parity import our_outputs
from tests.inference import models
from tests.inference.models import feed_of, model
from tests.support import foreign

folders = models.folders  # fixture
CLS, SEP, MASK = 2, 3, 4
SENTENCE, IDS = "word1 word4", [CLS, 6, 9, SEP]


def test_vectors_are_means_of_the_last_hidden_states(folders):
    wanted = our_outputs(folders["encoder"], "encoder", feed_of(IDS))["last_hidden_state"].mean(1)
    texts = ["word3 word2 word1 word0", SENTENCE, "word7"]  # sorted by length, padded, put back in order
    np.testing.assert_allclose(load_model(folders["encoder"]).encode(texts)[1], wanted[0], atol=1e-5)
    for task in ("pretraining", "question-answering", "sequence-classification"):
        assert load_model(folders[task], "encoder").encode(texts).shape == (3, foreign.HIDDEN)
    assert load_model(folders["encoder"]).encode([]).shape[0] == 0


def test_classes_have_the_probabilities_of_the_logits(folders):
    classifier = load_model(folders["sequence-classification"])
    feeds = feed_of(IDS), feed_of([CLS, 6, SEP, 9, 9, SEP], first=3)
    wanted = [our_outputs(folders["sequence-classification"], "sequence-classification", f)["logits"] for f in feeds]
    single, pair = classifier.predict([SENTENCE, ("word1", "word4 word4")])
    for found, logits in ((single, wanted[0]), (pair, wanted[1])):
        assert list(found["probabilities"]) == ["cat", "dog", "fox"]
        np.testing.assert_allclose(list(found["probabilities"].values()), probabilities(logits)[0], atol=2e-6)
        assert found["probability"] == max(found["probabilities"].values()) == found["probabilities"][found["label"]]


def test_masks_are_filled_with_the_most_likely_words(folders):
    feed = feed_of([CLS, 6, MASK, 9, SEP])
    logits = our_outputs(folders["pretraining"], "pretraining", feed)["prediction_logits"].reshape(5, -1)[2]
    likely = probabilities(logits[: foreign.VOCAB])
    words = [token for token in np.argsort(-likely) if token >= 5][:3]  # special tokens are not words
    filler = load_model(folders["pretraining"])
    found = filler.fill_mask("word1 [MASK] word4", top_k=3)
    assert [fill["token"] for fill in found[0]] == [foreign.TOKENS[word] for word in words]
    np.testing.assert_allclose([fill["probability"] for fill in found[0]], likely[words], atol=2e-6)
    (result,) = filler.predict(["word1 [MASK] word4"])
    assert result["filled"] == f"word1 {foreign.TOKENS[words[0]]} word4" and len(result["masks"][0]) == 5


def test_the_mask_may_have_the_vocabularys_own_name(tmp_path):
    model = load_model(test_networks.native(tmp_path / "roberta", "masked-lm", test_networks.ROBERTA))
    own, both, berts = model.predict(["The <mask> is [MASK].", "The [MASK] is <mask>.", "The [MASK] is [MASK]."])
    assert own == both == berts and len(own["masks"]) == 2 and "<mask>" not in own["filled"]


def test_a_long_text_is_read_around_its_masks(folders):
    filler = load_model(folders["pretraining"])
    text = "word1 " * 20 + "[MASK]" + " word2" * 20
    around = "word1 word1 word1 word1 [MASK] word2 word2 word2 word2 word2"
    found, wanted = filler.fill_mask(text)[0], filler.fill_mask(around)[0]
    assert [fill["token"] for fill in found] == [fill["token"] for fill in wanted]
    with pytest.raises(ValueError, match="more than max_seq_length=12 tokens apart"):
        filler.fill_mask("[MASK] " + text)


def test_answers_come_with_their_places_and_many_contexts_in_one_call(folders):
    reader = load_model(folders["question-answering"])
    contexts = ["word3  word5, word7", "word2 " * 30]
    requests = [("word1 word2", context) for context in (*contexts, contexts[0])]
    found = reader.predict(requests)
    assert found[0] == found[2]
    for (_, context), result in zip(requests, found, strict=True):
        assert context[result["start"] : result["end"]] == result["answer"] == result["answers"][0]["text"]
        assert "no_answer_probability" not in result
    assert reader.answer(*requests[0]).text == found[0]["answer"]


def test_a_model_for_questions_without_answers_gives_their_probability(tmp_path):
    folder = model(tmp_path / "m", "question-answering")
    settings = ReaderSettings(max_seq_length=12, doc_stride=4, max_query_length=4, version_2_with_negative=True)
    (folder / "question_answering.json").write_text(settings.file_content())
    (folder / "manifest.json").unlink()
    (result,) = load_model(folder).predict([{"question": "word1", "context": "word2 word3"}])
    assert 0 < result["no_answer_probability"] < 1


def test_a_model_remembers_its_length_its_columns_and_its_case(tmp_path):
    usage = Usage("SST-2", 9, ("headline",))
    classifier = load_model(model(tmp_path / "m", "sequence-classification", usage, lowercase=False))
    assert classifier.max_seq_length == 9 and not classifier.tokenizer.normalization.lowercase
    assert classifier.predict([{"headline": "word1"}]) == classifier.predict(["word1"])
    with pytest.raises(ValueError, match=r"2 text\(s\) in a request; this model takes one text"):
        classifier.predict([("word1", "word2")])
    pairs = load_model(model(tmp_path / "p", "sequence-classification", Usage("RTE", 9, ("a", "b"))))
    with pytest.raises(ValueError, match="takes two texts"):
        pairs.predict(["word1"])
    with pytest.raises(ValueError, match="max_seq_length=13 must be from 8 to the model's 12 positions"):
        load_model(tmp_path / "m", max_seq_length=13)


def test_a_regression_gives_a_number(tmp_path):
    changes = {"classifier.weight": np.ones((foreign.HIDDEN, 1), "float32"), "classifier.bias": np.ones(1, "float32")}
    folder = model(tmp_path / "m", "sequence-classification", Usage("STS-B", 12, ("a", "b"), True), **changes)
    (result,) = load_model(folder).predict([("word1", "word2")])
    logits = our_outputs(folder, "sequence-classification", feed_of([CLS, 6, SEP, 7, SEP], first=3))["logits"]
    assert result == {"value": pytest.approx(float(logits[0, 0]), abs=2e-6)}


@pytest.mark.parametrize("to_format", ["hf", "paddlenlp"])
def test_another_librarys_folder_and_an_output_folder_are_models_too(folders, tmp_path, to_format):
    source = folders["token-classification"]
    arguments = ["--from", str(source), "--to", str(tmp_path / "x"), "--to-format", to_format]
    assert run_convert.main(arguments) == 0
    run = tmp_path / "results/bert/ner"
    run.mkdir(parents=True)
    (run / "7").symlink_to(source)
    wanted = load_model(source).predict([SENTENCE])
    assert (
        load_model(tmp_path / "x").predict([SENTENCE]) == load_model(tmp_path / "results").predict([SENTENCE]) == wanted
    )


def test_a_run_that_early_stopping_ended_is_used_with_its_best_weights(tmp_path):
    run = tmp_path / "results/bert/phase1"
    for step, seed in ((3, 0), (7, 1)):
        classifier = np.random.RandomState(seed).randn(foreign.HIDDEN, 3).astype("float32")
        model(run / str(step), "sequence-classification", **{"classifier.weight": classifier})
    assert load_model(tmp_path / "results").opened.path == run / "7"
    name_step(run, BEST, 3, {"is_final": True})
    assert load_model(tmp_path / "results").opened.path == load_model(run).opened.path == run / "3"
    (run / "3" / "bert_config.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"holds steps \[3\], none of them valid.*; name a later step if it will do: .*/7$"
    ):
        load_model(run)


def test_what_a_head_cannot_do_is_named(folders):
    classifier, filler = load_model(folders["sequence-classification"]), load_model(folders["pretraining"])
    with pytest.raises(ValueError, match="this model has a classifier of texts; fill_mask needs a masked-LM head"):
        classifier.fill_mask("word1 [MASK]")
    with pytest.raises(ValueError, match="this model has a masked-LM head; answer needs a question-answering head"):
        filler.answer("word1", "word2")
    with pytest.raises(ValueError, match="task=question-answering needs a question-answering head; the source has"):
        load_model(folders["pretraining"], "question-answering")
    with pytest.raises(ValueError, match=r"no \[MASK\] in the text"):
        filler.predict(["word1"])
    with pytest.raises(ValueError, match="must be a list of texts"):
        filler.encode("word1")


def test_a_request_that_cannot_be_taken_is_named(folders):
    tagger = load_model(folders["token-classification"])
    for given, message in (
        ("  ", "the text is empty"),
        ("w\udc80", "not UTF-8, or half of a surrogate pair"),
        ({"sentense": "word1"}, "the object has the keys sentense; it must have text"),
        ({"text": 3}, "3 must be text"),
        (None, "None must be text"),
        (("word1", "word2"), r"2 text\(s\) in a request; this model takes one text"),
    ):
        with pytest.raises(ValueError, match=message):
            tagger.predict([given])


def test_a_head_says_the_columns_of_its_results(folders, tmp_path):
    several = model(tmp_path / "several", "sequence-classification", Usage("custom", 9, label_separator=","))
    heads = [*map(load_model, folders.values()), load_model(several), load_model(folders["encoder"], "encoder")]
    requests = {"masked-lm": "word1 [MASK]", "question-answering": ("word1", "word2 word3")}
    for head in heads:
        (result,) = head.predict([requests.get(head.task, "word1")])
        assert {name: type(value) for name, value in flat(result).items()} == head.columns()
        assert list(flat(result)) == list(head.columns())


def test_classes_that_are_no_tags_are_refused(tmp_path):
    folder = model(tmp_path / "m", "token-classification")
    (folder / "labels.json").write_text('["cat", "dog", "fox"]')
    (folder / "manifest.json").unlink()
    with pytest.raises(ValueError, match="is not a tagger of spans: class tag 'cat' must be O"):
        load_model(folder)


def network_of(folder) -> Network:
    pretrained = read_pretrained(folder)
    assert pretrained.config is not None
    return Network(pretrained.parameters, pretrained.config)


@pytest.mark.parametrize("padding", [0, 9], ids=["padded", "packed"])
def test_scores_of_attention_are_masked_inside_their_product(padding, tmp_path):
    network = network_of(model(tmp_path / "model", "pretraining"))
    mask = np.ones((2, 12), "int64")
    mask[1, 12 - padding :] = 0
    network.run("encoder", dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), mask))
    (program,) = network._programs.values()
    block = program.main.global_block()
    found = [op for op in block.ops if op.type == "fused_matmul" and len(block.var(op.input("Y")[0]).shape) == 4]
    groups = 1 if program.packing is None else program.packing.num_groups
    assert len(found) == groups * network.config.num_hidden_layers


@pytest.mark.parametrize("task", ["encoder", "masked-lm", "question-answering", "token-classification"])
def test_a_batch_with_much_padding_is_packed_and_gives_the_same(task, tmp_path):
    network = network_of(model(tmp_path / "model", "pretraining" if task in ("encoder", "masked-lm") else task))
    rows, width = [[2, 7, 9, 11, 8, 3], [2, 5, 3], [2, 3]], 8
    feed = {name: np.zeros((3, width), "int64") for name in ("input_ids", "token_type_ids", "attention_mask")}
    for row, ids in enumerate(rows):
        feed["input_ids"][row, : len(ids)] = ids
        feed["attention_mask"][row, : len(ids)] = 1
        feed["token_type_ids"][row, 2 : len(ids)] = 1
    positions = {"masked_lm_positions": np.array([1, 4, width + 1])} if task == "masked-lm" else {}
    packed = network.run(task, {**feed, **positions})
    assert set(network._programs) == {(task, True)}
    for row, ids in enumerate(rows):
        alone = {name: values[row : row + 1, : len(ids)] for name, values in feed.items()}
        mine = [index for index, place in enumerate(positions.get("masked_lm_positions", ())) if place // width == row]
        if positions:
            alone["masked_lm_positions"] = positions["masked_lm_positions"][mine] - row * width
        if positions and not mine:
            continue
        for name, values in network.run(task, alone).items():
            found = packed[name][mine] if positions else packed[name][row, : len(ids)][None]
            np.testing.assert_allclose(found, values, atol=2e-6)
    assert set(network._programs) == {(task, True), (task, False)}
