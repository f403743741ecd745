"""Training objective of a reranker, a cross-encoder that scores a query with a passage (Nogueira and Cho, 2019)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from bert.model.objectives import TextHeadObjective
from bert.runtime.paddle_api import nn, paddle

F = nn.functional


@dataclass(frozen=True)
class RerankingObjective(TextHeadObjective):
    """Listwise softmax cross-entropy of a query's passage among its negatives (Cao et al., 2007; Gao et al., 2021).

    A sequence is a query with one passage, and has one score. A micro-batch consists of whole groups of `group_size`
    sequences: first the passage that answers the query, then the negatives.
    """

    num_labels: int = 1
    group_size: int = 2

    labels: ClassVar = {}
    metric_names: ClassVar = ("passes", "loss", "correct", "groups")
    accuracies: ClassVar = {"accuracy": ("correct", "groups")}

    def loss(self, feed: dict[str, Any], outputs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The mean loss of the groups, and [groups whose first sequence has the highest score, groups]."""
        scores = outputs["logits"].astype("float32").reshape([-1, self.group_size])
        first = paddle.zeros_like(scores[:, 0]).astype("int64")
        correct = (paddle.argmax(scores, axis=-1) == first).astype("float32").sum()
        return F.cross_entropy(scores, first), [correct, paddle.ones_like(scores[:, 0]).sum()]
