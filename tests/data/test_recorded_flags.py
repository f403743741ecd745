"""Flags that commands had before they had settings still work, with the same defaults.

recorded_flags.json was made from the argparse parsers of commit bbbb1458: command -> rows of [words, the flag among
them that the row tests (null: a positional argument), its value, its default]. Since then one default has changed on
purpose: no language of data.preprocess_bert_pretrain is that of the source's folder, or of the script.
"""

import importlib
import json
import os
from pathlib import Path

import pytest

from bert.config.plain_commands import parser_of, settings_from

RECORDED = json.loads(Path(__file__).with_name("recorded_flags.json").read_text(encoding="utf-8"))
SETTINGS = {  # command -> its settings class
    "data.import_text": "ImportRequest",
    "data.preprocess_bert_pretrain": "ShardRequest",
    "data.train_vocabulary": "VocabularyRequest",
    "data.inspect": "InspectRequest",
    "data.download_glue": "GlueRequest",
    "data.download_model": "ModelDownloadRequest",
    "data.download_squad": "SquadRequest",
    "data.download_vocabulary": "VocabularyDownloadRequest",
    "data.download_wikipedia": "WikipediaRequest",
    "data.balance_shards": "BalanceRequest",
    "data.import_shards": "ImportShardsRequest",
    "data.examples.documentation": "DocumentationRequest",
    "data.examples.sample_questions": "SampleQuestionsRequest",
    "bert.commands.convert": "ConvertRequest",
    "bert.commands.export": "ExportRequest",
    "bert.commands.predict": "PredictCommand",
}
ROWS = [(command, *row) for command in SETTINGS for row in RECORDED[command]]


def test_all_recorded_commands_are_tested():
    assert RECORDED.keys() == SETTINGS.keys()


def plain(value):
    """Return a value as JSON has it."""
    return json.loads(json.dumps(value, default=str))


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Make the file and the folder that the words name."""
    (tmp_path / "there.txt").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("command", "words", "flag", "value", "default"), ROWS, ids=str)
def test_a_flag_works_as_before(inputs, command, words, flag, value, default):
    settings_class = getattr(importlib.import_module(command), SETTINGS[command])
    parser = parser_of(settings_class, None)
    settings = settings_from(settings_class, parser, words.split())
    if flag is None:
        assert value in [plain(given) for _, given in settings]
        return
    field = parser._option_string_actions[parser._current_name(flag)].dest
    assert plain(getattr(settings, field)) == value
    if default == "(required)":
        assert settings_class.model_fields[field].is_required()
        return
    found = plain(settings_class.model_fields[field].get_default(call_default_factory=True))
    if default == "(cores)":
        assert found == os.cpu_count()
    else:  # no values were None for some lists
        assert found == default or (found, default) == ([], None)
