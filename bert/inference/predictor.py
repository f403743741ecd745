"""Runs an exported model through Paddle Inference, ONNX Runtime or OpenVINO: texts or token ids in, arrays out.

model = Predictor("exported")
model.texts(["first text", ("a question", "its context")])["logits"]
"""

import contextlib
import importlib
import io
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, PositiveInt

from bert.files import json_of
from bert.inference.export_files import (
    CALIBRATION_FILE,
    DESCRIPTION_FILE,
    INPUTS,
    ONNX_FILE,
    OPENVINO_FILE,
    PREFIX,
    Arrays,
    missing_package,
)
from bert.inference.samples import ExportedTokenizer
from bert.runtime.paddle_api import IS_PADDLE_3, card_number, chosen_device, core, paddle

logger = logging.getLogger(__name__)
Texts = Sequence[str | tuple[str, str]]
Made = TypeVar("Made")
Session = Callable[[Arrays], list[np.ndarray]]
_POOL_MB = 256
_SHAPES_KEPT = 16  # batch shapes whose oneDNN kernels are kept; each shape has its own kernels
_LENGTH_MULTIPLE = 8  # Paddle prepares kernels for each new shape: rounding doubles the speed of single texts
_CALIBRATED = 64  # most sequences from which the scales of INT8 are found


class _Description(BaseModel):
    """The fields that serving.json must have, with their types."""

    inputs: list[Literal["input_ids", "token_type_ids", "attention_mask"]]
    outputs: dict[str, list[Any]]
    max_length: PositiveInt
    labels: list[str] | None = None
    format: str = ""
    file: str = ONNX_FILE


class Predictor:
    """Runs an export for Paddle Inference, ONNX Runtime or OpenVINO from its folder.

    Args:
        folder: the output of `run_export.py --output-format paddle-inference`, `onnx` or `openvino`.
        device: auto, cpu, gpu or tensorrt.
    Raises:
        ValueError: the folder is no such export, or the device is missing.
    """

    def __init__(self, folder: str | Path, *, device: str = "auto", cpu_threads: int = 1):
        self.folder = Path(folder)
        try:
            self.description = json_of((self.folder / DESCRIPTION_FILE).read_text(encoding="utf-8"))
            described = _Description.model_validate(self.description)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"{self.folder / DESCRIPTION_FILE} does not describe an export for Paddle Inference or ONNX Runtime "
                f"({reason}); make it with run_export.py --output-format paddle-inference"
            ) from None
        self.inputs, self.outputs = described.inputs, list(described.outputs)
        is_int8 = self.description.get("precision") == "int8"
        names, start = {
            "onnx": ([self.description.get("file", ONNX_FILE)], _onnx_session),
            "openvino": ([OPENVINO_FILE, str(Path(OPENVINO_FILE).with_suffix(".bin"))], _openvino_session),
        }.get(
            self.description.get("format", ""),
            ([f"{PREFIX}.pdmodel", f"{PREFIX}.pdiparams", *[CALIBRATION_FILE] * is_int8], _paddle_session),
        )
        if missing := [name for name in names if not (self.folder / name).is_file()]:
            raise ValueError(f"{self.folder} lacks {' and '.join(missing)}; export it again")
        self.files = [self.folder / name for name in names]
        if device != "cpu" and (is_int8 or start is _openvino_session):
            if device != "auto":
                kind = "INT8" if is_int8 else "OpenVINO"
                raise ValueError(
                    f"device={device}: {self.folder} is an export for CPUs ({kind}); pass --device cpu, or export the "
                    "model again with --output-format paddle-inference or onnx and --precision fp16"
                )
            device = "cpu"
        self._session = start([str(file) for file in self.files], self.description, device, cpu_threads)

    def run(self, feed: Arrays) -> Arrays:
        """Compute outputs, float32 arrays by name, from inputs, int64 [b, s] arrays by name."""
        values = self._session({name: np.ascontiguousarray(feed[name], "int64") for name in self.inputs})
        return dict(zip(self.outputs, values, strict=True))

    def texts(self, texts: Texts, max_length: int | None = None) -> Arrays:
        """Compute outputs for texts or pairs of texts, padded to the longest and truncated to `max_length` tokens."""
        return self.run(self.tokenize(texts, max_length))

    def tokenize(self, texts: Texts, max_length: int | None = None) -> Arrays:
        several = [(text,) if isinstance(text, str) else text for text in texts]
        table = self._tokenizer.table(several, max_length or self.description["max_length"])
        return table.feed(np.arange(len(table)), int(table.lengths().max()), with_labels=False)

    @cached_property
    def _tokenizer(self) -> ExportedTokenizer:
        if not (self.folder / "tokenizer.json").is_file():
            raise ValueError(f"{self.folder} was exported without a vocabulary; export it with --vocab-file")
        return ExportedTokenizer(self.folder)


