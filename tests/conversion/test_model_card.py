"""The model card of an export holds only what the runs recorded; an existing card is kept."""

import json
from pathlib import Path

import pytest
import yaml

from bert.config.architecture import BertConfig
from bert.conversion.usage import Usage, VectorForm
from tests.conversion import test_networks
from tests.conversion.test_round_trips import TASKS, convert, native
from tests.inference import models
from tests.support.commands import refused

SETTINGS = {"optimizer": "Lamb", "learning_rate": 0.006, "weight_decay": 0.01, "lr_schedule": "polynomial"}
SETTINGS |= {
    "warmup_proportion": 0.25,
    "max_steps": 40,
    "max_seq_length": 16,
    "global_batch_size": 24,
    "seed": 5,
    "bert_model": "tiny",
}
PRETRAINING = {**SETTINGS, "masking": "dynamic", "masked_lm_ratio": 0.15, "objective": "mlm_nsp", "device": "cpu"}
EPYC = "AMD EPYC 9B45"


def run(output: Path, stage: str, task: str, settings: dict, rows: list[dict], summary: dict, step: int = 7) -> Path:
    """Write a run's folder as a training leaves it; return its checkpoint."""
    folder = output / stage
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts = {"world_size": 2, "cpu_threads_per_rank": 3, "processor": EPYC, "device": "cpu"}
    (folder / "log.jsonl").write_text(
        "DLLL " + json.dumps({"timestamp": "1.0", "step": "PARAMETER", "data": facts}) + "\n"
    )
    (folder / "summary.json").write_text(json.dumps({"finished": True, "steps": step, "world_size": 2, **summary}))
    return native(output / "tiny" / stage / str(step), TASKS[task])


@pytest.fixture
def pretrained(tmp_path) -> Path:
    output = tmp_path / "secret-client" / "letters"
    losses = [{"step": step, "eval_masked_lm_loss": loss} for step, loss in ((0, 6.0), (3, 2.5), (5, 2.25), (7, 2.375))]
    checkpoint = run(
        output,
        "phase1",
        "pretraining",
        PRETRAINING,
        losses,
        {"e2e_train_time": 7200.0, "best_step": 5, "warmup_steps": 9},
    )
    text = {"words": 12345, "characters": 67890, "documents": 11, "is_estimate": False, "parts": {}}
    data = {"lang": "de", "held_out_fraction": 0.073, "text": ["/home/anna/secret-client/letters"]}
    job = {"seconds_used": 7200.0, "facts": {"own_text": {"text": text, "data": data}}}
    (output / "job.json").write_text(json.dumps(job))
    return checkpoint


def card(folder: Path) -> tuple[dict, str]:
    _, front, body = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), body


def test_says_what_the_run_has_recorded(pretrained, tmp_path):
    front, body = card(convert(pretrained, tmp_path / "out", "hf", "--license", "mit", "--language", "de"))
    assert front["language"] == ["de"] and front["license"] == "mit" and front["pipeline_tag"] == "fill-mask"
    for row in (
        "| text | own text, 12,345 words, 67,890 characters, 11 documents; 7.3% held out |",
        "| begins with | random weights |",
        "| masks | 15%, dynamic |",
        "| learning rate | 0.006 at its peak, polynomial, warm-up of 9 updates |",
        "| batch | 24 sequences |",
        f"| processor | 2 x {EPYC} |",
        "| time | 2.0 hours |",
        "| update 0 | 6.0000 |\n| update 5, best | 2.2500 |\n| update 7, last | 2.3750 |",
        "A model can repeat its training text",
    ):
        assert row in body, row
    assert not any(word in body for word in ("secret", "letters"))


