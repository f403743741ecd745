"""VisualDL's pages of two finished runs, as a browser shows them. Takes a minute: marked slow."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from bert import REPOSITORY

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)
RATES = ("1e-2", "3e-3")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs Chromium (apt-get install chromium)")]


def train(folder: Path, rate: str) -> None:
    command = shlex.split(
        f"{sys.executable} run_pretraining.py --phase1 --bert-model bert-test --vocab-size 106 --hidden-size "
        "32 --num-hidden-layers 1 --num-attention-heads 4 --intermediate-size 37 --max-position-embeddings 32 "
        f"--input-dir {folder / 'data/shards'} --eval-dir {folder / 'data/shards'} --vocab-file "
        f"{folder / 'data/vocab.txt'} --max-seq-length 32 --max-predictions-per-seq 4 --batch-size 8 --amp "
        f"--scale-loss 1024 --learning-rate {rate} --max-steps 30 --log-freq 1 --eval-freq 5 --device cpu "
        f"--output-dir {folder / 'results' / rate} --report-file {folder / f'{rate}.json'} --peak-tflops 1 "
        "--num-workers 0"
    )
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where VisualDL serves two finished runs that differ in the learning rate."""
    from tests.support.corpora import random_table, write_shards, write_vocabulary

    folder = tmp_path_factory.mktemp("visualdl")
    (folder / "data").mkdir()
    write_vocabulary(folder / "data/vocab.txt")
    write_shards(folder / "data/shards", [random_table(100, seed, masked=True) for seed in range(2)])
    for rate in RATES:
        train(folder, rate)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = shlex.split(
        f"{Path(sys.executable).parent / 'visualdl'} --logdir {folder / 'results'} --host 127.0.0.1 --port {port}"
    )
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}/app"
        deadline = time.monotonic() + 60
        while not answer(address, "scalar/tags") and time.monotonic() < deadline:
            time.sleep(0.5)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def answer(address: str, what: str):
    """What the page asks the server for."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}/api/{what}", timeout=10) as reply:
            return json.loads(reply.read())["data"]
    except (OSError, ValueError):
        return None


def browse(address: str, page: str, screenshot: Path) -> str:
    """Take a screenshot of a page and return its elements as HTML. The browser is started anew if it hangs."""
    for attempt in range(3):
        command = shlex.split(
            f"{BROWSER} --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-proxy-server "
            f"--user-data-dir={screenshot.parent / f'profile{attempt}'} --window-size=1500,1400 "
            f"--virtual-time-budget=15000 --screenshot={screenshot} --dump-dom {address}/{page}"
        )
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        try:
            elements, _ = process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            continue
        assert process.returncode == 0 and screenshot.is_file()
        return elements
    pytest.fail("the browser hung three times")


def pixels(path: Path) -> np.ndarray:
    """uint8 [height, width, 3]."""
    from matplotlib.image import imread

    return (imread(path)[..., :3] * 255).round().astype(np.uint8)


def coloured(image: np.ndarray) -> np.ndarray:
    """bool [height, width]: neither grey nor nearly so; curves are, text and grids are not."""
    return (image.max(-1).astype(int) - image.min(-1)) > 60


def test_the_server_has_every_curve_of_both_runs(address):
    tags = answer(address, "scalar/tags")
    assert len(tags["runs"]) == len(RATES)
    for found in tags["tags"]:
        for name in (
            "train/loss",
            "train/learning_rate",
            "train/loss_scale",
            "train/gradient_norm",
            "train/seqs_per_sec",
            "eval/masked_lm_loss",
            "eval/masked_lm_accuracy",
            "final/mfu",
        ):
            assert name.replace("/", "%2F") in found or name in found, (name, found)


def test_the_page_of_scalars_shows_the_curves_of_both_runs(address, tmp_path):
    elements = browse(address, "scalar", tmp_path / "scalar.png")
    for group in (">eval<", ">train<", ">final<"):
        assert group in elements
    assert elements.count("<canvas") >= 5  # the open group's charts; their titles are drawn, not elements
    image = pixels(tmp_path / "scalar.png")
    charts = image[120:1150, 30:920]  # below the header, left of the list of runs
    lines = charts[coloured(charts)]
    assert len(lines) > 1500, "no curves on the page"
    shades = {tuple(colour // 64) for colour in lines}
    assert len(shades) >= 2, "the curves of the two runs have one colour"
    assert len(np.unique(charts.reshape(-1, 3), axis=0)) > 50


def test_the_page_of_hyper_parameters_compares_the_runs(address, tmp_path):
    elements = browse(address, "hyper-parameter", tmp_path / "table.png")
    for words in ("learning_rate", "batch_size", "0.01", "0.003"):
        assert words in elements, words
    image = pixels(tmp_path / "table.png")
    assert (image.std(axis=(0, 1)) > 10).all() and len(np.unique(image.reshape(-1, 3), axis=0)) > 50
    rows = {row["name"]: row for row in answer(address, "hparams/list")}
    assert {row["hparams"]["learning_rate"] for row in rows.values()} == {0.01, 0.003}
    assert all(row["metrics"]["eval/masked_lm_loss"] > 0 for row in rows.values())
