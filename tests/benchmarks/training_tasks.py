"""The cases of the training benchmark: a model, a task and its batches."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert.config.architecture import BUILT_IN_MODELS, BertConfig
from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import PretrainingLoader
from bert.samples.settings import LoaderSettings
from bert.tokenization.vocabulary_files import read_vocabulary
from tests.benchmarks.measuring import Feed, write_batches
from tests.benchmarks.processes import run_module

VOCABULARY_SIZE = 30_000
MAX_MEGABYTES = 8
NUM_BATCHES = 24
MINILM = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)


@dataclass(frozen=True)
class Case:
    """One table of the benchmark.

    Attributes:
        objective: pretraining | question-answering | classification.
        length: the longest sequence, in tokens.
        lengths: mean and standard deviation of fine-tuning's sequences.
        padded: whether pretraining has the padding of real batches, or none.
        wall_time: whether elapsed time is compared, not CPU time.
    """

    model: BertConfig
    batch_size: int
    length: int
    objective: str = "pretraining"
    lengths: tuple[float, float] = (0.0, 0.0)
    padded: bool = True
    wall_time: bool = False


CASES = {
    "bert-tiny": Case(BUILT_IN_MODELS["bert-tiny"], 4, 32),
    "bert-mini": Case(BUILT_IN_MODELS["bert-mini"], 32, 128),
    "bert-mini-full": Case(BUILT_IN_MODELS["bert-mini"], 32, 128, padded=False),
    "bert-small": Case(BUILT_IN_MODELS["bert-small"], 16, 128),
    "bert-base": Case(BUILT_IN_MODELS["bert-base-uncased"], 8, 128),
    # Windows of up to 256 tokens as of SQuAD's paragraphs, and sentences as SST-2's: 23 tokens of about 50 in a batch.
    "squad": Case(MINILM, 16, 256, "question-answering", (165, 45), wall_time=True),
    "sst-2": Case(MINILM, 32, 64, "classification", (23, 11), wall_time=True),
}


def make_shards(
    folder: Path, sequence_length: int, *, vocabulary_size: int = VOCABULARY_SIZE, megabytes: int = MAX_MEGABYTES
) -> Path:
    """Text of this machine -> vocabulary -> shards below `folder`, each made once; returns the shards' folder."""
    corpus, vocabulary, shards = folder / "corpus", folder / "vocab.txt", folder / f"shards-{sequence_length}"
    source = corpus / "train/source"
    sample = ["--output-dir", corpus, "--max-megabytes", megabytes, "--sources", "docstrings"]
    sample += ["--held-out-fraction", 0.05]
    train = ["--input", source, "--vocab-size", vocabulary_size, "--output", vocabulary]
    preprocess = ["--text", source, "--sink", shards, "--vocab-file", vocabulary, "--num-shards", 1]
    preprocess += ["--target-seq-length", sequence_length, "--masking", "static"]
    preprocess += ["--max-predictions-per-seq", predictions_of(sequence_length)]
    commands: tuple[tuple[Path, str, list], ...] = (
        (corpus / "report.json", "data.examples.documentation", sample),
        (vocabulary, "data.train_vocabulary", train),
        (shards / "manifest.json", "data.preprocess_bert_pretrain", preprocess),
    )
    for product, module, arguments in commands:
        if not product.exists():
            run_module(module, *arguments)
    return shards


def predictions_of(sequence_length: int) -> int:
    return max(1, round(sequence_length * 20 / 128))


def pretraining_batches(case: Case, shards: Path) -> Iterator[Feed]:
    """Batches of a loader, with their padding, or with random tokens in its place."""
    lengths = {"max_seq_length": case.length, "max_predictions_per_seq": predictions_of(case.length)}
    vocabulary = read_vocabulary(shards.parent / "vocab.txt")
    dataset = PretrainingDataset(shards, vocabulary, LoaderSettings(**lengths, num_workers=0), seed=42)
    loader = PretrainingLoader(dataset, global_batch_size=case.batch_size, micro_batch_size=case.batch_size)
    rng, batches = np.random.default_rng(42), loader.batches()
    for _ in range(min(NUM_BATCHES, loader.batches_per_epoch)):
        (batch,) = next(batches).micro_batches
        feed = dict(batch.feed)
        if not case.padded:
            missing = case.length - feed["input_ids"].shape[1]
            wide = {name: np.pad(feed[name], ((0, 0), (0, missing))) for name in ("input_ids", "token_type_ids")}
            rows, columns = np.divmod(feed["masked_lm_positions"], feed["input_ids"].shape[1])
            mask = np.pad(feed["attention_mask"], ((0, 0), (0, missing)))
            tokens = rng.integers(1000, VOCABULARY_SIZE, mask.shape)
            wide["input_ids"] = np.where(mask == 1, wide["input_ids"], tokens)
            feed |= wide | {"attention_mask": np.ones_like(mask), "masked_lm_positions": rows * case.length + columns}
        yield feed
    batches.close()


def finetuning_batches(case: Case) -> Iterator[Feed]:
    """Random tokens with lengths as in real data. Labels follow from the tokens, so a few batches can be learnt."""
    rng = np.random.default_rng(42)
    for _ in range(NUM_BATCHES):
        lengths = np.clip(rng.normal(*case.lengths, case.batch_size).round().astype(np.int64), 5, case.length)
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        ids = rng.integers(1000, case.model.vocab_size, mask.shape)
        feed = {"attention_mask": mask, "token_type_ids": np.zeros_like(mask)}
        if case.objective == "classification":
            labels = rng.integers(0, 2, case.batch_size)
            ids[:, 1] = 1000 + labels
            feed["labels"] = labels
        else:
            starts = rng.integers(1, lengths - 3)
            ids[np.arange(case.batch_size), starts] = 1000
            feed |= {"start_positions": starts, "end_positions": starts + 2}
        yield feed | {"input_ids": ids * mask}


def write_task(
    folder: Path, case: Case, batches: Iterator[Feed], *, warmup_steps: int, threads: int, dropout: bool = True
) -> list[Feed]:
    """The task of measuring.py, without the weights; returns its batches."""
    found = list(batches)
    folder.mkdir(parents=True, exist_ok=True)
    write_batches(folder / "batches.npz", {"": found})
    model = {**case.model.model_dump(), "vocab_size": case.model.padded_vocab_size()}
    if not dropout:
        model |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    task = {"objective": case.objective, "model": model, "warmup_steps": warmup_steps, "threads": threads}
    task |= {"learning_rate": 1e-4, "weight_decay": 0.01, "epsilon": 1e-6, "max_grad_norm": 1.0}
    (folder / "task.json").write_text(json.dumps(task, indent=1))
    return found
