"""Recorded outputs of PaddleNLP and transformers with models that we wrote for them, for comparison.

What is recorded has the outputs and the sha256 of what the library loaded. It holds as long as we write the
same bytes and our network computes the same outputs from them.
"""

import hashlib
import json
import pickle
import subprocess
from pathlib import Path

import numpy as np

from bert import REPOSITORY
from bert.commands.convert import ConvertRequest
from bert.config.plain_commands import parser_of, settings_from
from bert.conversion.converting import convert

ORACLE = REPOSITORY / "tests" / "support" / "oracle_transformers.py"
GOLDEN = REPOSITORY / "tests" / "golden" / "libraries"
FORMATS = {"paddlenlp": "paddlenlp", "transformers": "hf"}  # library -> what is written for it
LOADED = ("model_state.pdparams", "model.safetensors", "config.json", "vocab.txt")


def write_models(checkpoints: dict[str, Path], library: str, folder: Path) -> dict[str, Path]:
    """Write our checkpoints of each task in the library's format, below a folder."""
    for task, source in checkpoints.items():
        words = ["--from", str(source), "--to", str(folder / task), "--to-format", FORMATS[library]]
        request = settings_from(ConvertRequest, parser_of(ConvertRequest, None), words)
        convert(request.conversion(request.target))
    return {task: folder / task for task in checkpoints}


def checksums(models: dict[str, Path]) -> dict[str, str]:
    """Map TASK/FILE to the sha256 of the file that a library loads; of a pickle, whose bytes vary, of its arrays."""
    files = [(task, folder / name) for task, folder in models.items() for name in LOADED if (folder / name).exists()]
    return {f"{task}/{path.name}": hashlib.sha256(_content(path)).hexdigest() for task, path in files}


def _content(path: Path) -> bytes:
    if path.suffix != ".pdparams":
        return path.read_bytes()
    arrays = sorted(pickle.loads(path.read_bytes()).items())
    return b"".join(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes() for name, array in arrays)


def ask(python: str | Path, library: str, models: dict[str, Path], feed: dict[str, np.ndarray], folder: Path):
    """Map TASK/OUTPUT to the output that the library computes in a process of its own, or to the failed process."""
    np.savez(folder / "feed.npz", **feed)
    named = {str(path): task for task, path in models.items()}
    job = {"feed": str(folder / "feed.npz"), "models": named, "out": str(folder / "out.npz")}
    (folder / "job.json").write_text(json.dumps(job))
    command = [str(python), str(ORACLE), library, str(folder / "job.json")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if run.returncode:
        return run
    with np.load(folder / "out.npz") as arrays:
        return dict(arrays)


def record(library: str, python: str, folder: Path) -> None:
    from tests.conversion import test_networks
    from tests.conversion.test_parity import random_feed
    from tests.conversion.test_round_trips import TASKS, native

    own = {task: native(folder / f"{library}_own" / task, heads) for task, heads in TASKS.items()}
    _record(library, library, python, own, random_feed(3), folder)
    if library == "transformers":
        for name, config in test_networks.CONFIGS.items():
            tasks = test_networks.TASKS[name]
            own = {task: test_networks.native(folder / f"{name}_own" / task, task, config) for task in tasks}
            _record(name, library, python, own, test_networks.random_feed(), folder)


def _record(name: str, library: str, python: str, own: dict[str, Path], feed: dict, folder: Path) -> None:
    models = write_models(own, library, folder / name)
    found = ask(python, library, models, feed, folder)
    assert isinstance(found, dict), found.stderr[-3000:]
    np.savez_compressed(GOLDEN / f"{name}_outputs.npz", **found)
    (GOLDEN / f"{name}_files.json").write_text(json.dumps(checksums(models), indent=1) + "\n")
