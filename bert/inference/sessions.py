"""Opens the files of an export in Paddle Inference or ONNX Runtime."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert.inference.serving import CALIBRATION_FILE, INPUTS, ONNX_FILE, PREFIX
from bert.runtime.paddle_api import IS_PADDLE_3, core, paddle

Run = Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]
_SHAPES_KEPT = 16  # sizes of a batch whose oneDNN kernels are kept; each has its own
_LENGTH_MULTIPLE = 8  # Paddle prepares kernels for each new shape: of single texts of any length twice as many a second
_CALIBRATED = 64  # sequences from which the scales of INT8 are found


def open_session(folder: Path, description: Mapping[str, Any], cpu_threads: int) -> Run:
    """A function from feed to outputs, in the order of the description.

    Raises:
        ValueError: a file is missing, or the onnxruntime package is; INT8 of Paddle under Paddle 3.
    """
    is_onnx = description.get("format") == "onnx"
    int8 = not is_onnx and description.get("precision") == "int8"
    of_paddle = (f"{PREFIX}.pdmodel", f"{PREFIX}.pdiparams", *[CALIBRATION_FILE] * int8)
    names = (description.get("file", ONNX_FILE),) if is_onnx else of_paddle
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ValueError(f"{folder} lacks {' and '.join(missing)}; export it again")
    files = [str(folder / name) for name in names]
    return _onnx_session(files[0], cpu_threads) if is_onnx else _paddle_session(files, description, cpu_threads)


def _paddle_session(files: list[str], description: Mapping[str, Any], cpu_threads: int) -> Run:
    config = paddle.inference.Config(*files[:2])
    config.disable_gpu()
    config.set_cpu_math_library_num_threads(cpu_threads)
    config.disable_glog_info()
    if description.get("precision") in ("bfloat16", "int8"):
        config.enable_mkldnn()
        config.set_mkldnn_cache_capacity(_SHAPES_KEPT)
    if description.get("precision") == "bfloat16":
        config.enable_mkldnn_bfloat16()
    if description.get("precision") == "int8":
        require_quantizer()
        _calibrate(config, files[2])
    predictor = paddle.inference.create_predictor(config)

    dimensions, longest = list(description["outputs"].values()), description["max_length"]

    def run(feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        length = feed[INPUTS[0]].shape[1]
        added = max(0, min(-length % _LENGTH_MULTIPLE, longest - length))
        for name, value in feed.items():
            predictor.get_input_handle(name).copy_from_cpu(np.pad(value, ((0, 0), (0, added))) if added else value)
        predictor.run()
        found = [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]
        return [value[:, :length] if "s" in shape else value for value, shape in zip(found, dimensions, strict=True)]

    return run


def require_quantizer() -> None:
    """Refuse Paddle 3, which has no quantiser for CPUs.

    Raises:
        ValueError: with what to do.
    """
    if IS_PADDLE_3:
        raise ValueError(
            f"INT8 of paddle-inference needs the quantiser of Paddle 2.6, and this is {paddle.__version__}; export "
            "with --format onnx --precision int8, or use an environment with Paddle 2.6"
        )


def _calibrate(config: Any, file: str) -> None:
    """Let Paddle find the scales of the linear layers from the calibration's sequences while it opens the model."""
    with np.load(file) as arrays:
        chosen = {name: arrays[name] for name in INPUTS}
    step = max(1, len(chosen["input_ids"]) // _CALIBRATED)  # sorted by length: take some of every length
    rows = {name: np.ascontiguousarray(values[::step][:_CALIBRATED]) for name, values in chosen.items()}
    config.enable_quantizer()
    quantizer = config.quantizer_config()
    quantizer.set_quant_data([core.PaddleTensor(values, name) for name, values in rows.items()])
    quantizer.set_quant_batch_size(len(rows["input_ids"]))
    quantizer.set_enabled_op_types({"fc"})


def _onnx_session(file: str, cpu_threads: int) -> Run:
    try:
        import onnxruntime
    except ImportError:
        raise ValueError(
            f"{file} is an ONNX export and onnxruntime, which runs it, is not installed; pip install -r "
            "requirements-export.txt, or export the model with run_export.py --format paddle-inference"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cpu_threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feed: session.run(names, dict(feed))
