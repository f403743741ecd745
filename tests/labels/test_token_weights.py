"""Tests of learning the token weights that a classifier adds to its logits; tests/glue uses them in a training."""

from collections import Counter

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from bert.arrays.ragged import offsets_of
from bert.finetuning.loader import FeatureTable
from bert.labels.scores import error_of
from bert.labels.token_learning import _MOST_WORK, learned, logits_of, share
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


def test_as_many_tokens_are_learned_from_as_the_work_allows():
    """Lines have four tokens: up to eight classes, each line costs 32; at least one line is used."""
    rng, truths = np.random.RandomState(2), np.arange(40)[:, None] % 2 == np.arange(2)
    texts = [f"{('alarm', 'billing')[row % 2]} {rng.choice(NOISE)}" for row in range(40)]

    def weights(number: int, **limits) -> np.ndarray:
        return learned(VOCABULARY, table_of(texts[:number]), truths[:number], len(VOCABULARY), **limits)

    assert weights(40).any() and (weights(40) != weights(10)).any() and (weights(10) != weights(9)).any()
    for work, number in ((10 * 32, 10), (10 * 32 - 1, 9), (40 * 32, 40), (1, 1)):
        assert (weights(40, most_work=work) == weights(number)).all(), work
    many = np.arange(40)[:, None] % 10 == np.arange(10)
    limited = learned(VOCABULARY, table_of(texts), many, len(VOCABULARY), most_work=20 * 40)
    assert (limited == learned(VOCABULARY, table_of(texts[:20]), many[:20], len(VOCABULARY))).all()
    assert _MOST_WORK == 4_000_000


def test_weights_are_a_linear_model_of_the_characters_inside_of_tokens():
    """The characters are sequences of two to five, with the space before and after a word, by the definition."""
    rng, kinds = np.random.RandomState(5), np.arange(60) % 3
    texts = [" ".join([*rng.choice([*NOISE, "alarm ##s"], 3), *rng.choice(WORDS[:2] + WORDS[3:], 2)]) for _ in kinds]
    texts = [f"{text} {('alarm', 'billing', 'cable')[kind]}" for text, kind in zip(texts, kinds, strict=True)]

    def features(text: str) -> Counter:
        tokens, counts = f"[CLS] {text} [SEP]".split(), Counter()
        for token in tokens:
            spelled = f"{token[2:]} " if token.startswith("##") else "" if token in SPECIAL else f" {token} "
            for size in range(2, 6):
                for at in range(len(spelled) - size + 1):
                    counts[spelled[at : at + size]] += 1 / len(tokens) ** 0.5
        return counts

    counts = [features(text) for text in texts]
    columns = sorted({part for count in counts for part in count})
    having = Counter(part for count in counts for part in count)
    rarity = np.array([1 + np.log((1 + len(texts)) / (1 + having[part])) for part in columns])
    table = np.array([[count[part] for part in columns] for count in counts]) * rarity
    table *= np.sqrt(len(texts) / (table**2).sum())
    found = of_texts(learned(VOCABULARY, table_of(texts), kinds[:, None] == np.arange(3), len(VOCABULARY)), texts)
    for kind in range(3):
        model = LogisticRegression(
            solver="liblinear", dual=True, C=16.0, fit_intercept=False, max_iter=1000, random_state=0
        )
        wanted = model.fit(table, kinds == kind).decision_function(table)
        np.testing.assert_allclose(found[:, kind], wanted, rtol=0.01, atol=0.02)


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


@pytest.mark.parametrize("several", [False, True])
def test_a_share_is_found_by_the_scales_of_the_least_error_if_it_gains_more_than_two_nats(several):
    """Another solver of SciPy finds share and gain, on a log loss of plain NumPy."""
    shares = []
    for seed in range(24):
        rng = np.random.RandomState(seed)
        truths = rng.rand(30, 3) < 0.4 if several else np.eye(3, dtype=bool)[rng.randint(3, size=30)]
        logits = rng.randn(30, 3) + 2 * truths
        of_tokens = rng.randn(30, 3) + 0.5 * (seed % 4) * truths

        def error(scales, logits=logits, of_tokens=of_tokens, truths=truths) -> float:
            values = scales[0] * logits + scales[1] * of_tokens
            if several:
                return float(np.log1p(np.exp(np.where(truths, -values, values))).sum())
            return float((np.log(np.exp(values).sum(1)) - values[truths]).sum())

        best = minimize(error, (0.5, 0.5), method="SLSQP", bounds=((0.05, 5), (0, 20)))
        alone = minimize(
            lambda scale, error=error: error((scale[0], 0)), (0.5,), method="Nelder-Mead", bounds=((0.05, 5),)
        )
        gain = alone.fun - best.fun
        labels = truths.astype("float32") if several else truths.argmax(1)
        found = share(logits.astype("float32"), of_tokens.astype("float32"), labels, several)
        if abs(gain - 2) > 0.01:
            # Of each label the log loss is a mean over labels too, of which there are as many as logits.
            assert found == pytest.approx(best.x[1] / best.x[0] if gain > 2 else 0, rel=0.02), (seed, gain)
        shares.append(found)
    assert 4 < np.count_nonzero(shares) < 20


def test_of_many_lines_those_at_equal_distances_decide_the_share():
    """Every third of 300 lines, of two classes, supports the tokens; the other lines contradict them."""
    rng, labels = np.random.RandomState(6), np.arange(300) // 3 % 2
    is_third = np.arange(300)[:, None] % 3 == 0
    tokens = np.where(is_third, 1, -1) * (np.eye(2)[labels] + rng.randn(300, 2) / 2)
    logits = rng.randn(300, 2) / 8 + np.eye(2)[labels] / 2
    thirds = share(logits[::3], tokens[::3], labels[::3], False)
    assert thirds > 0.5 and share(logits, tokens, labels, False, most_numbers=200) == thirds
    assert share(logits, tokens, labels, False, most_numbers=299) == thirds, "600 logits are more than twice 299"
    assert share(logits, tokens, labels, False, most_numbers=600) == share(logits, tokens, labels, False) == 0
