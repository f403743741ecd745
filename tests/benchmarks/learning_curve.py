"""Compares the loss of this project's training with an independent implementation, update by update.

    bash scripts/run_learning_curve.sh --output-dir results/learning_curve

Both start from the same random weights and read the same batches of phase 1, then of phase 2. Ours is
`run_pretraining.py`, started as a user starts it: float32 on one rank, on two ranks with two micro-batches each, and in
bfloat16. The other one is curve_torch.py: transformers' modules on PyTorch, LAMB and AdamW written from the papers.
With --seeds both train with dropout from several seeds. D has the curves as JSON, and table.md.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert.command_errors import command
from bert.config.architecture import BUILT_IN_MODELS
from bert.config.run_file import dump_yaml
from bert.config.setting_sources import resolve_config
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.pretraining.entry import ENTRY
from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import PretrainingLoader
from bert.tokenization.vocabulary_files import read_vocabulary
from tests.benchmarks.measuring import write_batches
from tests.benchmarks.processes import markdown, run
from tests.benchmarks.training_shards import make_shards, predictions_of

VOCABULARY_SIZE = 4_096
LENGTHS = {1: 64, 2: 128}
RATES = {"Lamb": {1: 6e-3, 2: 4e-3}, "AdamW": {1: 1e-3, 2: 5e-4}}
_OFFLINE = {"HF_HUB_OFFLINE": "1"}  # of PyTorch's process
COLUMNS = ("loss", "gradient_norm", "learning_rate")


@dataclasses.dataclass(frozen=True)
class Variant:
    """A way to run our training."""

    name: str
    ranks: int = 1
    micro_batches: int = 1
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)


VARIANTS = (
    Variant("float32, 1 rank"),
    Variant("float32, 2 ranks x 2 micro-batches", ranks=2, micro_batches=2),
    Variant("bfloat16, 1 rank", settings={"amp": True, "amp_dtype": "bfloat16"}),
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Compares one optimizer, one seed, with or without dropout, in a folder with batches, curves and weights."""

    folder: Path
    data: Path
    optimizer: str
    model: str
    updates: int
    batch_size: int
    seed: int = 1
    dropout: float = 0.0
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)  # of the model, instead of the built-in ones

    def settings(self, phase: int) -> dict[str, Any]:
        """Return the settings of one phase, except batch size and folders."""
        length = LENGTHS[phase]
        return {
            "phase": phase,
            "bert_model": "bert",
            "config_file": str(self.folder / "model.json"),
            "input_dir": str(self.data / f"shards-{length}"),
            "vocab_file": str(self.data / "vocab.txt"),
            "max_seq_length": length,
            "max_predictions_per_seq": predictions_of(length),
            "masking": "static",
            "num_workers": 0,
            "global_batch_size": self.batch_size,
            "optimizer": self.optimizer,
            "learning_rate": RATES[self.optimizer][phase],
            "warmup_proportion": 0.1,
            "max_steps": self.updates,
            "log_freq": 1,
            "seed": self.seed,
            "visualdl": False,
            "device": "cpu",
            "num_steps_per_checkpoint": self.updates,
        }

    def architecture(self) -> dict[str, Any]:
        model = BUILT_IN_MODELS[self.model].model_dump()
        vocabulary = read_vocabulary(self.data / "vocab.txt")
        drop = {"hidden_dropout_prob": self.dropout, "attention_probs_dropout_prob": self.dropout}
        padded = -(-len(vocabulary.tokens) // 8) * 8
        return model | drop | {"vocab_size": padded, "max_position_embeddings": max(LENGTHS.values())} | self.sizes

    def write_task(self, threads: int) -> None:
        """Write the input of curve_torch.py: the settings, and the batches as our loader gives them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "model.json").write_text(json.dumps(self.architecture()))
        phases = {}
        for phase in LENGTHS:
            config = resolve_config(self.settings(phase) | {"batch_size": self.batch_size}, ENTRY)
            update = config.optimizer.model_dump()
            names = ("optimizer", "learning_rate", "weight_decay", "epsilon", "beta1", "beta2", "max_grad_norm")
            phases[phase] = {name: update[name] for name in names}
            phases[phase] |= {"warmup_steps": config.warmup_steps(), "steps": self.updates}
            write_batches(self.folder / f"batches-phase{phase}.npz", {"": _batches(config, self.updates)})
        task = {"model": self.architecture(), "seed": self.seed, "threads": threads, "phases": phases}
        (self.folder / "task.json").write_text(json.dumps(task, indent=1))

    def write_initial(self, python: Path) -> None:
        """Write the random weights from which both trainings start, unless they exist: PyTorch's, as a Hugging Face
        model."""
        if not (self.folder / "initial").exists():
            run([python, "-m", "tests.benchmarks.curve_torch", "initial", self.folder], **_OFFLINE)

    def run_ours(self, variant: Variant) -> dict[int, list[dict[str, float]]]:
        """Train both phases and return the rows of each; rows of finished phases are read."""
        output = self.output(variant)
        initial = {"from_pretrained_params": str(self.folder / "initial")}
        for phase in LENGTHS:
            settings = self.settings(phase) | variant.settings | initial | {"output_dir": str(output)}
            settings |= {"batch_size": self.batch_size // variant.ranks // variant.micro_batches}
            settings |= {"report_file": str(output / "report.json")}
            initial = {"from_phase1_final_params": str(self.checkpoint(variant, 1))}
            if not (output / f"phase{phase}/summary.json").exists():
                file = self.folder / "settings.yaml"
                file.write_text(dump_yaml(resolve_config(settings, ENTRY)), encoding="utf-8")
                launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node", str(variant.ranks)]
                launcher += ["--log_dir", str(output / "ranks")]
                run([sys.executable, *(launcher if variant.ranks > 1 else ()), "run_pretraining.py", "--config", file])
        return {phase: _rows(output / f"phase{phase}/metrics.jsonl") for phase in LENGTHS}

    def output(self, variant: Variant) -> Path:
        return self.folder / "ours" / variant.name.replace(",", "").replace(" ", "_")

    def checkpoint(self, variant: Variant, phase: int) -> Path:
        """Return the folder of the last checkpoint of a phase."""
        return self.output(variant) / "bert" / f"phase{phase}" / str(self.updates)

    def run_torch(self, python: Path) -> dict[int, list[dict[str, float]]]:
        """Train both phases with PyTorch, unless that is done, and return the rows of each."""
        result = self.folder / "torch.json"
        if not result.exists():
            run([python, "-m", "tests.benchmarks.curve_torch", "train", self.folder], **_OFFLINE)
        return {int(phase): rows for phase, rows in json.loads(result.read_text()).items()}


def _batches(config: Any, count: int) -> Iterator[dict[str, np.ndarray]]:
    """Return the global batches of the first updates; the masked positions leave out the padding."""
    vocabulary = read_vocabulary(config.data.vocab_file)
    dataset = PretrainingDataset(config.data.input_dir, vocabulary, config.data, seed=config.run.seed)
    size = config.batch.global_batch_size
    batches = PretrainingLoader(dataset, global_batch_size=size, micro_batch_size=size).batches()
    for _ in range(count):
        (batch,) = next(batches).micro_batches
        feed, real = batch.feed, batch.feed["masked_lm_weights"] > 0
        whole = ("input_ids", "token_type_ids", "attention_mask", "next_sentence_labels")
        found = {name: feed[name].astype(np.int32) for name in whole}
        yield found | {"positions": feed["masked_lm_positions"][real], "labels": feed["masked_lm_labels"][real]}
    batches.close()


def _rows(file: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in rows if "loss" in row]


def differences(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> dict[str, float]:
    """Return the largest differences over all updates: of the loss in nats, of gradient norm and rate relatively."""
    assert len(ours) == len(theirs), (len(ours), len(theirs))
    left, right = (np.array([[row[name] for name in COLUMNS] for row in rows]) for rows in (ours, theirs))
    loss, norm, rate = np.abs(left - right).T
    return {
        "loss": float(loss.max()),
        "relative_loss": float((loss / right[:, 0]).max()),
        "gradient_norm": float((norm / right[:, 1]).max()),
        "learning_rate": float((rate / np.maximum(right[:, 2], 1e-12)).max()),
    }


def compare(comparison: Comparison, python: Path, variants: tuple[Variant, ...], threads: int) -> list[dict[str, Any]]:
    """Run one comparison and return a row per variant and phase."""
    comparison.write_task(threads)
    comparison.write_initial(python)
    theirs = comparison.run_torch(python)
    rows = []
    for variant in variants:
        print(f"{comparison.optimizer}: {variant.name}", file=sys.stderr, flush=True)
        ours = comparison.run_ours(variant)
        for phase in LENGTHS:
            row = {"optimizer": comparison.optimizer, "variant": variant.name, "phase": phase}
            row |= differences(ours[phase], theirs[phase])
            row |= {"last_loss": _last(ours[phase]), "their_last_loss": _last(theirs[phase])}
            rows.append(row)
    return rows


def _last(rows: list[dict[str, float]]) -> float:
    """Return the mean loss of the last tenth of the updates."""
    return float(np.mean([row["loss"] for row in rows[-max(1, len(rows) // 10) :]]))


def table(rows: list[dict[str, Any]]) -> str:
    """Return a table in Markdown; each figure is the largest over the updates of a phase."""
    head = ("optimizer", "ours", "phase", "loss: nats, relative", "gradient norm", "rate")
    cells = [
        (
            *(row[name] for name in ("optimizer", "variant", "phase")),
            f"{row['loss']:.1e}, {row['relative_loss']:.1e}",
            *(f"{row[name]:.1e}" for name in ("gradient_norm", "learning_rate")),
            f"{row['last_loss']:.4f}, {row['their_last_loss']:.4f}",
        )
        for row in rows
    ]
    return markdown((*head, "last loss, theirs"), cells)


def seeds_table(rows: list[dict[str, Any]]) -> str:
    """Return a table in Markdown: mean and standard deviation over the seeds of the last losses, with dropout."""
    head = ("optimizer", "phase", "seeds", "ours", "theirs", "difference of the means / their deviation")
    lines = []
    for optimizer, phase in sorted({(row["optimizer"], row["phase"]) for row in rows}):
        chosen = [row for row in rows if (row["optimizer"], row["phase"]) == (optimizer, phase)]
        ours, theirs = (np.array([row[name] for row in chosen]) for name in ("last_loss", "their_last_loss"))
        spread, deviation = (values.std(ddof=1) if len(chosen) > 1 else np.nan for values in (ours, theirs))
        figures = (f"{ours.mean():.4f} +- {spread:.4f}", f"{theirs.mean():.4f} +- {deviation:.4f}")
        distance = f"{abs(ours.mean() - theirs.mean()) / deviation:.2f}"
        lines.append((optimizer, phase, len(chosen), *figures, distance))
    return markdown(head, lines)


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--torch-python", type=Path, required=True, help="interpreter with torch and transformers")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--model", default="bert-mini", choices=sorted(BUILT_IN_MODELS))
    parser.add_argument("--optimizers", nargs="+", default=list(RATES), choices=list(RATES))
    parser.add_argument("--updates", type=int, default=300, help="of each phase")
    parser.add_argument("--batch-size", type=int, default=32, help="sequences per update")
    parser.add_argument("--seeds", type=int, default=0, help="so many trainings with dropout 0.1, ours and theirs")
    parser.add_argument("--megabytes", type=int, default=5, help="of text")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of PyTorch")
    arguments = parser.parse_args(argv)
    with command(arguments.output_dir, "interrupted; the same command resumes"):
        folder = arguments.output_dir.resolve()
        for length in LENGTHS.values():
            make_shards(folder / "data", length, vocabulary_size=VOCABULARY_SIZE, megabytes=arguments.megabytes)

        def rows_of(variants: tuple[Variant, ...], seeds: range, dropout: float) -> list[dict[str, Any]]:
            found = []
            for optimizer in arguments.optimizers:
                for seed in seeds:
                    place = folder / f"{optimizer}-seed{seed}{'-dropout' if dropout else ''}"
                    sizes = arguments.model, arguments.updates, arguments.batch_size
                    one = Comparison(place, folder / "data", optimizer, *sizes, seed, dropout)
                    found += compare(one, arguments.torch_python, variants, arguments.threads)
            return found

        rows = rows_of(VARIANTS, range(1, 2), 0.0)
        text = table(rows)
        seeded = rows_of(VARIANTS[:1], range(1, arguments.seeds + 1), 0.1) if arguments.seeds else []
        if seeded:
            text += "\n\n" + seeds_table(seeded)
        write_atomically(folder / "results.json", json.dumps({"rows": rows, "dropout": seeded}, indent=1).encode())
        write_atomically(folder / "table.md", (text + "\n").encode())
        print(text)


if __name__ == "__main__":
    main()
