"""Training on private text sends nothing: it works without a network, and connects only to its own machine."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from bert import REPOSITORY
from tests.newcomer.folders import articles, documents

# Of every Python process: where it connects to, and which names it looks up.
_LISTENER = """
import json, os, sys
def note(event, values):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        place = values[1] if event != "socket.getaddrinfo" else values[0]
        with open(os.environ["NOTED_CONNECTIONS"], "a") as file:
            file.write(json.dumps(str(place)) + "\\n")
sys.addaudithook(note)
"""
_OWN = ("127.0.0.1", "localhost", "('127.", "::1", "0.0.0.0", "None")


def has_namespaces() -> bool:
    tools = shutil.which("unshare") and shutil.which("ip")
    return bool(tools) and subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not has_namespaces(), reason="network namespaces need unshare, ip and the right to use them")
def test_own_text_is_trained_without_a_network_and_connects_to_nobody(tmp_path):
    text = articles(tmp_path / "notes", documents(tmp_path / "corpus", 0.3))
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook/sitecustomize.py").write_text(_LISTENER)
    noted = tmp_path / "connections"
    words = [sys.executable, "-m", "bert.commands", "pretraining", "--text", text, "--output-dir", tmp_path / "out"]
    line = " ".join(map(str, [*words, "--max-steps", "4", "--eval-samples", "32"]))
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path / 'hook'}:{REPOSITORY}", "NOTED_CONNECTIONS": str(noted)}
    inside = ["unshare", "-n", "bash", "-c", f"ip link set lo up && {line}"]
    done = subprocess.run(inside, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learned:" in done.stdout and "nearest sentences" in done.stdout
    places = {json.loads(row) for row in noted.read_text().splitlines()}
    own = (*_OWN, "/", os.uname().nodename)
    assert places and not [place for place in places if not place.strip("b'\"").startswith(own)], places
