"""A model goes to other formats and comes back, is exported, and is served."""

import hashlib
import json
import re
import signal
import time

import numpy as np
import pandas as pd
import psutil
import requests
from safetensors.numpy import load_file, save_file

from bert import REPOSITORY
from tests.journeys.commands import output_of, read_until, started
from tests.journeys.conftest import write_notes
from tests.support import foreign
from tests.support.waiting import wait_until


def test_hugging_faces_model_is_converted_and_back_to_the_file_whose_outputs_transformers_gave(clone, tmp_path):
    source = tmp_path / "hf"
    source.mkdir()
    save_file(foreign.hugging_face(foreign.parameters()), source / "model.safetensors")
    config = {**foreign.CONFIG, "model_type": "bert", "architectures": ["BertForPreTraining"]}
    (source / "config.json").write_text(json.dumps(config))
    (source / "vocab.txt").write_text("".join(f"{token}\n" for token in foreign.TOKENS))
    output_of(f".venv/bin/python run_convert.py --from {source} --to {tmp_path}/ours --to-format native", clone)
    back = tmp_path / "back"
    shown = output_of(f".venv/bin/python run_convert.py --from {tmp_path}/ours --to {back} --to-format hf", clone)
    assert "changes:" in shown and json.loads((back / "config.json").read_text())["model_type"] == "bert"
    original, returned = (load_file(folder / "model.safetensors") for folder in (source, back))
    assert original.keys() <= returned.keys()
    assert not [name for name, tensor in original.items() if not np.array_equal(tensor, returned[name])]
    recorded = json.loads((REPOSITORY / "tests/golden/libraries/transformers_files.json").read_text())
    written = hashlib.sha256((back / "model.safetensors").read_bytes()).hexdigest()
    assert written == recorded["pretraining/model.safetensors"], "tests/conversion compares the outputs of this file"


def test_exports_predict_what_the_checkpoint_predicts(clone, classifier, tmp_path):
    write_notes(tmp_path / "new.csv", 20, ("id", "note"), "utf-8", 4)

    def predicted(folder: str) -> pd.DataFrame:
        output_of(f".venv/bin/python run_predict.py '{folder}' {tmp_path}/new.csv --output {tmp_path}/out.csv", clone)
        return pd.read_csv(tmp_path / "out.csv", sep=";")

    expected = predicted(f"{classifier}/my results")
    for form in ("paddle-inference", "onnx"):
        source, target = f"--checkpoint '{classifier}/my results'", tmp_path / form
        output_of(f".venv/bin/python run_export.py {source} --to {target} --format {form}", clone, "changes:")
        (tmp_path / "out.csv").unlink()
        pd.testing.assert_frame_equal(predicted(target), expected, atol=1e-4)


def test_a_server_answers_survives_its_model_process_and_leaves_nothing(clone, model):
    asked = {"inputs": [{"text": "The [MASK] sees the river near the bridge."}]}
    with started(f".venv/bin/python -m bert.serving {model} --port 0 --device cpu", clone) as server:
        url = re.search(r"http://\S+:\d+", read_until(server, " is ready: "))[0]
        first = requests.post(f"{url}/predict", json=asked, timeout=60).json()
        assert first["results"][0]["filled"]
        everything = psutil.Process(server.pid).children(recursive=True)
        (worker,) = [child for child in everything if "spawn_main" in " ".join(child.cmdline())]
        worker.kill()
        deadline = time.monotonic() + 120
        while (answer := requests.post(f"{url}/predict", json=asked, timeout=60)).status_code != 200:
            assert answer.status_code == 503 and time.monotonic() < deadline, answer.text
            time.sleep(0.2)
        assert answer.json() == first
        everything += psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        wait_until(lambda: not any(map(_is_alive, everything)))  # multiprocessing's tracker ends a moment later


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
