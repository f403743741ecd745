"""Tests of the bag-of-words and character baselines, and of the verdict that compares a model with them."""

import json
import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from bert.commands.classify import _verdict_of_all
from bert.commands.fine_tuning import result_lines
from bert.conversion.model_card import _evaluations
from bert.labels import baseline
from bert.labels.baseline import Limits
from bert.labels.examples import Examples
from bert.labels.schema import own_schema
from bert.labels.split import row_folds, row_groups
from bert.reporting.comparison import verdict
from bert.reporting.report import results, text
from bert.reporting.run_record import BASELINE_FILE, SCORES_FILE, SUMMARY_FILE, read_run

RNG = np.random.RandomState(7)
WORDS = [f"{first}{second}on" for first in "abcdefgh" for second in "oqu"]
TELLING = ("alarm", "billing", "cable")
DRAWN = RNG.randint(3, size=240)
TEXTS = [" ".join(RNG.permutation([*RNG.choice(WORDS, 5), TELLING[kind]])) for kind in DRAWN]
NOISE = [" ".join(RNG.choice(WORDS, 6)) for _ in DRAWN]
SIGNS = ["?!."[kind] * 5 for kind in DRAWN]
CLASSES = [TELLING[kind] for kind in DRAWN]
HALF_RIGHT = np.where(RNG.rand(240) < 0.6, DRAWN, (DRAWN + 1) % 3)
GROUPS = [f"G{row // 20}" for row in range(240)]
IN_TWO_GROUPS = np.where(np.arange(240) >= 220, (DRAWN + 1) % 3, DRAWN)  # all errors are in the last of the groups

QUICK = Limits(resamples=40)  # of micro F1 two hundred take 7 CPU seconds


def examples(texts, labels, groups=None) -> Examples:
    return Examples(Path("a.csv"), (texts,), labels, [str(n) for n in range(len(texts))], groups=groups)


