"""Pre-training on Chinese text masks the words that jieba finds, without a flag."""

import dataclasses
import importlib.metadata
import shlex
import subprocess
import sys

import pytest

from bert import REPOSITORY
from bert.jobs.record import JobRecord
from bert.own_text import corpus, facts, start
from bert.own_text.facts import MachineFacts, machine_facts
from bert.own_text.request import read_text_request
from bert.samples.manifest import read_manifest
from tests.support.chinese_text import write_letters
from tests.support.launching import line_of

WITH_JIEBA = MachineFacts(cores=2, memory_bytes=16 * 10**9, disk_bytes=10**11, segmenter="jieba")
WITHOUT = dataclasses.replace(WITH_JIEBA, segmenter="")
needs_jieba = pytest.mark.skipif(not facts.has_package("jieba"), reason="bash scripts/setup.sh chinese")


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Return a function of a machine, flags and a text; it returns the plan and the commands that make its data."""

    monkeypatch.setattr(
        start, "measure_speeds", lambda candidates, batches: ({candidate.name: 200.0 for candidate in candidates}, 1.0)
    )

    def plan(machine, *words, chinese=True):
        text = tmp_path / ("zh" if chinese else "en")
        if not text.exists():
            write_letters(text, 40) if chinese else text.mkdir()
        if not chinese:
            (text / "one.txt").write_text("Nobody in the town had seen the heron before. " * 400)
        monkeypatch.setattr(start, "machine_facts", lambda output_dir: machine)
        request = read_text_request(line_of("--text", str(text), "--output-dir", str(tmp_path / "out"), *words))
        record = start.record_of(request, JobRecord(request.output_dir))
        config = start.training_config(request, record)
        lines = [" ".join(words) for _, words, _ in corpus.commands(request, record.plan, config)]
        return record.plan, config.data, lines

    return plan


WHOLE, SINGLE = "whole words that jieba finds", "single characters"
MASKS = (  # machine, flags, the row of the plan, what is said of masks and words to the training and to the shards
    (WITH_JIEBA, "", WHOLE, "dynamic jieba"),
    (WITH_JIEBA, "--masking static", WHOLE, "jieba static"),
    (WITH_JIEBA, "--word-segmenter none", SINGLE, ""),
    (WITH_JIEBA, "--no-whole-word-masking", SINGLE, "jieba"),  # the words are in the shards
    (WITH_JIEBA, "--no-whole-word-masking --masking static", SINGLE, ""),
    (WITH_JIEBA, "--lang ja", "", ""),
    (WITHOUT, "", SINGLE, ""),
    (WITHOUT, "--whole-word-masking", SINGLE, "dynamic"),
)


def test_masks_cover_the_words_that_are_found(planned):
    for machine, words, row, told in MASKS:
        plan, data, commands = planned(machine, *words.split())
        shown = {choice.name: choice.value for choice in plan.choices}
        assert shown.get("masks", "") == row, words
        shards = [line for line in commands if "preprocess_bert_pretrain" in line]
        assert len(shards) == 2 and "--lang " in commands[0]
        assert ("--language zh" in shards[0]) is ("ja" not in words)
        assert data.whole_word_masking is ("dynamic" in told), words
        assert all(("--word-segmenter jieba" in line) is ("jieba" in told) for line in shards), words
        assert all(("--whole-word-masking" in line) is ("static" in told) for line in shards), words
        hints = [line for line in plan.warnings if "jieba" in line]
        assert len(hints) == (machine is WITHOUT), words
        assert all("scripts/setup.sh" in line and "chinese" in line for line in hints)


def test_other_text_has_no_row_of_masks(planned):
    plan, data, commands = planned(WITH_JIEBA, chinese=False)
    assert not data.whole_word_masking and "masks" not in {row.name for row in plan.choices}
    assert not any("--word-segmenter jieba" in line for line in commands) and "--lang en" in commands[0]
    _, data, commands = planned(WITH_JIEBA, "--lang", "zh", chinese=False)
    assert data.whole_word_masking and any("--word-segmenter jieba" in line for line in commands)


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
