"""The weights of tokens that a classifier adds to its logits: learned, multiplied, kept. tests/glue uses them."""

import numpy as np
import pytest

from bert.arrays.ragged import offsets_of
from bert.finetuning.loader import FeatureTable
from bert.labels.scores import error_of
from bert.labels.token_learning import learned, share
from bert.labels.token_weights import logits_of, packed, unpacked
from bert.tokenization.vocabulary import Vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["alarm", "alarming", "##s", "billing", "billed", "cable", "cabled"]
NOISE = [f"{first}{second}{third}" for first in "dfg" for second in "oiu" for third in "klmn"]
VOCABULARY = Vocabulary((*SPECIAL, *WORDS, *NOISE))


def table_of(texts: list[str]) -> FeatureTable:
    ids = [[VOCABULARY.id_of(word) for word in f"[CLS] {text} [SEP]".split()] for text in texts]
    return FeatureTable(np.concatenate(ids).astype("uint16"), offsets_of(np.array([len(row) for row in ids])))


def of_texts(weights: np.ndarray, texts: list[str]) -> np.ndarray:
    table = table_of(texts)
    return logits_of(weights, table.input_ids, table.offsets)


def test_words_that_no_line_had_are_known_by_their_letters():
    rng, kinds = np.random.RandomState(1), np.arange(90) % 3
    texts = [" ".join([*rng.choice(NOISE, 4), ("alarm", "billing", "cable")[kind]]) for kind in kinds]
    weights = learned(VOCABULARY, table_of(texts), kinds[:, None] == np.arange(4), len(VOCABULARY) + 2)
    assert weights.shape == (len(VOCABULARY) + 2, 4) and not weights[: len(SPECIAL)].any()
    assert not weights[-2:].any()  # of a network with more rows than tokens
    assert not weights[:, 3].any()  # a class without a line
    found = of_texts(weights, [f"dok {word} gul" for word in ("alarming", "billed", "cabled")])
    assert found[:, :3].argmax(1).tolist() == [0, 1, 2]
    again = learned(VOCABULARY, table_of(texts), kinds[:, None] == np.arange(4), len(VOCABULARY))
    assert (weights[:-2] == again).all()
    unknown = table_of(["[UNK] [UNK]", "[UNK]"])
    assert not learned(VOCABULARY, unknown, np.eye(2, dtype=bool), len(VOCABULARY)).any()
    assert share(np.eye(2), of_texts(weights[:, :2] * 0, ["[UNK]"] * 2), np.arange(2), several=False) == 0


def test_many_lines_are_learned_from_in_part(monkeypatch):
    rng, truths = np.random.RandomState(2), np.arange(40)[:, None] % 2 == np.arange(2)
    table = table_of([f"{('alarm', 'billing')[row % 2]} {rng.choice(NOISE)}" for row in range(40)])
    whole = learned(VOCABULARY, table, truths, len(VOCABULARY))
    monkeypatch.setattr("bert.labels.token_learning._MOST_WORK", 8 * 4 * 10)  # ten lines of four tokens
    part = learned(VOCABULARY, table, truths, len(VOCABULARY))
    assert part.any() and (part != whole).any()


def test_a_part_of_a_logit_is_a_sum_over_tokens_by_the_root_of_their_number():
    weights = np.arange(2 * len(VOCABULARY), dtype="float32").reshape(-1, 2)
    found = of_texts(weights, ["alarm alarm", "##s"])
    alarm, cls, sep, end = (weights[VOCABULARY.id_of(token)] for token in ("alarm", "[CLS]", "[SEP]", "##s"))
    expected = [(cls + 2 * alarm + sep) / 2, (cls + end + sep) / np.sqrt(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("several", [False, True])
def test_the_share_is_that_of_the_least_error_and_none_where_nothing_is_gained(several):
    rng = np.random.RandomState(3)
    labels = rng.randint(2, size=(400, 3)).astype("float32") if several else rng.randint(3, size=400)
    truths = labels if several else np.eye(3)[labels]
    deep, noise = (rng.randn(400, 3) + 2 * truths).astype("float32"), rng.randn(400, 3).astype("float32")
    tokens = (rng.randn(400, 3) + 2 * truths).astype("float32") * 5
    by = share(8 * deep, tokens, labels, several)  # 8: an encoder that is too sure, as after many epochs
    assert by * 5 / 8 == pytest.approx(1, rel=0.25)  # both tell as much
    scales = np.geomspace(0.01, 1, 60)
    alone, both = (
        min(error_of(scale * (8 * deep + part * tokens), labels, several) for scale in scales) for part in (0, by)
    )
    assert both < alone - 0.02
    assert share(deep, noise, labels, several) < 0.2
    assert share(np.float32(9) * (truths - 0.5), noise, labels, several) == 0


def test_kept_weights_are_the_same_and_those_of_other_classes_are_refused():
    weights = np.random.RandomState(4).randn(7, 3).astype("float16")
    assert (unpacked(packed(weights), 3) == weights).all() and packed(None) is None and unpacked(None, 3) is None
    for text, classes in ((packed(weights), 4), ("no base64!", 3)):
        with pytest.raises(ValueError, match=f"token_weights in task.json are damaged or not of {classes} classes"):
            unpacked(text, classes)
