"""Searches and changes an index with its model, which encodes queries and new texts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import numpy as np

from bert.inference.nearest import hybrid_weight
from bert.inference.reranked import Reranker
from bert.inference.trained_model import TrainedModel
from bert.search.index import Change, SearchIndex
from bert.search.manifest import IndexModel
from bert.search.passages import TokenCounts, passages
from bert.search.ranks import Hit, Query, Rank, hits, ranks
from bert.search.segments import Passage, Value
from bert.search.snapshot import Snapshot
from bert.tokenization.library import TextTokenizer

_LANGUAGE = "en"


@dataclass(frozen=True)
class NewText:
    """A text to add. It replaces the passages with its id; if `id` is None, it gets a new id."""

    text: str
    id: str | None = None
    columns: dict[str, Value] = field(default_factory=dict)


def index_model(model: TrainedModel) -> IndexModel:
    """The description of a model that its index keeps. ValueError if the model makes no vectors."""
    opened = model.opened
    if not opened.can_encode():
        raise ValueError(f"{opened.path} makes no vectors of texts; name a checkpoint, or an export of an encoder")
    form = opened.usage.vectors
    prefixes = (form.query_prefix, form.passage_prefix) if form else ("", "")
    width = len(model.encode(["a"])[0])
    return IndexModel(
        str(opened.path), opened.fingerprint(), model.max_seq_length, width, *prefixes, is_centred=form is None
    )


def token_counts(tokenizer: TextTokenizer) -> TokenCounts:
    """Return a function that counts the tokens of texts."""

    def count(texts: Sequence[str]) -> list[int]:
        return np.diff(tokenizer.encode_texts(list(texts))[1]).tolist()

    return count


def room_of(model: TrainedModel) -> int:
    """Most tokens of a passage that the model reads, without the prefix and the special tokens."""
    form = model.opened.usage.vectors
    prefix = token_counts(model.tokenizer)([form.passage_prefix])[0] if form and form.passage_prefix else 0
    return max(8, model.max_seq_length - 2 - prefix)


class Searcher:
    """Searches an index, adds texts to it and deletes passages.

    Args:
        reranker: changes the order of the first hits of a query; None: the order stays.

    Raises:
        ValueError: the index was made by another model.
    """

    def __init__(self, model: TrainedModel, index: SearchIndex, reranker: Reranker | None = None) -> None:
        self.model, self.index, self.reranker = model, index, reranker
        self._made_by = index_model(model)
        self.index.require_model(self._made_by)
        usage = model.opened.usage
        self._weight = hybrid_weight(model)
        self._language = usage.language or _LANGUAGE
        self._count, self._room = token_counts(model.tokenizer), room_of(model)

    def search(self, queries: Sequence[Query]) -> list[list[Hit]]:
        """Find the passages that answer each query, best first. A reranker changes the order, but not the scores.

        Raises:
            ValueError: a filter is wrong, or there is no reranker for a query that asks for it.
        """
        snapshot, vectors = self._refreshed(), None
        if any(query.ranking != "words" for query in queries):
            vectors = self.index.units(self.model.encode([query.text for query in queries], "query"))
        depths = [self._depth(query) for query in queries]
        first = [replace(query, top_k=max(query.top_k, depth)) for query, depth in zip(queries, depths, strict=True)]
        found = ranks(snapshot, first, vectors, self._weight)
        ordered = [
            self._reranked(snapshot, query, some, depth)[: query.top_k]
            for query, some, depth in zip(queries, found, depths, strict=True)
        ]
        return [hits(snapshot, query.text, some, self._language) for query, some in zip(queries, ordered, strict=True)]

    def _refreshed(self) -> Snapshot:
        """The present passages of the index. ValueError if another model has replaced the index."""
        snapshot = self.index.refresh()
        self.index.require_model(self._made_by)
        return snapshot

    def _depth(self, query: Query) -> int:
        """The number of hits of a query that the reranker reads; 0: it is not used."""
        if self.reranker is None:
            if query.rerank:
                needed = "a reranker whose weight is above 0"
                raise ValueError(f"rerank={query.rerank} needs {needed}, and the model has none; omit rerank")
            return 0
        depth = self.reranker.form.depth
        return min(depth, int(query.rerank)) if type(query.rerank) is int else depth * (query.rerank is not False)

    def _reranked(self, snapshot: Snapshot, query: Query, found: list[Rank], depth: int) -> list[Rank]:
        """Let the reranker sort the first `depth` ranks of a query; the others keep their places."""
        first = found[:depth]
        if self.reranker is None or not first:
            return found
        texts = [passage.text for passage in snapshot.passages([rank.row for rank in first])]
        places = self.reranker.order(query.text, texts, np.array([rank.score for rank in first], np.float32))
        return [*(first[place] for place in places.tolist()), *found[depth:]]

    def add(self, texts: Sequence[NewText]) -> tuple[list[str], int]:
        """Add texts and write them to the disk. A long text becomes several passages with one id.

        Returns:
            the ids of the texts, and how many passages with these ids were replaced.
        Raises:
            ValueError: two texts have one id, or another model has replaced the index.
        """
        self._refreshed()
        ids = [text.id if text.id is not None else f"added-{uuid4().hex}" for text in texts]
        if twice := [one for one, number in Counter(ids).items() if number > 1]:
            raise ValueError(f"two texts have the id {twice[0]!r}; give each text an id of its own")
        added = list[Passage]()
        for one, text in zip(ids, texts, strict=True):
            parts = passages(text.text, self._count, self._room, self._language)
            pieces = [text.text[part.start : part.end] for part in parts]
            added += [Passage(one, piece, number, columns=text.columns) for number, piece in enumerate(pieces)]
        vectors = self.model.encode([passage.text for passage in added])
        return ids, self.index.apply(Change(added, vectors))

    def delete(self, ids: Sequence[str]) -> int:
        """Delete the passages that have one of the ids; returns their number."""
        return self.index.apply(Change(ids=ids))