def paddle_config(files: Sequence[str], description: Mapping[str, Any], device: str, cpu_threads: int) -> Any:
    """Configure Paddle Inference for an export. A GPU uses its precision, and begins with _POOL_MB of memory."""
    precision, device_type = description.get("precision"), paddle.inference.PrecisionType
    config = paddle.inference.Config(*files[:2])
    config.disable_glog_info()
    if device != "cpu":
        kind = {"fp16": device_type.Half, "bfloat16": device_type.Bfloat16}.get(str(precision), device_type.Float32)
        config.enable_use_gpu(_POOL_MB, card_number(), kind)
        if device == "tensorrt":
            config.enable_tensorrt_engine(precision_mode=kind, use_calib_mode=False)
            config.enable_tuned_tensorrt_dynamic_shape()  # by the shapes of the inputs
        return config
    config.disable_gpu()
    config.set_cpu_math_library_num_threads(cpu_threads)
    if precision in ("bfloat16", "int8"):
        config.enable_mkldnn()
        config.set_mkldnn_cache_capacity(_SHAPES_KEPT)
    if precision == "bfloat16":
        config.enable_mkldnn_bfloat16()
    if precision == "int8":
        require_quantizer()
        _calibrate(config, files[2], description["inputs"])
    return config


def require_tensorrt() -> None:
    """Raise ValueError if Paddle is built without TensorRT (version 0.0.0), or does not find its library."""
    with contextlib.suppress(RuntimeError):
        if any(paddle.inference.get_trt_runtime_version()):
            return
    wanted = ".".join(map(str, paddle.inference.get_trt_compile_version()))
    raise ValueError(f"device=tensorrt needs libnvinfer {wanted}, which this Paddle does not find; pass --device gpu")


def _paddle_session(files: Sequence[str], description: Mapping[str, Any], device: str, cpu_threads: int) -> Session:
    longest = description["max_length"]
    used = chosen_device(device)
    if used == "tensorrt":
        require_tensorrt()
    if used != "cpu" and description.get("precision") == "bfloat16" and not paddle.amp.is_bfloat16_supported():
        raise ValueError(f"{files[0]}: bfloat16 needs a card from Ampere on; pass --device cpu, or export with fp16")
    config = paddle_config(files, description, used, cpu_threads)
    predictor = _by(files[0], lambda: paddle.inference.create_predictor(config))
    dimensions = list(description["outputs"].values())

    def run(feed: Arrays) -> list[np.ndarray]:
        length = feed[INPUTS[0]].shape[1]
        added = max(0, min(-length % _LENGTH_MULTIPLE, longest - length))
        for name, value in feed.items():
            predictor.get_input_handle(name).copy_from_cpu(np.pad(value, ((0, 0), (0, added))) if added else value)
        predictor.run()
        values = [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]
        return [v[:, :length] if "s" in shape else v for v, shape in zip(values, dimensions, strict=True)]

    return run


def require_quantizer() -> None:
    """Raise ValueError for Paddle 3, which has no quantiser for CPUs."""
    if IS_PADDLE_3:
        raise ValueError(
            f"INT8 of paddle-inference needs the quantiser of Paddle 2.6, and this is {paddle.__version__}; export "
            "with --output-format onnx --precision int8, or use an environment with Paddle 2.6"
        )


