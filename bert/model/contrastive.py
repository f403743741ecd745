"""Contrastive training of text vectors: InfoNCE over all pairs of a global batch, with micro-batches and ranks.

The loss reads the vectors of the whole batch, `BATCH_VECTORS`, which are computed before its micro-steps (Gao et al.,
2021). A micro-step replaces the vectors of its own texts by live ones: the gradient of their parameters is then exact,
and the sum over micro-steps and ranks equals the whole batch's, however it is divided.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bert.model.attention import MASKED_SCORE
from bert.model.heads import ENCODERS
from bert.model.modeling import BertModel
from bert.model.objectives import BATCH_VECTORS, Objective
from bert.runtime.paddle_api import nn, paddle
from bert.samples.packing import Packing

F = nn.functional


@dataclass(frozen=True)
class ContrastiveObjective(Objective):
    """InfoNCE with in-batch negatives, from query to passage and back (van den Oord et al., 2018; Gao et al., 2021).

    A batch of B pairs has V texts: B queries, their B passages in the same order, then all further negatives.

    Attributes:
        pooling: "mean" of the states of all tokens, or the state of "cls".
        temperature: cosines are divided by it.
        dimensions: the loss is also of the first so many numbers of each vector (Kusupati et al., 2022).
    """

    pooling: str = "mean"
    temperature: float = 1.0
    dimensions: tuple[int, ...] = ()

    labels: ClassVar = {
        BATCH_VECTORS: ([-1, -1], "float32"),  # [V, hidden]; rows of this micro-batch's texts are not read
        "text_places": ([-1], "int64"),  # of this micro-batch's texts among the V
        "not_negatives": ([-1, -1], "float32"),  # [B, V - B]; 1: this text is no negative of this pair's query
        "pair_numbers": ([-1], "int64"),  # 0 ... B - 1
        "num_micro_batches": ([1], "float32"),  # of the global batch, on all ranks
    }
    metric_names: ClassVar = ("passes", "loss", "correct", "pairs")
    accuracies: ClassVar = {"accuracy": ("correct", "pairs")}

    def packing(self) -> Packing | None:
        packing = super().packing()
        return packing and replace(packing, per_token=True)

    def network(self) -> BertModel:
        encoder = ENCODERS[self.model.model_type]
        return encoder(self.model, fuse_mha=self.fuse_mha, with_pooler=False, kernels=self.kernels)

    def outputs(self, feed: dict[str, Any], network: Any) -> dict[str, Any]:
        """The vectors of the texts, float32 [b, hidden], not normalised."""
        input_ids, token_type_ids, sequences = self.encoder_arguments(feed)
        layout = network.layout(sequences)
        hidden, _ = network(input_ids, token_type_ids, layout)
        vectors = layout.first_tokens(hidden).astype("float32") if self.pooling == "cls" else layout.means(hidden)
        return {"vectors": vectors}

    def loss(self, feed: dict[str, Any], outputs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The mean loss over all pairs of the batch, in both directions; the same in all its micro-steps."""
        hidden, pairs = self.model.hidden_size, feed["pair_numbers"]
        cached, number = feed[BATCH_VECTORS].reshape([-1, hidden]), paddle.shape(pairs)[0]
        vectors = paddle.scatter(cached, feed["text_places"], outputs["vectors"])
        bias = feed["not_negatives"] * MASKED_SCORE  # [B, V - B]
        sizes = (hidden, *self.dimensions)
        scores = [_cosines(vectors[:, :size], number) / self.temperature + bias for size in sizes]
        both = [F.cross_entropy(each, pairs) + F.cross_entropy(each[:, :number].t(), pairs) for each in scores]
        mean = sum(both) / (2 * len(both))
        # Optimizers take the mean over micro-batches, where the sum is needed; the value stays as it is.
        loss = mean.detach() + (mean - mean.detach()) * feed["num_micro_batches"].sum()
        correct = (paddle.argmax(scores[0], axis=-1) == pairs).astype("float32").sum()
        return loss, [correct, paddle.ones_like(pairs).astype("float32").sum()]


def _cosines(vectors, number):
    """Cosines of the first vectors with the others, [number, V - number]; float32 also in mixed precision."""
    units = F.normalize(vectors, axis=-1).unsqueeze(0)
    return paddle.bmm(units[:, :number], units[:, number:].transpose([0, 2, 1])).squeeze(0)
