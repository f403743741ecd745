"""Tests of pairs of equal class: each line is paired with the next lines of its class, never with itself."""

import json
import shlex

import pytest

from bert.config.command_line import parse_arguments
from bert.glue.config import ENTRY
from bert.labels.equal_class_pairs import MOST_LINES, equal_class_pairs, pairs_file, training_lines
from bert.labels.task import LabelTask
from tests.glue import test_glue

weights = test_glue.weights  # fixture


def lines(classes: dict[str, int]) -> tuple[list[str], list[str]]:
    labels = [label for label, number in classes.items() for _ in range(number)]
    return [f"{label} {number}" for number, label in enumerate(labels)], labels


@pytest.mark.parametrize(
    ("classes", "partners"),
    [
        ({"calm": 50, "late": 60}, {"calm": 4, "late": 4}),
        ({"calm": 20, "late": 30}, {"calm": 8, "late": 8}),  # of 50 lines, 400 pairs
        ({"calm": 5, "late": 30, "urgent": 1}, {"calm": 4, "late": 12}),  # no more than the class has
        ({"calm": 500, "late": 70}, {"calm": 4, "late": 4}),
    ],
)
def test_each_line_has_partners_of_its_class(classes, partners):
    texts, labels = lines(classes)
    pairs = [*equal_class_pairs(texts, labels, 42)]
    assert all(pair["query"].split()[0] == pair["passage"].split()[0] == pair["query_class"] for pair in pairs)
    assert len({(pair["query"], pair["passage"]) for pair in pairs}) == len(pairs)
    assert not any(pair["query"] == pair["passage"] for pair in pairs)
    for label, number in partners.items():
        of_class = [pair for pair in pairs if pair["query_class"] == label]
        size = min(classes[label], MOST_LINES)
        for side in ("query", "passage"):
            found = [pair[side] for pair in of_class]
            assert len(set(found)) == size and {found.count(text) for text in found} == {number}
    assert {pair["query_class"] for pair in pairs} == set(partners)


def test_the_pairs_follow_from_the_seed_and_equal_texts_count_once():
    texts, labels = lines({"calm": 20, "late": 20})
    first = [*equal_class_pairs(texts, labels, 42)]
    assert first == [*equal_class_pairs(texts, labels, 42)] != [*equal_class_pairs(texts, labels, 43)]
    assert first == [*equal_class_pairs([*texts, texts[3]], [*labels, labels[3]], 42)]


def test_one_class_with_different_texts_is_too_few():
    with pytest.raises(ValueError, match="needs two classes with two different texts each, and 1 of 2 have them"):
        [*equal_class_pairs(["a", "b", "c", "c"], ["calm", "calm", "late", "late"], 42)]


def test_held_out_lines_are_in_no_pair(weights, tmp_path):
    """The lines are divided as the task of the classifier divides them."""
    texts, labels = lines({"calm": 30, "late": 35})
    texts = [f"{test_glue.WORDS[place]} {test_glue.WORDS[-place - 1]}" for place in range(len(texts))]
    rows = "".join(f"{text},{label}\n" for text, label in zip(texts, labels, strict=True))
    (tmp_path / "notes.csv").write_text(f"words,kind\n{rows}")
    words = (
        f"--task-name custom --do-train --do-eval --train-file {tmp_path}/notes.csv --text-column words "
        f"--label-column kind --max-seq-length 16 --from-pretrained-params {weights} --output-dir {tmp_path}/out"
    )
    config = parse_arguments(ENTRY, shlex.split(words))
    task = LabelTask(config)
    assert training_lines(config).texts == task.training.texts
    pairs = [json.loads(line) for line in pairs_file(config).decode().splitlines()]
    held_out = {*texts} - {*task.training.texts[0]}
    assert len(held_out) == 13
    assert {pair[side] for pair in pairs for side in ("query", "passage")} == {*task.training.texts[0]}
