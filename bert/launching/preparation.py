"""Makes missing shards by running the commands of data/."""

import itertools
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bert.files import read_json
from bert.interpreter import shell_command
from bert.launching.pretraining_plan import LaunchPlan
from bert.launching.process_runner import module_command
from bert.pretraining.config import PretrainingConfig
from bert.samples.manifest import MANIFEST_NAME, is_unfinished

REPORT_NAME = "report.json"  # ends a folder of imported text
Run = Callable[[Sequence[str]], int]  # runs a command, returns its exit code


def prepare_shards(plan: LaunchPlan, config: PretrainingConfig, run: Run, only_this_node: bool = False) -> int:
    """Make the shards of one phase from the Wikipedia text if their folder is missing or empty.

    With several nodes they must exist, unless `only_this_node` is set: then this node makes them for all.
    """
    folder, source = config.data.input_dir, plan.preparation.wikipedia_source
    if _has_files(folder) and not is_unfinished(folder):
        return 0
    if plan.ranks.num_nodes > 1 and not only_this_node:
        raise ValueError(
            f"input_dir={folder} has no shards; make them on one node first (--num-nodes 1), in a folder "
            "that all nodes share"
        )
    if not _has_files(source):
        unset = "; set BERT_PREP_WORKING_DIR to the folder of your data" if "$" in f"{folder}{source}" else ""
        raise ValueError(
            f"input_dir={folder} has no shards and wikipedia_source={source} no text to make them from; pass "
            f"--input-dir or --wikipedia-source{unset}, or start without arguments for the quickstart"
        )
    held_out = config.data.eval_dir
    if held_out is not None and not _has_files(held_out):
        raise ValueError(
            f"eval_dir={held_out} has no shards, and wikipedia_source={source} gives training shards only; make them "
            f"from held-out text with {shell_command('data.preprocess_bert_pretrain')}, or pass --eval-dir none"
        )
    print(f"{folder} has no shards: making them from {source}", flush=True)
    return run(
        preprocessing_command(
            config,
            wikipedia=source,
            sink=folder,
            num_shards=plan.preparation.num_shards(config, plan.world_size()),
            local_n_workers=plan.preparation.num_dask_workers,
            sample_ratio=plan.preparation.sample_ratio,
            seed=config.run.seed,
            duplicate_factor=1,
            bin_size=plan.preparation.bin_size(config.run.phase),
        )
    )


def preprocessing_command(config: PretrainingConfig, **options: Any) -> list[str]:
    """Text to balanced shards that fit the phase: its length, vocabulary and masking. `options` are further flags."""
    static = config.data.masking == "static"
    return module_command(
        "data.preprocess_bert_pretrain",
        vocab_file=config.data.vocab_file,
        target_seq_length=config.data.max_seq_length,
        objective="mlm" if config.run.objective == "mlm" else None,
        masking=True if static else None,
        max_predictions_per_seq=config.data.max_predictions_per_seq if static else None,
        **options,
    )


class Steps:
    """Runs commands in order and skips those that succeeded before with the same arguments and whose product exists.

    If a product is made again, it and all later products are removed first, and made again. A product that is a folder
    (shards, imported text) is recorded by the file that ends it, and removed as a whole.

    Args:
        source: identifies what the first command reads; with another one everything is made again.
    """

    def __init__(self, record_file: Path, run: Run, source: str = "") -> None:
        self._file, self._run, self._source = record_file, run, source

    def step(self, title: str, command: Sequence[str], product: Path) -> int:
        """Run the command unless the record has it; returns its exit code, 0 if it was not needed."""
        done: dict[str, list[str]] = read_json(self._file)
        words = [word for word in command if word != sys.executable] + ([self._source] if self._source else [])
        if product.exists() and done.get(str(product)) == words:
            return 0
        print(title, flush=True)
        stale = list(itertools.dropwhile(lambda path: path != str(product), done))
        done = {path: made for path, made in done.items() if path not in stale}
        for path in {*stale, str(product)}:
            _remove(Path(path))
        code = self._run(command)
        if code == 0:
            if not product.exists():
                raise ValueError(f"{product} should exist after `{' '.join(command)}`, and does not; report this")
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({**done, str(product): words}, indent=2) + "\n", encoding="utf-8")
        return code


def _remove(product: Path) -> None:
    if product.name in (MANIFEST_NAME, REPORT_NAME):
        shutil.rmtree(product.parent, ignore_errors=True)
    else:
        product.unlink(missing_ok=True)


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
