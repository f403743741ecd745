"""Tests of --device: a missing device is refused in one sentence, and an export's runtime gets the chosen device.

How the GPU wheel is configured: tests/gpu/golden/inference.json. Speed: tests/gpu/selftest/test_inference.py.
"""

import json
import re
import types

import pytest

import run_predict
from bert.conversion.usage import Usage
from bert.inference import predictor
from bert.inference.heads import load_model
from bert.inference.predictor import Predictor, onnx_providers, paddle_config
from bert.runtime import paddle_api
from bert.runtime.paddle_api import chosen_device
from bert.training.devices import choose_device
from tests.inference.models import export, model
from tests.support import tiny

NO_GPU = "device=gpu needs paddlepaddle-gpu and a visible CUDA card, found none; .* or pass --device cpu"
ON_CUDA = {"device_id": "0", "use_tf32": "0"}
CUDA, TENSORRT, CPU = "CUDAExecutionProvider", "TensorrtExecutionProvider", "CPUExecutionProvider"


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(paddle_api, "default_device", lambda: "cpu")


@pytest.fixture
def exported(tmp_path):
    source = model(tmp_path / "m", "sequence-classification", Usage("ours", 9))
    return export(source, tmp_path / "x", "--format", "paddle-inference", "--precision", "fp16")


def test_a_gpu_that_is_not_there_is_one_sentence(without_gpu, exported, tmp_path, capsys):
    for name in ("m", "x"):
        with pytest.raises(SystemExit) as end:
            run_predict.main([str(tmp_path / name), "--device", "gpu"])
        assert end.value.code == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "device" in line]
        assert line.startswith("error: device=gpu needs paddlepaddle-gpu and a visible CUDA card")
    with pytest.raises(ValueError, match=NO_GPU):
        choose_device(tiny.pretraining_config(tmp_path, device="gpu"))
    with pytest.raises(ValueError, match=NO_GPU.replace("=gpu", "=tensorrt")):  # as the user wrote it
        load_model(exported, device="tensorrt")
    with pytest.raises(ValueError, match="device=tensorrt is for exports, and .*m is none; export it"):
        load_model(tmp_path / "m", device="tensorrt")


def test_a_card_is_chosen_by_itself_where_paddle_sees_one(monkeypatch):
    monkeypatch.setattr(paddle_api, "default_device", lambda: "gpu")
    assert [chosen_device(setting) for setting in ("auto", "cpu", "gpu")] == ["gpu", "cpu", "gpu"]
    monkeypatch.setenv("FLAGS_selected_gpus", "3")
    assert paddle_api.card_number() == 3


def test_an_export_in_float16_computes_in_float32_on_a_cpu(exported):
    served = json.loads((exported / "serving.json").read_text())
    assert served["precision"] == "fp16" and served["check"]["relative_error"] < 1e-5
    config = paddle_config(["m", "p"], served, "cpu", 3)
    assert not config.use_gpu() and config.cpu_math_library_num_threads() == 3


@pytest.mark.parametrize(
    ("device", "available", "providers"),
    [
        ("auto", [CPU], [CPU]),
        ("cpu", [CUDA, CPU], [CPU]),
        ("auto", [TENSORRT, CUDA, CPU], [(CUDA, ON_CUDA), CPU]),
        ("gpu", [CUDA, CPU], [(CUDA, ON_CUDA), CPU]),
        ("tensorrt", [TENSORRT, CUDA, CPU], [(TENSORRT, {"device_id": "0"}), (CUDA, ON_CUDA), CPU]),
        ("gpu", ["AzureExecutionProvider", CPU], f"needs {CUDA} of ONNX Runtime, and this one has Azure"),
        ("tensorrt", [CUDA, CPU], f"device=tensorrt needs {TENSORRT} of ONNX Runtime, .*install onnxruntime-gpu"),
    ],
)
def test_onnx_runtime_is_given_the_providers_that_it_has(device, available, providers):
    if isinstance(providers, str):
        with pytest.raises(ValueError, match=providers):
            onnx_providers(device, available)
    else:
        assert onnx_providers(device, available) == providers


def test_onnx_runtime_that_falls_back_to_the_cpu_is_refused(tmp_path, monkeypatch, capsys, caplog):
    """ONNX Runtime falls back by itself if its CUDA does not start, and prints why among the results."""
    started, printed = [CPU], "EP Error provider.cc:7 CUDA failure 100: no CUDA-capable device is detected ; GPU=-1"
    session = types.SimpleNamespace(get_providers=lambda: started)

    def start(file, options, providers):
        print(printed)
        return session

    runtime = types.SimpleNamespace(
        SessionOptions=types.SimpleNamespace,
        get_available_providers=lambda: [TENSORRT, CUDA, CPU],
        InferenceSession=start,
        set_default_logger_severity=lambda severity: None,
    )
    monkeypatch.setattr(predictor, "_runtime", lambda *names: runtime)
    description = {"format": "onnx", "inputs": ["input_ids"], "outputs": {"logits": ["batch", 2]}, "max_length": 9}
    (tmp_path / "model.onnx").touch()
    (tmp_path / "serving.json").write_text(json.dumps(description))
    reason = rf"could not start {CUDA} \(failure 100: no CUDA-capable device is detected\); check the driver"
    with pytest.raises(ValueError, match=f"device=gpu: ONNX Runtime {reason}"):
        Predictor(tmp_path, device="gpu")
    Predictor(tmp_path, device="auto")
    assert re.search(f"the CPU computes: ONNX Runtime {reason}", caplog.text)
    runtime.preload_dlls = lambda: print("Failed to load libcublas.so.13: cannot open shared object file")
    started[:], printed = [CUDA, CPU], ""
    assert Predictor(tmp_path, device="gpu").outputs == ["logits"]
    with pytest.raises(ValueError, match=rf"tensorrt: .* {TENSORRT} \(no libcublas.so.13\); .* and TensorRT, or"):
        Predictor(tmp_path, device="tensorrt")
    assert not capsys.readouterr().out
    (tmp_path / "serving.json").write_text(json.dumps({**description, "precision": "int8"}))
    with pytest.raises(ValueError, match=r"is an export for CPUs \(INT8\); pass --device cpu, or export .* fp16"):
        Predictor(tmp_path, device="gpu")


def test_tensorrt_that_paddle_has_not_is_named(monkeypatch):
    def not_found():
        raise RuntimeError("(NotFound) TensorRT dynamic library is not found.")

    monkeypatch.setattr(predictor.paddle.inference, "get_trt_runtime_version", not_found)
    monkeypatch.setattr(predictor.paddle.inference, "get_trt_compile_version", lambda: (8, 5, 3))
    with pytest.raises(ValueError, match="needs libnvinfer 8.5.3, which this Paddle does not find; pass --device gpu"):
        predictor.require_tensorrt()
    monkeypatch.setattr(predictor.paddle.inference, "get_trt_runtime_version", lambda: (8, 5, 3))
    predictor.require_tensorrt()
