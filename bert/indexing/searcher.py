"""A model and an index together: queries and texts become vectors, which the index ranks and keeps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np

from bert.inference.trained_model import TrainedModel
from bert.search.index import Change, SearchIndex
from bert.search.manifest import IndexModel
from bert.search.passages import TokenCounts, passages
from bert.search.ranks import Hit, Query, hits, ranks
from bert.search.segments import Passage, Value
from bert.tokenization.library import TextTokenizer

_LANGUAGE = "en"


@dataclass(frozen=True)
class NewText:
    """A text to add; it replaces what has its id. Without an id it gets one."""

    text: str
    id: str | None = None
    columns: dict[str, Value] = field(default_factory=dict)


def index_model(model: TrainedModel) -> IndexModel:
    """What an index keeps of a model. ValueError if it makes no vectors."""
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
    """A function that counts the tokens of texts."""

    def count(texts: Sequence[str]) -> list[int]:
        return np.diff(tokenizer.encode_texts(list(texts))[1]).tolist()

    return count


def room_of(model: TrainedModel) -> int:
    """The tokens of a passage that a model reads, without its prefix and the tokens that it adds."""
    form = model.opened.usage.vectors
    prefix = token_counts(model.tokenizer)([form.passage_prefix])[0] if form and form.passage_prefix else 0
    return max(8, model.max_seq_length - 2 - prefix)


class Searcher:
    """Searches an index and changes it.

    Raises:
        ValueError: the index was made by another model.
    """

    def __init__(self, model: TrainedModel, index: SearchIndex) -> None:
        self.model, self.index = model, index
        self.index.require_model(index_model(model))
        usage = model.opened.usage
        self._weight = usage.vectors.hybrid_weight if usage.vectors else None
        self._language = usage.language or _LANGUAGE
        self._count, self._room = token_counts(model.tokenizer), room_of(model)

    def search(self, queries: Sequence[Query]) -> list[list[Hit]]:
        """The passages that answer each query, best first. ValueError if a filter is wrong."""
        snapshot, vectors = self.index.refresh(), None
        if any(query.ranking != "words" for query in queries):
            vectors = self.index.units(self.model.encode([query.text for query in queries], "query"))
        found = ranks(snapshot, queries, vectors, self._weight)
        return [hits(snapshot, query.text, some, self._language) for query, some in zip(queries, found, strict=True)]

    def add(self, texts: Sequence[NewText]) -> tuple[list[str], int]:
        """Add texts; they are on the disk when this returns. Long texts become several passages with one id.

        Returns:
            the ids of the texts, and how many passages with these ids were replaced.
        Raises:
            ValueError: two texts have one id.
        """
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
        """Delete what has one of the ids; returns the number of passages."""
        return self.index.apply(Change(ids=ids))
