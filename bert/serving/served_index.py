"""The served index in the model process: searches, and writes additions and deletions to the disk before it answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert.files import sha256_of
from bert.indexing.building import IndexBuilder, open_index, print_notes
from bert.indexing.searcher import NewText, Searcher
from bert.inference.reranked import Reranker
from bert.inference.rows import Request
from bert.inference.trained_model import Result, TrainedModel
from bert.interpreter import shell_command
from bert.reporting.progress import announce
from bert.search.index import SearchIndex
from bert.search.manifest import is_index
from bert.search.ranks import Query
from bert.serving.messages import ADD, DELETE, SEARCH, RowOptions, SearchOptions
from data.text.encodings import Decoding

_MADE_IN = Path("results")


class ServedIndex:
    """An index with the model that made it."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher, self.folder = searcher, searcher.index.folder
        self.reranks = searcher.reranker is not None

    @classmethod
    def of(cls, path: Path, model: TrainedModel, reranker: Reranker | None = None) -> "ServedIndex":
        """Open the index in a folder. If `path` is a file or folder of texts, build or update its index first.

        Raises:
            ValueError: another model made the index, or the texts cannot be read.
        """
        if is_index(path):
            return cls(Searcher(model, SearchIndex(path), reranker))
        key = f"{path.resolve()}\n{model.opened.fingerprint()}\n{model.max_seq_length}"
        index = open_index(_MADE_IN / f"index-{path.stem}-{sha256_of(key.encode())[:8]}", model)
        announce(f"the index {index.folder} is made of", [path])
        try:
            summary = IndexBuilder(index, model, Decoding.of(model.opened.usage)).read([path])
        except ValueError as error:  # the flags that it names are the command's
            making = shell_command("bert.indexing")
            raise ValueError(f"{error}; the flags are for {making}, whose index --index takes") from None
        print_notes(summary.lines(index))
        return cls(Searcher(model, index, reranker))

    def results(self, kind: str, requests: Sequence[tuple[Request, Any]]) -> list[Result]:
        """Compute the results of inputs of one kind. ValueError if an input cannot be used."""
        if kind == SEARCH:
            return self._search(requests)
        if kind == ADD:
            return [self._add(texts, options) for texts, options in requests]
        return [self._delete(texts) if kind == DELETE else self._state() for texts, _ in requests]

    def _search(self, requests: Sequence[tuple[Request, SearchOptions]]) -> list[Result]:
        queries = [
            Query(query, options.top_k, options.filters, options.ranking, options.rerank)  # type: ignore[arg-type]
            for (query,), options in requests
        ]
        found = self._searcher.search(queries)
        generation = self._searcher.index.generation
        return [{"hits": [hit.to_result() for hit in hits], "generation": generation} for hits in found]

    def _add(self, texts: Request, options: RowOptions) -> Result:
        rows = zip(texts, options.ids, options.columns, strict=True)
        ids, replaced = self._searcher.add([NewText(text, one, dict(columns)) for text, one, columns in rows])
        return {"ids": ids, "replaced": replaced, "generation": self._searcher.index.generation}

    def _delete(self, ids: Request) -> Result:
        deleted = self._searcher.delete(ids)
        return {"deleted": deleted, "generation": self._searcher.index.generation}

    def _state(self) -> Result:
        index = self._searcher.index
        snapshot = index.refresh()
        return {
            "passages": snapshot.num_live,
            "bytes": index.num_bytes(),
            "generation": index.generation,
            "columns": snapshot.columns,
            "files": len(index.sources()),
            "model": index.model.name,
        }
