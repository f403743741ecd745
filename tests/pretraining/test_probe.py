"""The linear probe on labelled lines. Its encoder is a stand-in; tests/figures/test_adaptation.py has a real one."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert.config.training_settings import derive
from bert.pretraining.labelled_lines import MOST_LINES, read_labelled_lines
from bert.pretraining.probe import Probe
from bert.tokenization.normalization import UNCASED
from tests.support import tiny
from tests.support.corpora import vocabulary


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "must be an existing table; correct --probe-file"),
        ("", "probe_file=.*lines.csv is empty; its first line must name the columns; correct --probe-file"),
        ("text,kind\na,b\n", "it must have the columns text and label"),
        ("text,label\n" + "a,x\n" * 9, "has 1 labels in 9 lines"),
        ("text,label\n" + "a,x\n" * 9 + "b,y\n", "the rarest 'y' on 1; it must have two labels and each on at least 3"),
        ("text,label\n,x\n", "has 0 labels in 0 lines, the rarest none"),
    ],
)
def test_lines_that_no_probe_can_use_are_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "lines.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_labelled_lines(tmp_path / "lines.csv")


def test_lines_of_a_long_table_are_taken_from_all_of_it(tmp_path):
    rows = (f"{'ab'[number >= 4000]},line {number}\n" for number in range(5000))
    (tmp_path / "lines.csv").write_text("label,text\n" + "".join(rows))
    lines = read_labelled_lines(tmp_path / "lines.csv")
    assert len(lines.texts) == MOST_LINES and lines.most_frequent_share == 0.8


def test_a_line_whose_label_is_null_has_none(tmp_path):
    rows = "".join(f'{{"text": "line {number}", "label": {(0, 1, "null")[number % 3]}}}\n' for number in range(12))
    (tmp_path / "lines.jsonl").write_text(rows)
    assert read_labelled_lines(tmp_path / "lines.jsonl").labels == ["0", "1"] * 4


SIZE = 108  # a multiple of the heads, at least the vocabulary's


class OneHot:
    """An executor whose hidden states are the tokens, so that the means count them."""

    def run(self, program, feed, fetch_list, scope):
        return [np.eye(SIZE, dtype=np.float32)[feed["input_ids"]]]


@pytest.mark.parametrize(("label_of", "low", "high"), [("word", 0.95, 1.0), ("nothing", 0.2, 0.75)])
def test_labels_that_the_states_hold_are_found_and_others_are_not(tmp_path, label_of, low, high):
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(["river", "sea", "stones"], 5)) + " fish" * int(rng.integers(2)) for _ in range(90)]
    labels = [str("fish" in text) if label_of == "word" else str(rng.integers(2)) for text in texts]
    config = tiny.pretraining_config(tmp_path, model=tiny.MODEL.model_copy(update={"hidden_size": SIZE}))
    probe = Probe(SimpleNamespace(texts=texts, labels=labels), config, 16, vocabulary(), UNCASED)
    probe.__dict__["_program"] = SimpleNamespace(main=None, outputs={"last_hidden_state": ""})
    device = SimpleNamespace(executor=OneHot(), scope=None)
    means = probe.embeddings(device)
    np.testing.assert_allclose(means.sum(1), 1, rtol=1e-5, err_msg="padding has no part in the mean")
    assert low <= probe.accuracy(device) <= high


def test_the_best_by_a_probe_needs_lines(tmp_path):
    with pytest.raises(ValueError, match="best_by=probe needs labelled lines; pass --probe-file, or drop --best-by"):
        derive(tiny.pretraining_config(tmp_path), best_by="probe")
