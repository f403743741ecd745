"""An independent implementation of the training in learning_curve.py, with transformers on PyTorch and updates from the
papers.

    python -m tests.benchmarks.curve_torch initial FOLDER    writes random weights as a Hugging Face model
    python -m tests.benchmarks.curve_torch train FOLDER      trains on the batches of FOLDER's task

Nothing here imports this project's training code. Parameters, moments and updates are float64; the network is float32.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.measuring import read_batches

ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"}


class Update:
    """Makes updates by LAMB (You et al., 2020, algorithm 2) or AdamW (Loshchilov & Hutter, 2019, algorithm 2).

    Biases and LayerNorm have no weight decay, and no trust ratio: LAMB updates them as Adam does. Before either, the
    gradients together are scaled down to a norm of `max_grad_norm`, as NVLAMB does.
    """

    def __init__(self, named: list[tuple[str, Any]], phase: dict[str, Any]) -> None:
        import torch

        self.phase, self.step = phase, 0
        self.weights = [(name, parameter, parameter.detach().double()) for name, parameter in named]
        self.moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for _, _, weight in self.weights]

    def rate(self) -> float:
        """Return the learning rate of update `step`, from 0: linear warm-up to the peak, then linear decay to zero."""
        warmup, total, peak = (self.phase[name] for name in ("warmup_steps", "steps", "learning_rate"))
        if self.step < warmup:
            return peak * (self.step + 1) / warmup
        return peak * (total - self.step) / max(1, total - warmup)

    def apply(self) -> tuple[float, float]:
        """Apply the gradients; return their norm before clipping, and the rate."""
        import torch

        phase, rate = self.phase, self.rate()
        gradients = [parameter.grad.double() for _, parameter, _ in self.weights]
        norm = torch.sqrt(sum((gradient**2).sum() for gradient in gradients))
        scale = phase["max_grad_norm"] / max(float(norm), phase["max_grad_norm"])
        self.step += 1
        beta1, beta2 = phase["beta1"], phase["beta2"]
        for (name, parameter, weight), (first, second), gradient in zip(
            self.weights, self.moments, gradients, strict=True
        ):
            gradient = gradient * scale
            first.mul_(beta1).add_(gradient, alpha=1 - beta1)
            second.mul_(beta2).add_(gradient**2, alpha=1 - beta2)
            direction = first / (1 - beta1**self.step)
            direction = direction / (torch.sqrt(second / (1 - beta2**self.step)) + phase["epsilon"])
            decays = not (name.endswith("bias") or "LayerNorm" in name)
            if decays:
                direction = direction + phase["weight_decay"] * weight
            trust = 1.0
            if decays and phase["optimizer"] == "Lamb":
                sizes = weight.norm(), direction.norm()
                trust = float(sizes[0] / sizes[1]) if min(sizes) > 0 else 1.0
            weight.sub_(direction, alpha=rate * trust)
            parameter.data.copy_(weight)
        return float(norm), rate


def initial(folder: Path) -> None:
    """Write random weights of the task's model to folder/initial."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    task = json.loads((folder / "task.json").read_text())
    torch.manual_seed(task["seed"])
    model = task["model"] | {"hidden_act": ACTIVATIONS.get(task["model"]["hidden_act"], task["model"]["hidden_act"])}
    BertForPreTraining(BertConfig(**model)).save_pretrained(folder / "initial")


def train(folder: Path) -> None:
    """Train both phases and write a curve per phase to folder/torch.json."""
    import torch
    from transformers import BertForPreTraining

    task = json.loads((folder / "task.json").read_text())
    torch.set_num_threads(task["threads"])
    torch.manual_seed(task["seed"])
    network = BertForPreTraining.from_pretrained(folder / "initial")
    curves = {}
    for number, phase in task["phases"].items():
        curves[number] = _train_phase(network, phase, read_batches(folder / f"batches-phase{number}.npz")[""])
    (folder / "torch.json").write_text(json.dumps(curves))


def _train_phase(network: Any, phase: dict[str, Any], batches: list[dict[str, np.ndarray]]) -> list[dict[str, float]]:
    import torch

    network.train()
    update = Update(list(network.named_parameters()), phase)
    rows = []
    for batch in batches:
        feed = {name: torch.from_numpy(value.astype(np.int64)) for name, value in batch.items()}
        encoded = network.bert(**{name: feed[name] for name in ("input_ids", "token_type_ids", "attention_mask")})
        hidden = encoded.last_hidden_state.flatten(0, 1)[feed["positions"]]
        entropy = torch.nn.functional.cross_entropy
        masked_lm = entropy(network.cls.predictions(hidden), feed["labels"])
        next_sentence = entropy(network.cls.seq_relationship(encoded.pooler_output), feed["next_sentence_labels"])
        network.zero_grad()
        (masked_lm + next_sentence).backward()
        norm, rate = update.apply()
        loss = float(masked_lm.detach() + next_sentence.detach())
        rows.append({"loss": loss, "masked_lm_loss": float(masked_lm), "gradient_norm": norm, "learning_rate": rate})
    return rows


if __name__ == "__main__":
    {"initial": initial, "train": train}[sys.argv[1]](Path(sys.argv[2]))
