"""The scores that CrossEncoder of sentence-transformers gives with an exported reranker, and the recording of them.

In an environment with sentence-transformers, with the folder that the test exports (recorded with 6.2.0):

    python tests/support/oracle_cross_encoder.py FOLDER tests/golden/libraries/cross_encoder.json
"""

import hashlib
import json
import sys
from pathlib import Path

QUERY = "word1 word4"
PASSAGES = ["word3 word2", "word7", "word5 word6 word7 word8 word9 word10 word11 word12", "word1 WORD4 nothing"]
LOADED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")


def checksums(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in LOADED}


def main(folder: Path, target: Path) -> None:
    from sentence_transformers import CrossEncoder, __version__

    scores = CrossEncoder(str(folder), device="cpu").predict([(QUERY, passage) for passage in PASSAGES])
    record = {"sentence_transformers": __version__, "files": checksums(folder), "scores": scores.tolist()}
    target.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
