"""Limits of the settings of samples, and estimates of disk and time by hand."""

from argparse import Namespace
from dataclasses import asdict

import pytest

from bert.tokenization.normalization import Normalization
from data.preprocessing.estimates import Estimate, estimates, own_text_bytes, own_text_seconds, report
from data.preprocessing.settings import PairSettings, SampleSettings


@pytest.mark.parametrize(
    ("good", "bad", "text"),
    [
        ({"target_seq_length": 8}, {"target_seq_length": 7}, "target_seq_length=7 must be at least 8"),
        ({"target_seq_length": 65_535}, {"target_seq_length": 65_536}, "at most 65535, as shards keep lengths"),
        ({"short_seq_prob": 0.0}, {"short_seq_prob": -0.1}, "short_seq_prob=-0.1 must lie between 0 and 1"),
        ({"short_seq_prob": 1.0}, {"short_seq_prob": 1.1}, "short_seq_prob=1.1 must lie between 0 and 1"),
        ({"duplicate_factor": 1}, {"duplicate_factor": 0}, "duplicate_factor=0 must be at least 1"),
    ],
)
def test_limits_of_pairs(good, bad, text):
    usual = {"target_seq_length": 128}
    PairSettings(**{**usual, **good})
    with pytest.raises(ValueError, match=text):
        PairSettings(**{**usual, **bad})


@pytest.mark.parametrize(("length", "longest"), [(8, 2), (128, 62), (129, 63), (512, 254)])
def test_two_of_the_longest_sentences_fit_into_a_sample(length, longest):
    assert PairSettings(length).longest_sentence() == longest and 2 * longest + 3 <= length < 2 * (longest + 1) + 3


STATIC = {"masking": "static"}


@pytest.mark.parametrize(
    ("good", "bad", "text"),
    [
        ({"block_bytes": 1}, {"block_bytes": 0}, "block_bytes=0 must be at least 1"),
        ({"bin_size": 1}, {"bin_size": 0}, "bin_size=0 must lie between 1 and target_seq_length=64"),
        ({"bin_size": 64}, {"bin_size": 65}, "bin_size=65 must lie between 1 and"),
        ({"objective": "mlm"}, {"objective": "nsp"}, "objective='nsp' must be one of mlm_nsp, mlm"),
        (STATIC, {"masking": "both"}, "masking='both' must be one of static, dynamic"),
        ({"sample_ratio": 1.0}, {"sample_ratio": 1.01}, "sample_ratio=1.01 must be above 0 and at most 1"),
        ({"sample_ratio": 0.01}, {"sample_ratio": 0.0}, "sample_ratio=0.0 must be above 0"),
        (
            {"masked_lm_ratio": 0.3, "max_predictions_per_seq": 19},
            {"masked_lm_ratio": 0.3, "max_predictions_per_seq": 18},
            "max_predictions_per_seq=18 must be at least 19",
        ),
        ({**STATIC, "whole_word_masking": True}, {"whole_word_masking": True}, "but masking='dynamic' puts none"),
        (
            {**STATIC, "whole_word_masking": True, "word_segmenter": "jieba"},
            {**STATIC, "word_segmenter": "jieba"},
            "word_segmenter='jieba' finds the words that masks cover whole, but",
        ),
        ({}, {"language": "nowhere"}, "language"),
    ],
)
def test_limits_of_samples(good, bad, text):
    usual = {"pairs": PairSettings(64), "block_bytes": 9}
    SampleSettings(**{**usual, **good})
    with pytest.raises(ValueError, match=text):
        SampleSettings(**{**usual, **bad})


def test_a_segmenter_of_scripts_cuts_texts_and_one_of_words_does_not():
    settings = SampleSettings(PairSettings(64), 9, lowercase=False, strip_accents=True, word_segmenter="jieba")
    assert settings.cutter() is None and settings.normalization() == Normalization(False, True)
    record = settings.record()
    assert record.pop("word_segmenter_version") and record == asdict(settings)
    syllables = SampleSettings(PairSettings(64), 9, word_segmenter="syllables")
    assert syllables.cutter() == "syllables" and syllables.normalization() == Normalization(True, None, "syllables")
    assert "word_segmenter_version" not in SampleSettings(PairSettings(64), 9).record()


def test_estimates_are_those_of_the_rates(tmp_path):
    arguments = Namespace(
        steps=["wikipedia", "phase1", "phase2"], dump="", processes=2, sample_ratio=0.5, duplicate_factor=4
    )
    rows = list(estimates(arguments, 3e9, 0))
    assert [row.what for row in rows] == ["dump", "text", "shards of phase1", "shards of phase2"]
    assert [row.num_bytes for row in rows] == pytest.approx([3e9, 2.55e9, 5.1e9, 5.1e9])
    of_shards = 2.55e9 * (0.16e-6 + 2 * 0.015e-6) / 2
    assert [row.seconds for row in rows] == pytest.approx([240, 1000, of_shards, of_shards])
    there = list(estimates(arguments, 3e9, 1e9))
    assert [row.what for row in there] == ["shards of phase1", "shards of phase2"], "the text is there already"
    assert there[0].num_bytes == pytest.approx(2e9)
    lines = report(rows, tmp_path / "not" / "yet", 2).splitlines()
    assert len(lines) == 6 and "1.0 GB" in lines[4] and "16.8 GB" in lines[5] and f"free in {tmp_path}" in lines[5]
    assert str(Estimate("text", 2.55e9, 3600, "rough")).split() == "text 2.5 GB 1.0 h rough".split()


@pytest.mark.parametrize(
    ("cores", "size", "processes"), [(1, 10**9, 1), (8, 10 << 20, 3), (2, 10 << 20, 2), (8, 100, 1)]
)
def test_the_time_of_own_text_is_that_of_its_steps(cores, size, processes):
    seconds = 3 * (1.5 * 7 + 2 + size / 3e6 + size * 5 / (8e6 * processes))
    assert own_text_seconds(size, 5, cores, 7.0, 3.0) == pytest.approx(seconds)
    assert own_text_bytes(size, 5) == pytest.approx(size * (1.1 + 8))
