"""Fine-tuning as transformers users do it: modules, tokenizer, windows and loss of theirs, examples in random order.

    python -m tests.benchmarks.fine_tuning_torch TASK.json

TASK.json is the one that fine_tuning_seeds.py writes. The result is a Hugging Face model. Nothing here imports this
project's training code.
"""

import json
import sys
from pathlib import Path
from typing import Any


def windows(tokenizer: Any, task: dict[str, Any]) -> list[dict[str, Any]]:
    """Examples of question answering: `overlap` tokens are in two consecutive windows of a paragraph.

    A window that does not hold the whole answer teaches position 0, as in transformers' example.
    """
    rows = task["rows"]
    encoded = tokenizer(
        [row["question"] for row in rows],
        [row["context"] for row in rows],
        truncation="only_second",
        max_length=task["max_seq_length"],
        stride=task["overlap"],
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    examples = []
    for window, row in enumerate(encoded["overflow_to_sample_mapping"]):
        first = rows[row]["start"]
        last = first + len(rows[row]["answer"])
        part = encoded.sequence_ids(window)
        covers = [
            index
            for index, (begin, stop) in enumerate(encoded["offset_mapping"][window])
            if part[index] == 1 and begin < last and stop > first
        ]
        inside = [encoded["offset_mapping"][window][index] for index in covers]
        whole = inside and inside[0][0] <= first and inside[-1][1] >= last
        start, end = (covers[0], covers[-1]) if whole else (0, 0)
        examples.append(
            {name: encoded[name][window] for name in ("input_ids", "token_type_ids", "attention_mask")}
            | {"start_positions": start, "end_positions": end}
        )
    return examples


def texts(tokenizer: Any, task: dict[str, Any]) -> list[dict[str, Any]]:
    """Examples of classification."""
    examples = []
    for row in task["rows"]:
        encoded = tokenizer(row["text"], row.get("text_pair"), truncation=True, max_length=task["max_seq_length"])
        examples.append({**encoded, "labels": task["labels"].index(row["label"])})
    return examples


def train(task: dict[str, Any]) -> None:
    import torch
    from transformers import AutoTokenizer, BertForQuestionAnswering, BertForSequenceClassification

    torch.set_num_threads(1)
    torch.manual_seed(task["seed"])
    tokenizer = AutoTokenizer.from_pretrained(task["encoder"])
    if task["labels"]:
        names = dict(enumerate(task["labels"]))
        network = BertForSequenceClassification.from_pretrained(task["encoder"], id2label=names, dtype=torch.float32)
        examples = texts(tokenizer, task)
    else:
        network = BertForQuestionAnswering.from_pretrained(task["encoder"], dtype=torch.float32)
        examples = windows(tokenizer, task)

    named = list(network.named_parameters())
    plain = {name for name, _ in named if name.endswith("bias") or "LayerNorm" in name}
    groups = [
        {"params": [value for name, value in named if name not in plain], "weight_decay": 0.01},
        {"params": [value for name, value in named if name in plain], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=task["learning_rate"], eps=1e-6)
    size = task["batch_size"]
    steps = -(-int(task["epochs"] * len(examples)) // size)
    warmup = max(1, int(task["warmup_proportion"] * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))
    )
    network.train()
    order: list[int] = []
    for _ in range(steps):
        if len(order) < size:
            order += torch.randperm(len(examples)).tolist()
        batch, order = [examples[index] for index in order[:size]], order[size:]
        optimizer.zero_grad(set_to_none=True)
        network(**_tensors(batch, torch)).loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    network.save_pretrained(task["output"])
    tokenizer.save_pretrained(task["output"])
    print(json.dumps({"examples": len(examples), "steps": steps}))


def _tensors(batch: list[dict[str, Any]], torch: Any) -> dict[str, Any]:
    longest = max(len(example["input_ids"]) for example in batch)
    return {
        name: torch.tensor(
            [example[name] + [0] * (longest - len(example[name])) for example in batch]
            if isinstance(batch[0][name], list)
            else [example[name] for example in batch]
        )
        for name in batch[0]
    }


if __name__ == "__main__":
    train(json.loads(Path(sys.argv[1]).read_text()))
