"""Download and unpack the GLUE tasks; sizes and sha256 are pinned.

`run_glue.py --download` and `run_glue.sh --download` fetch the set of their task themselves.
Each task becomes a folder with train.tsv, dev.tsv and test.tsv, as it is in its archive; MRPC's are made from the
corpus that Microsoft published and GLUE's list of the pairs held out. A folder appears when it is complete.
"""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from bert.command_errors import command
from bert.config.flags import Flag
from bert.config.plain_commands import OutputDir, read_flags
from bert.config.settings_base import Settings
from bert.files import waiting_lock
from data.fetching.places import Mirrors

_ADDRESS = "https://dl.fbaipublicfiles.com/glue/data/"
_MRPC_ADDRESS = "https://dl.fbaipublicfiles.com/senteval/senteval_data/"
ARCHIVES: dict[str, dict[str, tuple[str, int]]] = {
    "CoLA": {"CoLA.zip": ("f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff", 376_971)},
    "SST-2": {"SST-2.zip": ("d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa", 7_439_277)},
    "MRPC": {
        "msr_paraphrase_train.txt": ("60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89", 1_047_044),
        "msr_paraphrase_test.txt": ("a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784", 441_275),
        "mrpc_dev_ids.tsv": ("971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7", 6_222),
    },
    "QQP": {"QQP-clean.zip": ("40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0", 41_696_084)},
    "STS-B": {"STS-B.zip": ("e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85", 802_872)},
    "MNLI": {"MNLI.zip": ("e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633", 312_783_507)},
    "QNLI": {"QNLIv2.zip": ("e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5", 10_627_589)},
    "RTE": {"RTE.zip": ("6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee", 697_150)},
    "WNLI": {"WNLI.zip": ("ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46", 28_999)},
    "AX": {"AX.tsv": ("0e13510b1bb14436ff7e2ee82338f0efb0133ecf2e73507a697dc210db3f05fd", 222_257)},
}


def is_there(folder: Path) -> bool:
    """Whether a folder has a task's files; it gets its name only when it is complete."""
    return folder.is_dir() and any(folder.iterdir())


def download_task(task: str, final: Path, mirrors: Sequence[str] | None = None) -> Path:
    """Fill the folder `final` with verified files, unless it exists; several processes may do so at once."""
    if not is_there(final):
        with waiting_lock(final.parent / f"archives/.{task}.lock", f"process that is fetching {task}"):
            if not is_there(final):
                _make(task, final, mirrors)
    return final


def _make(task: str, final: Path, mirrors: Sequence[str] | None) -> None:
    from data.fetching.transfer import fetch  # loads requests, which the runs that import this do not need

    archives = final.parent / "archives"
    files = []
    for name, (sha256, num_bytes) in ARCHIVES[task].items():
        address = _MRPC_ADDRESS if name.startswith("msr_") else _ADDRESS
        urls = [f"{mirror.rstrip('/')}/{name}" for mirror in mirrors or [address]]
        files.append(fetch(archives / name, urls, f"sha256:{sha256}", num_bytes))
    work = Path(tempfile.mkdtemp(prefix=f".{task}.", dir=final.parent))
    try:
        prepared = work / "task"
        if files[0].suffix == ".zip":
            with zipfile.ZipFile(files[0]) as archive:  # its sha256 is pinned: nothing hostile is in it
                archive.extractall(prepared)
            shutil.rmtree(prepared / "__MACOSX", ignore_errors=True)
            inner = list(prepared.iterdir())
            if len(inner) == 1 and inner[0].is_dir():
                prepared = inner[0]
        elif task == "MRPC":
            _write_mrpc(prepared, *files)
        else:
            prepared.mkdir()
            shutil.copyfile(files[0], prepared / "diagnostic.tsv")
        os.rename(prepared, final)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_mrpc(folder: Path, train_path: Path, test_path: Path, held_out_path: Path) -> None:
    """Write MRPC's three files: the listed pairs become dev.tsv; test.tsv has row numbers instead of labels."""
    held_out = {tuple(line.split("\t")) for line in _lines(held_out_path)}
    header, *rows = _lines(train_path)
    dev = [row for row in rows if tuple(row.split("\t")[1:3]) in held_out]
    train = [row for row in rows if row not in dev]
    if len(dev) != len(held_out) or not train:
        raise ValueError(
            f"{train_path}: holds {len(dev)} of the {len(held_out)} pairs of {held_out_path.name}; the "
            "two do not belong together: remove both and start again"
        )
    _, *test = _lines(test_path)
    numbered = ["\t".join([str(number), *row.split("\t")[1:]]) for number, row in enumerate(test)]
    folder.mkdir()
    for name, content in (
        ("train", [header, *train]),
        ("dev", [header, *dev]),
        ("test", ["\t".join(["index", *header.split("\t")[1:]]), *numbered]),
    ):
        (folder / f"{name}.tsv").write_bytes(("\n".join(content) + "\n").encode())


def _lines(path: Path) -> list[str]:
    """Lines without their ends, which are only LF or CR LF."""
    text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    return [line for line in text.split("\n") if line.strip()]


class GlueRequest(Settings):
    """The settings of this command, read from its flags."""

    outdir: OutputDir = Field(description="gets a folder for each task")
    task: Annotated[tuple[Literal[*ARCHIVES], ...], Flag(default_text="all")] = Field(  # type: ignore[valid-type]
        tuple(sorted(ARCHIVES)), description="tasks to download"
    )
    mirror: Mirrors = Field((), description="folder with the files")


_EXAMPLES = ("--output-dir D/download/glue", "--output-dir D/download/glue --task MRPC SST-2")


def main(argv: list[str] | None = None) -> None:
    request = read_flags(GlueRequest, argv, description=__doc__, examples=_EXAMPLES)
    with command(request.outdir):
        for task in request.task:
            folder = download_task(task, request.outdir / task, request.mirror)
            print(f"{task}: {' '.join(sorted(path.name for path in folder.iterdir()))}")


if __name__ == "__main__":
    main()
