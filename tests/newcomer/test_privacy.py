"""Training on private text sends nothing: it works without a network, and connects only to its own machine."""

import shutil
import subprocess
import sys

import pytest

from tests.newcomer.folders import articles, documents
from tests.support.connections import foreign_places, listening, places


def has_namespaces() -> bool:
    tools = shutil.which("unshare") and shutil.which("ip")
    return bool(tools) and subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not has_namespaces(), reason="network namespaces need unshare, ip and the right to use them")
def test_own_text_is_trained_without_a_network_and_connects_to_nobody(tmp_path):
    text = articles(tmp_path / "notes", documents(tmp_path / "corpus", 0.3))
    words = [sys.executable, "-m", "bert.commands", "pretraining", "--text", text, "--output-dir", tmp_path / "out"]
    line = " ".join(map(str, [*words, "--max-steps", "4", "--eval-samples", "32"]))
    inside = ["unshare", "-n", "bash", "-c", f"ip link set lo up && {line}"]
    done = subprocess.run(
        inside, env=listening(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learned:" in done.stdout and "nearest sentences" in done.stdout
    assert places(tmp_path) and foreign_places(tmp_path) == []
