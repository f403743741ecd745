"""What is measured of pairs: which queries are searched for, among which passages, and which passages are right."""

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
    """The metrics of some queries: of a search, or the correlation with given scores.

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
    """Which passages answer a query, and which are the query itself, which it does not find: bool [q, p] each.

    A passage is relevant to a query if a pair has both, or a text nearly equal to it; of texts with a class, those of
    the query's class are. A query may be a passage, of the pair before it or as a text of a class.

    Args:
        as of `figures_of`.
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
    """The pairs whose queries are searched for, each query once: at most 1,000 rows, titles and questions, if there are
    enough. Of pairs with a score: all, up to as many."""
    if (pairs.kind == SCORED).all():
        return pairs.head(_MOST_SCORED)
    queries = pairs[pairs.kind != SAME_TEXT].drop_duplicates("plain_query")
    answers = queries[~queries.kind.isin([LATER, NEIGHBOURS])]
    return (answers if len(answers) >= _LEAST_SCORED else queries).head(_MOST_SCORED)


def searched(pairs: "pd.DataFrame") -> "pd.DataFrame":
    """The pairs whose passages are searched among: the first of nearly equal ones; of classes or scores all."""
    return pairs if pairs.kind.isin([LABELLED, SCORED]).all() else pairs.drop_duplicates("alike")
