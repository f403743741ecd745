"""Hugging Face transformers on PyTorch on a task of the benchmark; see measuring.py.

Arguments after the task's folder: `all-positions` (BertForPreTraining as it is, logits at every position) or
`masked-positions` (the same modules, logits at masked positions only, as ours). Attention is the library's own choice.
"""

import sys

from tests.benchmarks.measuring import Task, best_rate, decays, measure, task_of_command_line

_ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"}


def main(task: Task, all_positions: bool) -> None:
    import torch
    from transformers import BertConfig, BertForPreTraining

    torch.set_num_threads(task.threads)
    torch.manual_seed(12)
    model = task.model | {"hidden_act": _ACTIVATIONS.get(task.model["hidden_act"], task.model["hidden_act"])}
    network = BertForPreTraining(BertConfig(**model))
    _load(network, task.weights())
    named = list(network.named_parameters())
    groups = [
        {"params": [p for name, p in named if decays(name)], "weight_decay": task.weight_decay},
        {"params": [p for name, p in named if not decays(name)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=task.learning_rate, eps=task.epsilon, fused=True)

    def loss_of(batch: dict):
        feed = {name: torch.from_numpy(value) for name, value in batch.items()}
        inputs = {name: feed[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
        if all_positions:
            labels = torch.full(feed["input_ids"].shape, -100)
            real = feed["masked_lm_weights"] > 0
            labels.view(-1)[feed["masked_lm_positions"][real]] = feed["masked_lm_labels"][real]
            return network(**inputs, labels=labels, next_sentence_label=feed["next_sentence_labels"]).loss
        encoded = network.bert(**inputs)
        masked = encoded.last_hidden_state.flatten(0, 1)[feed["masked_lm_positions"]]
        each = torch.nn.functional.cross_entropy(
            network.cls.predictions(masked), feed["masked_lm_labels"], reduction="none"
        )
        masked_lm = (each * feed["masked_lm_weights"]).sum() / feed["masked_lm_normalizer"].sum()
        next_sentence = network.cls.seq_relationship(encoded.pooler_output)
        return masked_lm + torch.nn.functional.cross_entropy(next_sentence, feed["next_sentence_labels"])

    def train(batch: dict) -> None:
        network.train()
        optimizer.zero_grad(set_to_none=True)
        loss_of(batch).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), task.max_grad_norm)
        optimizer.step()

    def evaluate(batch: dict) -> float:
        network.eval()
        with torch.no_grad():
            return float(loss_of(batch))

    left, right = torch.ones(1024, 1024), torch.full((1024, 1024), 1 / 1024)
    measure(task, train, evaluate, best_rate(lambda: left @ right, 2 * 1024**3))


def _load(network, weights: dict) -> None:
    """Our names are Hugging Face's; matrices of linear layers are transposed there."""
    import torch

    linear = {f"{name}.weight" for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)}
    state = {name: torch.from_numpy(value.T.copy() if name in linear else value) for name, value in weights.items()}
    missing, unexpected = network.load_state_dict(state, strict=False)
    network.tie_weights()
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "bert.embeddings.position_ids"}
    assert not unexpected and set(missing) <= tied, (missing, unexpected)


if __name__ == "__main__":
    main(task_of_command_line(), sys.argv[2] == "all-positions")
