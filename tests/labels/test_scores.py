"""Tests of a classifier's scores, thresholds, calibration and verdicts against plain Python from their definitions."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from bert.conversion.usage import Usage
from bert.labels.decision import Decision
from bert.labels.scores import (
    TEMPERATURES,
    WORST,
    ScoredRows,
    best_by,
    calibration_error,
    class_scores,
    details,
    error_of,
    fitted,
    lines,
    with_threshold,
)

NAMES = ("routine", "soon", "urgent")
FEW = settings(max_examples=50, deadline=None, derandomize=True, phases=[Phase.generate])  # all are small already


def two_class_logits(probabilities: list[float]) -> np.ndarray:
    """Return logits that a temperature of 1 turns into these probabilities of the second class."""
    second = np.array(probabilities)
    return np.log(np.stack([1 - second, second], axis=1))


def wanted_threshold(likely: list[float], is_own: list[bool], recall: Fraction) -> float:
    """Try all places between two probabilities: at least the recall, then the fewest alarms, then the most found."""
    edges = sorted({0.0, *likely})
    places = [(low + high) / 2 for low, high in pairwise(edges)]

    def counts(place: float) -> tuple[int, int]:
        taken = [own for value, own in zip(likely, is_own, strict=True) if value >= place]
        return taken.count(False), taken.count(True)

    enough = [place for place in places if counts(place)[1] >= recall * is_own.count(True)]
    return min(enough, key=lambda place: (counts(place)[0], -counts(place)[1], -place))


@pytest.mark.parametrize(
    ("number", "recall"),
    [(100, "0.07"), (100, "0.56"), (30, "0.1"), (30, "0.1001"), (30, "0.52"), (30, "1"), (30, "0.001")],
)
def test_a_threshold_has_the_wanted_recall_with_the_fewest_alarms_and_then_the_most_found(number, recall):
    """A recall of 0.07 of 100 rows is 7 rows, although 0.07 * 100 is a little more than 7."""
    rng = np.random.RandomState(3)
    labels = np.array([1] * number + [0] * 50)
    logits = (rng.randn(number + 50, 2) + 1.5 * np.eye(2)[labels]).astype("float32")
    decision = fitted(logits, labels, False, 1, float(recall))
    likely = decision.probabilities(logits)[:, 1]
    expected = wanted_threshold(likely.tolist(), (labels == 1).tolist(), Fraction(recall))
    assert decision.threshold == pytest.approx(expected)


@pytest.mark.parametrize(
    ("recall", "place"),
    [
        (0.25, 0.45),  # all three above the alarm of 0.3: not one needs an alarm
        (0.75, 0.45),
        (0.76, 0.125),  # 0.2 needs the alarm of 0.3; the next one has 0.05
    ],
)
def test_a_threshold_by_hand_goes_down_to_the_next_false_alarm(recall, place):
    likely, labels = [0.9, 0.8, 0.6, 0.2, 0.3, 0.05, 0.01], np.array([1, 1, 1, 1, 0, 0, 0])
    logits = two_class_logits(likely)
    decision = fitted(logits, labels, False, 1, recall)
    assert (decision.classes(decision.probabilities(logits)) == 1).tolist() == [value >= place for value in likely]


@pytest.mark.parametrize("recall", [0.1, 0.9, 1.0])
def test_classes_that_separate_perfectly_have_a_threshold_between_them(recall):
    """A row of 0.998 is of the class, whatever recall was wanted: no threshold above it avoids an alarm."""
    likely = [0.9995] * 12 + [0.9992] * 8 + [0.998] + [0.004] * 30
    labels = np.array([1] * 21 + [0] * 30)
    logits = two_class_logits(likely)
    decision = fitted(logits, labels, False, 1, recall)
    found = decision.probabilities(logits)[:, 1]
    assert decision.threshold == pytest.approx((found[20] + found[21]) / 2) and 0.4 < decision.threshold < 0.6
    assert (decision.classes(decision.probabilities(logits)) == labels).all()


def test_a_false_alarm_as_likely_as_the_last_row_that_is_needed_is_taken_with_it():
    likely, labels = [0.9, 0.6, 0.6, 0.5, 0.3], np.array([1, 1, 0, 1, 0])
    logits = two_class_logits(likely)
    decision = fitted(logits, labels, False, 1, 0.6)  # two of three
    assert (decision.classes(decision.probabilities(logits)) == 1).tolist() == [True, True, True, True, False]


def test_a_threshold_that_takes_every_row_is_half_of_the_least_probability():
    labels, logits = np.array([1, 1, 0]), two_class_logits([0.9, 0.2, 0.6]).astype("float32")
    decision = fitted(logits, labels, False, 1, 1.0)
    assert decision.threshold == pytest.approx(decision.probabilities(logits)[1, 1] / 2)
    assert (decision.positive, decision.several) == (1, False)
    for positive, recall in ((None, 0.9), (1, None), (2, 0.9)):  # no class, no recall, a class without a row
        assert fitted(logits, labels, False, positive, recall).positive is None


def test_rows_of_the_class_that_the_network_rules_out_need_a_threshold_of_0():
    logits, labels = np.array([[0.0, -np.inf], [1.0, 1.0], [0.0, -np.inf]]), np.array([1, 0, 1])
    decision = with_threshold(Decision(), logits, labels, 1, 0.9)
    assert (decision.positive, decision.threshold) == (1, 0.0)
    assert (decision.classes(decision.probabilities(logits)) == 1).all()


@pytest.mark.parametrize("several", [False, True])
def test_the_temperature_has_the_least_log_loss_between_its_bounds(several):
    rng = np.random.RandomState(4)
    classes = rng.randint(3, size=200)
    labels = (rng.rand(200, 3) < 0.4).astype("float32") if several else classes
    logits = 3 * (rng.randn(200, 3) + (labels if several else np.eye(3)[classes]))
    best = minimize_scalar(
        lambda temperature: plain_error(logits / temperature, labels), bounds=TEMPERATURES, method="bounded"
    )
    assert fitted(logits, labels, several, None, None).temperature == pytest.approx(best.x, rel=1e-3)
    random = np.array([[0.0, 9.0], [9.0, 0.0]] * 20)  # right as often as wrong: the surer, the worse
    unsure = fitted(random, np.array([0, 0, 1, 1] * 10), False, None, None)
    assert TEMPERATURES == (0.2, 20.0) and unsure.temperature == pytest.approx(20, rel=0.01)
    sure = fitted(np.array([[0.1, 0.0]] * 99 + [[0.0, 0.001]]), np.zeros(100, int), False, None, None)
    assert sure.temperature == pytest.approx(0.2, rel=0.01), "the other bound, as there is an error"


def plain_error(logits: np.ndarray, labels: np.ndarray) -> float:
    """Compute the mean log loss in nats, number by number."""
    losses = []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        if isinstance(label, list):
            chances = [1 / (1 + math.exp(-value)) for value in row]
            losses += [-math.log(p if truth else 1 - p) for p, truth in zip(chances, label, strict=True)]
        else:
            losses.append(math.log(sum(map(math.exp, row))) - row[label])
    return sum(losses) / len(losses)


def test_the_log_loss_is_a_mean_over_rows_or_over_rows_and_labels():
    rng = np.random.RandomState(5)
    logits = rng.randn(7, 3)
    for several, labels in ((False, rng.randint(3, size=7)), (True, (rng.rand(7, 3) < 0.5).astype("float32"))):
        assert error_of(logits, labels, several) == pytest.approx(plain_error(logits, labels))


@FEW
@given(st.lists(st.tuples(st.sampled_from([0.5, 0.55, 0.6, 0.69, 0.7, 0.95, 1.0]), st.booleans()), min_size=1))
def test_the_calibration_error_is_a_mean_of_gaps_in_ten_bins_of_which_the_last_has_1(rows):
    bins: dict[int, list[float]] = {}
    for confidence, is_right in rows:
        bins.setdefault(min(9, math.floor(confidence * 10)), []).append(confidence - is_right)
    wanted = sum(abs(sum(gaps)) for gaps in bins.values()) / len(rows)
    likely = np.array([[confidence, 1 - confidence] for confidence, _ in rows])
    labels = np.array([0 if is_right else 1 for _, is_right in rows])
    assert calibration_error(likely, labels) == pytest.approx(wanted)


def test_a_calibration_error_by_hand():
    """0.95 right and 1.0 wrong are in one bin: their gaps, -0.05 and 1, are summed before the absolute value."""
    likely = np.array([[0.95, 0.05], [1.0, 0.0], [0.2, 0.8], [0.25, 0.75]])
    found = calibration_error(likely, np.array([0, 1, 1, 0]))
    assert found == pytest.approx(((1.0 - 0.05) + 0.2 + 0.75) / 4)


def plain_class_scores(truths: list[int], said: list[int], likely: list[float]) -> dict[str, float | None]:
    """Return precision, recall, F1 and counts of one class; the AUC is the share of pairs of rows in the right order.

    None for 0 / 0.
    """
    hits = sum(1 for truth, guess in zip(truths, said, strict=True) if truth and guess)
    precision = hits / sum(said) if sum(said) else None
    recall = hits / sum(truths) if sum(truths) else None
    scores = {"precision": precision, "recall": recall, "support": sum(truths), "predicted": sum(said)}
    scores["f1-score"] = 2 * hits / (sum(said) + sum(truths)) if sum(said) + sum(truths) else None
    own = [value for value, truth in zip(likely, truths, strict=True) if truth]
    others = [value for value, truth in zip(likely, truths, strict=True) if not truth]
    if own and others:
        wins = sum((value > other) + (value == other) / 2 for value in own for other in others)
        scores["auc"] = wins / (len(own) * len(others))
    return scores


@pytest.mark.parametrize("several", [False, True])
def test_the_scores_of_each_class_follow_their_definitions(several):
    rng = np.random.RandomState(6)
    for number in range(12):
        likely = rng.choice([0.1, 0.3, 0.5, 0.7], (number + 1, 3))
        if several:
            labels, said = (rng.rand(number + 1, 3) < 0.4).astype("float32"), (likely >= 0.5).astype(np.int64)
            truths, guesses = labels.astype(int), said
        else:
            labels, said = rng.randint(2, size=number + 1), likely.argmax(1)  # no row is of the third class
            truths, guesses = (np.eye(3, dtype=int)[each] for each in (labels, said))
        found = class_scores(NAMES, labels, likely, said)
        assert [*found] == [*NAMES]
        for place, name in enumerate(NAMES):
            columns = truths[:, place].tolist(), guesses[:, place].tolist(), likely[:, place].tolist()
            assert found[name] == pytest.approx(plain_class_scores(*columns)), (number, name)


def of(labels: list[int], said: list[int], sure: float = 5.0, **others) -> dict:
    """Return the details of predictions."""
    logits = np.eye(3, dtype="float32")[said] * sure
    texts = [f"t{number}" for number in range(len(labels))]
    return details(
        ScoredRows(NAMES, texts, [str(number) for number in range(len(labels))], np.array(labels), logits),
        Decision(),
        **others,
    )


def test_a_class_without_lines_is_not_one_that_is_missed():
    assert "verdict" not in of([0, 0, 1, 1], [0, 0, 1, 1])
    assert "no line of soon is found" in of([0, 0, 1, 2, 2], [0, 0, 0, 2, 2])["verdict"]


def test_a_model_that_says_the_largest_class_alone_is_named():
    words = of([0, 0, 1, 2], [0, 0, 0, 0])["verdict"]
    assert "no more than the largest class: its accuracy is 50.0%, always saying" in words
    assert "more epochs or --balance may help" in words
    assert "more epochs may help" in of([0, 0, 1, 2], [0, 0, 0, 0], balanced=True)["verdict"]
    equal = of([0, 0, 1, 1], [0, 1, 1, 0])  # two classes are found, as often as by chance
    assert "no more than the largest class" in equal["verdict"] and equal["largest_class"] == 0.5


def test_one_label_that_is_found_is_not_enough():
    """Its micro F1 is compared with predicting the same labels for every row."""
    labels = np.array([[row % 2, row == 1, 0] for row in range(10)], "float32")
    logits = 6 * labels * [1, 0, 0] - 3
    found = details(ScoredRows(NAMES, ["t"] * 10, ["1"] * 10, labels, logits), Decision(several=True))
    assert found["micro_f1"] == pytest.approx(10 / 11) and found["same_labels"] == pytest.approx(10 / 16)
    assert "no more than the same labels: its micro f1 is 90.9%" in found["verdict"]
    assert "more epochs may help" in found["verdict"], "--balance is for single labels"
    logits[1, 1] = 3
    assert "verdict" not in details(ScoredRows(NAMES, ["t"] * 10, ["1"] * 10, labels, logits), Decision(several=True))


def test_of_many_missed_classes_ten_are_named():
    for number, ends in ((10, "c9 is found"), (11, "c9 ... is found")):
        names = [f"c{place}" for place in range(number + 2)]
        labels = np.array([*range(number), *([number] * 9), *([number + 1] * 9)])
        said = np.where(labels < number, number, labels)
        found = details(ScoredRows(names, names * 9, names * 9, labels, np.eye(number + 2)[said] * 5), Decision())
        assert found["verdict"].startswith("no line of c0, c1, ") and ends in found["verdict"]


def test_the_worst_errors_are_those_of_the_least_probability_and_equal_ones_stay_in_order():
    rng = np.random.RandomState(7)
    labels, sure = rng.randint(3, size=80), rng.choice([1.0, 2.0, 4.0], 80)
    said = np.where((rng.rand(80) < 0.9) & (labels == 0), 1, labels)  # one kind of error: equal ones are quite equal
    logits = np.eye(3)[said] * sure[:, None]
    texts = [f"t{number}" for number in range(80)]
    found = details(ScoredRows(NAMES, texts, texts, labels, logits), Decision(temperature=2.0))
    chance = {s: 1 / (2 + math.exp(s / 2)) for s in sure}  # of a class that is not said
    wrong = sorted((row for row in range(80) if said[row] != labels[row]), key=lambda row: -sure[row])
    assert WORST == 20 < len(wrong)
    assert [(each["text"], each["label"], each["prediction"]) for each in found["worst"]] == [
        (texts[row], NAMES[labels[row]], NAMES[said[row]]) for row in wrong[:20]
    ]
    assert [each["probability_of_label"] for each in found["worst"]] == pytest.approx(
        [chance[sure[row]] for row in wrong[:20]], abs=1e-6
    )
    assert found["temperature"] == 2.0 and found["accuracy"] == np.mean(said == labels)
    before, after = (Decision(temperature=t).probabilities(logits) for t in (1.0, 2.0))
    errors = {"before": calibration_error(before, labels), "after": calibration_error(after, labels)}
    assert found["calibration_error"] == errors and errors["before"] != errors["after"]


def test_the_worst_errors_with_several_labels_are_by_the_label_that_is_most_wrong():
    labels = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1]], "float32")
    logits = np.array([[2.0, 1.0, -9.0], [-3.0, 4.0, -2.0], [-9.0, -9.0, 9.0]])
    found = details(ScoredRows(NAMES, list("abc"), list("123"), labels, logits), Decision(several=True))
    assert found["worst"] == [
        {"row": "2", "text": "b", "label": "soon, urgent", "prediction": "soon", "probability_of_label": 0.119203},
        {"row": "1", "text": "a", "label": "routine", "prediction": "routine, soon", "probability_of_label": 0.268941},
    ]


def test_the_same_labels_for_every_row_are_the_best_of_all_sets():
    rng = np.random.RandomState(8)
    for _ in range(20):
        labels = (rng.rand(9, 3) < rng.choice([0.2, 0.5, 0.8], 3)).astype("float32")
        labels[0, 0] = 1
        best = 0.0
        for chosen in range(1, 8):
            always = np.array([chosen >> place & 1 for place in range(3)])
            hits = float((labels * always).sum())
            best = max(best, 2 * hits / (9 * always.sum() + labels.sum()))
        found = details(ScoredRows(NAMES, ["t"] * 9, ["1"] * 9, labels, 6 * labels - 3), Decision(several=True))
        assert found["same_labels"] == pytest.approx(best) and found["micro_f1"] == 1


def test_a_decision_takes_the_class_from_the_threshold_on_and_else_the_likeliest_other():
    likely = np.array([[0.5, 0.2, 0.3], [0.5, 0.21, 0.29], [0.3, 0.3, 0.4], [0.1, 0.1, 0.8]])
    assert Decision(positive=2, threshold=0.3).classes(likely).tolist() == [2, 0, 2, 2]
    assert Decision(positive=2, threshold=0.5).classes(likely).tolist() == [0, 0, 0, 2]
    assert Decision().classes(likely).tolist() == [0, 0, 2, 2]
    assert Decision(several=True, threshold=0.3).classes(likely).tolist() == [
        [1, 0, 1],
        [1, 0, 0],
        [1, 1, 1],
        [0, 0, 1],
    ]
    halved = Decision(temperature=2.0).probabilities(np.array([[2.0, 0.0]]))
    assert halved.tolist() == [pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)])]
    each = Decision(several=True, temperature=4.0).probabilities(np.array([[4.0, 0.0]]))
    assert each.tolist() == [pytest.approx([math.e / (1 + math.e), 0.5])]


def test_a_decision_is_that_of_the_weights():
    usage = Usage("ours", 9, positive_label="urgent", threshold=0.2)
    assert Decision.of(usage, NAMES) == Decision(False, 1.0, 2, 0.2)
    assert Decision.of(usage, NAMES[:2]) == Decision(False, 1.0, None, 0.2)
    assert Decision.of(Usage("ours", 9, label_separator=";"), NAMES) == Decision(True, 1.0, None, 0.5)


def test_every_kind_of_best_by_is_a_score_of_the_class():
    keys = {"precision": "precision", "recall": "recall", "f1": "f1-score", "auc": "auc"}
    found = class_scores(NAMES, np.array([0, 1, 2]), np.eye(3), np.array([0, 1, 2]))
    for kind, key in keys.items():
        assert best_by(f"{kind}:soon", ("accuracy",), NAMES) == (key, "soon") and key in found["soon"]
    assert best_by("accuracy", ("accuracy",), NAMES) is None
    for words in ("macro_f1", "recall:", "support:soon", "score:soon"):
        with pytest.raises(ValueError, match=f"best_by={words} must be one of accuracy, precision:routine, "):
            best_by(words, ("accuracy",), NAMES)


def test_the_table_has_a_confusion_of_at_most_eight_classes_and_the_threshold():
    for number in (8, 9):
        names, labels = [f"class{place}" for place in range(number)], np.arange(number)
        found = details(
            ScoredRows(names, names, names, labels, np.eye(number) * 5), Decision(positive=1, threshold=0.25)
        )
        shown = lines(found)
        assert any(line.startswith("true, predicted:") for line in shown) == (number == 8)
        assert "class1 is predicted from a probability of 0.250" in shown
