"""Runs an exported model through Paddle Inference or ONNX Runtime: texts or token ids in, numpy arrays out.

model = Predictor("exported")
model.texts(["first text", ("a question", "its context")])["logits"]
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bert.inference.export_files import CALIBRATION_FILE, DESCRIPTION_FILE, INPUTS, ONNX_FILE, PREFIX
from bert.interpreter import install_command
from bert.runtime.paddle_api import IS_PADDLE_3, core, paddle

Texts = Sequence[str | tuple[str, str]]
_SHAPES_KEPT = 16  # sizes of a batch whose oneDNN kernels are kept; each has its own
_LENGTH_MULTIPLE = 8  # Paddle prepares kernels for each new shape: of single texts of any length twice as many a second
_CALIBRATED = 64  # sequences from which the scales of INT8 are found


class Predictor:
    """A folder that `run_export.py --format paddle-inference` or `--format onnx` wrote."""

    def __init__(self, folder: str | Path, *, cpu_threads: int = 1):
        self.folder = Path(folder)
        try:
            self.description = json.loads((self.folder / DESCRIPTION_FILE).read_text(encoding="utf-8"))
            self.inputs, self.outputs = self.description["inputs"], list(self.description["outputs"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.folder} is not an export for Paddle Inference or ONNX Runtime ({error}); make it with "
                "run_export.py --format paddle-inference"
            ) from None
        is_onnx, precision = self.description.get("format") == "onnx", self.description.get("precision")
        paddle_files = [f"{PREFIX}.pdmodel", f"{PREFIX}.pdiparams", *[CALIBRATION_FILE] * (precision == "int8")]
        names = [self.description.get("file", ONNX_FILE)] if is_onnx else paddle_files
        if missing := [name for name in names if not (self.folder / name).is_file()]:
            raise ValueError(f"{self.folder} lacks {' and '.join(missing)}; export it again")
        files = [str(self.folder / name) for name in names]
        self._run = _onnx_session(files[0], cpu_threads) if is_onnx else self._paddle_session(files, cpu_threads)
        self._tokenizer: Tokenizer | None = None

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """int64 [b, s] arrays by the names of the inputs -> float32 arrays by the names of the outputs."""
        values = self._run({name: np.ascontiguousarray(feed[name], "int64") for name in self.inputs})
        return dict(zip(self.outputs, values, strict=True))

    def texts(self, texts: Texts, max_length: int | None = None) -> dict[str, np.ndarray]:
        """Outputs for texts, or pairs of texts, padded to the longest and truncated to `max_length` tokens."""
        return self.run(self.tokenize(texts, max_length))

    def tokenize(self, texts: Texts, max_length: int | None = None) -> dict[str, np.ndarray]:
        if self._tokenizer is None:
            path = self.folder / "tokenizer.json"
            if not path.is_file():
                raise ValueError(f"{self.folder} was exported without a vocabulary; export it with --vocab-file")
            self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.enable_truncation(max_length or self.description["max_length"])
        self._tokenizer.enable_padding()
        encoded = self._tokenizer.encode_batch(list(texts))
        columns = {"input_ids": "ids", "token_type_ids": "type_ids", "attention_mask": "attention_mask"}
        rows = {name: [getattr(text, column) for text in encoded] for name, column in columns.items()}
        return {name: np.array(values, "int64").reshape(len(encoded), -1) for name, values in rows.items()}

    def _paddle_session(self, files: list[str], cpu_threads: int) -> Callable[..., list[np.ndarray]]:
        precision, longest = self.description.get("precision"), self.description["max_length"]
        config = paddle.inference.Config(*files[:2])
        config.disable_gpu()
        config.set_cpu_math_library_num_threads(cpu_threads)
        config.disable_glog_info()
        if precision in ("bfloat16", "int8"):
            config.enable_mkldnn()
            config.set_mkldnn_cache_capacity(_SHAPES_KEPT)
        if precision == "bfloat16":
            config.enable_mkldnn_bfloat16()
        if precision == "int8":
            require_quantizer()
            _calibrate(config, files[2])
        predictor, dimensions = paddle.inference.create_predictor(config), list(self.description["outputs"].values())

        def run(feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            length = feed[INPUTS[0]].shape[1]
            added = max(0, min(-length % _LENGTH_MULTIPLE, longest - length))
            for name, value in feed.items():
                predictor.get_input_handle(name).copy_from_cpu(np.pad(value, ((0, 0), (0, added))) if added else value)
            predictor.run()
            values = [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]
            return [v[:, :length] if "s" in shape else v for v, shape in zip(values, dimensions, strict=True)]

        return run


def require_quantizer() -> None:
    """Refuse Paddle 3, which has no quantiser for CPUs."""
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


def _onnx_session(file: str, cpu_threads: int) -> Callable[..., list[np.ndarray]]:
    try:
        import onnxruntime
    except ImportError:
        raise ValueError(
            f"{file} is an ONNX export and onnxruntime, which runs it, is not installed; "
            f"{install_command('onnx')}, or export the model with run_export.py --format paddle-inference"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cpu_threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feed: session.run(names, dict(feed))
