"""Text in files of many kinds."""

import gzip
import json
from pathlib import Path

from data.examples.prose import docstrings_of


def odd_files(folder: Path) -> None:
    """300 kB of English in files of many kinds, and files that are none."""
    sources = sorted(Path(gzip.__file__).parent.glob("*.py"))
    documents = [" ".join(texts) for path in sources if (texts := docstrings_of(path.read_bytes()))]
    folder.mkdir()
    size = 0
    for number, document in enumerate(text for text in documents if len(text) > 800):
        if size > 300_000:
            break
        size += len(document)
        kinds = {
            "txt": f"Café. {document}".encode("latin-1", "replace"),
            "jsonl": (json.dumps({"text": document}) + "\n").encode(),
            "txt.gz": gzip.compress(document.encode()),
            "md": f"# Title {number}\n\n{document}\n".encode(),
        }
        suffix = list(kinds)[number % len(kinds)]
        (folder / f"{number}.{suffix}").write_bytes(kinds[suffix])
    (folder / "paper.txt").write_bytes(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" + bytes(range(256)))
    (folder / "empty.txt").write_text("")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n")
