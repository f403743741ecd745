"""Progress in a log: a line now and then, and none of short work."""

import time

import pytest

from bert.reporting import progress as module
from bert.reporting.progress import megabytes, progress


def test_long_work_writes_lines_to_a_log(capsys, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.02)
    for _ in progress("samples", 3, "blocks", range(3)):
        time.sleep(0.03)
    with progress("file.txt", 4_000_000, done=1_000_000) as meter:
        time.sleep(0.03)
        meter.update(2_000_000)
    printed = capsys.readouterr().err
    assert "samples: 100% 3/3 [" in printed and "blocks/s]\n" in printed
    assert "file.txt:  75% 3.00M/4.00M [" in printed and "MB/s]\n" in printed
    assert "\r" not in printed and "\n\n" not in printed


def test_short_work_writes_nothing_to_a_log(capsys):
    assert list(progress("books", 3, "files", range(3))) == [0, 1, 2]
    with progress("file.txt", None) as meter:
        meter.update(7)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [(105, "105 bytes"), (4_200, "4.2 kB"), (110_000, "0.1 MB"), (12_300_000, "12.3 MB"), (17_800_000_000, "17.8 GB")],
)
def test_sizes_in_words(size, text):
    assert megabytes(size) == text
