"""Command line of the index: `python -m bert.indexing MODEL FILE --index INDEX`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bert import exit_codes
from bert.config.plain_commands import parser_of, settings_from
from bert.config.setting_errors import usage_errors
from bert.config.settings_base import Settings
from bert.indexing.settings import DocumentSettings, IndexRequest, QuestionSettings
from bert.inference.settings import ModelSettings
from bert.parent_death import end_with_caller
from bert.printable import printable
from bert.reporting.progress import announce

if TYPE_CHECKING:  # Paddle takes a second to load
    from bert.indexing.searcher import Searcher

_DESCRIPTION = (
    "Make a search index of files and folders, change it, and search it. Long documents are cut into passages of "
    "paragraphs, and a file of lines or a table gives a passage for each line or row. The same command reads only "
    "files that are new or have changed, and continues if it was stopped. The server takes the index with --index."
)
_EXAMPLES = (
    "results/vectors-docs docs --index results/index-docs",
    "results/vectors-docs --index results/index-docs --query 'how do I undo a commit'",
)
_GROUPS: dict[str, type[Settings]] = {"search": QuestionSettings, "files": DocumentSettings, "model": ModelSettings}


def main(argv: Sequence[str] | None = None) -> int:
    end_with_caller()
    with usage_errors():
        parser = parser_of(IndexRequest, _DESCRIPTION, "bert.indexing", _GROUPS, _EXAMPLES)
        return run(settings_from(IndexRequest, parser, argv))
    return exit_codes.OK


def run(request: IndexRequest) -> int:
    """Read files into the index, delete passages, and search, in this order; returns the exit code."""
    if sys.stderr.isatty():
        announce("loading", [request.model])
    from bert.indexing.building import IndexBuilder, open_index, print_notes  # they load Paddle
    from bert.indexing.searcher import Searcher
    from bert.inference.heads import load_from_settings
    from bert.inference.reranked import find_reranker

    ids = _ids_of(request.delete) if request.delete is not None else []
    model = load_from_settings(request, request.batch_size)
    reranker = find_reranker(request.model, request.reranker, device=request.device) if request.query else None
    index = open_index(request.index, model)
    if request.files:
        builder = IndexBuilder(index, model, request.decoding(model), request.table_columns())
        try:
            summary = builder.read(request.files)
        except KeyboardInterrupt:
            return exit_codes.INTERRUPTED
        print_notes(summary.lines(index))
    searcher = Searcher(model, index, reranker)
    if request.delete is not None:
        print_notes([_delete(searcher, ids, request.delete)])
    if request.query is not None:
        _print_hits(searcher, request)
    return exit_codes.OK


def _ids_of(path: Path) -> list[str]:
    """Read a file of ids, one on each line; repeated ids count once. ValueError if the file is not text."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"--delete {path} is no text in UTF-8 ({error}); save the ids as UTF-8") from None
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _delete(searcher: "Searcher", ids: Sequence[str], path: Path) -> str:
    """Delete the passages with these ids, read from `path`; returns a line that counts them."""
    unknown = searcher.index.unknown_ids(ids)
    deleted = searcher.delete(ids)
    more = f"; {len(unknown):,} are not in the index, such as {unknown[0]}" if unknown else ""
    return f"{path}: {len(ids):,} ids, {deleted:,} passages deleted{more}"


def _print_hits(searcher: "Searcher", request: IndexRequest) -> None:
    from bert.search.ranks import Query

    assert request.query is not None
    (found,) = searcher.search([Query(request.query, request.top_k, ranking=request.ranking)])
    for hit in found:
        place = hit.passage.source + ("" if hit.passage.line is None else f":{hit.passage.line}")
        start, end = hit.sentence
        print(printable(f"{hit.score:7.3f}  {place or hit.passage.id}"))
        print(printable("         " + " ".join(hit.passage.text[start:end].split())))
    if not found:
        print("nothing found", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
