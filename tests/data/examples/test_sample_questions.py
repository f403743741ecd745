"""The questions about texts of this project: well-formed, split by paragraph, the same each time."""

import json

import pytest

from bert.finetuning.squad.examples import read_squad
from data.examples.sample_questions import main, read_source


def test_both_files_are_squad_2_with_a_fifth_unanswerable_and_no_shared_paragraph(tmp_path, capsys):
    main(["--output-dir", str(tmp_path)])
    parts = {name: read_squad(tmp_path / f"{name}.json", version_2=True) for name in ("train", "held_out")}
    assert "train.json: 391 questions" in capsys.readouterr().out and len(parts["held_out"]) == 131
    assert not set(parts["train"].contexts) & set(parts["held_out"].contexts)
    for part in parts.values():
        unanswerable = sum(not question.answers for question in part.questions)
        assert 0.15 < unanswerable / len(part) < 0.25
        for question in part.questions:
            for text, start in question.answers:
                assert part.contexts[question.context][start : start + len(text)] == text
        assert len({question.text for question in part.questions}) > 0.95 * len(part)


def test_the_same_files_each_time(tmp_path):
    for name in ("a", "b"):
        main(["--output-dir", str(tmp_path / name)])
    assert (tmp_path / "a/train.json").read_bytes() == (tmp_path / "b/train.json").read_bytes()
    assert json.loads((tmp_path / "a/train.json").read_text())["version"] == "v2.0"


def test_the_answerable_ones_alone_are_squad_1(tmp_path):
    main(["--output-dir", str(tmp_path)])
    for name in ("train", "held_out"):
        everything = read_squad(tmp_path / f"{name}.json", version_2=True).questions
        answerable = read_squad(tmp_path / f"{name}-answerable.json").questions
        assert [question.id for question in answerable] == [q.id for q in everything if q.answers]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("= A sea.\n? What? | lake\n", "s.txt:2: 'lake' is not in the paragraph"),
        ("= A sea.\nWhat?\n", "s.txt:2: 'What.' must begin with"),
        ("? What? | sea\n", "s.txt:1: .* must begin with"),
    ],
)
def test_a_mistake_in_the_source_is_named_with_its_line(text, message, tmp_path):
    (tmp_path / "s.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_source(tmp_path / "s.txt")
