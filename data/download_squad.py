"""Download SQuAD 1.1 and 2.0; sizes and sha256 are pinned.

The files are D/download/squad/v1.1/train-v1.1.json, dev-v1.1.json and so on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from bert.command_errors import command
from bert.config.plain_commands import OutputDir, read_flags
from bert.config.settings_base import Settings
from data.fetching.places import Mirrors

FILES = {
    "1.1": {
        "train-v1.1.json": ("3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955", 30_288_272),
        "dev-v1.1.json": ("95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9", 4_854_279),
    },
    "2.0": {
        "train-v2.0.json": ("68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002", 42_123_633),
        "dev-v2.0.json": ("80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8", 4_370_528),
    },
}
_ADDRESS = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"


def download_file(path: Path, mirrors: Sequence[str] | None = None) -> Path:
    """Download the SQuAD file that `path` names, or verify an existing one.

    Args:
        mirrors: folders that hold files of the same names.
    """
    files = {name: pin for version in FILES.values() for name, pin in version.items()}
    if path.name not in files:
        raise ValueError(f"{path} is not a file of SQuAD, which has {', '.join(files)}; name one of them")
    sha256, num_bytes = files[path.name]
    urls = [f"{mirror.rstrip('/')}/{path.name}" for mirror in mirrors or [_ADDRESS]]
    from data.fetching.transfer import fetch  # loads requests, which the runs that import this do not need

    return fetch(path, urls, f"sha256:{sha256}", num_bytes)


class SquadRequest(Settings):
    """The settings of this command, read from its flags."""

    outdir: OutputDir = Field(description="gets a folder for each version")
    version: tuple[Literal["1.1", "2.0"], ...] = Field(("1.1",), description="versions to download")
    mirror: Mirrors = Field((), description="folder with the files")


_EXAMPLES = ("--output-dir D/download/squad", "--output-dir D/download/squad --version 1.1 2.0")


def main(argv: list[str] | None = None) -> None:
    request = read_flags(SquadRequest, argv, description=__doc__, examples=_EXAMPLES)
    with command(request.outdir):
        for version in request.version:
            for name in FILES[version]:
                path = request.outdir / f"v{version}" / name
                print(f"{download_file(path, request.mirror)}: complete")


if __name__ == "__main__":
    main()
