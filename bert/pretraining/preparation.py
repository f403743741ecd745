"""Steps of a job that make missing shards by commands of data/."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.exit_codes import OK
from bert.interpreter import shell_command
from bert.jobs.job import Execution, Step
from bert.jobs.making import Make
from bert.launching.processes import module_command
from bert.launching.ranks import Ranks
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.launch_settings import Preparation
from bert.samples.manifest import MANIFEST_NAME, is_unfinished
from bert.samples.settings import MASKED_SHARE
from data.download_vocabulary import provide_vocabulary


@dataclass(frozen=True)
class MissingShards(Step):
    """The step that makes the shards of a phase from Wikipedia text, if its folder has none.

    Attributes:
        for_all_nodes: this node makes them for all; otherwise they must exist where there are several.
    """

    config: PretrainingConfig
    preparation: Preparation
    ranks: Ranks
    for_all_nodes: bool = False

    @property
    def title(self) -> str:
        return f"making the shards of {self.config.stage()} from {self.preparation.wikipedia_source}"

    @property
    def product(self) -> Path:
        return self.config.data.input_dir

    def is_done(self, execution: Execution) -> bool:
        return self.exist()

    def exist(self) -> bool:
        """Whether the folder has complete shards."""
        return _has_files(self.product) and not is_unfinished(self.product)

    def check(self, here: bool) -> None:
        if self.exist() or not here:
            return
        folder, source, held_out = self.product, self.preparation.wikipedia_source, self.config.data.eval_dir
        if self.ranks.num_nodes > 1 and not self.for_all_nodes:
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
        if held_out is not None and not _has_files(held_out):
            raise ValueError(
                f"eval_dir={held_out} has no shards, and wikipedia_source={source} gives training shards only; make "
                f"them from held-out text with {shell_command('data.preprocess_bert_pretrain')}, or pass "
                "--eval-dir none"
            )

    def run(self, execution: Execution) -> int:
        self.check(here=True)
        preparation, data = self.preparation, self.config.data
        print(f"{self.product} has no shards: making them from {preparation.wikipedia_source}", flush=True)
        num_readers = max(1, data.num_workers) * self.ranks.world_size()
        is_phase_2 = self.config.run.phase == 2
        return execution.command(
            preprocessing_command(
                self.config,
                wikipedia=preparation.wikipedia_source,
                sink=self.product,
                num_shards=preparation.num_shards_per_worker * num_readers,  # every reader gets as many as the others
                local_n_workers=preparation.num_dask_workers,
                sample_ratio=preparation.sample_ratio,
                seed=self.config.run.seed,
                duplicate_factor=5,  # LDDL's default, with which the published losses were reached
                bin_size=preparation.phase2_bin_size if is_phase_2 else preparation.phase1_bin_size,
            )
        )


@dataclass(frozen=True)
class Vocabulary(Step):
    """The step that fetches a published vocabulary if it is missing."""

    file: Path

    @property
    def title(self) -> str:
        return "fetching the vocabulary"

    def is_done(self, execution: Execution) -> bool:
        return self.file.is_file()

    def run(self, execution: Execution) -> int:
        provide_vocabulary(self.file)  # ValueError without it, before hours of shards
        return OK


def data_steps(
    name: str, config: PretrainingConfig, preparation: Preparation, ranks: Ranks, for_all_nodes: bool = False
) -> tuple[Step, ...]:
    """The steps that make the data of a phase; `name` is the preset's name."""
    if name == "quickstart":
        return tuple(quickstart_steps(config))
    shards = MissingShards(config, preparation, ranks, for_all_nodes)
    return (Vocabulary(config.data.vocab_file), shards)


def preprocessing_command(config: PretrainingConfig, **options: Any) -> list[str]:
    """The command that makes shards for the phase (length, vocabulary, masking); `options` are more flags."""
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


def quickstart_steps(config: PretrainingConfig) -> list[Make]:
    """Steps that make the quickstart's data from text of this machine, with held-out text apart.

    The seed is independent of the training's, so runs with different seeds share the shards. With fewer than
    five pairs of each sentence the model memorises the pairs.
    """
    home = config.data.vocab_file.parent  # which runs with another --output-dir share
    corpus, vocabulary, phase = home / "corpus", config.data.vocab_file, config.run.phase
    assert config.data.eval_dir is not None
    collect = module_command(
        "data.examples.documentation", output_dir=corpus, sources="docstrings", held_out_fraction="0.08"
    )
    train_vocabulary = module_command(
        "data.train_vocabulary", input=corpus / "train/source", vocab_size=config.model.vocab_size, output=vocabulary
    )
    steps = [
        Make("collecting text from this machine", tuple(collect), corpus / "report.json", home),
        Make("training the vocabulary", tuple(train_vocabulary), vocabulary, home),
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
        title = f"making the shards of phase {phase}, {part}"
        steps.append(Make(title, tuple(command), sink / MANIFEST_NAME, home))
    return steps


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
