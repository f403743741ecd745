"""Tests of inferred columns and labels, held-out rows, and decisions and scores from a classifier's logits."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert.commands.classify import _all_rows
from bert.finetuning.config import usual_settings
from bert.labels.columns import survey
from bert.labels.decision import Decision
from bert.labels.examples import ALONE, Examples, read_examples
from bert.labels.schema import labels_alike, own_schema
from bert.labels.scores import ScoredRows, best_by, class_scores, details, fitted, lines
from bert.labels.settings import inferred
from bert.labels.split import balanced_rows, row_folds, row_groups
from bert.labels.table import Split, own_rows
from data.text.columns import TableForm
from data.text.tables import user_table


@pytest.mark.parametrize(
    ("content", "columns", "regression"),
    [
        ("id;report;urgency\n1;fever and a cough;low\n2;no news;low\n3;pain;high\n4;fall;high\n",
         {"text_column": "report", "label_column": "urgency"}, False),
        ("label\tsentence\n1\ta\n0\tb\n", {"text_column": "sentence", "label_column": "label"}, False),
        ("sentence1,sentence2,score\na,b,0.5\nc,d,1.5\n",
         {"text_column": "sentence1", "text_pair_column": "sentence2", "label_column": "score"}, True),
        ("a,b\nx,some long text\ny,another long text\n", {"text_column": "b", "label_column": "a"}, False),
        ("text,days\n" + "".join(f"t{n},{n}\n" for n in range(30)),
         {"text_column": "text", "label_column": "days"}, True),
    ],
)  # fmt: skip
def test_columns_and_numbers_are_inferred(tmp_path, content, columns, regression):
    (tmp_path / "a.csv").write_text(content)
    shown = survey(tmp_path / "a.csv", {})
    assert shown.columns == columns and shown.regression == regression


@pytest.mark.parametrize(
    "rows",
    [
        ["I love it,positive", "bad thing,negative", "ok,positive"],
        [
            "A long review of a film that says much of its plot and of its actors too,1",
            *["Another long review of one more film; it ends well,0"] * 9,
        ],
        # Labels that occur once.
        [
            "a fine film with a cast,neutral",
            *[f"a poor film of {n} hours,{'pos' if n > '2' else 'neg'}" for n in "12345"],
        ],
        [
            "Where is Oslo in Norway?,LOC",
            *[f"Who was king number {n} there?,{'HUM' if n > '3' else 'D'}" for n in "12345"],
        ],
        ["a good film,9", *[f"a film,{n % 3}" for n in range(30)]],
        ["a good film,100", *[f"a film,{n % 3}0" for n in range(30)]],
        ["a good film,59%", *[f"a film,{n}%" for n in range(30)]],
    ],
)
def test_a_table_without_a_header_is_refused(tmp_path, rows):
    (tmp_path / "a.csv").write_text("\n".join(rows))
    with pytest.raises(
        ValueError, match=r"a.csv has no names of columns in its first line.*add a line of names, or pass --no-header"
    ):
        survey(tmp_path / "a.csv", {})


@pytest.mark.parametrize(
    ("names", "row"),
    [
        ("What do you think of our service?,Score of it", "I think that it was much too slow this time,{}"),
        ("Please describe your problem,Kind of it", "It was cold and the soup was salty,k{}"),
        ("city,2019,2020", "A city in the north of the country,{},1"),
        ("0,1", "a film,{}"),
        ("product,2023", "A table,1"),
        ("I am satisfied with the service I received,Grade", "Agree,{}"),
        ("Which of these describes your role the best?,Role", "Are you a manager of a team?,{}"),
    ],
)
def test_names_that_are_long_or_numbers_are_a_header(tmp_path, names, row):
    (tmp_path / "a.csv").write_text(
        "\n".join([names, *(row.format(n % 3 if names == "0,1" else n) for n in range(30))])
    )
    table = user_table(tmp_path / "a.csv", TableForm(None, quotes="cells"))
    assert table.columns == names.split(",") and len(list(table.rows)) == 30


def test_a_header_may_come_again_and_a_named_column_may_be_its_own_label(tmp_path):
    """Files that were joined have headers between the rows."""
    (path := tmp_path / "a.csv").write_text(
        "wort;urteil\nein Apfel;gut\nwort;urteil\neine Birne;schlecht\neine Nuss;gut\n"
    )
    assert survey(path, {}).columns == {"text_column": "wort", "label_column": "urteil"}
    path.write_text("text,spam\na,spam\nb,ham\n")
    assert survey(path, {}).columns == {"text_column": "text", "label_column": "spam"}
    path.write_text("sms,spam\na,spam\nb,ham\n")
    assert survey(path, {"text_column": "sms", "label_column": "spam"}).rows == 2
    asked = "What is it that you would like to tell the next person who asks?"
    path.write_text(f"{asked},mark\n" + "A long answer of some person to that question,1\n" * 9)
    with pytest.raises(ValueError, match="or --text-column and --label-column$"):
        survey(path, {})
    assert survey(path, {"text_column": asked}).columns == {"text_column": asked, "label_column": "mark"}


def test_the_separator_is_that_which_names_the_columns_of_the_training(tmp_path):
    """The names decide even if another separator gives as many columns."""
    (path := tmp_path / "a.csv").write_text("a,b;c,d\n1,2;3,4\n")
    for names, expected in ((("b;c",), ["a", "b;c", "d"]), (("a,b", "c,d"), ["a,b", "c,d"]), ((), ["a", "b;c", "d"])):
        table = user_table(path, TableForm(None, quotes="cells", expected=[names] if names else ()))
        assert (table.columns, len(next(table.rows).values)) == (expected, len(expected))
    assert next(own_rows(path, Split((), ("c,d",)), [])).values == {"c,d": "3,4"}


def test_two_columns_that_may_be_the_label_are_named_and_one_can_be_given(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,sex,ward\n" + "".join(f"text number {n},{'fm'[n % 2]},{'abc'[n % 3]}\n" for n in range(30)))
    with pytest.raises(ValueError, match="which column holds the labels.*'sex' or 'ward'; pass --label-column"):
        survey(path, {})
    assert survey(path, {"label_column": "ward"}).columns == {"text_column": "text", "label_column": "ward"}


@pytest.mark.parametrize("named", [{}, {"text_column": "text", "label_column": "label"}])
def test_a_table_without_rows_is_named_as_such(tmp_path, named):
    (tmp_path / "a.csv").write_text("text,label\n")
    with pytest.raises(ValueError, match=r"a.csv has no row that can be read; check the file$"):
        survey(tmp_path / "a.csv", named)
    (tmp_path / "a.csv").write_text("text,label\na,b,c\n")
    with pytest.raises(ValueError, match=r"no row that can be read \(line 2 has 3 fields, the first row 2;"):
        survey(tmp_path / "a.csv", named)


def test_epochs_and_rate_follow_rows_and_size():
    usual = {"batch_size": 16, "epochs": 8.0, "learning_rate": 3e-5, "max_seq_length": 128}
    assert usual_settings(600, {}) == usual
    small = {"hidden_size": 128, "max_position_embeddings": "64"}
    usual = {"batch_size": 32, "epochs": 4.0, "learning_rate": 4e-4, "max_seq_length": 64}
    assert usual_settings(5_000, small) == usual
    assert usual_settings(60, {"hidden_size": 384})["epochs"] == 20
    assert usual_settings(5_000, {"hidden_size": 1024})["epochs"] == 3


def test_small_models_of_own_text_that_pool_means_get_settings_of_their_own(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(30)))
    small = {"hidden_size": 128, "model_type": "modernbert", "classifier_pooling": "mean", "do_train": True}
    own = {"embedding_rate_factor": 10.0, "hidden_dropout_prob": 0.1}
    for change, expected in (
        ({}, own),
        ({"model_type": "bert"}, {}),
        ({"classifier_pooling": "cls"}, {}),  # trained before means were pooled
        ({"hidden_size": 768}, {}),
        ({"do_train": False, "eval_file": tmp_path / "a.csv"}, {}),
    ):
        found = inferred({**small, "train_file": tmp_path / "a.csv", **change})
        assert {name: found[name] for name in own if name in found} == expected, change


def examples(texts, labels, groups=None) -> Examples:
    return Examples(Path("a.csv"), (texts,), labels, [str(n) for n in range(len(texts))], groups=groups)


def held_out_rows(rows: Examples, classes, folds: int, fold: int, seed: int) -> np.ndarray:
    return row_folds(rows, row_groups(rows, folds), classes, folds, seed) == fold


def test_each_fold_has_its_share_of_each_class_and_no_text_of_another():
    texts = [f"text {n % 180}" for n in range(200)]  # twenty of them twice
    classes = np.array([n % 180 < 18 for n in range(200)], np.int64)
    rows = examples(texts, None)
    masks = [held_out_rows(rows, classes, 5, fold, 42) for fold in range(5)]
    assert (np.sum(masks, axis=0) == 1).all()
    for mask in masks:
        assert 3 <= classes[mask].sum() <= 9
        assert not {texts[row] for row in np.flatnonzero(mask)} & {texts[row] for row in np.flatnonzero(~mask)}
    assert (held_out_rows(rows, classes, 5, 1, 42) == masks[1]).all()
    assert (held_out_rows(rows, classes, 5, 1, 43) != masks[1]).any()


def test_the_rows_of_a_patient_are_held_out_together():
    groups = [f"P{n // 4}" for n in range(80)]
    rows, classes = examples([f"text {n}" for n in range(80)], None, groups), np.arange(80) % 2
    mask = held_out_rows(rows, classes, 4, 0, 42)
    assert 8 <= mask.sum() <= 32
    assert not set(np.array(groups)[mask]) & set(np.array(groups)[~mask])
    with pytest.raises(ValueError, match="20 groups .*are too few for folds=30; lower --folds"):
        held_out_rows(rows, classes, 30, 0, 42)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_rows_without_a_patient_are_no_group(name, tmp_path):
    rows = [{"text": f"text {n}", "label": "ab"[n % 2], "patient": None if n % 2 else f"P{n // 4}"} for n in range(40)]
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if name == "a.csv":
        path.write_text(
            "text,label,patient\n" + "".join(",".join(v or " " for v in row.values()) + "\n" for row in rows)
        )
    schema = own_schema(("text",), "label", group="patient")
    found = read_examples(path, schema.split("train"), schema)
    assert found.groups is not None and len(set(found.groups)) == 20 + 10
    assert [n for n, group in enumerate(found.groups) if group.startswith(ALONE)] == [*range(1, 40, 2)]


def test_labels_that_differ_in_case_or_are_one_number_are_alike():
    assert labels_alike(["1", "yes", "1.0", "no", "Yes", "2"]) == [["1", "1.0"], ["yes", "Yes"]]


def test_patients_who_share_a_text_are_not_divided():
    """A third of the rows says the same, as findings do."""
    groups = np.array([f"P{n // 4}" for n in range(80)])
    texts = ["no findings" if n % 3 == 0 else f"text {n}" for n in range(80)]
    for classes in (None, np.arange(80) % 2):
        for fold in range(5):
            mask = held_out_rows(examples(texts, None, groups.tolist()), classes, 5, fold, 42)
            assert 4 <= mask.sum() <= 32 and not set(groups[mask]) & set(groups[~mask])


def test_rare_classes_are_repeated():
    rows = balanced_rows(np.array([0] * 9 + [1] * 3 + [2]))
    assert np.bincount(np.array([0] * 9 + [1] * 3 + [2])[rows]).tolist() == [9, 9, 9]


RNG = np.random.RandomState(5)
LABELS = RNG.choice(3, 3000, p=[0.7, 0.24, 0.06])
TRUE_LOGITS = RNG.randn(3000, 3) + 2 * np.eye(3)[LABELS] + np.log([0.7, 0.24, 0.06])
NAMES = ("routine", "soon", "urgent")


def test_the_temperature_undoes_overconfidence():
    sharp = (4 * TRUE_LOGITS).astype("float32")
    decision = fitted(sharp, LABELS, False, None, None)
    found = details(ScoredRows(NAMES, ["t"] * 3000, [""] * 3000, LABELS, sharp), decision)
    assert found["calibration_error"]["after"] < found["calibration_error"]["before"] / 3
    perfect = fitted(np.eye(3, dtype="float32")[LABELS] * 9, LABELS, False, None, None)
    assert perfect.temperature == pytest.approx(1, abs=0.01)  # not sharpened without limit


@pytest.mark.parametrize("recall", [0.5, 0.9, 1.0])
def test_the_threshold_has_the_wanted_recall_with_the_fewest_alarms(recall):
    decision = fitted(TRUE_LOGITS, LABELS, False, 2, recall)
    likely = decision.probabilities(TRUE_LOGITS)
    said = decision.classes(likely) == 2
    assert said[LABELS == 2].mean() >= recall
    least_alarm = likely[:, 2][said & (LABELS != 2)].min()
    assert (likely[:, 2][LABELS == 2] > least_alarm).mean() < recall, "without its last alarm it finds too few"
    assert (decision.classes(likely)[~said] == likely[~said][:, :2].argmax(-1)).all()


def test_scores_of_classes_mistakes_and_the_worst_errors():
    labels = np.array([0, 0, 0, 1, 1, 2])
    logits = np.log(np.array([[8, 1, 1], [6, 3, 1], [1, 8, 1], [1, 8, 1], [6, 3, 1], [98, 1, 1]]) / 10).astype(
        "float32"
    )
    found = details(ScoredRows(NAMES, list("abcdef"), list("123456"), labels, logits), Decision())
    assert found["confusion"] == [[2, 1, 0], [1, 1, 0], [1, 0, 0]]
    assert found["classes"]["soon"]["recall"] == 0.5 and found["classes"]["urgent"]["precision"] is None
    assert [error["row"] for error in found["worst"]] == ["6", "3", "5"]
    assert found["worst"][0] == {
        "row": "6", "text": "f", "label": "urgent", "prediction": "routine", "probability_of_label": 0.01
    }  # fmt: skip
    assert lines(found)[-1].startswith("the model has learned no more than the largest class: its accuracy is 50.0%")
    assert any(line.split() == ["urgent", "-", "0.000", "0.000", "0.000", "1"] for line in lines(found)), lines(found)
    assert any(line.split() == ["soon", "0.500", "0.500", "0.500", "0.750", "2"] for line in lines(found)), lines(found)


def test_of_many_classes_the_largest_are_shown():
    labels = np.repeat(np.arange(60), np.where(np.arange(60) == 7, 9, 2))
    names, texts = [f"class{n}" for n in range(60)], [str(n) for n in range(len(labels))]
    logits = np.eye(60, dtype="float32")[labels] * 5
    shown = lines(details(ScoredRows(names, texts, texts, labels, logits), Decision()))
    assert sum(line.startswith("class") for line in shown) == 50 and any(
        line.split()[0] == "class7" for line in shown[1:51]
    )
    assert "the 50 largest classes; 10 more are in scores.json" in shown


@pytest.mark.parametrize("balanced", [False, True])
def test_a_class_that_is_never_found_is_named_with_the_remedy(balanced):
    logits = np.eye(3, dtype="float32")[[0, 0, 1, 1, 0]] * 5
    found = details(
        ScoredRows(NAMES, list("abcde"), list("12345"), np.array([0, 0, 1, 1, 2]), logits), Decision(), balanced
    )
    remedy = "more lines of them may help" if balanced else "more lines of them or --balance may help"
    assert lines(found)[-1] == f"no line of urgent is found (recall 0): {remedy}"


def test_several_labels_are_decided_one_by_one():
    decision = Decision(several=True)
    likely = decision.probabilities(np.array([[2.0, -1.0, 0.5], [-3.0, -2.0, -1.0]]))
    assert decision.classes(likely).tolist() == [[1, 0, 1], [0, 0, 0]]


def test_several_labels_have_a_verdict():
    labels = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 1, 1]], "float32")
    arguments = (NAMES, list("abcd"), list("1234"), labels)
    always_first = details(ScoredRows(*arguments, np.array([[3, -3, -3]] * 4, "float32")), Decision(several=True))
    # always the first: 3 of 4 hits, 7 labels; always all three: 7 of 12 hits
    assert (always_first["micro_f1"], always_first["same_labels"]) == pytest.approx((6 / 11, 14 / 19))
    assert [values["predicted"] for values in always_first["classes"].values()] == [4, 0, 0]
    assert lines(always_first)[-1].startswith(
        "the model has learned no more than the same labels: its micro f1 is 54.5%, always saying the most "
        "frequent labels gives 73.7%."
    )
    assert "verdict" not in details(ScoredRows(*arguments, 6 * labels - 3), Decision(several=True))


def test_a_cross_validation_counts_each_label_over_all_rows():
    labels = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 1, 1]], "float32")
    logits = np.array([[3, 3, -3], [-3, -3, -3], [3, 3, 3], [3, -3, 3]], "float32")
    parts = [
        details(ScoredRows(NAMES, list("ab"), list("12"), labels[half], logits[half]), Decision(several=True))
        for half in (slice(0, 2), slice(2, 4))
    ]
    assert _all_rows(parts)[3:] == [
        "| routine | 0.667 | 0.667 | 0.667 | 3 |",
        "| soon | 0.500 | 0.500 | 0.500 | 2 |",
        "| urgent | 0.500 | 0.500 | 0.500 | 2 |",
    ]
    assert _all_rows([{}, {}]) == []  # of a regression


def test_the_best_can_be_best_by_a_class():
    assert best_by("score", ("accuracy",), NAMES) is None
    assert best_by("f1:urgent", ("accuracy",), NAMES) == ("f1-score", "urgent")
    with pytest.raises(ValueError, match="best_by=recall:urgnt must be one of .*; did you mean recall:urgent"):
        best_by("recall:urgnt", ("accuracy",), NAMES)
    labels, likely = np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]])
    scores = class_scores(("no", "yes"), labels, likely, likely.argmax(-1))["yes"]
    assert (scores["recall"], scores["auc"]) == (0.0, 1.0)
