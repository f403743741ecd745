"""Damaged shards, kills at random times, hostile text. A few of each; BERT_FULL_FAULTS=1 tries as many as the project
promises (some minutes)."""

import errno
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert import REPOSITORY
from bert.exit_codes import NOT_SAVED
from bert.files import only_writer
from bert.samples.formats import hdf5
from bert.samples.manifest import MANIFEST_NAME, NUM_SAMPLES_NAME, read_manifest
from bert.samples.shards import ShardDirectory
from data import balance_shards, download_wikipedia
from tests.data.test_preprocess import arguments, hashes
from tests.support.commands import refused
from tests.support.corpora import random_table, vocabulary, write_shards, write_source, write_vocabulary
from tests.support.full_counts import times
from tests.support.peak_memory import peak_of

WORDS = vocabulary()


@pytest.fixture(
    scope="module",
    params=[("parquet", True), ("parquet", False), ("arrow", True), ("arrow", False), ("hdf5", False)],
    ids=["parquet", "parquet without manifest", "arrow", "arrow without manifest", "hdf5"],
)
def shards(request, tmp_path_factory) -> Path:
    kind, manifest = request.param
    tables = [random_table(40, seed, masked=True) for seed in range(3)]
    folder = tmp_path_factory.mktemp("shards")
    if kind == "hdf5":
        for number, table in enumerate(tables):
            hdf5.write(folder / f"shard-{number}.hdf5", table, 32, 4)
        return folder
    return write_shards(folder, tables, kind=kind, manifest=manifest)


def damaged(shards: Path, folder: Path, change) -> Path:
    """Copy the shards; the second shard of the copy holds change(bytes)."""
    shutil.copytree(shards, folder)
    path = next(folder.glob("shard-1.*"))
    path.write_bytes(change(path.read_bytes()))
    return folder


def read_all(folder: Path) -> list[np.ndarray]:
    directory = ShardDirectory(folder, WORDS, 30)
    return [
        np.concatenate([np.asarray(value, np.int64) for value in vars(table).values() if isinstance(value, np.ndarray)])
        for table in (directory.load(index) for index in range(3))
    ]


def is_silent(folder: Path, expected: list[np.ndarray]) -> bool:
    """Tell whether the damage changed the data that was read, without an error; an error must name the file."""
    try:
        found = read_all(folder)
    except ValueError as error:
        assert "shard-1" in str(error)
        return False
    return not all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_no_flipped_bit_is_silent(shards, tmp_path):
    rng, expected = np.random.default_rng(1), read_all(shards)
    path = next(shards.glob("shard-1.*"))
    size = path.stat().st_size
    footer = 8 + pq.ParquetFile(path).metadata.serialized_size if path.suffix == ".parquet" else size
    for trial in range(times(40, 1000)):
        place, bit = size - 1 - int(rng.integers((size, footer)[trial % 2])), 1 << int(rng.integers(8))
        folder = damaged(
            shards,
            tmp_path / str(trial),
            lambda data, place=place, bit=bit: data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :],
        )
        assert not is_silent(folder, expected), (place, bit)
        shutil.rmtree(folder)


