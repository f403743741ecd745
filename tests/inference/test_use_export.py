"""Tests that the C++ example (bert/inference/use_export.cpp) gives the numbers of our predictor."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bert import REPOSITORY
from bert.conversion.usage import Usage
from bert.inference.predictor import Predictor
from tests.inference.models import export, feed_of, model

IDS = [2, 7, 8, 9, 3]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_the_example_in_cpp_gives_the_numbers_of_our_predictor(tmp_path):
    openvino = pytest.importorskip("openvino")
    package = Path(openvino.__file__).parent
    (library,) = package.glob("libs/libopenvino.so.*")
    words = ["g++", "-std=c++17", str(REPOSITORY / "bert/inference/use_export.cpp"), "-o", str(tmp_path / "use_export")]
    words += [f"-I{package}/include", str(library), f"-Wl,-rpath,{package}/libs"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    folder = export(model(tmp_path / "m", "token-classification", Usage("ours", 9)), tmp_path / "x", "--format", "onnx")
    command = [str(tmp_path / "use_export"), str(folder / "model.onnx"), *map(str, IDS)]
    done = subprocess.run(command, capture_output=True, text=True)
    (logits,) = Predictor(folder, device="cpu").run(feed_of(IDS)).values()
    np.testing.assert_allclose(list(map(float, done.stdout.split())), logits.ravel()[:8], atol=1e-4)
    refused = subprocess.run([*command[:1], str(tmp_path / "none.onnx"), "2"], capture_output=True, text=True)
    assert refused.returncode == 1 and refused.stderr.startswith("error: ") and "none.onnx" in refused.stderr
