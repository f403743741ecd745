"""Runs commands whose output matters only if they fail."""

import os
import subprocess
import sys
from collections.abc import Sequence

from bert import REPOSITORY


def run(words: Sequence[object], **variables: str) -> None:
    """Run a command in the repository's folder, with further environment variables.

    Raises:
        ValueError: with the end of its output, if it failed.
    """
    command = list(map(str, words))
    done = subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        output = (done.stdout + done.stderr)[-3000:]
        raise ValueError(f"{' '.join(command)} ended with exit code {done.returncode}: {output}")


def run_module(name: str, *words: object, **variables: str) -> None:
    """`run` of `python -m NAME WORDS`."""
    run([sys.executable, "-m", name, *words], **variables)
