"""The study of fine-tuning with several seeds: its sets, what it goes on with, and its table; trainings run by hand."""

import json

import pytest

from tests.benchmarks import fine_tuning_seeds
from tests.benchmarks.fine_tuning_seeds import JOINED, LENGTH, STRIDE, cases, main, rows_of, table


def test_answers_stay_where_they_are_in_joined_paragraphs(tmp_path):
    found = cases(tmp_path)
    short, long = rows_of(found["questions"]), rows_of(found["paragraphs"])
    assert [row["question"] for row in short] == [row["question"] for row in long]
    assert len({row["context"] for row in long}) == -(-len({row["context"] for row in short}) // JOINED)
    for one, other in zip(short, long, strict=True):
        assert one["context"] in other["context"]
        for row in (one, other):
            assert row["context"][row["start"] :].startswith(row["answer"])
    ours, theirs = found["paragraphs"].strides
    assert ours == STRIDE and LENGTH - STRIDE - 30 < theirs < LENGTH - STRIDE - 3


def test_pairs_have_two_texts_and_sentences_one(tmp_path):
    found = cases(tmp_path)
    assert set(rows_of(found["pairs"])[0]) == {"text", "text_pair", "label"}
    assert set(rows_of(found["sentiment"])[0]) == {"text", "label"}


def test_what_is_finished_is_not_trained_again(tmp_path, monkeypatch, capsys):
    trained = []

    def ours(case, folder, encoder, seed, stride):
        trained.append((case.name, seed, stride))
        folder.mkdir()
        return 50.0 + seed

    monkeypatch.setattr(fine_tuning_seeds, "ours", ours)
    words = ["--encoder", str(tmp_path), "--folder", str(tmp_path / "f"), "--sets", "sentiment", "--seeds"]
    main([*words, "2"])
    main([*words, "3"])
    assert trained == [("sentiment", seed, 0) for seed in (1, 2, 3)]
    assert len((tmp_path / "f/results.jsonl").read_text().splitlines()) == 3
    with pytest.raises(ValueError, match="has results of .*; pass another --folder"):
        main([*words, "3", "--encoder", str(tmp_path / "other")])
    assert "| sentiment | ours | 52.0 | 1.0 | 51.0, 52.0, 53.0 |" in capsys.readouterr().out


def test_a_table_has_a_line_for_each_side():
    rows = [{"set": "pairs", "who": who, "seed": 1, "score": 80.0} for who in ("ours", "transformers")]
    assert table(json.loads(json.dumps(rows))).splitlines()[2:] == [
        "| pairs | ours | 80.0 | 0.0 | 80.0 |",
        "| pairs | transformers | 80.0 | 0.0 | 80.0 |",
    ]