def test_no_truncation_is_silent(shards, tmp_path):
    rng = np.random.default_rng(2)
    size = next(shards.glob("shard-1.*")).stat().st_size
    for trial, keep in enumerate([0, 1, size - 1, *rng.integers(0, size, times(12, 297)).tolist()]):
        folder = damaged(shards, tmp_path / str(trial), lambda data, keep=keep: data[:keep])
        with pytest.raises(ValueError, match="shard-1"):
            read_all(folder)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "column", ["A", "B", "is_random_next", "num_tokens", "masked_lm_positions", "masked_lm_labels"]
)
@pytest.mark.parametrize("fault", ["absent", "of another type"])
def test_a_wrong_schema_is_refused_before_the_first_step(tmp_path, column, fault):
    folder = write_shards(
        tmp_path / "shards", [random_table(20, seed, masked=True) for seed in range(2)], manifest=False
    )
    path = folder / "shard-1.parquet"
    table = pq.ParquetFile(path).read(use_threads=False)
    if fault == "absent":
        table = table.drop_columns([column])
    else:
        table = table.set_column(table.column_names.index(column), column, pa.array([1.5] * len(table)))
    pq.write_table(table, path)
    with pytest.raises(ValueError, match=rf"shard-1\.parquet.*{column}"):
        ShardDirectory(folder, WORDS, 30)


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("missing", "missing"),
        ("doubled", "not in|same bytes"),
        ("replaced", "manifest says|holds"),
        ("stale counts", "says"),
        ("foreign", "not in"),
        ("empty", "0 bytes"),
        ("folder empty", "no shards"),
        ("renamed", "missing"),
        ("unfinished", "some of its shards are missing: a run is writing them"),
    ],
)
def test_a_directory_that_changed_is_refused_before_the_first_step(tmp_path, fault, rule):
    folder = write_shards(tmp_path / "shards", [random_table(20 + seed, seed) for seed in range(3)])
    path = folder / "shard-1.parquet"
    if fault == "missing":
        path.unlink()
    elif fault in ("doubled", "foreign"):
        shutil.copy(path, folder / ("shard-3.parquet" if fault == "doubled" else "part.0.parquet"))
    elif fault == "replaced":
        shutil.copy(folder / "shard-2.parquet", path)
    elif fault == "stale counts":
        (folder / MANIFEST_NAME).unlink()
        (folder / NUM_SAMPLES_NAME).write_text('{"shard-0.parquet": 20, "shard-1.parquet": 12, "shard-2.parquet": 22}')
    elif fault == "unfinished":
        (folder / "shard-2.parquet").unlink()
        (folder / MANIFEST_NAME).unlink()
        (folder / NUM_SAMPLES_NAME).unlink()
        (folder / ".unfinished").mkdir()
    elif fault == "empty":
        path.write_bytes(b"")
    elif fault == "folder empty":
        for path in folder.iterdir():
            path.unlink()
    else:
        path.rename(folder / "shard-9.parquet")
    with pytest.raises((ValueError, FileNotFoundError), match=rule):
        ShardDirectory(folder, WORDS, 60)


def command(corpus: Path, sink: Path, workers: int, *flags: str) -> list[str]:
    more = ("--block-size", str(4 << 20), "--local-n-workers", str(workers), *flags)
    return [sys.executable, "-m", "data.preprocess_bert_pretrain", *arguments(corpus, sink, *more)]


