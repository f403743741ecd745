"""Own text against Hugging Face transformers: a finished run, and BertForMaskedLM of its size in the same CPU seconds.

    python -m tests.benchmarks.own_text_transformers prepare RUN FOLDER    where Paddle is: the run's own losses
    python -m tests.benchmarks.own_text_transformers train FOLDER --cpu-seconds 1440 --learning-rate 1e-3

RUN is the output folder of a `--text` run. Both are evaluated on the same rows of its held-out text with equal masks,
15% at lengths 64 and 128. BertForMaskedLM learns blocks of 128 tokens of the same text, 15% masked anew each time, with
AdamW and a linear warm-up and decay over its CPU seconds, of which starting, tokenizing and evaluating are no part.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bert.tokenization.vocabulary_files import read_vocabulary
from tests.benchmarks.processes import run_module

LENGTHS = (64, 128)
BLOCK = 128
IGNORED = -100


def prepare(run: Path, folder: Path) -> None:
    """Write the tokens of the training text and the masked held-out rows; print the losses of the run's model."""
    from tokenizers import BertWordPieceTokenizer

    from tests.benchmarks.shard_evaluation import evaluate_on_shards

    folder.mkdir(parents=True, exist_ok=True)
    plan = json.loads((run / "own_text.json").read_text())["plan"]
    vocabulary, text = run / "data/vocab.txt", run / "data/text"
    (folder / "vocab.txt").write_text(vocabulary.read_text())
    tokenizer = BertWordPieceTokenizer(str(vocabulary))
    lines = [line for file in sorted((text / "train/source").rglob("*.txt")) for line in file.open(encoding="utf-8")]
    documents = [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]
    separator = tokenizer.token_to_id("[SEP]")
    np.save(folder / "tokens.npy", np.concatenate([np.array([*ids, separator], np.int32) for ids in documents]))
    special = {name: tokenizer.token_to_id(f"[{name}]") for name in ("PAD", "CLS", "SEP", "MASK")}
    sizes = {name: plan["settings"][name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    task = {"vocab_size": tokenizer.get_vocab_size(), "special": special, "sizes": sizes}
    (folder / "task.json").write_text(json.dumps(task))
    losses = {}
    for length in LENGTHS:
        shards = folder / f"rows-{length}"
        flags: tuple[object, ...] = ("--text", text / "held_out/source", "--sink", shards, "--vocab-file", vocabulary)
        flags += ("--target-seq-length", length, "--num-shards", 1, "--objective", "mlm", "--masking", "static")
        run_module("data.preprocess_bert_pretrain", *flags)
        np.savez(folder / f"rows-{length}.npz", **_rows(shards, vocabulary, length))
        losses[length] = evaluate_on_shards(run, shards, eval_samples=10**9)
    (folder / "ours.json").write_text(json.dumps(losses))
    print(json.dumps(losses))


def _rows(shards: Path, vocabulary: Path, length: int) -> dict[str, np.ndarray]:
    """Padded inputs and labels; a label is IGNORED where nothing is masked."""
    from bert.samples.dataset import PretrainingDataset
    from bert.samples.loader import evaluation_batches
    from bert.samples.settings import LoaderSettings

    settings = LoaderSettings(max_seq_length=length, max_predictions_per_seq=length // 4, masking="static")
    dataset = PretrainingDataset(shards, read_vocabulary(vocabulary), settings, seed=42, next_sentence=False)
    inputs = np.zeros((dataset.num_samples, length), np.int64)
    labels, attention, row = np.full_like(inputs, IGNORED), np.zeros_like(inputs), 0
    for batch in evaluation_batches(dataset, micro_batch_size=32):
        feed = batch.feed
        rows, width = feed["input_ids"].shape
        inputs[row : row + rows, :width], attention[row : row + rows, :width] = (
            feed["input_ids"],
            feed["attention_mask"],
        )
        real = feed["masked_lm_weights"] > 0
        places = feed["masked_lm_positions"][real]
        labels[row + places // width, places % width] = feed["masked_lm_labels"][real]
        row += rows
    return {"input_ids": inputs, "attention_mask": attention, "labels": labels}


def train(
    folder: Path, seconds: float, rate: float, batch_size: int, seed: int, kind: str, save: Path | None
) -> dict[str, Any]:
    """Train for so many CPU seconds -> updates, and the losses by length; `save` gets the model."""
    import torch

    task = json.loads((folder / "task.json").read_text())
    torch.set_num_threads(1)  # several wait for each other by spinning, which costs CPU seconds
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = _network(task, kind)
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.01, fused=True)
    body, special = BLOCK - 2, task["special"]
    tokens = np.load(folder / "tokens.npy")
    blocks = tokens[: len(tokens) // body * body].reshape(-1, body)
    updates, order, used = 0, np.empty(0, np.int64), 0.0
    begun = time.process_time()
    while (used := time.process_time() - begun) < seconds:
        if len(order) < batch_size:
            order = np.concatenate([order, rng.permutation(len(blocks))])
        chosen, order = order[:batch_size], order[batch_size:]
        inputs, labels = _masked(blocks[chosen], special, task["vocab_size"], rng)
        share = used / seconds
        for group in optimizer.param_groups:
            group["lr"] = rate * min(share / 0.1 + 0.01, (1 - share) / 0.9)
        network.train()
        optimizer.zero_grad(set_to_none=True)
        network(input_ids=torch.from_numpy(inputs), labels=torch.from_numpy(labels)).loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        updates += 1
    if save is not None:
        network.save_pretrained(save)
        (save / "vocab.txt").write_text((folder / "vocab.txt").read_text())
    losses = {length: _evaluate(network, folder / f"rows-{length}.npz") for length in LENGTHS}
    settings = {"model": kind, "learning_rate": rate, "batch_size": batch_size, "seed": seed}
    result = {**settings, "cpu_seconds": round(used), "updates": updates, "losses": losses}
    with open(folder / "results.jsonl", "a", encoding="utf-8") as stream:
        stream.write(json.dumps(result) + "\n")
    return result


def _network(task: dict[str, Any], kind: str) -> Any:
    """Without dropout, which a model that is trained for minutes does not need."""
    from transformers import BertConfig, BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

    sizes = {**task["sizes"], "vocab_size": task["vocab_size"], "max_position_embeddings": BLOCK}
    hidden = sizes["hidden_size"]
    if kind == "bert":
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return BertForMaskedLM(BertConfig(**sizes, intermediate_size=4 * hidden, **no_dropout))
    ids = {f"{name.lower()}_token_id": place for name, place in task["special"].items() if name != "MASK"}
    ids |= {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    size = -(-8 * hidden // 24) * 8  # as many parameters in three matrices as BERT's in two
    return ModernBertForMaskedLM(ModernBertConfig(**sizes, **ids, intermediate_size=size, reference_compile=False))


def _masked(blocks: np.ndarray, special: dict[str, int], vocab_size: int, rng: np.random.Generator) -> Any:
    """[CLS] block [SEP], masked as Devlin et al. (2019) do, and the labels."""
    ends = np.full((len(blocks), 1), special["CLS"]), np.full((len(blocks), 1), special["SEP"])
    inputs = np.concatenate([ends[0], blocks, ends[1]], axis=1).astype(np.int64)
    is_masked = (rng.random(inputs.shape) < 0.15) & (inputs != special["SEP"]) & (inputs != special["CLS"])
    labels, kind = np.where(is_masked, inputs, IGNORED), rng.random(inputs.shape)
    inputs[is_masked & (kind < 0.8)] = special["MASK"]
    random = is_masked & (kind >= 0.9)
    inputs[random] = rng.integers(0, vocab_size, random.sum())
    return inputs, labels


def _evaluate(network: Any, file: Path) -> float:
    """The mean loss of the masked tokens."""
    import torch

    rows, total, count = np.load(file), 0.0, 0
    network.eval()
    for start in range(0, len(rows["labels"]), 64):
        part = {name: torch.from_numpy(values[start : start + 64]) for name, values in rows.items()}
        masked = int((part["labels"] != IGNORED).sum())
        with torch.no_grad():
            total += float(network(**part).loss) * masked
        count += masked
    return total / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    roles = parser.add_subparsers(dest="role", required=True)
    preparing, training = roles.add_parser("prepare"), roles.add_parser("train")
    preparing.add_argument("run", type=Path)
    for role in (preparing, training):
        role.add_argument("folder", type=Path)
    training.add_argument("--cpu-seconds", type=float, required=True)
    training.add_argument("--learning-rate", type=float, required=True)
    training.add_argument("--batch-size", type=int, default=32)
    training.add_argument("--seed", type=int, default=1)
    training.add_argument("--model", choices=("bert", "modernbert"), default="bert")
    training.add_argument("--save", type=Path, help="folder for the model, to fine-tune it")
    args = parser.parse_args()
    if args.role == "prepare":
        prepare(args.run, args.folder)
    else:
        size, kind = args.batch_size, args.model
        print(json.dumps(train(args.folder, args.cpu_seconds, args.learning_rate, size, args.seed, kind, args.save)))


if __name__ == "__main__":
    main()
