"""Trains a small model as a GPU would in float16 and bfloat16, rounded on this CPU, beside float32.

    bash scripts/run_benchmark.sh half-precision [--updates 200 --output-dir D]

Two layers of 64 on documentation of this machine: LAMB, updates of 4 micro-batches of 8 sequences of up to 32 tokens,
the same ones for all. The loss scale may grow after 50 updates without overflow, so that it does. D keeps the shards.
"""

import argparse
import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from bert.command_errors import command
from bert.config.architecture import BertConfig
from bert.config.training_settings import OptimizerSettings, PrecisionSettings
from bert.model.optimization import SKIPPED_UPDATES
from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import PretrainingLoader
from bert.samples.settings import LoaderSettings
from bert.tokenization.vocabulary_files import read_vocabulary
from tests.benchmarks.processes import markdown
from tests.benchmarks.training_tasks import make_shards, predictions_of
from tests.gpu.half_precision import Rounding, losses_of, of_gpu
from tests.support import tiny

LENGTH, MICRO_STEPS, MICRO_BATCH, VOCABULARY_SIZE = 32, 4, 8, 1_024
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
LAMB = OptimizerSettings(optimizer="Lamb", learning_rate=5e-3)
FLEETS = LAMB.model_copy(update={"fleet_strategies": "amp,gradient_merge"})
FLOAT16 = PrecisionSettings(amp=True, loss_scale_growth_interval=50)
VARIANTS = {
    "float32": (PrecisionSettings(), LAMB),
    "float16 (O1)": (FLOAT16, LAMB),
    "float16 (O2)": (FLOAT16.model_copy(update={"use_pure_fp16": True}), LAMB),
    "float16, Fleet's strategies": (FLOAT16, FLEETS),
    "bfloat16": (PrecisionSettings(amp=True, amp_dtype="bfloat16"), LAMB),
}
EDGE = 20  # updates at the start and at the end whose mean loss is given


@dataclass
class Row:
    """One training. `scales` are (update, exponent of the loss scale from there on)."""

    name: str
    losses: list[float]
    scales: list[tuple[int, float]]
    skipped: int
    zero_moments: float  # share of second moments of weight matrices that are exactly 0
    operators: dict[str, dict[str, float]]

    @property
    def first(self) -> float:
        return fmean(self.losses[:EDGE])

    @property
    def last(self) -> float:
        return fmean(self.losses[-EDGE:])


def updates_of(shards: Path) -> Iterator[list[dict[str, np.ndarray]]]:
    """The micro-batches of one update after the other."""
    settings = LoaderSettings(max_seq_length=LENGTH, max_predictions_per_seq=predictions_of(LENGTH), num_workers=0)
    dataset = PretrainingDataset(shards, read_vocabulary(shards.parent / "vocab.txt"), settings, seed=42)
    loader = PretrainingLoader(dataset, global_batch_size=MICRO_STEPS * MICRO_BATCH, micro_batch_size=MICRO_BATCH)
    for batch in loader.batches():
        yield [dict(micro_batch.feed) for micro_batch in batch.micro_batches]


def train(name: str, shards: Path, updates: int) -> Row:
    precision, optimizer = VARIANTS[name]
    model = BertConfig(vocab_size=VOCABULARY_SIZE, max_position_embeddings=LENGTH, **SIZES, **tiny.NO_DROPOUT)
    roundings: list[Rounding] = []
    with of_gpu(roundings) if precision.amp else nullcontext():
        steps = {"num_steps": updates, "warmup_steps": updates // 10}
        session = tiny.Session(
            model=model, precision=precision, optimizer=optimizer, micro_steps=MICRO_STEPS, fuse_mha=True, **steps
        )
    losses: list[float] = []
    scales: list[tuple[int, float]] = []
    for step, feeds in zip(range(updates), updates_of(shards), strict=False):
        losses.append(session.update(feeds)["loss"] / MICRO_STEPS)
        scale = math.log2(session.value(session.program.loss_scale)) if session.program.loss_scale else 0.0
        if not scales or scales[-1][1] != scale:
            scales.append((step + 1, scale))
    state = session.optimizer_state()
    moments = [value for key, value in state.items() if "weight/" in key and key.split("/")[1].startswith("moment2")]
    zeros = sum(int((value == 0).sum()) for value in moments) / sum(value.size for value in moments)
    operators = losses_of(session, feeds[-1], roundings)
    return Row(name, losses, scales, int(session.value(SKIPPED_UPDATES)), zeros, operators)


def measure(folder: Path, updates: int) -> list[Row]:
    shards = make_shards(folder, LENGTH, vocabulary_size=VOCABULARY_SIZE, megabytes=1)
    return [train(name, shards, updates) for name in VARIANTS]


def table(rows: list[Row]) -> str:
    head = (
        "",
        f"loss, first {EDGE}",
        f"last {EDGE}",
        "largest difference",
        "updates skipped",
        "loss scale",
        "zero moments",
    )
    exact = np.array(rows[0].losses)
    body = []
    for row in rows:
        difference = np.abs(np.array(row.losses) - exact).max()
        path = ", ".join(f"2^{scale:.0f} from {step}" for step, scale in row.scales) if row.scales[0][1] else ""
        figures = (f"{row.first:.4f}", f"{row.last:.4f}", f"{difference:.4f}", row.skipped, path)
        body.append((row.name, *figures, f"{row.zero_moments:.1%}"))
    return markdown(head, body)


def operators_table(row: Row, most: int = 6) -> str:
    """The operators of the last update's last micro-step that lose most."""
    head = (row.name, "values", "rounded to zero", "infinite", "relative error (rms)")
    kinds = sorted(row.operators.items(), key=lambda pair: (-pair[1]["zero"], -pair[1]["error"]))[:most]
    return markdown(
        head,
        [
            (kind, f"{found['values']:,}", f"{found['zero']:.2%}", f"{found['infinite']:.2%}", f"{found['error']:.4f}")
            for kind, found in kinds
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--output-dir", type=Path, default=Path(".benchmark/half_precision"))
    arguments = parser.parse_args()
    with command(arguments.output_dir):
        if arguments.updates < 2 * EDGE:
            raise ValueError(f"updates={arguments.updates} must be at least {2 * EDGE}; change --updates")
        rows = measure(arguments.output_dir, arguments.updates)
        print(table(rows))
        for row in rows:
            if row.operators:
                print(f"\n{operators_table(row)}")


if __name__ == "__main__":
    main()
