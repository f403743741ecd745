"""Pre-training on Chinese text: masks cover the words that jieba finds, without a flag."""

import dataclasses
import importlib.metadata
import shlex
import subprocess
import sys

import pytest

from bert import REPOSITORY
from bert.own_text import corpus, facts, start
from bert.own_text.facts import MachineFacts, machine_facts
from bert.own_text.plan_table import table
from bert.own_text.request import TextRequest, read_text_request
from bert.samples.manifest import read_manifest
from tests.support.chinese_text import write_letters
from tests.support.launching import line_of

WITH_JIEBA = MachineFacts(cores=2, memory_bytes=16 * 10**9, disk_bytes=10**11, segmenter="jieba")
WITHOUT = dataclasses.replace(WITH_JIEBA, segmenter="")
needs_jieba = pytest.mark.skipif(not facts.has_package("jieba"), reason="bash scripts/setup.sh chinese")


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A function of a machine, of flags and of a text: the plan and the commands that make its data."""

    monkeypatch.setattr(start, "measure_speeds", lambda found: {candidate.name: 200.0 for candidate in found})

    def plan(machine, *words, chinese=True):
        text = tmp_path / ("zh" if chinese else "en")
        if not text.exists():
            write_letters(text, 40) if chinese else text.mkdir()
        if not chinese:
            (text / "one.txt").write_text("Nobody in the town had seen the heron before. " * 400)
        monkeypatch.setattr(start, "machine_facts", lambda output_dir: machine)
        request = read_text_request(line_of("--text", str(text), "--output-dir", str(tmp_path / "out"), *words))
        record = start.record_of(request)
        config = start.training_config(request, record)
        lines = [" ".join(words) for _, words, _ in corpus.commands(request, record.plan, config)]
        return record.plan, config.data, lines

    return plan


def test_its_language_and_its_words_need_no_flag(planned):
    plan, data, commands = planned(WITH_JIEBA)
    assert data.whole_word_masking and "whole words that jieba finds" in table(plan, TextRequest())
    assert not any("jieba" in line for line in plan.warnings)
    shards = [line for line in commands if "preprocess_bert_pretrain" in line]
    assert len(shards) == 2 and all("--word-segmenter jieba" in line and "--language zh" in line for line in shards)
    assert "--lang zh" in commands[0] and not any("--whole-word-masking" in line for line in shards)


def test_a_language_that_is_given_counts_whatever_the_characters_are(planned):
    _, data, commands = planned(WITH_JIEBA, "--lang", "ja")
    assert not data.whole_word_masking and not any("jieba" in line for line in commands)
    _, data, commands = planned(WITH_JIEBA, "--lang", "zh", chinese=False)
    assert data.whole_word_masking and any("--word-segmenter jieba" in line for line in commands)


def test_static_masks_are_made_of_whole_words_with_the_shards(planned):
    _, data, commands = planned(WITH_JIEBA, "--masking", "static")
    assert not data.whole_word_masking
    shards = [line for line in commands if "preprocess_bert_pretrain" in line]
    assert all("--whole-word-masking" in line and "--word-segmenter jieba" in line for line in shards)


@pytest.mark.parametrize(
    "machine, words",
    [
        (WITHOUT, []),
        (WITH_JIEBA, ["--word-segmenter", "none"]),
        (WITH_JIEBA, ["--no-whole-word-masking", "--masking", "static"]),
    ],
)
def test_without_a_segmenter_masks_cover_single_characters(planned, machine, words):
    plan, data, commands = planned(machine, *words)
    assert not data.whole_word_masking
    assert not any("--word-segmenter" in line or "--whole-word-masking" in line for line in commands)
    assert "single characters" in table(plan, TextRequest())
    hints = [line for line in plan.warnings if "jieba" in line]
    assert len(hints) == (not words) and all("scripts/setup.sh" in line and "chinese" in line for line in hints)


def test_masks_may_cover_single_characters(planned):
    plan, data, commands = planned(WITH_JIEBA, "--no-whole-word-masking")
    assert not data.whole_word_masking and "single characters" in table(plan, TextRequest())
    assert sum("--word-segmenter jieba" in line for line in commands) == 2  # the words are in the shards
    _, _, commands = planned(WITH_JIEBA, "--no-whole-word-masking", "--masking", "static")
    assert not any("--whole-word-masking" in line for line in commands)


def test_without_jieba_whole_words_cannot_be_had(planned):
    plan, *_ = planned(WITHOUT, "--whole-word-masking")
    (row,) = (row for row in plan.choices if row.name == "masks")
    assert "single characters" in row.value and row.reason == "no words are known"


def test_english_text_is_as_before(planned):
    plan, data, commands = planned(WITH_JIEBA, chinese=False)
    assert not data.whole_word_masking and "masks" not in {row.name for row in plan.choices}
    assert not any("--word-segmenter" in line for line in commands) and "--lang en" in commands[0]


def test_a_segmenter_that_is_asked_for_must_be_there(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert machine_facts(REPOSITORY).segmenter == ""
    with pytest.raises(ValueError, match="not installed.*scripts/setup.sh .*chinese"):
        read_text_request(line_of("--text", "t", "--word-segmenter", "jieba"))


@pytest.mark.long
@needs_jieba
@pytest.mark.parametrize("masking", ["dynamic", pytest.param("static", marks=pytest.mark.long)])
def test_one_command_trains_on_chinese_text_and_fills_masks(tmp_path, masking):
    write_letters(tmp_path / "letters", 60)
    words = shlex.split(f"--text letters --output-dir out --num-processes 1 --max-steps 8 --masking {masking}")
    line = [sys.executable, "-m", "bert.commands", "pretraining", *words]
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
    pipes = {"capture_output": True, "text": True, "timeout": 400, "check": False}
    done = subprocess.run(line, cwd=tmp_path, env=variables, **pipes)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("train", "held_out"):
        manifest = read_manifest(tmp_path / "out/data/shards" / part)
        assert manifest.settings["word_segmenter"] == "jieba" and manifest.settings["language"] == "zh"
        assert manifest.counts["words of several characters, some Chinese"] > 100
    assert "masked characters, the three most likely" in done.stdout and "true character: " in done.stdout
    assert "nearest sentences" in done.stdout
