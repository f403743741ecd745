"""Case, segmenter and unknown words of the user's text: chosen, recorded, and refused if nothing could be learned."""

import dataclasses
import json
import random

import pytest

from bert.jobs.record import JobRecord
from bert.own_text import corpus, start
from bert.own_text.facts import MachineFacts
from bert.own_text.given_files import with_given_files
from bert.own_text.record import read_record
from bert.own_text.request import read_text_request
from bert.tokenization import segmentation
from bert.tokenization.normalization import ACCENTED, CASED, UNCASED, Normalization
from bert.tokenization.vocabulary import SPECIAL_TOKENS
from tests.support.launching import line_of

MACHINE = MachineFacts(cores=2, memory_bytes=16 * 10**9, disk_bytes=10**11)
SENTENCES = {
    "en": "Nobody in the town had seen the heron before.",
    "de": "Im Frühling blühen viele schöne Bäume über dem Fluss.",
    "hi": "में किताबें पढ़ता हूँ और नदी देखता हूँ।",
    "th": "ที่นี่ไม่มีน้ำประปาและเด็กชอบกินขนม",
}


def _with_equal_letters(normalization: Normalization) -> Normalization:
    return dataclasses.replace(normalization, equal_letters=True)


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Return a function of a language and flags; it returns the plan's record and the commands that make its data."""
    monkeypatch.setattr(
        start, "measure_speeds", lambda candidates, batches: ({candidate.name: 200.0 for candidate in candidates}, 1.0)
    )
    monkeypatch.setattr(start, "machine_facts", lambda output_dir: MACHINE)

    def plan(language, *words):
        (tmp_path / language).mkdir(exist_ok=True)
        (tmp_path / language / "one.txt").write_text(f"{SENTENCES[language]} " * 800, encoding="utf-8")
        line = line_of("--text", str(tmp_path / language), "--output-dir", str(tmp_path / "out"), *words)
        request = with_given_files(read_text_request(line))
        record = start.record_of(request, JobRecord.of(tmp_path / "out"))
        config = start.training_config(request, record)
        return record, [" ".join(words) for _, words, _ in corpus.commands(request, record.plan, config)]

    return plan


@pytest.mark.parametrize(
    ("language", "flags", "normalization", "value", "why"),
    [
        ("en", "", UNCASED, "lower-cased", "lower-casing would strip marks of 0.0% of the words"),
        ("en", "--no-lowercase", CASED, "kept", "as given"),
        ("de", "", CASED, "kept", "lower-casing would strip marks of 56% of the words, such as "),
        ("de", "--lowercase", UNCASED, "lower-cased", "as given"),
        ("de", "--lowercase --no-strip-accents", ACCENTED, "lower-cased, accents kept", "as given"),
        ("hi", "", CASED, "kept", "lower-casing would strip marks of "),
        ("th", "", Normalization(False, None, "icu"), "kept, cut into words by icu", "100% of the words"),
        (
            "th",
            "--word-segmenter icu --lowercase",
            Normalization(True, None, "icu"),
            "lower-cased, cut into",
            "as given",
        ),
    ],
)
def test_the_text_decides_on_case_and_words_and_flags_change_it(planned, language, flags, normalization, value, why):
    record, commands = planned(language, *flags.split())
    row = next(row for row in record.plan.choices if row.name == "case")
    assert row.value.startswith(value) and why in row.reason and "owercase" in row.flag
    assert record.plan.normalization == _with_equal_letters(normalization)
    told = ["--lowercase" if normalization.lowercase else "--no-lowercase"]
    told += ["--no-strip-accents"] * (normalization == ACCENTED)
    told += [f"--word-segmenter {normalization.word_segmenter or 'none'}"]
    assert all(all(word in command.replace("=", " ") for word in told) for command in commands[1:])


def test_a_script_without_spaces_needs_its_segmenter(planned, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(
            segmentation, "_PACKAGES", {**segmentation._PACKAGES, "icu": ("no-such-package", "segmentation")}
        )
        with pytest.raises(ValueError, match="no spaces between words: .*not installed: .*segmentation.* none takes"):
            planned("th")
        assert planned("de")[0].plan.normalization == _with_equal_letters(CASED)
    with pytest.raises(
        ValueError, match=r"100.0% of the tokens are \[UNK\], most often of .*pass --word-segmenter icu"
    ):
        SENTENCES["th"] = "ที่นี่ไม่มีน้ำประปาและเด็กชอบกินขนม" * 9
        planned("th", "--word-segmenter", "none")


def test_a_vocabulary_of_another_text_is_refused_and_one_with_gaps_is_warned_of(planned, tmp_path):
    words = sorted({word for sentence in SENTENCES["de"].lower().split() for word in [sentence.strip(".")]} | {"."})
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]) + "\n", encoding="utf-8")
    flags = "--vocab-file", str(tmp_path / "vocab.txt")
    record, _ = planned("de", *flags)
    assert record.plan.normalization == _with_equal_letters(ACCENTED) and record.text.unknown == ""
    with pytest.raises(
        ValueError, match=r"40.0% of the tokens are \[UNK\], most often of Bäume Fluss Frühling Im; .*cased"
    ):
        planned("de", *flags, "--no-lowercase")
    with pytest.raises(ValueError, match="leave --vocab-file out to train one"):
        planned("en", *flags)
    words.remove("dem")
    SENTENCES["de"] += " Im Frühling blühen viele schöne Bäume." * 2
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]) + "\n", encoding="utf-8")
    record, _ = planned("de", *flags)
    assert any("of the tokens are [UNK], most often of dem; does the" in line for line in record.plan.warnings)


def test_the_tokens_of_the_plan_are_those_of_a_sample(planned):
    record, _ = planned("en")
    facts = record.text
    assert facts.characters_per_token == pytest.approx(46 / 10, rel=0.01)  # each word and the full stop is a token


def test_a_run_of_an_earlier_version_keeps_its_case(planned, tmp_path):
    record, _ = planned("de", "--no-lowercase")
    facts = dataclasses.asdict(record)
    del facts["plan"]["normalization"], facts["data"]["strip_accents"]
    for lowercase in (True, False):
        facts["data"]["lowercase"] = lowercase
        (tmp_path / "own_text.json").write_text(json.dumps(facts, default=str))
        read = read_record(JobRecord.of(tmp_path), tmp_path)
        assert read.plan.normalization == Normalization(lowercase)


@pytest.fixture(autouse=True)
def _sentences_are_as_they_were(monkeypatch):
    monkeypatch.setattr(f"{__name__}.SENTENCES", dict(SENTENCES))
    random.seed(0)