@pytest.mark.long
def test_a_run_killed_again_and_again_ends_in_the_same_bytes(tmp_path):
    write_vocabulary(tmp_path / "vocab.txt")
    write_source(tmp_path / "text", num_documents=2000)
    flags = ("--num-shards", "5", "--masking", "static", "--duplicate-factor", "3", "--block-size", "20000")
    start = time.monotonic()
    subprocess.run(command(tmp_path, tmp_path / "whole", 1, *flags), cwd=REPOSITORY, check=True, capture_output=True)
    seconds = time.monotonic() - start
    expected = hashes(tmp_path / "whole")
    rng = np.random.default_rng(3)
    kills = 0
    for trial in range(times(6, 100)):
        process = subprocess.Popen(
            command(tmp_path, tmp_path / "killed", int(rng.integers(1, 4)), *flags),
            cwd=REPOSITORY,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(rng.uniform(0.3, 1.0) * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0 and hashes(tmp_path / "killed") == expected, f"after {kills} kills"
        if trial % 2:  # otherwise the finished run is started again, which changes nothing
            shutil.rmtree(tmp_path / "killed")
    subprocess.run(command(tmp_path, tmp_path / "killed", 2, *flags), cwd=REPOSITORY, check=True, capture_output=True)
    assert hashes(tmp_path / "killed") == expected


@pytest.mark.long
def test_memory_does_not_grow_with_the_corpus_nor_with_a_line(tmp_path):
    write_vocabulary(tmp_path / "vocab.txt")
    line = b"The old boats wait under the bridges of the river over stones. "
    megabyte = b"".join(b"doc-%d " % number + line * 40 + b"\n" for number in range(400))
    sizes = {
        "small": megabyte * times(2, 8),
        "large": megabyte * times(40, 160),
        "one line": b"doc-0 " + line * (times(20, 100) * 1_000_000 // len(line)),
    }
    peaks = {}
    for name, data in sizes.items():
        folder = tmp_path / name / "text"
        folder.mkdir(parents=True)
        (folder / "0.txt").write_bytes(data)
        shutil.copy(tmp_path / "vocab.txt", tmp_path / name / "vocab.txt")
        arguments = command(tmp_path / name, tmp_path / name / "out", 1, "--num-shards", "4")[3:]
        peaks[name] = peak_of("from data import preprocess_bert_pretrain as p; p.main(sys.argv[1:])", *arguments)
        assert read_manifest(tmp_path / name / "out").counts["input bytes"] == len(data)
    assert max(peaks.values()) < 1_000_000 and peaks["large"] < peaks["small"] + 300_000, peaks


@pytest.mark.parametrize(
    ("module", "full"),
    [("data.inspect", False), ("data.balance_shards", True)],
    ids=["reader that leaves", "full disk"],
)
def test_standard_output_that_cannot_be_written(tmp_path, module, full):
    shards = write_shards(tmp_path / "shards", [random_table(400, seed) for seed in range(3)])
    vocab = write_vocabulary(tmp_path / "vocab.txt")
    arguments = {
        "data.balance_shards": f"--indir {shards} --outdir {tmp_path / 'new'} --num-shards 2",
        "data.inspect": f"{shards} --vocab-file {vocab} --samples 900",
    }[module]
    ending = "> /dev/full" if full else "| true"
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m {module} {arguments} {ending}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 74 * full and ("Error" not in ended.stderr), ended.stderr
    assert not full or "error: standard output: No space left on device; free space" in ended.stderr


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    shards = write_shards(tmp_path / "shards", [random_table(20, seed) for seed in range(3)])
    monkeypatch.setattr(download_wikipedia, "extract", full_disk)
    with refused("error: .*/wiki: No space left on device; free space", NOT_SAVED):
        (tmp_path / "dump.xml").write_text("<mediawiki>")
        download_wikipedia.main(["--outdir", str(tmp_path / "wiki"), "--local-dump", str(tmp_path / "dump.xml")])
    monkeypatch.setattr(os, "fsync", full_disk)
    with refused(r"error: .*/new/shard-0\.parquet: No space left .* free space", NOT_SAVED):
        balance_shards.main(["--indir", str(shards), "--outdir", str(tmp_path / "new"), "--num-shards", "2"])
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".unfinished"]
    with pytest.raises(ValueError, match="new: some of its shards are missing"):
        ShardDirectory(tmp_path / "new", WORDS, 60)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("preprocess_bert_pretrain", "--text text --sink out --vocab-file vocab.txt --target-seq-length 64"),
        ("balance_shards", "--indir shards --outdir out --num-shards 2"),
        ("import_text", "--input text/en --output-dir out"),
        ("download_wikipedia", "--local-dump vocab.txt --outdir out"),
    ],
)
def test_a_folder_has_one_writer(tmp_path, monkeypatch, module, arguments):
    """A second writer is refused while the first is there; its lock leaves nothing that would stop the next writer."""
    write_vocabulary(tmp_path / "vocab.txt")
    write_source(tmp_path / "text" / "en", num_documents=20)
    write_shards(tmp_path / "shards", [random_table(20, seed) for seed in range(3)])
    monkeypatch.chdir(tmp_path)
    run = importlib.import_module(f"data.{module}").main
    with only_writer(tmp_path / "out"):
        with refused("out: another run is writing to it; wait"):
            run(arguments.split())
        assert not list((tmp_path / "out").iterdir())
    with refused("hold no <mediawiki>") if module == "download_wikipedia" else nullcontext():
        run(arguments.split())


def test_a_run_waits_a_moment_for_the_workers_of_one_that_was_killed(tmp_path):
    dying = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, os, sys, time\n"
            "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\nprint(flush=True)\n"
            "time.sleep(0.5)",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
    )
    assert dying.stdout is not None and dying.stdout.readline()
    with only_writer(tmp_path):
        assert dying.poll() is not None or dying.wait(1) == 0
