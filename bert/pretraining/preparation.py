"""Makes missing shards by running the commands of data/."""

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bert.files import read_json, waiting_lock
from bert.interpreter import shell_command
from bert.launching.process_runner import module_command
from bert.launching.settings import LaunchPlan
from bert.pretraining.config import PretrainingConfig
from bert.samples.manifest import MANIFEST_NAME, is_unfinished
from bert.samples.masking import MASKED_SHARE
from data.download_vocabulary import provide_vocabulary

REPORT_NAME = "report.json"  # ends a folder of imported text
Run = Callable[[Sequence[str]], int]  # runs a command, returns its exit code


def prepare_data(plan: LaunchPlan, config: PretrainingConfig, run: Run, only_this_node: bool = False) -> int:
    """Make the missing shards of one phase; exit code of the first command that failed, else 0.

    With several nodes they must exist, unless `only_this_node` is set: then this node makes them for all.
    """
    if plan.name == "quickstart":
        return prepare_quickstart(config, run)
    provide_vocabulary(config.data.vocab_file)  # before hours of shards
    preparation, phase = plan.launch.shards, config.run.phase
    folder, source = config.data.input_dir, preparation.wikipedia_source
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
    num_readers = max(1, config.data.num_workers) * plan.ranks.world_size()
    return run(
        preprocessing_command(
            config,
            wikipedia=source,
            sink=folder,
            num_shards=preparation.num_shards_per_worker * num_readers,  # every reader gets as many as the others
            local_n_workers=preparation.num_dask_workers,
            sample_ratio=preparation.sample_ratio,
            seed=config.run.seed,
            duplicate_factor=5,  # LDDL's default, with which the published losses were reached
            bin_size=preparation.phase2_bin_size if phase == 2 else preparation.phase1_bin_size,
        )
    )


def preprocessing_command(config: PretrainingConfig, **options: Any) -> list[str]:
    """Text to balanced shards that fit the phase: its length, vocabulary and masking. `options` are further flags."""
    data, static = config.data, config.data.masking == "static"
    usual = {
        "vocab_file": data.vocab_file,
        "target_seq_length": data.max_seq_length,
        "masking": True if static else None,
        "objective": "mlm" if config.run.objective == "mlm" else None,
        "max_predictions_per_seq": data.max_predictions_per_seq if static else None,
        "masked_lm_ratio": data.masked_lm_ratio if static and data.masked_lm_ratio != MASKED_SHARE else None,
    }
    return module_command("data.preprocess_bert_pretrain", **{**usual, **options})


def prepare_quickstart(config: PretrainingConfig, run: Run) -> int:
    """Make the missing data of a phase of the quickstart from text of this machine; returns as `prepare_data`."""
    with waiting_lock(_home(config) / ".lock", f"start that makes the data in {_home(config)}"):
        steps = Steps(_home(config) / "prepared.json", run)
        codes = (steps.step(*command) for command in quickstart_commands(config))
        return next(filter(None, codes), 0)


def quickstart_commands(config: PretrainingConfig) -> list[tuple[str, Sequence[str], Path]]:
    """(title, command, product) in order. The vocabulary and the training shards never see the held-out text.

    The seed does not depend on that of the training, so runs with different seeds share the shards. With fewer than
    five pairs of each sentence the model memorises the pairs.
    """
    corpus, vocabulary, phase = _home(config) / "corpus", config.data.vocab_file, config.run.phase
    assert config.data.eval_dir is not None
    collect = module_command(
        "data.examples.documentation", output_dir=corpus, sources="docstrings", held_out_fraction="0.08"
    )
    train_vocabulary = module_command(
        "data.train_vocabulary", input=corpus / "train/source", vocab_size=config.model.vocab_size, output=vocabulary
    )
    steps: list[tuple[str, Sequence[str], Path]] = [
        ("collecting text from this machine", collect, corpus / "report.json"),
        ("training the vocabulary", train_vocabulary, vocabulary),
    ]
    parts = (
        ("train", config.data.input_dir, 8, 32 if phase == 2 else None, 5),
        ("held_out", config.data.eval_dir, 1, None, 1),
    )
    for part, sink, num_shards, bin_size, duplicate_factor in parts:
        command = preprocessing_command(
            config,
            text=corpus / part / "source",
            sink=sink,
            num_shards=num_shards,
            local_n_workers=os.cpu_count() or 1,
            sample_ratio=1.0,
            seed=42,
            duplicate_factor=duplicate_factor,
            bin_size=bin_size,
        )
        steps.append((f"making the shards of phase {phase}, {part}", command, sink / MANIFEST_NAME))
    return steps


def _home(config: PretrainingConfig) -> Path:
    """Folder of the quickstart's data, which runs with another --output-dir share."""
    return config.data.vocab_file.parent


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
        for path in {*stale, str(product)}:
            done.pop(path, None)
            if Path(path).name in (MANIFEST_NAME, REPORT_NAME):
                shutil.rmtree(Path(path).parent, ignore_errors=True)
            else:
                Path(path).unlink(missing_ok=True)
        code = self._run(command)
        if code == 0:
            if not product.exists():
                raise ValueError(f"{product} should exist after `{' '.join(command)}`, and does not; report this")
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({**done, str(product): words}, indent=2) + "\n", encoding="utf-8")
        return code


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
