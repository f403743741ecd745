"""A search whose figures sentence-transformers' InformationRetrievalEvaluator computed, and the recording of them.

In an environment with sentence-transformers (recorded with 6.2.0):

    python tests/support/oracle_retrieval.py tests/golden/libraries/retrieval.json
"""

import json
import random
import sys
from pathlib import Path

import numpy as np

DEPTH, SIZE = 10, 12


def text(kind: str, number: int) -> str:
    """Return six words; no other text has all six."""
    drawn = random.Random(f"{kind} {number}")
    return " ".join("".join(drawn.choices("abcdefghijklmnop", k=5)) for _ in range(6))


def rows() -> list[tuple[str, str]]:
    """Return (query, passage): canned answers for many queries, queries with up to four answers, repeated rows."""
    drawn = random.Random(60)
    found = [(text("question", n), text("answer", n)) for n in range(40)]
    found += [(text("question", n), text("canned", n % 3)) for n in range(0, 40, 2)]
    found += [(text("question", n), text("answer", drawn.randrange(40))) for n in range(0, 40, 5) for _ in range(2)]
    found += [found[n] for n in range(0, 30, 7)]
    drawn.shuffle(found)
    return found


def vectors(texts: list[str]) -> np.ndarray:
    """Return float64 [n, 12], of length 1: a query is near its first answer, but not always nearest."""
    numbers = {text: number for number, text in enumerate(sorted({text for row in rows() for text in row}))}
    table = np.random.RandomState(60).randn(len(numbers), SIZE)
    for query, passage in rows():
        table[numbers[query]] += 0.9 * table[numbers[passage]]
    found = table[[numbers[text] for text in texts]]
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def main(target: Path) -> None:
    import torch
    from sentence_transformers import __version__
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.util import cos_sim

    class Evaluator(InformationRetrievalEvaluator):
        def embed_inputs(self, model, sentences, **_):
            return torch.tensor(vectors(list(sentences)))

    queries, passages = ({text: text for text in column} for column in zip(*rows(), strict=True))
    relevant: dict[str, set[str]] = {query: set() for query in queries}
    for query, passage in rows():
        relevant[query].add(passage)
    depths = {name: [1, DEPTH] for name in ("accuracy_at_k", "precision_recall_at_k", "mrr_at_k", "ndcg_at_k")}
    evaluator = Evaluator(queries, passages, relevant, **depths, score_functions={"cosine": cos_sim})
    found = evaluator.compute_metrices(None)["cosine"]
    figures = {
        "recall_at_1": found["accuracy@k"][1],
        "recall_at_10": found["recall@k"][DEPTH],
        "mrr_at_10": found["mrr@k"][DEPTH],
        "ndcg_at_10": found["ndcg@k"][DEPTH],
    }
    record = {"sentence_transformers": __version__, "queries": len(queries), "passages": len(passages)}
    target.write_text(json.dumps({**record, "figures": {k: float(v) for k, v in figures.items()}}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
