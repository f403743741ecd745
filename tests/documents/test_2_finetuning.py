"""Questions, labels and entities, after the quickstart of pre-training."""

import json
import shlex

import pytest

from tests.documents.document import DIVISOR, SHORT, TRIED, command, example, offline, output_of, resolves
from tests.support.documents import COMMANDS


def test_questions_are_answered(clone):
    """Runs after the quickstart of pre-training, and starts from what it left."""
    TRIED.add("bash scripts/run_squad.sh")
    line = f"bash scripts/run_squad.sh{SHORT}"
    output_of(line, clone, "starting from the pre-trained weights", "  F1  ", timeout=1500)
    summary = json.loads((clone / "results/squad_quickstart/squad/summary.json").read_text())
    assert (summary["F1"] > 4 or DIVISOR > 1) and summary["exact_match"] <= summary["F1"]
    output_of(command(".venv/bin/python run_squad.py --do-predict"), clone)
    assert len(json.loads((clone / "results/answers/squad/predictions.json").read_text())) == 107
    typed = "Anna Lindqvist opened her bakery in 1987.\n\nWho opened the bakery?\n"
    output_of(f"printf '{typed}' | {command('.venv/bin/python run_squad.py --interactive')}", clone, "%]")
    output_of(f".venv/bin/python -c {shlex.quote(example('from bert.inference.heads'))}", clone)


def test_published_models_are_kept_in_the_cache_and_copied(clone):
    for end in ("bert-base-uncased", "bert-base-uncased --output-dir results/downloaded"):
        line = f".venv/bin/python -m data.download_model {end}"
        assert line in COMMANDS
        TRIED.add(line)
        output_of(line, clone, "complete: --from-pretrained-params", **offline(clone))
    assert (clone / "results/downloaded/model.safetensors").is_file()


@pytest.mark.parametrize(
    "start",
    [
        "bash scripts/run_squad.sh --config squad_base",
        "bash scripts/run_squad.sh --config dgxa100-80g_8gpu_amp",
        "bash scripts/run_squad.sh $(source",
    ],
)
def test_the_recipes_of_squad_resolve(start, clone):
    weights = clone / "results/bert-large-uncased/phase2/1563"  # what the preset names, a pre-training away
    weights.mkdir(parents=True, exist_ok=True)
    (weights / "bert_paddle.safetensors").touch()  # only its name is read
    resolves(start, clone, "train_file: /data/download/squad/v", "max_seq_length: 384")


def test_sentences_are_judged_and_entities_found(clone):
    """Runs after the quickstart of pre-training, and starts from what it left."""
    for line, stage, metric in (
        ("bash scripts/run_glue.sh", "sentiment/glue-custom", "macro_f1"),
        ("bash scripts/run_ner.sh", "entities/ner", "f1"),
    ):
        TRIED.add(line)
        row = f"  {metric.replace('_', ' ')}  "
        output_of(line + SHORT, clone, "starting from the pre-trained weights", row, timeout=900)
        summary = json.loads((clone / "results/glue_quickstart" / stage / "summary.json").read_text())
        assert summary["finished"] and 0 <= summary[f"eval_{metric}"] <= 1
    output_of(command(".venv/bin/python run_glue.py --task-name custom"), clone)
    assert len((clone / "results/judged/glue-custom/predictions.tsv").read_text().splitlines()) == 101


def test_several_seeds_make_one_table(clone):
    line = command("bash scripts/run_glue.sh --config quickstart_pairs")
    output_of(line, clone, "2 runs in results/seeds/glue", "| accuracy |", timeout=900)
    assert "0 left" in output_of(f"{line} --dry-run", clone)
    output_of(command("bash scripts/run_glue.sh all"), clone, "45 runs in results/scores", **offline(clone))


def test_labelled_lines_become_a_classifier(clone):
    """After the quickstart of pre-training. The predictions come later, with those of the other models."""
    for line in [line for line in COMMANDS if line.startswith("bash scripts/run_classify.sh")]:
        TRIED.add(line)
        part = "held out: 48 of 240" if "--dry-run" in line else "recall" if "--cross" in line else "  accuracy  "
        trains = "--train" in line and "--dry-run" not in line and "--epochs" not in line
        output_of(line + SHORT * trains, clone, part, timeout=1800)
    scores = json.loads((clone / "results/labels/glue-custom/scores.json").read_text())
    assert scores["classes"]["negative"]["recall"] >= 0.9 and "negative" in scores["threshold"]
    assert (clone / "results/parts/cross_validation.md").read_text().count("| positive | 0.") == 1


def test_words_and_questions_of_ones_own(clone):
    """After the quickstarts of pre-training and of questions."""
    for start in ("bash scripts/run_ner.sh --train-file", "bash scripts/run_squad.sh --config squad_small"):
        output_of(f"{command(start)} --epochs 2", clone, "  f1  " if "ner" in start else "  F1  ", timeout=900)


def test_the_recipes_of_glue_resolve(clone):
    for start, data in (
        ("bash scripts/run_glue.sh --task-name mrpc", "global_batch_size: 32"),
        ("bash scripts/run_glue.sh --config mnli_large", "global_batch_size: 128"),
        ("bash scripts/run_ner.sh --config conll2003", "document_context: true"),
        (".venv/bin/python run_glue.py --task-name AX", "do_predict: true"),
    ):
        resolves(start, clone, data)


def test_own_documents_are_made_searchable(clone):
    """After the quickstart and the text of one's own; test_3 encodes and searches."""
    line = command("bash scripts/run_vectors.sh --text").replace("--hours 0.2", "--epochs 1")
    output_of(line, clone, "BM25", "recall", timeout=900)
    output_of(command(".venv/bin/python run_export.py --checkpoint results/vectors-raw"), clone, "changes:")
    assert (clone / "results/sentences/modules.json").is_file()