def _calibrate(config: Any, file: str, inputs: Sequence[str]) -> None:
    """Configure INT8: Paddle finds the scales of linear layers from calibration sequences when it opens the model."""
    with np.load(file) as arrays:
        step = max(1, len(arrays["input_ids"]) // _CALIBRATED)  # sorted by length: take some of every length
        rows = {name: np.ascontiguousarray(arrays[name][::step][:_CALIBRATED]) for name in inputs}
    config.enable_quantizer()
    quantizer = config.quantizer_config()
    quantizer.set_quant_data([core.PaddleTensor(values, name) for name, values in rows.items()])
    quantizer.set_quant_batch_size(len(rows["input_ids"]))
    quantizer.set_enabled_op_types({"fc"})


def _runtime(package: str, extra: str, file: str) -> Any:
    """Import the runtime of an export. ValueError with the command that installs it if it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        remedy = "export the model with run_export.py --output-format paddle-inference"
        raise ValueError(f"{missing_package(file, package, extra)}, or {remedy}") from None


def _by(file: str, runtime: Callable[[], Made]) -> Made:
    """Let a runtime open or run a file. ValueError if it fails: some damage is noticed only when the file runs."""
    try:
        return runtime()
    except Exception as error:  # the runtimes have types of their own, or raise no narrower one
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{file} cannot be used ({reason}); export the model again") from None


def onnx_providers(device: str, available: Sequence[str]) -> list[Any]:
    """The providers that ONNX Runtime tries, in order. ValueError for a device that this ONNX Runtime cannot use."""
    wanted = ["TensorrtExecutionProvider"] * (device == "tensorrt") + ["CUDAExecutionProvider"] * (device != "cpu")
    lacking = [name for name in wanted if name not in available]
    if lacking and device != "auto":
        raise ValueError(
            f"device={device} needs {lacking[0]} of ONNX Runtime, and this one has {', '.join(available)}; install "
            "onnxruntime-gpu in its place, or pass --device cpu"
        )
    exact = {"CUDAExecutionProvider": {"use_tf32": "0"}}  # float32 as on a CPU; fp16 is the fast precision
    cards = [(name, {"device_id": str(card_number())} | exact.get(name, {})) for name in wanted if name in available]
    return [*cards, "CPUExecutionProvider"]


def _onnx_session(files: Sequence[str], description: Mapping[str, Any], device: str, cpu_threads: int) -> Session:
    onnxruntime = _runtime("onnxruntime", "onnx", files[0])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cpu_threads
    providers, said = onnx_providers(device, onnxruntime.get_available_providers()), io.StringIO()
    uses_card = len(providers) > 1
    with contextlib.redirect_stdout(said):  # where it prints, among results, why it cannot use a card
        if uses_card:
            onnxruntime.set_default_logger_severity(4)  # it logs the same: below it is one sentence
            options.log_severity_level = 3  # no warning of the operator that runs on the CPU
            if hasattr(onnxruntime, "preload_dlls"):  # since 1.21
                onnxruntime.preload_dlls()  # CUDA that pip installed; by itself it finds the system's only
        session = _by(files[0], lambda: onnxruntime.InferenceSession(files[0], options, providers=providers))
    if uses_card and session.get_providers()[0] != providers[0][0]:  # it falls back to the next one by itself
        problems = re.findall(r"load (lib[\w.]+)|CUDA (failure \d+: [\w -]+\w)", said.getvalue())
        cause = ", ".join(dict.fromkeys(f"no {name}" if name else failure for name, failure in problems))
        packages = "onnxruntime-gpu[cuda,cudnn]" + " and TensorRT" * (device == "tensorrt")
        reason = (
            f"ONNX Runtime could not start {providers[0][0]}{cause and f' ({cause})'}; check the driver and "
            f"CUDA_VISIBLE_DEVICES, and install {packages}"
        )
        if device != "auto":
            raise ValueError(f"device={device}: {reason}, or pass --device cpu")
        logger.warning("the CPU computes: %s", reason)
    return lambda feed: _by(files[0], lambda: session.run(None, dict(feed)))


def _openvino_session(files: Sequence[str], description: Mapping[str, Any], device: str, cpu_threads: int) -> Session:
    openvino = _runtime("openvino", "openvino", files[0])
    # Without the hint OpenVINO computes float32 in bfloat16 where the processor can.
    arithmetic = "f32" if description.get("precision") == "float32" else "bf16"
    settings = {"INFERENCE_NUM_THREADS": cpu_threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": arithmetic}
    model = _by(files[0], lambda: openvino.Core().compile_model(files[0], "CPU", settings))
    request = model.create_infer_request()

    def run(feed: Arrays) -> list[np.ndarray]:
        results = request.infer(dict(feed))
        return [np.array(results[name]) for name in description["outputs"]]

    return run
