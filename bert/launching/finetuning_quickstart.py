"""What the quickstarts of fine-tuning share: where they write, their weights, a vocabulary where none is there."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bert.checkpoints.files import weights_folder
from bert.launching.plan import REPOSITORY
from bert.pretraining.recipes.quickstart import QUICKSTART_DIR


def output_settings(output_dir: Path) -> dict[str, Any]:
    """Everything a quickstart leaves stands in one folder."""
    return {"output_dir": output_dir, "report_file": output_dir / "report.json", "cache_dir": output_dir / "features"}


def pretrained_settings() -> dict[str, Any]:
    """The model that the pre-training quickstart left; empty, and told, where there is none."""
    folder = QUICKSTART_DIR / "bert-quickstart"
    if folder.is_dir() and weights_folder(folder) != folder:
        print(f"starting from what pre-training left in {weights_folder(folder)}", flush=True)
        return {"from_pretrained_params": weights_folder(folder)}
    print(
        f"There is no pre-trained model in {folder}, so the weights are random, and the scores will be near those of "
        "guessing. `bash scripts/run_pretraining.sh` makes one; --from-pretrained-params names another.",
        flush=True,
    )
    return {}


def random_settings(data_dir: Path, lines: Iterable[str], vocab_size: int) -> dict[str, Any]:
    """A small model of random weights, with a vocabulary made of `lines` (a name and a text each) in `data_dir`."""
    vocabulary = data_dir / "vocab.txt"
    if not vocabulary.is_file():
        source = data_dir / "text"
        source.mkdir(parents=True, exist_ok=True)
        (source / "0.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        run_module("data.train_vocabulary", "--input", source, "--vocab-size", vocab_size, "--output", vocabulary)
    size = len(vocabulary.read_text(encoding="utf-8").splitlines())
    return {"bert_model": "bert-quickstart", "vocab_size": size, "vocab_file": vocabulary}


def run_module(module: str, *arguments: Any) -> None:
    """A program of data/, as the quickstart of pre-training starts them; its error is the user's to read."""
    paths = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    if done.returncode:
        raise ValueError(f"python -m {module} ended with exit code {done.returncode}; the reason is above")


def value_of(flag: str, words: Sequence[str]) -> str | None:
    """What follows a flag, before the flags are parsed; given twice, the last one counts, as it will then."""
    found = None
    for word, following in itertools.zip_longest(words, words[1:]):
        if word == flag or word.startswith(flag + "="):
            found = following if word == flag else word.removeprefix(flag + "=")
    return found
