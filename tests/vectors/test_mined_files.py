"""The file of mined negatives: it is read as it was written, and refused if it is of other pairs or damaged."""

import pandas as pd
import pytest

from bert.vectors.mined_files import read_negatives, with_negatives, write_negatives
from bert.vectors.task import VectorTask
from tests.vectors.test_task import config_of

PAIRS = pd.DataFrame(
    {
        "query": ["q1", "q1", "q\u2028 \u00e4"],  # a line separator is no end of a line
        "passage": ["p1", "p2", "p3\nmore"],
        "negatives": [["own", "n1"], [], []],
    }
)
MINED = [["n1", "n2", "n3"], [], ["n4\nmore"]]


def test_negatives_are_read_as_they_were_written_and_added(tmp_path):
    write_negatives(file := tmp_path / "mined/negatives.jsonl", PAIRS, MINED)
    keys = list(zip(PAIRS["query"], PAIRS.passage, strict=True))
    assert read_negatives(file) == dict(zip(keys, MINED, strict=True))
    notes = list[str]()
    shuffled = PAIRS.iloc[[2, 0, 1]]
    merged = with_negatives(shuffled, file, 2, notes)
    assert merged.negatives.tolist() == [["n4\nmore"], ["own", "n1", "n2"], []]
    assert notes == ["mined negatives: 3, of 2 of the 3 pairs"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [([0, 1], "1 of the 3 training pairs are not in it, and 0"), ([0, 1, 2, 3], "0 of the 3 .*, and 1 of its pairs")],
)
def test_negatives_of_other_pairs_are_refused(tmp_path, rows, message):
    further = pd.DataFrame({"query": ["q9"], "passage": ["p9"], "negatives": [[]]})
    own = pd.concat([PAIRS, further]).iloc[rows]
    write_negatives(file := tmp_path / "negatives.jsonl", own, [["n"]] * len(own))
    with pytest.raises(ValueError, match=f"negatives_file={file} has the negatives of other pairs: {message}"):
        with_negatives(PAIRS, file, 2, [])


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"query": "q", "passage": "p"}', '{"query": "q", "passage": 1, "negatives": []}']
    + ['{"query": "q", "passage": "p", "negatives": "text"}', '{"query": "q", "passage": "p", "negatives": [""]}'],
)
def test_a_line_of_another_form_is_refused(tmp_path, line):
    (file := tmp_path / "negatives.jsonl").write_text('{"query": "q", "passage": "p", "negatives": []}\n' + line + "\n")
    with pytest.raises(ValueError, match="line 2: must have a query, a passage and a list of negatives, as texts"):
        read_negatives(file)


def test_a_training_has_the_negatives_of_its_file(tmp_path):
    """Each negative is a text of its pair's batch, beside the query and the passage."""
    pairs = VectorTask(config_of(tmp_path)).training
    negatives = [[f"p{number}"] if number % 2 else [] for number in range(len(pairs))]
    write_negatives(file := tmp_path / "negatives.jsonl", pairs, negatives)
    task = VectorTask(config_of(tmp_path, data={"negatives_file": file}))
    assert task.training.negatives.tolist() == negatives
    _, counts = task.features(task.training, training=True)
    assert counts["texts"] == 2 * len(pairs) + len(pairs) // 2
