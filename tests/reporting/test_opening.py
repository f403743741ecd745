"""The first sentence of a report, and the titles of its metrics."""

from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.reporting.metric_titles import metric_title
from bert.reporting.opening import opening
from bert.reporting.report import blocks_of, to_html, to_markdown
from bert.reporting.run_record import read_run
from tests.reporting.test_report_rows import record, rows

RUNS = REPOSITORY / "tests/golden/runs"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("eval_masked_lm_loss", "masked-LM loss, held out (nats)"),
        ("masked_lm_loss", "masked-LM loss, training (nats)"),
        ("next_sentence_accuracy", "next-sentence accuracy, training"),
        ("eval_expected_masked_lm_loss", "expected masked-LM loss, held out (nats)"),
        ("eval_macro_f1", "macro F1, held out"),
        ("eval_HasAns_exact", "answerable questions: exact match, held out"),
        ("eval_exact_match", "exact match, held out"),
        ("eval_best_f1_thresh", "best F1 threshold, held out"),
        ("seqs_per_sec", "sequences a second"),
        ("skipped_steps", "updates skipped for overflow"),
        ("gradient_norm", "gradient norm"),
    ],
)
def test_metrics_have_the_names_of_the_terminal(name, title):
    assert metric_title(name) == title


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        (
            "quickstart/phase1",
            "quickstart/phase1: a model of 1.0 million parameters was pre-trained on "
            "results/quickstart/data/phase1/train; on held-out data its masked-LM loss is 3.592 nats, below the "
            "6.239 nats of guessing by the frequency of words.",
        ),
        (
            "labels/glue-custom",
            "labels/glue-custom: the model results/minilm (22.9 million parameters) was fine-tuned to label texts on "
            "data/examples/sentiment/train.tsv; on held-out data its accuracy is 79.2%, compared with 50.0% of the "
            "most frequent class.",
        ),
        (
            "questions/squad",
            "questions/squad: the model results/minilm (22.9 million parameters) was fine-tuned to answer questions on "
            "results/recorded/questions/data/train.json; on held-out data its F1 is 68.33, and no baseline was "
            "measured.",
        ),
    ],
)
def test_a_recorded_run_is_introduced(folder, sentence):
    assert opening(read_run(RUNS / folder, folder)) == sentence


def test_the_best_plain_method_is_compared():
    held_out = rows(eval_accuracy=[0.5, 0.75], eval_score=[0.5, 0.7])
    figures = {"eval_words_alone_accuracy": 0.25, "eval_characters_alone_accuracy": 0.625, "best_eval_score": 0.7}
    settings = {"train_file": "mine.csv"}
    run = record("x", held_out=held_out, summary=figures, settings=settings, directory=Path("out/glue-custom"))
    assert opening(run) == (
        "x: a model was fine-tuned to label texts on mine.csv; on held-out data its accuracy is 75.0% so far, "
        "compared with 62.5% of the character baseline."
    )


def test_the_hybrid_ranking_is_no_plain_method():
    held_out = rows(eval_ndcg_at_10=[0.25, 0.5])
    figures = {"eval_bm25_ndcg_at_10": 0.375, "eval_hybrid_ndcg_at_10": 0.625, "best_eval_ndcg_at_10": 0.5}
    run = record("x", held_out=held_out, summary=figures, settings={}, directory=Path("out/vectors"))
    assert opening(run).endswith(
        "its NDCG at 10 is 0.5000 so far, compared with 0.3750 of BM25, and with 0.6250 of the hybrid ranking of both."
    )


def test_a_model_that_has_not_learned_more_than_frequencies_is_named():
    figures = {"unigram_entropy": 6.22, "eval_masked_lm_loss": 6.38, "finished": True}
    sentence = opening(record("x", held_out=rows(eval_masked_lm_loss=[6.38]), summary=figures, settings={"phase": 2}))
    assert sentence == (
        "x: a model was pre-trained; on held-out data its masked-LM loss is 6.380 nats, not below the 6.220 nats of "
        "guessing by the frequency of words."
    )


def test_given_weights_are_trained_further_and_a_metric_that_is_no_number_is_not_read():
    settings = {"phase": 1, "input_dir": "shards", "from_pretrained_params": "results/minilm"}
    run = record("x", rows(loss=[2.0]), settings=settings, summary={"eval_name": "y", "parameters": 22_895_426})
    assert opening(run) == (
        "x: the model results/minilm (22.9 million parameters) was pre-trained further on shards; its training loss is "
        "2.000, and no evaluation on held-out data was logged."
    )


def test_a_run_without_an_evaluation_has_its_loss_or_nothing():
    assert opening(record("x")) == "x: a model was trained; it has no figures yet."
    assert opening(record("x", rows(loss=[2.0, 1.5]))) == (
        "x: a model was trained; its training loss is 1.500, and no evaluation on held-out data was logged."
    )


def test_html_and_markdown_begin_with_the_sentence():
    run = record("x")
    for page in (to_html("Title", blocks_of([run])), to_markdown("Title", blocks_of([run]))):
        lines = [line for line in page.split("Title")[-1].splitlines() if line.strip("</h1>")]
        assert "x: a model was trained" in lines[0]


def test_many_runs_are_introduced_by_the_first_ones():
    blocks = [block.markdown for block in blocks_of([record(f"r{number}") for number in range(8)])]
    assert blocks[5].startswith("r5: ") and blocks[6] == "Results of all 8 runs are in the first table."
