"""Rows whose trials are tests of the suite: each case is one, or as many as it says (`record_property("trials", n)`).

A full run sets BERT_FULL_FAULTS=1, which raises the counts inside of these tests.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from bert import REPOSITORY
from tests.faults import sabotage
from tests.faults.harness import Row, Trials

BROKEN_SECONDS = 600  # for a suite whose protection is disabled


@dataclass(frozen=True)
class Suite:
    """A row that runs the tests of `files`, of which `only` (pytest's -k: words and `or`) are meant."""

    files: tuple[str, ...]
    only: str

    def __call__(self, trials: Trials) -> None:
        broken = bool(os.environ.get(sabotage.VARIABLE))
        report = trials.folder / "report.xml"
        try:
            ended = subprocess.run(
                self.command(report, trials.folder / "tmp", broken),
                cwd=REPOSITORY,
                env=self.environment(trials.full, broken),
                capture_output=True,
                text=True,
                timeout=BROKEN_SECONDS if broken else None,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.files} did not end within {BROKEN_SECONDS} s") from None
        assert report.exists(), ended.stdout[-1000:] + ended.stderr[-1000:]
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            _count(trials, case)
        assert trials.tried, f"no test of {self.files} is meant by {self.only!r}"

    def command(self, report: Path, folder: Path, broken: bool) -> list[str]:
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", str(report)]
        words += ["--basetemp", str(folder), "-m", "slow or not slow", *self.files]
        if self.only:
            words += ["-k", self.only]
        # With a protection disabled one loss is enough, and later tests may never end: a hostile pickle that is loaded
        # outright hashes its key for ever.
        return [*words, "-x"] if broken else words

    @staticmethod
    def environment(full: bool, broken: bool) -> dict[str, str]:
        found = dict(os.environ)
        if full:
            found["BERT_FULL_FAULTS"] = "1"
        if broken:
            found["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent / "broken_site"), str(REPOSITORY)])
        return found


def _row(
    number: int, fault: str, required: str, trials: tuple[int, int], protection: str, files: str | tuple, only: str = ""
) -> Row:
    """A row of a suite: files below tests/, and the trials of a small and of a full run."""
    paths = (files,) if isinstance(files, str) else files
    suite = Suite(tuple(f"tests/{name}" for name in paths), only)
    return Row(number, fault, required, suite, trials, (protection,))


def _count(trials: Trials, case: ElementTree.Element) -> None:
    if case.find("skipped") is not None:
        trials.note("some cases were skipped")
        return
    name, weight = case.get("name", "?"), 1
    for entry in case.iter("property"):
        if entry.get("name") == "trials":
            weight = int(entry.get("value", "1"))
    trials.tried += weight
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            trials.losses.append(f"{name}: {' '.join((found.get('message') or '').split())[:300]}")


ROWS = [
    _row(
        4,
        "truncated checkpoint files",
        "refused, the file named, the one before is taken",
        (50, 1000),
        "checkpoints are not verified",
        "checkpoints/test_directories.py",
        "truncation",
    ),
    _row(
        5,
        "bit flips in a checkpoint",
        "none is read as data",
        (200, 2000),
        "checkpoints are not verified",
        "checkpoints/test_directories.py",
        "flipped_bit",
    ),
    _row(
        6,
        "missing, added and foreign files, later formats, leftovers",
        "clear error, and the one before is taken",
        (22, 22),
        "checkpoints are not verified",
        "checkpoints/test_directories.py",
        "foreign_files",
    ),
    _row(
        9,
        "other shapes, names, vocabulary, accumulation, precision, data, stage",
        "refused, differences listed",
        (40, 40),
        "differences are overlooked",
        ("checkpoints/test_state.py", "conversion/test_round_trips.py"),
        "refused or accumulation_may or heads_that_differ",
    ),
    _row(
        10,
        "kill -9 while pruning to one checkpoint",
        "one is valid, always",
        (70, 230),
        "pruning takes all",
        "checkpoints/test_directories.py",
        "kill_9",
    ),
    _row(
        11,
        "checkpoints of older versions (tests/golden)",
        "load and continue",
        (3, 3),
        "optimizer state is not restored",
        "checkpoints/test_golden_checkpoints.py",
    ),
    _row(
        12,
        "shards: flipped bits, truncation, wrong schema",
        "none is read as data",
        (287, 6512),
        "shards are not checked",
        "data/test_data_faults.py",
        "flipped or truncation or schema",
    ),
    _row(
        13,
        "shards missing, doubled, replaced, renamed, unfinished, stale counts",
        "detected before step 0",
        (8, 8),
        "folders of shards are not checked",
        "data/test_data_faults.py",
        "directory_that_changed",
    ),
    _row(
        21,
        "preprocessing killed",
        "a rerun gives the same bytes",
        (6, 100),
        "choices of preprocessing depend on the process",
        "data/test_data_faults.py",
        "killed_again",
    ),
    _row(
        22,
        "hostile text: empty, NUL, marks, encodings, CRLF, huge lines, right to left",
        "no crash, bounded, counted",
        (30, 30),
        "text is taken as it comes",
        ("data/test_import_text.py", "data/test_preprocess.py", "data/test_data_faults.py"),
        "encodings or undecodable or control_characters or 100_megabytes or "
        "any_bytes or bomb or hard_documents or any_lines or longer_than_memory or no_document or memory_does_not",
    ),
    _row(
        23,
        "vocabularies: missing tokens, duplicates, blank lines, CRLF, size",
        "refused with the line",
        (10, 10),
        "vocabularies are not checked",
        ("tokenization/test_wordpiece.py", "config/test_training_settings.py"),
        "vocabulary",
    ),
    _row(
        24,
        "SQuAD: truncated, bad offsets, doubled ids, versions, types, fuzzed",
        "precise error or counted skip",
        (60, 520),
        "SQuAD files are not checked",
        ("finetuning/squad/test_examples.py", "finetuning/squad/test_features.py"),
        "wrong or refused or contradict or damaged or skipped",
    ),
    _row(
        25,
        "GLUE: ragged lines, quotes, unknown labels, encodings, other files",
        "precise error or counted skip",
        (50, 50),
        "GLUE files are not checked",
        "finetuning/glue/test_reading.py",
    ),
    _row(
        26,
        "hostile pickles, archives and names",
        "blocked: nothing is called, nothing written",
        (90, 90),
        "pickles are loaded",
        "conversion/test_hostile.py",
        "hostile or damage",
    ),
    _row(
        27,
        "download: drops, ignored ranges, wrong lengths and hashes, error pages, loops, full disk",
        "resumed or refused, nothing partial under the final name",
        (53, 53),
        "downloads are not verified",
        "data/fetching/test_download.py",
    ),
    _row(
        28,
        "settings: misspelt, wrong types, impossible",
        "refused before data loads",
        (30, 30),
        "settings are not checked",
        ("config/test_command_line.py", "config/test_training_settings.py"),
        "mistakes or impossible or wrong or refused",
    ),
    _row(
        29,
        "exports to Hugging Face, PaddleNLP, Paddle Inference and ONNX",
        "outputs within 1e-5",
        (40, 650),
        "exports are described wrongly",
        ("conversion/test_parity.py", "inference/test_exporting.py"),
    ),
    _row(
        31,
        "kill -9 of a launcher, of Paddle's launcher, of a rank, of a data command or its worker",
        "no process outlives what started it",
        (6, 300),
        "processes outlive their parents",
        "launching/test_process_deaths.py",
    ),
    _row(
        32,
        "small files that ask for endless time or memory, or lead to other files",
        "refused in one line, time and memory bounded",
        (41, 41),
        "files may ask for anything",
        "test_hostile_files.py",
    ),
]
