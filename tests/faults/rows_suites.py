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


def suite(*files: str, only: str = "") -> Suite:
    """Of files below tests/."""
    return Suite(tuple(f"tests/{name}" for name in files), only)


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
    Row(
        4,
        "truncated checkpoint files",
        "refused, the file named, the one before is taken",
        suite("checkpoints/test_directories.py", only="truncation"),
        50,
        1000,
        ("checkpoints are not verified",),
        slow=True,
    ),
    Row(
        5,
        "bit flips in a checkpoint",
        "none is read as data",
        suite("checkpoints/test_directories.py", only="flipped_bit"),
        200,
        2000,
        ("checkpoints are not verified",),
        slow=True,
    ),
    Row(
        6,
        "missing, added and foreign files, later formats, leftovers",
        "clear error, and the one before is taken",
        suite("checkpoints/test_directories.py", only="foreign_files"),
        22,
        22,
        ("checkpoints are not verified",),
        slow=True,
    ),
    Row(
        9,
        "other shapes, names, vocabulary, accumulation, precision, data, stage",
        "refused, differences listed",
        suite(
            "checkpoints/test_state.py",
            "conversion/test_round_trips.py",
            only="refused or accumulation_may or heads_that_differ",
        ),
        40,
        40,
        ("differences are overlooked",),
        slow=True,
    ),
    Row(
        10,
        "kill -9 while pruning to one checkpoint",
        "one is valid, always",
        suite("checkpoints/test_directories.py", only="kill_9"),
        120,
        120,
        ("pruning takes all",),
        slow=True,
    ),
    Row(
        11,
        "checkpoints of older versions (tests/golden)",
        "load and continue",
        suite("checkpoints/test_golden_checkpoints.py"),
        3,
        3,
        ("optimizer state is not restored",),
        slow=True,
    ),
    Row(
        12,
        "shards: flipped bits, truncation, wrong schema",
        "none is read as data",
        suite("data/test_data_faults.py", only="flipped or truncation or schema"),
        168,
        3900,
        ("shards are not checked",),
        slow=True,
    ),
    Row(
        13,
        "shards missing, doubled, replaced, renamed, unfinished, stale counts",
        "detected before step 0",
        suite("data/test_data_faults.py", only="directory_that_changed"),
        8,
        8,
        ("folders of shards are not checked",),
        slow=True,
    ),
    Row(
        21,
        "preprocessing killed",
        "a rerun gives the same bytes",
        suite("data/test_data_faults.py", only="killed_again"),
        6,
        100,
        ("choices of preprocessing depend on the process",),
        slow=True,
    ),
    Row(
        22,
        "hostile text: empty, NUL, marks, encodings, CRLF, huge lines, right to left",
        "no crash, bounded, counted",
        suite(
            "data/test_import_text.py",
            "data/test_preprocess.py",
            "data/test_data_faults.py",
            only="encodings or undecodable or control_characters or 100_megabytes or any_bytes or bomb or "
            "hard_documents or any_lines or longer_than_memory or no_document or memory_does_not",
        ),
        30,
        30,
        ("text is taken as it comes",),
        slow=True,
    ),
    Row(
        23,
        "vocabularies: missing tokens, duplicates, blank lines, CRLF, size",
        "refused with the line",
        suite("tokenization/test_wordpiece.py", "config/test_training_settings.py", only="vocabulary"),
        10,
        10,
        ("vocabularies are not checked",),
        slow=True,
    ),
    Row(
        24,
        "SQuAD: truncated, bad offsets, doubled ids, versions, types, fuzzed",
        "precise error or counted skip",
        suite(
            "finetuning/squad/test_examples.py",
            "finetuning/squad/test_features.py",
            only="wrong or refused or contradict or damaged or skipped",
        ),
        60,
        520,
        ("SQuAD files are not checked",),
        slow=True,
    ),
    Row(
        25,
        "GLUE: ragged lines, quotes, unknown labels, encodings, other files",
        "precise error or counted skip",
        suite("finetuning/glue/test_reading.py"),
        50,
        50,
        ("GLUE files are not checked",),
        slow=True,
    ),
    Row(
        26,
        "hostile pickles, archives and names",
        "blocked: nothing is called, nothing written",
        suite("conversion/test_hostile.py", only="hostile or damage"),
        90,
        90,
        ("pickles are loaded",),
        slow=True,
    ),
    Row(
        27,
        "download: drops, ignored ranges, wrong lengths and hashes, error pages, loops, full disk",
        "resumed or refused, nothing partial under the final name",
        suite("data/fetching/test_download.py"),
        53,
        53,
        ("downloads are not verified",),
        slow=True,
    ),
    Row(
        28,
        "settings: misspelt, wrong types, impossible",
        "refused before data loads",
        suite(
            "config/test_command_line.py",
            "config/test_training_settings.py",
            only="mistakes or impossible or wrong or refused",
        ),
        30,
        30,
        ("settings are not checked",),
        slow=True,
    ),
    Row(
        29,
        "exports to Hugging Face, PaddleNLP, Paddle Inference and ONNX",
        "outputs within 1e-5",
        suite("conversion/test_parity.py", "inference/test_exporting.py"),
        40,
        650,
        ("exports are described wrongly",),
        slow=True,
    ),
]
