"""Hugging Face transformers on PyTorch on a task of the benchmark; see measuring.py.

Attention is the library's own choice. Arguments after the task's folder: `--all-positions` for BertForPreTraining as it
is, logits at every position (otherwise the same modules with logits at masked positions only, as ours), `--bfloat16`
for torch.autocast, `--compile` for torch.compile.
"""

import argparse

from tests.benchmarks.measuring import Feed, Task, best_rate, decays, measure, task_of_command_line

_ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"}
_ENCODER_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


def main(task: Task, arguments: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(task.threads)
    torch.manual_seed(12)
    network = _network(task)
    _load(network, task.weights())
    named = list(network.named_parameters())
    groups = [
        {"params": [p for name, p in named if decays(name)], "weight_decay": task.weight_decay},
        {"params": [p for name, p in named if not decays(name)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=task.learning_rate, eps=task.epsilon, fused=True)

    def loss_of(feed: dict):
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bfloat16):
            if task.objective == "pretraining":
                return (_all_positions if arguments.all_positions else _masked_positions)(network, feed)
            return _answer_spans(network, feed) if task.objective == "question-answering" else network(**feed).loss

    if arguments.compile:
        loss_of = torch.compile(loss_of, dynamic=True)

    def tensors(batch: Feed) -> dict:
        return {name: torch.from_numpy(value) for name, value in batch.items()}

    def train(batch: Feed) -> None:
        network.train()
        optimizer.zero_grad(set_to_none=True)
        loss_of(tensors(batch)).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), task.max_grad_norm)
        optimizer.step()

    def evaluate(batch: Feed) -> float:
        network.eval()
        with torch.no_grad():
            return float(loss_of(tensors(batch)))

    left, right = torch.ones(1024, 1024), torch.full((1024, 1024), 1 / 1024)
    measure(task, train, evaluate, best_rate(lambda: left @ right, 2 * 1024**3))


def _network(task: Task):
    from transformers import BertConfig, BertForPreTraining, BertForQuestionAnswering, BertForSequenceClassification

    kinds = {
        "pretraining": BertForPreTraining,
        "question-answering": BertForQuestionAnswering,
        "classification": BertForSequenceClassification,
    }
    activation = _ACTIVATIONS.get(task.model["hidden_act"], task.model["hidden_act"])
    return kinds[task.objective](BertConfig(**task.model | {"hidden_act": activation}, num_labels=2))


def _all_positions(network, feed: dict):
    import torch

    labels = torch.full(feed["input_ids"].shape, -100)
    real = feed["masked_lm_weights"] > 0
    labels.view(-1)[feed["masked_lm_positions"][real]] = feed["masked_lm_labels"][real]
    inputs = {name: feed[name] for name in _ENCODER_INPUTS}
    return network(**inputs, labels=labels, next_sentence_label=feed["next_sentence_labels"]).loss


def _masked_positions(network, feed: dict):
    from torch.nn.functional import cross_entropy

    encoded = network.bert(**{name: feed[name] for name in _ENCODER_INPUTS})
    masked = encoded.last_hidden_state.flatten(0, 1)[feed["masked_lm_positions"]]
    each = cross_entropy(network.cls.predictions(masked), feed["masked_lm_labels"], reduction="none")
    masked_lm = (each * feed["masked_lm_weights"]).sum() / feed["masked_lm_normalizer"].sum()
    return masked_lm + cross_entropy(network.cls.seq_relationship(encoded.pooler_output), feed["next_sentence_labels"])


def _answer_spans(network, feed: dict):
    """Without the logits at padding, as ours: theirs would compete with the answer's."""
    from torch.nn.functional import cross_entropy

    found, padding = network(**{name: feed[name] for name in _ENCODER_INPUTS}), feed["attention_mask"] == 0
    starts, ends = (logits.masked_fill(padding, -1e4) for logits in (found.start_logits, found.end_logits))
    return (cross_entropy(starts, feed["start_positions"]) + cross_entropy(ends, feed["end_positions"])) / 2


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    for flag in ("all-positions", "bfloat16", "compile"):
        parser.add_argument(f"--{flag}", action="store_true")
    main(task_of_command_line(), parser.parse_args())