SINGLE = replace(own_schema(("text",), "label"), labels=TELLING)
SEVERAL = replace(own_schema(("text",), "label", separator=";"), labels=("alarm", "cable"))
NUMBERS = own_schema(("text",), "label", is_regression=True)
SETS = {  # schema, texts, labels, groups, what the model predicts -> a figure, how the verdict begins, how it ends
    "words are better": (
        (SINGLE, TEXTS, CLASSES, None, HALF_RIGHT), ("eval_characters_alone_accuracy", 1.0),
        "This model is worse than the character baseline on 120 lines: accuracy 0.5", "may help."
    ),
    "no line has a word": (
        (SINGLE, SIGNS, CLASSES, None, HALF_RIGHT), ("eval_characters_alone_accuracy", 1.0),
        "This model is worse than the character baseline on 120 lines: accuracy 0.5", "may help."
    ),
    "the model is better": (
        (SINGLE, NOISE, CLASSES, None, DRAWN), None, "This model is better than", ")."
    ),
    "neither is better": (
        (SINGLE, NOISE, CLASSES, None, RNG.randint(3, size=240)), None, "This model cannot be told from", "may help."
    ),
    "errors that one of few groups has decide nothing": (
        (SINGLE, TEXTS, CLASSES, GROUPS, IN_TWO_GROUPS), ("eval_characters_alone_accuracy", 1.0),
        "This model cannot be told from the character baseline on 120 lines of 6 groups: accuracy 0.833", "may help."
    ),
    "a text has several labels, or none": (
        (SEVERAL, TEXTS, [label.replace("billing", "") for label in CLASSES], None, np.zeros((240, 2), np.int64)),
        ("eval_characters_alone_micro_f1", 1.0),
        "This model is worse than the character baseline on 120 lines: micro f1 0.000 against 1.000", "may help."
    ),
    "numbers": (
        (NUMBERS, TEXTS, [f"{3 * kind + 0.5}" for kind in DRAWN], None, RNG.rand(240)), None,
        "This model is worse than the character baseline on 120 lines: pearson", "may help."
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_a_verdict_says_what_is_better_and_is_the_same_again(name, tmp_path, caplog):
    (schema, texts, labels, groups, ours), figure, begins, ends = SETS[name]
    caplog.set_level("INFO")
    whole = examples(texts, labels, groups)
    learned, evaluated = whole.take(np.arange(120)), whole.take(np.arange(120, 240))

    def compared(training):
        return baseline.compare(schema, training, evaluated, ours[120:], 42, tmp_path / "record.json", limits=QUICK)

    found = compared(learned)
    assert found["verdict"].startswith(begins) and found["verdict"].endswith(ends), found
    assert figure is None or found[figure[0]] == figure[1]
    methods = {"characters"} if texts is SIGNS else {"words", "characters"}
    assert {key for key in found if key.endswith("_score")} == {f"eval_{method}_alone_score" for method in methods}
    assert found == compared(learned) and caplog.text.count("learn from the same lines") == 1, "nothing learns again"
    compared(learned.take(np.arange(119)))
    assert caplog.text.count("learn from the same lines") == 2


def test_as_many_lines_are_learned_from_as_the_work_allows(tmp_path):
    """40 lines have 50 characters: up to eight classes, each line costs 50 * 8. Work below one line is refused."""
    texts = [f"{text[:20]:.<50}" for text in TEXTS[:40]]
    whole, ours = examples(texts, CLASSES[:40]), HALF_RIGHT[:40]

    def verdict_within(work: int, schema=SINGLE) -> str:
        limits = replace(QUICK, work=work)
        return baseline.compare(schema, whole, whole, ours, 42, tmp_path / "record.json", limits=limits)["verdict"]

    assert " (from 15 of 40 lines) on 40 lines:" in verdict_within(15 * 50 * 8)
    assert " (from 15 of 40 lines) on 40 lines:" in verdict_within(16 * 50 * 8 - 1)
    assert "(from" not in verdict_within(40 * 50 * 8)
    ten = replace(SINGLE, labels=(*TELLING, *map(str, range(7))))
    assert " (from 12 of 40 lines) on 40 lines:" in verdict_within(15 * 50 * 8, ten)
    with pytest.raises(ValueError, match="for 8 classes, lines of 50 characters are too much to learn from"):
        verdict_within(50 * 8 - 1)
    assert Limits().work == 16_000_000


@pytest.mark.parametrize(("limits", "length"), [(replace(Limits(), resamples=9), 20_000), (QUICK, 2_000)])
def test_what_stands_behind_the_most_characters_of_a_line_is_not_read(limits, length, tmp_path):
    """The word that tells the classes apart begins before or after the limit."""
    limits = replace(limits, characters=length)
    kinds = np.arange(16) % 2
    schema, labels = replace(SINGLE, labels=("alarm", "billing")), [("alarm", "billing")[kind] for kind in kinds]
    found = {}
    for place in (length - 8, length):
        texts = [f"{'so ' * (place // 3 + 1):.{place}}{label}" for label in labels]
        assert {text.index(label) for text, label in zip(texts, labels, strict=True)} == {place}
        whole = examples(texts, labels)
        found[place] = baseline.compare(schema, whole, whole, kinds, 42, tmp_path / "record.json", limits=limits)
    assert found[length - 8]["eval_characters_alone_accuracy"] == 1
    assert found[length]["eval_characters_alone_accuracy"] == 0.5
    assert Limits().characters == 20_000


@pytest.mark.parametrize("groups", [GROUPS[:40], ["A"] * 20 + ["B"] * 20, ["A"] * 40, None])
def test_few_groups_or_texts_are_learned_from_all_the_same(groups, tmp_path):
    """The choice of C has as many parts as there are groups; with one group, C has its usual value."""
    texts = TEXTS[:40] if groups else [TEXTS[0]] * 20 + [TEXTS[1]] * 20
    some, rest = examples(texts, CLASSES[:40], groups), examples(TEXTS[120:], CLASSES[120:], ["C"] * 120)
    found = baseline.compare(SINGLE, some, rest, DRAWN[120:], 42, tmp_path / "record.json", limits=QUICK)
    assert groups is None or found["eval_words_alone_accuracy"] > 0.6
    assert "cannot be told from" in found["verdict"] and " on 120 lines of 1 group: " in found["verdict"]
    assert "which one group does not decide)" in found["verdict"]


def test_a_model_that_says_one_class_of_two_is_not_better_than_words(tmp_path):
    """The F1 of the second class would call it better: 0.67 where neither class can be learned."""
    labels = RNG.choice(["no", "yes"], 240).tolist()
    schema = own_schema(("text",), "label").with_labels(("no", "yes"))
    whole, always = examples(NOISE, labels), np.ones(120, np.int64)
    learned, evaluated = whole.take(np.arange(120)), whole.take(np.arange(120, 240))
    found = baseline.compare(schema, learned, evaluated, always, 42, tmp_path / "record.json", limits=QUICK)
    assert "is better" not in found["verdict"] and "macro f1 0.3" in found["verdict"], found


def test_the_table_the_report_and_the_card_say_what_the_summary_says(tmp_path):
    some, whole = examples(TEXTS[:40], CLASSES[:40]), examples(TEXTS, CLASSES)
    found = baseline.compare(SINGLE, some, whole, HALF_RIGHT, 42, tmp_path / "record.json")
    scores = {"verdict": "no line of cable is found (recall 0)"}
    for name, content in ((SUMMARY_FILE, {"steps": 5, **found, "baseline_seconds": 2.5}), (SCORES_FILE, scores)):
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    run, where = (
        read_run(tmp_path, "glue-custom"),
        SimpleNamespace(do_train=False, benchmark=False, output_dir=tmp_path),
    )
    config = SimpleNamespace(log_dir=lambda: tmp_path, checkpoint_dir=lambda: tmp_path / "none", run=where)
    table = result_lines(config, ())
    assert max(len(line) for line in table if str(tmp_path) not in line) <= 100
    assert found["verdict"] in " ".join(table) and scores["verdict"] in table
    share = f"{found['eval_words_alone_accuracy']:.1%}"
    assert any(line.split() == ["bag-of-words", "baseline", "accuracy", share] for line in table)
    assert any(line.split() == ["baseline,", "seconds", "2.5"] for line in table)
    rows = dict(results([run]))
    assert (rows["verdict"], rows["bag-of-words baseline accuracy, held out"]) == (found["verdict"], share)
    assert [block.markdown for block in _evaluations(run)] == [text(found["verdict"]).markdown]


def tf_idf(texts: list[str], others: list[str], words_of) -> list[np.ndarray]:
    """Return the vectors of texts, and of other texts by the words of the first.

    A word counts 1 + log(its number in the text), times 1 + log((1 + texts) / (1 + texts that have it)); a vector has
    length 1.
    """
    counts = [[Counter(words_of(text)) for text in some] for some in (texts, others)]
    having = Counter(word for count in counts[0] for word in count)
    rarity = {word: 1 + math.log((1 + len(texts)) / (1 + number)) for word, number in having.items()}
    tables = []
    for some in counts:
        rows = [
            [rarity[word] * (1 + math.log(count[word])) if count[word] else 0.0 for word in rarity] for count in some
        ]
        tables.append(np.array([np.array(row) / math.hypot(*row) for row in rows]))
    return tables


def ridge(x: np.ndarray, wanted: np.ndarray, others: np.ndarray, penalty: float) -> np.ndarray:
    """Return the predictions of a ridge regression with an intercept for other rows, by the dual normal equations."""
    centred = x - x.mean(0)
    weights = centred.T @ np.linalg.solve(centred @ centred.T + penalty * np.eye(len(x)), wanted - wanted.mean())
    return (others - x.mean(0)) @ weights + wanted.mean()


def words_and_pairs(text: str) -> list[str]:
    words = re.findall(r"\w+", text.lower())
    return [*words, *map(" ".join, pairwise(words))]


def characters(text: str) -> list[str]:
    """Return the sequences of two to five characters of each word with a space at both ends."""
    found = []
    for word in text.lower().split():
        padded = f" {word} "
        for size in range(2, 6):  # one that is no longer counts once
            found += [padded[at : at + size] for at in range(max(1, len(padded) - size + 1))]
            if len(padded) <= size:
                break
    return found


def test_words_alone_and_characters_alone_are_ridge_regressions_of_tf_idf(tmp_path):
    """The penalty scores best in three parts of the training lines; with one group it is 1/16."""
    kinds = DRAWN[:40]
    texts = [f"{text} a A-b" for text in TEXTS[:24]]
    wanted, penalties, chosen = 3.0 * kinds[:24] + 0.5, [1 / 16, 1 / 4, 1 / 64, 1.0], set()
    labels = [f"{3 * kind + 0.5}" for kind in kinds]
    held_out = examples(TEXTS[24:40], labels[24:])
    for groups in (["A"] * 24, None):
        training = examples(texts, labels[:24], groups)
        record = tmp_path / "record.json"
        baseline.compare(NUMBERS, training, held_out, np.zeros(16), 42, record, limits=Limits(resamples=2, window=7))
        methods = json.loads(record.read_text())["methods"]
        parts = (
            [] if groups else [row_folds(training, row_groups(training, 3), None, 3, 42) == fold for fold in range(3)]
        )
        for name, words_of in (("words alone", words_and_pairs), ("characters alone", characters)):
            x, others = tf_idf(texts, TEXTS[24:40], words_of)
            scores = []
            for penalty in penalties:
                guesses = [(ridge(x[~part], wanted[~part], x[part], penalty), wanted[part]) for part in parts]
                scores.append(sum(pearsonr(*pair)[0] + spearmanr(*pair)[0] for pair in guesses))
            best = penalties[int(np.argmax(scores))]
            chosen.add(best)
            theirs = {penalty: ridge(x, wanted, others, penalty) for penalty in penalties}
            gaps = {penalty: np.abs(theirs[penalty] - methods[name]).max() for penalty in penalties}
            assert gaps[best] < 0.005 and sorted(gaps.values())[1] > 0.05, gaps  # the solver is iterative
    assert len(chosen) > 1


def record_of(methods: dict, groups, learned_from: str = "", labels=(0, 1), model=(0, 1)) -> dict:
    return {"methods": methods, "learned_from": learned_from, "metrics": ["accuracy"], "groups": groups,
            "labels": [*labels], "model": [*model], "note": " So."}  # fmt: skip


def test_records_of_parts_are_pooled_over_their_lines_and_groups():
    """A group's number counts in its part alone; a method that a part lacks is left out; the better one is named."""
    parts = [
        record_of({"words alone": [0, 0], "characters alone": [0, 1]}, [0, 0]),
        record_of({"words alone": [0, 1], "characters alone": [1, 0]}, [0, 1], model=(1, 0)),
    ]
    found = baseline.pooled(parts, model="The model", limits=QUICK)
    assert (found["eval_words_alone_accuracy"], found["eval_characters_alone_accuracy"]) == (0.75, 0.5)
    begin = "The model cannot be told from the bag-of-words baseline on 4 lines of 3 groups: accuracy 0.5"
    assert found["verdict"].startswith(begin)
    assert found["verdict"].endswith(" So.")
    del parts[1]["methods"]["words alone"]
    found = baseline.pooled(parts, limits=QUICK)
    assert (
        "eval_words_alone_accuracy" not in found
        and "This model cannot be told from the character baseline on" in found["verdict"]
    )
    for first, second, shown in (
        (" (from 5 of 9 lines)",) * 2 + (" (from 5 of 9 lines)",),
        ("", " (from 5 of 9 lines)", " (from a part of the lines)"),
    ):
        parts[0]["learned_from"], parts[1]["learned_from"] = first, second
        assert f"the character baseline{shown} on 4 lines" in baseline.pooled(parts, limits=QUICK)["verdict"]
    for model, end in (((0, 0), " Keep it."), ((0, 1), " So.")):
        hinted = {**record_of({"words alone": [0, 1]}, None, model=model), "hint": " Keep it."}
        assert baseline.pooled([hinted], limits=QUICK)["verdict"].endswith(end)
    with pytest.raises(ValueError, match="no line has a character; check the column of texts"):
        baseline.pooled([record_of({}, None)], limits=QUICK)


@pytest.mark.long
def test_a_cross_validation_has_a_verdict_over_the_lines_of_all_parts(tmp_path):
    """The verdict equals that over one set of the lines, with groups numbered anew by part; every part records it."""
    parts = [(np.arange(start, start + 80), tmp_path / f"part-{start}") for start in (0, 80, 160)]
    whole, records = examples(NOISE, CLASSES, GROUPS), []
    for rows, folder in parts:
        folder.mkdir()
        (folder / SUMMARY_FILE).write_text('{"steps": 5}')
        assert _verdict_of_all(tmp_path, [folder for _, folder in parts]) == ""
        rest, ours = np.delete(np.arange(240), rows), HALF_RIGHT[rows]
        baseline.compare(SINGLE, whole.take(rest), whole.take(rows), ours, 42, folder / BASELINE_FILE, " So.")
        records.append(json.loads((folder / BASELINE_FILE).read_text()))
    of_lines = {f" (from {number} of 160 lines)": "(from a part of the lines)" for number in (150, 151)}
    parts_of = [{**record, "learned_from": some} for record, some in zip(records, [*of_lines, ""], strict=True)]
    assert all(some in baseline.pooled(parts_of)["verdict"] for some in of_lines.values())
    same = [{**record, "learned_from": [*of_lines][0]} for record in records]
    assert [*of_lines][0] in baseline.pooled(same)["verdict"]
    words = _verdict_of_all(tmp_path, [folder for _, folder in parts])
    begin = "Over all 3 parts: the model of each part is better than"
    right = np.mean(HALF_RIGHT == DRAWN)
    assert words.startswith(begin) and f" on 240 lines of 12 groups: accuracy {right:.3f} against" in words
    assert words.endswith(" So.") and not any(text in json.dumps(records) for text in (*NOISE[:5], *GROUPS))
    guesses = np.concatenate([record["methods"]["words alone"] for record in records])
    summary = json.loads((tmp_path / SUMMARY_FILE).read_text())
    assert (summary["verdict"], summary["eval_words_alone_accuracy"]) == (words, np.mean(guesses == DRAWN))
    for _, folder in parts:
        (folder / "config.yaml").write_text("seed: 1\n")
        run = read_run(folder, "glue-custom")
        assert run.summary["steps"] == 5 and dict(results([run]))["verdict of all parts"] == words
        assert [block.markdown for block in _evaluations(run)] == [text(words).markdown]


def test_the_margin_is_that_of_a_paired_comparison():
    """In 400 rows only the model is right in 40, and only the other in 20: +0.05, of standard error 0.0192."""
    ours, theirs = np.zeros(400), np.zeros(400)
    ours[:40], theirs[40:60] = 1, 1
    words = verdict("BM25", lambda rows: {"hit": ours[rows].mean()}, lambda rows: {"hit": theirs[rows].mean()}, 400,
                    None, "queries", "Train longer")  # fmt: skip
    begin, margin = words.split(" +- ")
    assert begin == "This model is better than BM25 on 400 queries: hit 0.100 against 0.050 (+0.050"
    assert 1.8 * 0.0192 < float(margin.removesuffix(").")) < 2.1 * 0.0192
    few = verdict("BM25", lambda rows: {"hit": 1.0}, lambda rows: {"hit": 0.0}, 2)
    assert few.startswith("This model cannot be told from BM25 on 2 lines: hit 1.000 against 0.000 (+1.000 +- 1.500)")
