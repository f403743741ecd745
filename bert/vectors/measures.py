"""Selects the queries, passages and relevant passages of held-out pairs, and computes the metrics of a search."""

from typing import TYPE_CHECKING

import numpy as np

from bert.labels.metrics import METRICS
from bert.reporting.comparison import Metrics
from bert.search.ranking import found
from bert.vectors.pairs import LABELLED, LATER, NEIGHBOURS, SAME_TEXT, SCORED, are_relevant, relevant_keys

if TYPE_CHECKING:
    import pandas as pd

_LEAST_SCORED, _MOST_SCORED = 20, 1_000  # queries


def figures_of(scores: np.ndarray, queries: "pd.DataFrame", pairs: "pd.DataFrame") -> Metrics:
    """The metrics of some queries: recall, MRR and nDCG of a search, or the correlation with the scores of pairs.

    Args:
        scores: float [q, p].
        queries: [q], the `scored` rows of the pairs.
        pairs: all of them; their `searched` rows are the p passages.
    """
    import pandas as pd

    if (queries.kind == SCORED).all():
        pairs, wanted = np.nan_to_num(np.diagonal(scores), neginf=0.0), pd.to_numeric(queries.value).to_numpy()
        return lambda rows: {"spearman": np.nan_to_num(METRICS["spearman"](pairs[rows], wanted[rows]))}
    relevant, itself = relevance(queries, pairs)
    values = found(scores, relevant, itself)
    return lambda rows: {name: float(each[rows].mean()) for name, each in values.items()}


def relevance(queries: "pd.DataFrame", pairs: "pd.DataFrame") -> tuple[np.ndarray, np.ndarray]:
    """Two masks, bool [q, p]: passages that answer a query, and passages equal to the query, which it cannot find.

    A passage is relevant to a query if a pair has the query and the passage or a nearly equal one. If texts have a
    class, all texts of the query's class are relevant. A query can be a passage too, of another pair or of its class.

    Args:
        All arguments are as in `figures_of`.
    """
    import pandas as pd

    passages = searched(pairs)
    itself = queries.plain_query.to_numpy()[:, None] == passages.plain_passage.to_numpy()
    if (pairs.kind == LABELLED).all():
        relevant = queries.group.to_numpy()[:, None] == passages.group.to_numpy()
    else:
        codes = pd.Index(queries.plain_query).get_indexer(pairs.plain_query)  # -1: not among the scored ones
        given, number = pairs.alike.to_numpy(), int(pairs.alike.max()) + 1
        keys = relevant_keys(codes[codes >= 0], given[codes >= 0], number)
        relevant = are_relevant(keys, np.arange(len(queries)), passages.alike.to_numpy(), number)
    return relevant, itself


def scored(pairs: "pd.DataFrame") -> "pd.DataFrame":
    """The pairs whose queries are measured: at most 1,000, each query once.

    Pairs of neighbouring or later paragraphs are measured only if the other kinds give fewer than 20 queries. Pairs
    with a score are all measured, up to the same number.
    """
    if (pairs.kind == SCORED).all():
        return pairs.head(_MOST_SCORED)
    queries = pairs[pairs.kind != SAME_TEXT].drop_duplicates("plain_query")
    answers = queries[~queries.kind.isin([LATER, NEIGHBOURS])]
    return (answers if len(answers) >= _LEAST_SCORED else queries).head(_MOST_SCORED)


def searched(pairs: "pd.DataFrame") -> "pd.DataFrame":
    """The pairs whose passages can be found: one of nearly equal passages, but all texts with a class or a score."""
    return pairs if pairs.kind.isin([LABELLED, SCORED]).all() else pairs.drop_duplicates("alike")
