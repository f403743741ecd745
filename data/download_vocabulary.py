"""Download the vocabularies of the published BERT models.

    python -m data.download_vocabulary --outdir D/vocab [--name bert-large-uncased]

The file is D/vocab/bert-large-uncased-vocab.txt, where the recipes for BERT-large look for it. Each has a pinned
sha256, wherever it comes from; base and large models share theirs. If an installed package has it, it is copied.
"""

from pathlib import Path

from bert.command_errors import command
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.tokenization.vocabulary_files import read_vocabulary
from data.fetching.transfer import fetch
from data.fetching.vocabularies import VOCABULARIES, installed_content

_ADDRESSES = (
    "https://huggingface.co/google-bert/{name}/resolve/main/vocab.txt",
    "https://bj.bcebos.com/paddle-hapi/models/bert/{name}-vocab.txt",
)


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--outdir", type=Path, required=True)
    parser.add_argument("--name", choices=sorted(VOCABULARIES), default="bert-large-uncased")
    parser.add_argument("--mirror", action="append", help="URL of a folder with NAME-vocab.txt; may be repeated")
    arguments = parser.parse_args(argv)
    name, (sha256, num_bytes) = arguments.name, VOCABULARIES[arguments.name]
    patterns = [mirror.rstrip("/") + "/{name}-vocab.txt" for mirror in arguments.mirror or []] or _ADDRESSES
    urls = [pattern.replace("{name}", name) for pattern in patterns]
    with command(arguments.outdir):
        path = arguments.outdir / f"{name}-vocab.txt"
        content = None if path.exists() or arguments.mirror else installed_content(name)
        if content is None:
            fetch(path, urls, f"sha256:{sha256}", num_bytes)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        print(f"{path}: {len(read_vocabulary(path))} tokens")


if __name__ == "__main__":
    main()
