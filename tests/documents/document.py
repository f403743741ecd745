"""The commands of the documents, and how the tests here type them: in a fresh clone, as a newcomer would.

A test names each command that it types by `command("its start")` or `commands("what several start with")`, with the
text written out: tests/test_documents.py reads these calls, and fails if a command of the documents is in none of them
or in two.
"""

import os
import re
from collections import defaultdict
from pathlib import Path

from tests.support import shell
from tests.support.documents import COMMANDS, FENCE, TEXTS
from tests.support.fake_hub import put_in_cache, tiny_model
from tests.support.suggestions import try_all

# .ci/run runs these, or they run all tests.
NOT_FROM_INSIDE = ("bash scripts/run_tests.sh", "bash scripts/run_fault_tests.sh", "bash .ci/run")
NOT_FROM_INSIDE += ("bash scripts/run_gpu_record.sh", "bash scripts/run_mutation_tests.sh")
# The gate divides the quickstart's updates by BERT_DIVIDE_UPDATES. Then its model has learned too little to be judged,
# and the quickstarts of fine-tuning from it are short as well.
DIVISOR = int(os.environ.get("BERT_DIVIDE_UPDATES", "1"))
SHORT = " --epochs 2" if DIVISOR > 1 else ""
_SUGGESTING = re.compile(
    r"(bash scripts/|\S*python )run_(pretraining|squad|glue|ner|classify|vectors|convert|export|predict)\b"
)
_TYPED: dict[Path, list[tuple[str, str]]] = defaultdict(list)  # clone -> entry points' lines, and their outputs


def commands(start: str) -> list[str]:
    """Return the commands of the documents that start with this text; at least one must."""
    found = [line for line in COMMANDS if line.startswith(start)]
    assert found, f"no command of the documents starts with {start}"
    return found


def command(start: str) -> str:
    """Return the documents' only command that is, or starts with, this text."""
    if start in COMMANDS:
        return start
    (found,) = commands(start)
    return found


def example(start: str) -> str:
    """Return the documents' Python block that starts with this text."""
    blocks = [block for language, block in FENCE.findall("\n".join(TEXTS.values())) if language == "python"]
    (found,) = [block for block in blocks if block.startswith(start)]
    return found


def output_of(line: str, clone: Path, *parts: str, **options) -> str:
    """Run a command as tests.support.shell does; the output of an entry point is kept for `try_suggestions`."""
    shown = shell.output_of(line, clone, *parts, **options)
    note(line, clone, shown)
    return shown


def note(line: str, clone: Path, output: str) -> None:
    """Keep the output of a command that suggests the next commands."""
    if _SUGGESTING.match(line) and not line.endswith("--help"):
        _TYPED[clone].append((line, output))


def try_suggestions(clone: Path) -> list[str]:
    """Run the commands that this clone's outputs suggest, except those typed before; return the commands that ran."""
    known = [line for line, _ in _TYPED[clone]]
    return try_all([output for _, output in _TYPED[clone]], clone, known)[len(known) :]


def offline(clone: Path) -> dict[str, str]:
    """Make an environment without network, whose cache has a small model under each published name of the documents."""
    cache = clone.parent / "cache"
    for name in ("bert-base-uncased", "bert-base-cased"):
        if not (cache / "models/google-bert" / name).exists():
            put_in_cache(cache, name, tiny_model(positions=512))
    return {"BERT_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
