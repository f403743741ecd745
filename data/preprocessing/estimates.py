"""Estimates disk and time of data/create_datasets_from_start.sh, for its --dry-run.

A script without imports of ours, because a dry run installs no packages:

  python3 -P data/preprocessing/estimates.py --folder D --duplicate-factor 5 wikipedia phase1 phase2

The rates were measured on one core of an AMD EPYC with 7 MB of documentation: as plain text, and
in a dump of our making with links, references and templates. Real articles have more markup.
"""

import argparse
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

PINNED_DUMP_BYTES = 17_751_214_669  # English, of 2020-01-01
TEXT_PER_DUMP_BYTE = 0.85  # rough, English
DOWNLOAD_BYTES_PER_SECOND = 12.5e6  # 100 Mbit/s
DUMP_BYTES_PER_SECOND = 1.5e6  # extracted by one process
SHARD_BYTES_PER_TEXT_BYTE = 1.0  # of each copy, static masks, snappy
PEAK = 0.2  # of a phase's shards: blocks that wait until they are written
SECONDS_PER_TEXT_BYTE, SECONDS_PER_COPIED_BYTE = 0.16e-6, 0.015e-6  # of one process: reading; sampling and writing
# Of own text, which has a vocabulary of its own: bytes of text a second, the shards by one process; and bytes on the
# disk for each byte of text. The import takes so many times what reading the files takes.
VOCABULARY_RATE, SHARD_RATE, SECONDS_OF_STARTS, IMPORT_COST = 3e6, 8e6, 2.0, 1.5
IMPORTED_BYTES, SHARD_BYTES = 1.1, 1.6
LEAST_BYTES_OF_A_PROCESS = 4 << 20
_PHASES = ("phase1", "phase2")


class Estimate(NamedTuple):
    what: str
    num_bytes: float
    seconds: float
    source: str

    def __str__(self) -> str:
        return f"{self.what:16}  {self.num_bytes / 1e9:8,.1f} GB  {self.seconds / 3600:6,.1f} h  {self.source}"


def estimates(arguments: argparse.Namespace, dump_bytes: float, text_bytes: float) -> Iterator[Estimate]:
    """Estimates for each long step, from the command line and the size of the dump.

    Args:
        text_bytes: of the articles that are there already; 0: they come from the dump.
    """
    if "wikipedia" in arguments.steps and not text_bytes:
        if not arguments.dump:
            yield Estimate("dump", dump_bytes, dump_bytes / DOWNLOAD_BYTES_PER_SECOND, "download at 100 Mbit/s")
        seconds = dump_bytes / DUMP_BYTES_PER_SECOND / arguments.processes
        yield Estimate("text", dump_bytes * TEXT_PER_DUMP_BYTE, seconds, f"{TEXT_PER_DUMP_BYTE:g} of the dump")
    text, copies = text_bytes or dump_bytes * TEXT_PER_DUMP_BYTE, arguments.sample_ratio * arguments.duplicate_factor
    source = f"{arguments.sample_ratio:.0%} of the documents, {arguments.duplicate_factor} x"
    for phase in [step for step in arguments.steps if step in _PHASES]:
        seconds = text * (SECONDS_PER_TEXT_BYTE + SECONDS_PER_COPIED_BYTE * copies) / arguments.processes
        yield Estimate(f"shards of {phase}", SHARD_BYTES_PER_TEXT_BYTE * text * copies, seconds, source)


def own_text_seconds(num_bytes: int, copies: int, cores: int, reading_seconds: float, slowness: float) -> float:
    """Time of import, vocabulary and shards, each document of which is used `copies` times: the import by the time of
    a processor that reading all files once takes, all by how many times that this machine takes now.
    """
    processes = min(cores, 1 + num_bytes // LEAST_BYTES_OF_A_PROCESS)
    seconds_of_a_byte = 1 / VOCABULARY_RATE + copies / (SHARD_RATE * processes)
    return slowness * (IMPORT_COST * reading_seconds + SECONDS_OF_STARTS + num_bytes * seconds_of_a_byte)


def own_text_bytes(num_bytes: int, copies: int) -> float:
    """Disk space of the imported text and its shards, in bytes."""
    return num_bytes * (IMPORTED_BYTES + SHARD_BYTES * copies)


def report(rows: list[Estimate], folder: Path, processes: int) -> str:
    """Table of the estimates with their sum, compared with the free space."""
    lines = [str(row) for row in rows]
    waiting = PEAK * max((row.num_bytes for row in rows if row.what.startswith("shards")), default=0.0)
    if waiting:
        lines.append(str(Estimate("at the peak", waiting, 0.0, "of a phase, blocks that wait until they are written")))
    disk = sum(row.num_bytes for row in rows) + waiting
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(parent).free
    where = f"{processes} processes; {free / 1e9:,.1f} GB free in {parent}{'' if free > disk else ': too little'}"
    return "\n".join([*lines, str(Estimate("in all, about", disk, sum(row.seconds for row in rows), where))])


def _parser() -> argparse.ArgumentParser:
    formatter = partial(argparse.RawDescriptionHelpFormatter, width=100)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("steps", nargs="*", help="of the script that are run")
    parser.add_argument("--folder", type=Path, required=True, help="of all data")
    parser.add_argument("--dump", default="", help="a dump that is there")
    parser.add_argument("--pinned", action="store_true", help="the English dump whose size is known")
    parser.add_argument("--sample-ratio", type=float, default=1.0)
    parser.add_argument("--duplicate-factor", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    return parser


def main(argv: list[str] | None = None) -> None:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.dump and not Path(arguments.dump).is_file():
        parser.error(f"local_dump={arguments.dump}: no such file; give a dump, *.xml.bz2 or *.xml")
    text = sum(file.stat().st_size for file in arguments.folder.glob("wikipedia/source/*/*.txt"))
    dump = Path(arguments.dump).stat().st_size if arguments.dump else PINNED_DUMP_BYTES if arguments.pinned else 0
    if not dump and not text:
        print("disk and time: known with --local-dump, or once there is the text")
        return
    rows = list(estimates(arguments, dump, text))
    if rows:
        print(report(rows, arguments.folder, arguments.processes))


if __name__ == "__main__":
    main()
