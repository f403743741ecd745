"""Notes where every Python process of a command connects to, and which names it looks up."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bert import REPOSITORY

# A sitecustomize.py, which every Python process imports first.
LISTENER = """
import json, os, sys
def note(event, values):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        place = values[1] if event != "socket.getaddrinfo" else values[0]
        with open(os.environ["NOTED_CONNECTIONS"], "a") as file:
            file.write(json.dumps(str(place)) + "\\n")
sys.addaudithook(note)
"""
_OWN = ("127.0.0.1", "localhost", "('127.", "('0.0.0.0", "::1", "0.0.0.0", "None", "/", os.uname().nodename)
# Variables by which packages know that they are tested, and then do not report to their makers.
_TESTED = re.compile(r"PYTEST_.*|CI|.*_CI|GITHUB_ACTIONS|DO_NOT_TRACK|.*TELEMETRY.*|WANDB_ERROR_REPORTING")


def listening(folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a command that is listened to, as a user's: nothing in it says that this is a test."""
    hook = folder / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(LISTENER)
    kept = {name: value for name, value in os.environ.items() if not _TESTED.fullmatch(name)}
    paths = f"{hook}:{REPOSITORY}"
    return {**kept, "PYTHONPATH": paths, "NOTED_CONNECTIONS": str(folder / "connections"), **variables}


def places(folder: Path) -> set[str]:
    """Return the places to which the command connected, or tried to."""
    noted = folder / "connections"
    return {json.loads(row) for row in noted.read_text().splitlines()} if noted.exists() else set()


def foreign_places(folder: Path) -> list[str]:
    """Return the places that are not this machine."""
    return sorted(place for place in places(folder) if not place.strip("b'\"").startswith(_OWN))


def run_listened(folder: Path, words: Sequence[str], **variables: str) -> str:
    """Run Python with arguments; return its output."""
    environment = listening(folder, **variables)
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
