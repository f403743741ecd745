"""Tests of the task of vectors: the pairs to train on and to measure, the time limit, and the settings."""

from types import SimpleNamespace

import pytest

from bert.tokenization.vocabulary import SPECIAL_TOKENS
from bert.vectors import task as module
from bert.vectors.settings import VectorConfig
from bert.vectors.task import VectorTask
from tests.support import tiny

ROWS = "query,passage\n" + "".join(f"q{row},p{row}\n" for row in range(20))
MODEL = tiny.MODEL.model_copy(update={"vocab_size": 16})


def config_of(folder, model=MODEL, **changes) -> VectorConfig:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in (*SPECIAL_TOKENS, *"abcdefghijk")))
    (folder / "pairs.csv").write_text(ROWS)
    data = {"vocab_file": folder / "vocab.txt", "train_file": folder / "pairs.csv", "max_seq_length": 16}
    run = {"do_train": True, "do_eval": True, "epochs": 1, "output_dir": folder / "out", "bert_model": "bert-test"}
    sections = {"data": data, "run": run, "batch": {"batch_size": 4}, "optimizer": {}, "initialization": {}}
    sections["hardware"] = {"device": "cpu", "visualdl": False}
    for name, values in changes.items():
        sections[name] |= values
    return VectorConfig(model=model, **sections)


def test_the_first_rank_alone_measures_another_model(tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(module, "load_model", lambda *names: loaded.append(names))
    monkeypatch.setattr(module, "FineTuning", lambda config, group, task: (config, task))
    config = config_of(tmp_path, data={"compare": tmp_path})
    for is_main, number in ((False, 0), (True, 1)):
        VectorTask.open(config, SimpleNamespace(is_main=is_main))
        assert loaded == [(tmp_path, "encoder")] * number


def test_a_part_of_the_pairs_is_held_out_or_those_of_the_evaluation_are_left_out(tmp_path):
    task = VectorTask(config_of(tmp_path, data={"held_out_fraction": 0.2}))
    held_out = task.read(task.evaluated[0])
    assert (len(task.training), len(held_out), task.best_metric) == (16, 4, "eval_ndcg_at_10")
    assert not {*task.training["query"]} & {*held_out["query"]}
    (tmp_path / "eval.csv").write_text("query,passage\nq3,p3\nother,text\n")
    task = VectorTask(config_of(tmp_path, data={"eval_file": tmp_path / "eval.csv"}))
    assert task.read(task.evaluated[0])["query"].tolist() == ["q3", "other"]
    assert task.training["query"].tolist() == [f"q{row}" for row in range(20) if row != 3]
    assert "left out: pairs that are in --eval too: 1" in task.notes
    whole = VectorTask(config_of(tmp_path, run={"do_eval": False}))
    assert len(whole.training) == 20 and not whole.evaluated


def test_pairs_with_a_score_are_measured_by_their_correlation(tmp_path):
    (tmp_path / "eval.csv").write_text("sentence1,sentence2,score\na,b,1\nc,d,2\n")
    data = {"eval_file": tmp_path / "eval.csv"}
    assert VectorTask(config_of(tmp_path, data=data)).best_metric == "eval_spearman"


@pytest.mark.parametrize(("model", "number"), [(MODEL, 3), (tiny.MODEL_WITH_DROPOUT, 5)])
def test_a_text_under_two_dropouts_needs_dropout(tmp_path, model, number):
    """Without dropout both vectors are equal, and the training learns nothing from them."""
    (folder := tmp_path / "texts").mkdir()
    for place in range(5):
        sentence = f"This is text number {place} of a few"
        (folder / f"{place}.txt").write_text(
            f"{sentence}." if place < 2 else f"{sentence}. And it has another sentence."
        )
    data = {"train_file": None, "text": folder}
    task = VectorTask(
        config_of(tmp_path, model.model_copy(update={"vocab_size": 16}), data=data, run={"do_eval": False})
    )
    assert len(task.training) == number
    assert any("left out: a text under two dropouts" in note and note.endswith(": 2") for note in task.notes) == (
        number == 3
    )


def test_shorter_vectors_are_halves_down_to_the_shortest(tmp_path):
    def sizes(shortest: int) -> tuple[int, ...]:
        return config_of(tmp_path, data={"shortest_vector": shortest}).form().dimensions

    assert MODEL.hidden_size == 32
    assert [sizes(number) for number in (0, 4, 5, 16)] == [(), (16, 8, 4), (16, 8), (16,)]
    with pytest.raises(ValueError, match="shortest_vector=17 must be at most 16, half of the model's vector"):
        sizes(17)


def test_the_objective_and_the_model_have_the_form_of_the_settings(tmp_path):
    data = {"pooling": "cls", "temperature": 0.2, "shortest_vector": 16, "query_prefix": "q: "}
    task = VectorTask(config_of(tmp_path, data=data))
    objective, usage = task.objective(), task.usage()
    assert (objective.pooling, objective.temperature, objective.dimensions) == ("cls", 0.2, (16,))
    assert (usage.name, usage.max_seq_length, usage.vectors) == ("vectors", 16, task._config.form())
    assert (usage.vectors.query_prefix, usage.vectors.passage_prefix, usage.vectors.normalize) == ("q: ", "", True)
