import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.samples.shards import ShardDirectory
from bert.tokenization.vocabulary_files import read_vocabulary
from tests.support.corpora import write_vocabulary
from tests.support.dumps import article, page, write_dump

SCRIPT = str(REPOSITORY / "data/create_datasets_from_start.sh")


def start(work: Path | None, *arguments, **options) -> subprocess.Popen:
    environment = {name: value for name, value in os.environ.items() if name != "BERT_PREP_WORKING_DIR"}
    if work is not None:
        environment["BERT_PREP_WORKING_DIR"] = str(work)
    return subprocess.Popen(
        ["bash", SCRIPT, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def run(work: Path | None, *arguments) -> tuple[int, str, str]:
    process = start(work, *arguments)
    out, error = process.communicate(timeout=300)
    return process.returncode, out, error


def test_help_names_every_step_and_needs_nothing():
    code, out, _ = run(None, "--help")
    assert code == 0
    for word in "wikipedia vocabulary phase1 phase2 squad glue --skip --only --dry-run".split():
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--skip", "lunch"], "step 'lunch' is not one of"),
        (["--lunch", "1"], "option '--lunch' is not known"),
        (["lunch"], "argument 'lunch' is not understood"),
        (["--seed"], "--seed needs a value"),
        (["--books-list", "urls.txt"], "option '--books-list' is not known"),
        (["--dry-run", "--sample-ratio", "1.5"], "--sample-ratio 1.5 must be above 0 and at most 1"),
        (["--dry-run", "--sample-ratio", "0.0"], "--sample-ratio 0.0 must be above 0 and at most 1"),
        (["--dry-run", "--duplicate-factor", "0"], "--duplicate-factor 0 must be a whole number of at least 1"),
        (["--dry-run", "--num-shards", "abc"], "--num-shards abc must be a whole number of at least 1"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path, arguments, message):
    code, _, error = run(tmp_path, *arguments)
    assert code == 2 and message in error


def test_without_a_folder_the_data_goes_where_the_container_mounts_it_and_the_reader_is_told():
    code, out, error = run(None, "--dry-run")
    folder = REPOSITORY / "results/data"
    assert code == 0 and f"BERT_PREP_WORKING_DIR is not set: the data goes to {folder}; " in error
    assert f"--output-dir {folder}/wikipedia " in error and out.count(f"export BERT_PREP_WORKING_DIR={folder}\n") == 1


def steps(error: str) -> list[str]:
    return [line.split()[3] for line in error.splitlines() if line.startswith("+ python -m")]


def test_steps_can_be_chosen_and_left_out(tmp_path):
    assert steps(run(tmp_path, "--dry-run")[2]) == [
        "data.download_wikipedia",
        "data.download_vocabulary",
        "data.preprocess_bert_pretrain",
        "data.preprocess_bert_pretrain",
        "data.download_squad",
    ]
    assert steps(run(tmp_path, "--dry-run", "--skip", "wikipedia", "--skip", "phase2", "--skip", "squad")[2]) == [
        "data.download_vocabulary",
        "data.preprocess_bert_pretrain",
    ]
    assert steps(run(tmp_path, "--dry-run", "--only", "glue")[2]) == ["data.download_glue"]
    assert list(tmp_path.iterdir()) == []


def test_another_language_gets_a_vocabulary_of_its_text_and_no_english_questions(tmp_path):
    of_text = ["data.download_wikipedia", "data.train_vocabulary", *["data.preprocess_bert_pretrain"] * 2]
    code, _, error = run(tmp_path, "--dry-run", "--language", "ta")
    assert code == 0 and steps(error) == of_text
    made = f"data.train_vocabulary --input {tmp_path}/wikipedia/source --output {tmp_path}/vocab/ta-vocab.txt "
    assert made in error and error.count(f"--vocab-file {tmp_path}/vocab/ta-vocab.txt") == 2
    assert "bert-large-uncased" not in error
    named = run(tmp_path, "--dry-run", "--language", "ta", "--vocabulary", "bert-base-multilingual-cased")[2]
    assert steps(named) == [of_text[0], "data.download_vocabulary", *of_text[2:]]
    write_vocabulary(tmp_path / "own.txt")
    own = run(tmp_path, "--dry-run", "--language", "ta", "--vocab-file", tmp_path / "own.txt")[2]
    assert steps(own) == [of_text[0], *of_text[2:]]
    assert steps(run(tmp_path, "--dry-run", "--language", "ta", "--only", "squad")[2]) == ["data.download_squad"]
    assert "data.download_squad" in steps(run(tmp_path, "--dry-run", "--language", "simple")[2])


def test_a_dry_run_estimates_disk_and_time(tmp_path):
    """The dry run estimates the pinned dump and a dump or text that is here, no unknown dump. It needs no package."""
    *out, last = run(tmp_path, "--dry-run", "--local-n-workers", "10")[1].splitlines()
    assert last.startswith("dry run, nothing was made: ")
    assert out[0].split()[:5] == ["dump", "17.8", "GB", "0.4", "h"] and "download at 100 Mbit/s" in out[0]
    assert [line.split(" GB")[0].split()[-1] for line in out] == ["17.8", "15.1", "67.9", "67.9", "13.6", "182.2"]
    assert "90% of the documents, 5 x" in out[2] and "10 processes; " in out[-1] and " GB free in " in out[-1]
    few = run(tmp_path, "--dry-run", "--duplicate-factor", "1", "--skip", "phase2", "--sample-ratio", "0.5")[1]
    assert "7.5 GB" in few and "phase2" not in few
    assert run(tmp_path, "--dry-run", "--lang", "de")[1].startswith("disk and time: known with --local-dump")
    code, _, error = run(tmp_path, "--dry-run", "--local-dump", tmp_path / "none.xml")
    assert code == 2 and "none.xml: no such file" in error
    (tmp_path / "wikipedia/source/en").mkdir(parents=True)
    with (tmp_path / "wikipedia/source/en/0.txt").open("wb") as file:
        file.truncate(10**9)
    done = run(tmp_path, "--dry-run")[1]
    assert "download" not in done and done.count(" 4.5 GB") == 2  # 74.5 GB may be free
    bare = [sys.executable, "-S", "-P", REPOSITORY / "data/preprocessing/estimates.py", "--folder", tmp_path, "phase1"]
    assert b"1.0 GB" in subprocess.run(bare, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("from start; rm -rf x")
    write_dump(folder / "dump.xml.bz2", [page(n, article(n, 20)) for n in range(1, 120)], 10)
    write_vocabulary(folder / "vocab.txt")
    return folder


def command(inputs: Path) -> list:
    flags = "--num-shards 2 --skip squad --local-n-workers 1".split()
    return ["--local-dump", inputs / "dump.xml.bz2", "--vocab-file", inputs / "vocab.txt", *flags]


def files(work: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(work)): path.read_bytes()
        for path in work.rglob("*")
        if path.is_file() and path.name != ".run_key"
    }


@pytest.mark.long
def test_a_dump_becomes_shards_of_both_phases_and_a_second_run_changes_nothing(inputs, tmp_path):
    work = tmp_path / "work"
    code, _, error = run(work, *command(inputs))
    assert code == 0, error
    vocabulary = read_vocabulary(inputs / "vocab.txt")
    for folder, length in (("phase1/unbinned", 128), ("phase2/bin_size_64", 512)):
        ShardDirectory(work / "pretrain" / folder / "parquet", vocabulary, length).verify()
    first = files(work)
    times = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    assert run(work, *command(inputs))[0] == 0
    assert files(work) == first
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()} == times
