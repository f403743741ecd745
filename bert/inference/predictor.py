"""Runs an exported model through Paddle Inference or ONNX Runtime: texts or token ids in, numpy arrays out.

model = Predictor("exported")
model.texts(["first text", ("a question", "its context")])["logits"]
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bert.inference.serving import DESCRIPTION_FILE
from bert.inference.sessions import open_session


class Predictor:
    """A folder that `run_export.py --format paddle-inference` or `--format onnx` wrote.

    Raises:
        ValueError: the folder is not such an export, or is ONNX and onnxruntime is not installed.
    """

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
        self._run = open_session(self.folder, self.description, cpu_threads)
        self._tokenizer: Tokenizer | None = None

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """int64 [b, s] arrays by the names of the inputs -> float32 arrays by the names of the outputs."""
        values = self._run({name: np.ascontiguousarray(feed[name], "int64") for name in self.inputs})
        return dict(zip(self.outputs, values, strict=True))

    def texts(self, texts: Sequence[str | tuple[str, str]], max_length: int | None = None) -> dict[str, np.ndarray]:
        """Outputs for texts, or pairs of texts, padded to the longest and truncated to `max_length` tokens."""
        return self.run(self.tokenize(texts, max_length))

    def tokenize(self, texts: Sequence[str | tuple[str, str]], max_length: int | None = None) -> dict[str, np.ndarray]:
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
