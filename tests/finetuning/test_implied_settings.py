"""Settings that follow from others."""

import dataclasses

import pytest

from bert.config.command_line import parse_flags
from bert.config.setting_sources import resolve_config
from bert.conversion.model_description import Usage, read_usage
from bert.finetuning.glue.config import ENTRY as GLUE
from bert.finetuning.ner.config import ENTRY as NER


@pytest.fixture
def settings_with(tmp_path):
    """Resolves the flags of an entry point for weights beside which a task.json lies."""

    def resolve(entry, usage, *words):
        (tmp_path / "task.json").write_text(usage.to_json())
        assert read_usage(tmp_path) == usage
        named = ["--from-pretrained-params", str(tmp_path), "--vocab-file", "vocab.txt"]
        return resolve_config(parse_flags([*named, *words], entry), entry).data

    return resolve


@pytest.mark.parametrize("mode", ["--do-predict", "--do-eval"])
def test_sentences_are_read_as_in_the_training_of_the_weights(settings_with, mode):
    usage = Usage("custom", 77, ("a", "b"), regression=True)
    custom = ["--task-name", "custom"]
    found = settings_with(GLUE, usage, *custom, mode)
    assert (found.max_seq_length, found.text_column, found.text_pair_column) == (77, "a", "b") and found.regression
    given = ["--max-seq-length", "99", "--text-column", "c", "--no-regression"]
    found = settings_with(GLUE, usage, *custom, mode, *given)
    assert (found.max_seq_length, found.text_column, found.text_pair_column) == (99, "c", "b") and not found.regression
    for other in (dataclasses.replace(usage, name="phase2"), Usage("ner", 77)):
        found = settings_with(GLUE, other, *custom, mode)
        assert (found.max_seq_length, found.text_column, found.regression) == (128, "sentence", False)
    found = settings_with(GLUE, Usage("STS-B", 77, ("sentence1", "sentence2"), regression=True), *custom, mode)
    assert (found.max_seq_length, found.text_column, found.regression) == (77, "sentence", True)
    found = settings_with(GLUE, Usage("MNLI", 77, ("sentence1", "sentence2")), "--task-name", "AX", mode)
    assert found.max_seq_length == 77 and found.text_pair_column is None


@pytest.mark.parametrize("mode", ["--do-predict", "--do-eval"])
def test_words_are_read_as_in_the_training_of_the_weights(settings_with, mode):
    usage = Usage("ner", 77, document_context=True)
    found = settings_with(NER, usage, mode)
    assert found.max_seq_length == 77 and found.document_context
    found = settings_with(NER, usage, mode, "--max-seq-length", "99", "--no-document-context")
    assert found.max_seq_length == 99 and not found.document_context
    assert settings_with(NER, dataclasses.replace(usage, name="custom"), mode).max_seq_length == 128


def test_a_training_has_its_own_settings(settings_with):
    found = settings_with(GLUE, Usage("custom", 77, ("a", "b"), True), "--task-name", "custom", "--do-train")
    assert (found.max_seq_length, found.text_column, found.regression) == (128, "sentence", False)
    assert settings_with(NER, Usage("ner", 77, document_context=True), "--do-train").max_seq_length == 128
