"""The commands of the documents, and how the tests here run them: in a fresh clone, as a newcomer would."""

import os
import re
import subprocess
from pathlib import Path

from tests.support import suggestions as suggested
from tests.support.documents import COMMANDS, FENCE, TEXTS
from tests.support.fake_hub import put_in_cache, tiny_model

QUICKSTART = "bash scripts/run_pretraining.sh"
# The gate divides the quickstart's updates by BERT_DIVIDE_UPDATES. Then its model has learned too little to be judged,
# and the quickstarts of fine-tuning from it are short as well.
DIVISOR = int(os.environ.get("BERT_DIVIDE_UPDATES", "1"))
SHORT = " --epochs 2" if DIVISOR > 1 else ""
TRIED: set[str] = set()
OUTPUTS: list[str] = []  # of the entry points and their scripts, which suggest what to do next
SUGGESTING = re.compile(r"(bash scripts/|\S*python )run_(pretraining|squad|glue|ner|convert|export|predict)\b")


def command(start: str) -> str:
    """The documents' command that starts so; the test fails if they no longer have it, or have two."""
    (found,) = [line for line in COMMANDS if line.startswith(start)]
    TRIED.add(found)
    return found


def example(start: str) -> str:
    """The documents' Python block that starts so."""
    blocks = [block for language, block in FENCE.findall("\n".join(TEXTS.values())) if language == "python"]
    (found,) = [block for block in blocks if block.startswith(start)]
    return found


def run(line: str, folder: Path, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess:
    """The line in a shell whose `python` is the one of these tests."""
    variables = suggested.environment(**environment)
    words = ["bash", "-c", line]
    done = subprocess.run(
        words, cwd=folder, timeout=timeout, capture_output=True, text=True, env=variables, check=False
    )
    if SUGGESTING.match(line) and not line.endswith("--help"):
        OUTPUTS.append(done.stdout)
    return done


def output_of(line: str, folder: Path, *parts: str, timeout: float = 300, **environment: str) -> str:
    """The standard output of a command that succeeds; the `parts` are in it."""
    done = run(line, folder, timeout, **environment)
    assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    missing = [part for part in parts if part not in done.stdout]
    assert not missing, f"{line}\n{missing} are not in\n{done.stdout[-3000:]}"
    return done.stdout


def offline(clone: Path) -> dict[str, str]:
    """An environment without network, in whose cache is a small model under each published name of the documents."""
    cache = clone.parent / "cache"
    for name in ("bert-base-uncased", "bert-base-cased"):
        if not (cache / "models/google-bert" / name).exists():
            put_in_cache(cache, name, tiny_model(positions=512))
    return {"BERT_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}


def resolves(start: str, clone: Path, *parts: str) -> None:
    """The settings of a command for fine-tuning are shown."""
    flags = f"--vocab-file {clone}/results/quickstart/data/vocab.txt --device cpu --show-config"
    output_of(f"{command(start)} {flags}", clone, *parts, **offline(clone), BERT_PREP_WORKING_DIR="/data")