def test_a_fine_tuning_has_its_scores_and_all_trainings_before_it(pretrained, tmp_path):
    settings = {**SETTINGS, "task_name": "MRPC", "from_pretrained_params": str(pretrained.parents[2])}
    rows = [{"step": 6, "eval_accuracy": 0.75}]
    checkpoint = run(tmp_path / "scores", "glue-mrpc", "sequence-classification", settings, rows, {"best_step": 6}, 6)
    front, body = card(convert(checkpoint, tmp_path / "out", "hf"))
    assert front["pipeline_tag"] == "text-classification" and "base_model" not in front
    first, second = body.split("## Training: glue-mrpc")
    assert "## Training: phase1" in first and "| begins with | random weights |" in first
    assert "| begins with | own weights |" in second and "| labels | MRPC |" in second
    assert "of one seed, so without a spread" in second and "| update 6, last | 0.7500 |" in second


def test_what_is_not_known_is_left_out(tmp_path):
    front, body = card(convert(native(tmp_path / "ours", TASKS["pretraining"]), tmp_path / "out", "hf"))
    assert not {"language", "license", "base_model"} & front.keys()
    assert "Training" not in body and "How it was trained is not recorded" in body
    settings = {"bert_model": "tiny", "from_pretrained_params": "google-bert/bert-base-uncased", "device": "gpu"}
    checkpoint = run(tmp_path / "run", "glue-custom", "sequence-classification", settings, [], {})
    front, body = card(convert(checkpoint, tmp_path / "other", "hf"))
    assert front["base_model"] == "google-bert/bert-base-uncased"
    assert "| begins with | google-bert/bert-base-uncased |" in body and "learning rate" not in body
    assert "| batch |" not in body


def test_a_card_beside_the_weights_is_kept(pretrained, tmp_path):
    written = convert(pretrained, tmp_path / "written", "hf")
    text = (written / "README.md").read_text().replace("## Limits", "## By Anna\n\nMine.\n\n## Limits")
    (written / "README.md").write_text(text)
    front, body = card(convert(written, tmp_path / "again", "hf", "--license", "mit", "--language", "fr"))
    assert (front["license"], front["language"], front["library_name"]) == ("mit", ["fr"], "transformers")
    assert "## By Anna\n\nMine." in body
    ours = convert(written, tmp_path / "ours", "native")
    for number, text in enumerate(("Edited, without metadata.\n", "---\nlicense: [broken\n---\n")):
        (ours / "README.md").write_text(text)
        assert (convert(ours, tmp_path / f"edited{number}", "hf") / "README.md").read_text() == text
    with refused("README.md begins with what is not YAML"):
        convert(ours, tmp_path / "fourth", "hf", "--license", "mit")


@pytest.mark.parametrize("source", ["secret/letters", "results/secret", "/home/anna/secret", "secret"])
def test_a_source_that_is_not_known_to_be_published_is_not_named(tmp_path, source):
    settings = {**SETTINGS, "task_name": "custom", "from_pretrained_params": source, "train_file": "/secret/acme.csv"}
    checkpoint = run(tmp_path / "secret", "glue-custom", "sequence-classification", settings, [], {})
    front, body = card(convert(checkpoint, tmp_path / "a b", "hf"))
    assert "base_model" not in front and "| begins with | own weights |" in body
    assert not any(word in body for word in ("secret", "letters", "acme")) and "| own labels |" in body
    assert "bert-on-paddle predict 'a b'" in body


def test_damaged_records_are_left_out(pretrained, tmp_path):
    (pretrained.parents[2] / "job.json").write_text('{"facts": {"own_text": {"text": [1], "data": null}}}')
    summary = {"e2e_train_time": 5.0, "best_step": ["x"], "steps": 7, "world_size": "2", "processor": 5, "verdict": 3}
    (pretrained.parents[2] / "phase1" / "summary.json").write_text(json.dumps(summary))
    (pretrained.parents[2] / "phase1" / "metrics.jsonl").write_text('5\n{"step": 3, "eval_a": "x", "eval_b": 2.5}\n')
    front, body = card(convert(pretrained, tmp_path / "out", "hf"))
    assert "language" not in front and "## Limits" in body
    assert "| time | 5 seconds |" in body and "processor" not in body and "| update 3, last | - | 2.5000 |" in body
    notes = json.loads((tmp_path / "out" / "conversion.json").read_text())["notes"]
    assert "model card: phase1: left out, as its records are damaged: processor, text in job.json" in notes


