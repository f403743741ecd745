"""CPU time of an update on real tokens only against one on padded sequences; the two take turns in one process.

    .venv/bin/python -m tests.benchmarks.packed_tokens [ROW ...] [--seconds 20]

Token ids are random. Lengths are drawn: nine of ten of pre-training within 5% of the longest, the others of any length;
those of SQuAD's windows and of SST-2's sentences from log-normal distributions with their mean and longest.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np

from bert.config.architecture import BUILT_IN_MODELS, BertConfig, FusedKernels
from bert.config.training_settings import OptimizerSettings
from bert.model import objectives
from bert.runtime.distributed import Group
from bert.samples.packing import pack
from tests.support import tiny

BATCHES = 20
MINILM = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
QUICKSTART, MINI = BUILT_IN_MODELS["bert-quickstart"], BUILT_IN_MODELS["bert-mini"]
Lengths = Callable[[np.random.RandomState], np.ndarray]


def pretraining(longest: int, size: int) -> Lengths:
    def draw(rng):
        near = longest - rng.randint(0, max(2, longest // 20), size)
        return np.where(rng.rand(size) < 0.9, near, rng.randint(8, longest, size))

    return draw


def log_normal(median: float, spread: float, shortest: int, longest: int, size: int) -> Lengths:
    return lambda rng: np.clip(rng.lognormal(np.log(median), spread, size).astype(int), shortest, longest)


ROWS: dict[str, tuple[str, BertConfig, Lengths]] = {
    "quickstart-phase1": ("PretrainingObjective", QUICKSTART, lambda rng: np.clip(rng.randint(20, 90, 16), 8, 64)),
    "quickstart-phase2": ("PretrainingObjective", QUICKSTART, pretraining(128, 16)),
    "bert-mini": ("PretrainingObjective", MINI, pretraining(128, 32)),
    "bert-mini-full": ("PretrainingObjective", MINI, lambda rng: np.full(8, 128)),
    "squad": ("QuestionAnsweringObjective", MINILM, log_normal(165, 0.4, 40, 256, 16)),
    "sst-2": ("SequenceClassificationObjective", MINILM, log_normal(20, 0.5, 4, 66, 32)),
}


def feed_of(kind: str, vocab_size: int, lengths: np.ndarray, rng: np.random.RandomState) -> dict[str, np.ndarray]:
    mask = (np.arange(-(-lengths.max() // 8) * 8) < lengths[:, None]).astype("int64")
    size, ids = len(lengths), rng.randint(5, vocab_size, mask.shape) * mask
    feed = {"input_ids": ids, "token_type_ids": np.zeros_like(mask), "attention_mask": mask}
    if kind == "QuestionAnsweringObjective":
        return feed | {name: rng.randint(0, 512, size) % lengths for name in ("start_positions", "end_positions")}
    if kind == "SequenceClassificationObjective":
        return feed | {"labels": rng.randint(0, 2, size)}
    count = mask.sum() * 15 // 100 // 8 * 8
    return feed | {
        "masked_lm_positions": np.sort(rng.choice(np.flatnonzero(mask), count, replace=False)),
        "masked_lm_labels": rng.randint(0, vocab_size, count),
        "masked_lm_weights": np.ones(count, "float32"),
        "masked_lm_normalizer": np.array([count], "float32"),
        "next_sentence_labels": rng.randint(0, 2, size),
    }


def updates(kind: str, model: BertConfig, feeds: list, unpad: bool, group: Group) -> Iterator[float]:
    """CPU seconds of one update after another, packing included."""
    objective = getattr(objectives, kind)(model, fuse_mha=True, kernels=FusedKernels(unpad=unpad))
    optimizer, packing = OptimizerSettings(optimizer="AdamW", learning_rate=1e-4), objective.packing()
    session = tiny.Session(objective=objective, optimizer=optimizer, group=group, num_steps=1, warmup_steps=0)
    for step in itertools.count():
        begin, feed = time.process_time(), feeds[step % len(feeds)]
        session.micro_step(feed if packing is None else pack(feed, packing), step)
        yield time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all if none")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.rows) - ROWS.keys()):
        parser.error(f"no row is called {', '.join(unknown)}; there are {', '.join(ROWS)}")
    print("| | padding | CPU s an update, padded | real tokens, of padded |\n|---|---|---|---|")
    for name in arguments.rows or ROWS:
        kind, model, draw = ROWS[name]
        rng = np.random.RandomState(0)
        feeds = [feed_of(kind, model.vocab_size, draw(rng), rng) for _ in range(BATCHES)]
        padding = 1 - sum(feed["attention_mask"].sum() for feed in feeds) / sum(
            feed["input_ids"].size for feed in feeds
        )
        pair = [updates(kind, model, feeds, unpad, tiny.ONE_RANK) for unpad in (False, True)]
        times, end = [], time.monotonic() + arguments.seconds
        while len(times) < 5 or time.monotonic() < end:
            times.append([next(seconds) for seconds in pair])
        padded, packed = np.array(times[2:]).T
        print(f"| {name} | {padding:.0%} | {np.median(padded):.3f} | {packed.sum() / padded.sum():.2f} |", flush=True)


if __name__ == "__main__":
    main()