def test_a_roberta_has_its_name_and_its_mask(tmp_path):
    body = card(
        convert(test_networks.native(tmp_path / "ours", "masked-lm", test_networks.ROBERTA), tmp_path / "out", "hf")
    )[1]
    assert "A RoBERTa for masked-lm, with 2 layers of hidden size" in body and '"The <mask> was late again."' in body


LANGUAGE = {"de": "Der [MASK] kam wieder", "pt-BR": "O [MASK] chegou", "zh": "[MASK]车又", "sw": "TEXT [MASK] TEXT"}


@pytest.mark.parametrize("language", LANGUAGE)
def test_the_example_is_in_the_language_of_the_text(tmp_path, language):
    source = native(tmp_path / "ours", TASKS["pretraining"])
    _, body = card(convert(source, tmp_path / "out", "hf", "--language", language, "en"))
    assert f'print(model("{LANGUAGE[language]}' in body and "pip install transformers torch" in body


def test_the_example_is_in_the_language_that_the_training_recorded(pretrained, tmp_path):
    _, body = card(convert(pretrained, tmp_path / "out", "hf"))
    assert "Der [MASK] kam wieder zu spät." in body


@pytest.mark.parametrize("language", ["", "fr", "sw"])
def test_a_model_of_vectors_has_a_widget_in_its_language_and_names_no_empty_prefix(tmp_path, language):
    form = VectorForm(query_prefix="ask: " if language == "fr" else "", hybrid_weight=0.65 if language else None)
    source = models.model(tmp_path / "ours", "encoder", Usage("pairs", 9, vectors=form))
    front, body = card(convert(source, tmp_path / "out", "hf", *(["--language", language] if language else [])))
    first = {"": "How is a commit undone?", "fr": "Quand la bibliothèque ouvre-t-elle ?"}.get(language)
    assert [entry["source_sentence"] for entry in front.get("widget", [])] == ([first] if first else [])
    assert "''" not in body and ("The prefix of a query is 'ask: '." in body) == (language == "fr")
    assert ("A ranking by both is best with 65% vectors and 35% BM25" in body) == bool(language)
    assert json.loads((tmp_path / "out/task.json").read_text())["vectors"]["hybrid_weight"] == form.hybrid_weight
    assert f'model.encode("{first or "QUERY"}", prompt_name="query")' in body and "pip install sentence-transf" in body


@pytest.mark.parametrize("to_format", ["hf", "paddlenlp"])
def test_a_reader_needs_neither_the_checkout_nor_its_environment(pretrained, tmp_path, to_format):
    _, body = card(convert(pretrained, tmp_path / "out", to_format))
    assert ".venv" not in body and "run_predict.py" not in body and "bert-on-paddle predict out" in body
    assert "`pip install .` in its checkout" in body


@pytest.mark.parametrize(("entropy", "warns"), [(2.2, True), (2.25, True), (2.26, False), ("high", False)])
def test_a_model_above_the_unigram_entropy_is_warned_of(pretrained, tmp_path, entropy, warns):
    """The lowest held-out loss of this run is 2.25 nats."""
    summary = pretrained.parents[2] / "phase1" / "summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "unigram_entropy": entropy}))
    _, body = card(convert(pretrained, tmp_path / "out", "hf"))
    assert ("Warning: this model has not learned to use context" in body) == warns
    assert not warns or f"2.25 nats, their unigram entropy {entropy:.2f}" in body


def test_paddlenlp_gets_the_tokens_of_a_bpe_from_transformers(tmp_path, capsys):
    bert = BertConfig(**{**test_networks.ROBERTA.model_dump(), "model_type": "bert"})
    source = test_networks.native(tmp_path / "ours", "masked-lm", bert)
    body = card(convert(source, tmp_path / "out", "paddlenlp"))[1]
    snippet = body.partition("```python\n")[2].partition("```")[0]
    assert snippet.startswith("import zlib") and "from paddlenlp.transformers import BertForMaskedLM" in snippet
    assert "PaddleNLP reads no tokenizer.json; transformers' AutoTokenizer makes" in capsys.readouterr().out
