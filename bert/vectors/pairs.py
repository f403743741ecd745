"""Makes pairs of a query and a passage from a table or from text, cleans and groups them, and holds some out.

For measuring alone there are also texts with a class, where each text is a query for its class, and pairs with a score.

A frame of pairs has the columns `query`, `passage`, `negatives` (lists of passages that answer the query wrongly),
`kind` and `where` (how the pair was found, and in which row or document), `unit` (pairs of one are held out together),
`value` (a class or a score), `alike` (a number, equal for nearly equal passages) and `group` (one number for pairs that
share a query or nearly a passage, from pair to pair, or a class: they are held out together). A group says nothing
about relevance: two of its pairs may have nothing in common but a third. What answers a query is in `relevant_keys`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.arrays.components import Components
from bert.labels.schema import number
from bert.randomness import permutation, stream_key
from bert.reporting.progress import progress
from bert.vectors.repeated_parts import RepeatedParts
from data.text.columns import LABEL_NAMES, TEXT_NAMES, TableForm, fitting, is_blank
from data.text.compression import DamagedError
from data.text.encodings import Decoding
from data.text.file_formats import Input
from data.text.findings import Findings
from data.text.held_out_groups import held_out_in_order
from data.text.inputs import list_inputs, total_bytes
from data.text.readers import Reading, read_pieces
from data.text.same_text import near_numbers, normalized
from data.text.tables import KINDS, user_table
from data.text.text_check import NotTextError

if TYPE_CHECKING:
    import pandas as pd

TITLE, QUESTION, TABLE = "title and body", "question and answer", "rows of the table"
LABELLED, SCORED = "texts with a class", "pairs with a score"
LATER, NEIGHBOURS = "title and a later paragraph", "neighbouring paragraphs"
SAME_TEXT = "a text under two dropouts"
SENTENCE = "first sentence and the rest"  # a document of one paragraph, such as a ticket (Lee et al., 2019)
_QUERIES = "query question title anchor sentence1 premise q".split()
_PASSAGES = "passage positive answer body document context sentence2 hypothesis content text".split()
_SCORES = "score similarity similarity_score relatedness_score".split()  # scores of two sentences
_QUERY_CLASS = "query_class"  # passages of equal class answer a query too
_QUERY_IDS = [(name,) for name in ("query_id", "query-id", "qid", "question_id")]  # an `id` may be the passage's
_NEGATIVE = re.compile(r"(hard_?)?neg(ative)?s?(_?\d+)?", re.IGNORECASE)
_MAY_BE_EQUAL = (SAME_TEXT, LABELLED, SCORED)
_UNIT = 50  # pairs of a document that are held out together, so that a single long one is divided too
_LEAST_WORDS = 6  # fewest words of a paragraph
_LARGE_GROUP = 0.1  # share of all pairs from which a group is noted
_MUCH = 0.3  # share of all pairs; leaving out more gives a warning
_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])(?=.)")  # the end of a sentence
_HEADING_MARK = re.compile(r"\A(#+|(q|a|question|answer)\s*[:.])\s+", re.IGNORECASE)  # also before a question
_HEADING = re.compile(r"^(#+[ \t].*|.*[?\uff1f])$|^(.+)\n([=\-~^\"'#*+])\3{2,}[ \t]*$", re.MULTILINE)
Pair = dict[str, Any]


def table_pairs(
    path: Path, query: str | None, passage: str | None, decoding: Decoding, notes: list[str], to_measure: bool = False
) -> Iterator[Pair]:
    """Read pairs from a table by named or usual columns; `to_measure` also accepts classes and scores of texts."""
    table = user_table(path, TableForm(None, decoding.header, "cells", flags=""), decoding=decoding)
    names = [*map(str, table.columns)]
    queries = product([query] if query else _QUERIES, [passage] if passage else _PASSAGES)
    kinds: dict[str, Iterable[tuple[str, ...]]] = {TABLE: queries}
    if to_measure:
        scored = product(["sentence1"], ["sentence2"], _SCORES) if query is passage is None else ()
        kinds = {SCORED: scored, TABLE: queries, LABELLED: product(TEXT_NAMES, LABEL_NAMES)}
    fits = ((kind, columns) for kind, keys in kinds.items() if (columns := fitting(keys, names)) is not None)
    kind, columns = next(fits, (TABLE, tuple[Any, ...]()))
    if not columns:
        more = ", or of texts and one of labels" if to_measure else ""
        named = " and ".join(map(repr, filter(None, (query, passage))))
        raise ValueError(
            f"{path} must have a column of queries and one of passages{more}{named and f' ({named} was named)'}, among "
            f"{', '.join(names)[:200]}; name them with --query-column and --passage-column"
        )
    sides = columns[:1] * 2 if kind == LABELLED else columns[:2]
    wrong, (identifier,) = [*filter(_NEGATIVE.fullmatch, names)], fitting(_QUERY_IDS, names) or ("",)
    for place, values, _ in table.rows:
        row = values or {}
        given = [row.get(name) for name in sides]
        first, second = ("" if is_blank(value) or isinstance(value, dict | list) else str(value) for value in given)
        lists = [value if isinstance(value := row.get(name) or [], list) else [value] for name in wrong]
        pair: Pair = {"query": first, "passage": second, "negatives": [str(text) for texts in lists for text in texts]}
        of_query = row.get(identifier)
        value = row.get(_QUERY_CLASS if kind == TABLE else columns[-1])
        pair |= {"value": None if kind == TABLE and is_blank(value) else value}
        pair |= {"id": None if is_blank(of_query) else of_query}  # an empty cell is no identifier
        if kind == SCORED:
            with suppress(ValueError):  # one with a decimal comma is read too
                pair["value"] = number(str(pair["value"]))
        yield {**pair, "kind": kind, "where": f"row {place}", "unit": first}
    found = table.findings
    notes += [f"{path}: {line}" for line in (*found.encoding_lines(), *found.row_lines())]


def without_repeated_parts(pairs: Iterable[Pair], share: float, notes: list[str]) -> list[Pair]:
    """Remove parts, such as greetings, that stand in more than `share` of the queries or passages of a table.

    A text that would become empty stays as it is. Tables of texts with a class or a score stay as they are.
    """
    rows = list(pairs)
    kinds = {pair["kind"] for pair in rows}
    for side, what in (("query", "queries"), ("passage", "passages")) if share < 1 and kinds == {TABLE} else ():
        repeated = RepeatedParts.of([pair[side] for pair in rows], share)
        for pair in rows:
            pair[side] = repeated.removed_from(pair[side]) or pair[side]
            if side == "passage":
                pair["negatives"] = [repeated.removed_from(text) or text for text in pair["negatives"]]
        notes += repeated.notes(share, what)
    return rows


def text_pairs(
    path: Path, decoding: Decoding, notes: list[str], text_field: str | None = None, repeated_share: float = 1.0
) -> Iterator[Pair]:
    """Make pairs from the documents of a folder or file; `notes` gets lines about files that were not read.

    Args:
        repeated_share: parts that stand in a larger share of the rows of a table, or of the mails of a file, are
            taken out.
    """
    reading = Reading(decoding.language, decoding.encoding, text_field=text_field)
    findings = Findings()
    inputs = list_inputs([path], "auto", findings, flag="text")
    with progress(f"reading {path.name}", total_bytes(inputs)) as meter:
        for source in inputs:
            try:
                documents = _documents(source, reading, findings)
                if source.kind in (*KINDS, "mbox") and repeated_share < 1:
                    documents = _without_repeated_parts(source, [*documents], repeated_share, notes)
                for identifier, text in documents:
                    for number, (kind, query, passage) in enumerate(document_pairs(text)):
                        pair = {"query": query, "passage": passage, "negatives": [], "kind": kind, "where": identifier}
                        yield {**pair, "unit": f"{identifier} {number // _UNIT}"}
            except (NotTextError, DamagedError) as error:
                findings.refuse(source, error, 0)
            meter.update(source.path.stat().st_size)
    notes += (f"{path.name}: text is column {guess.rpartition(': column ')[2]}" for guess in findings.guessed[:3])
    notes += [*findings.encoding_lines(), *findings.row_lines()]
    notes += [f"not read: {line}" for line in (*findings.left_out[:3], *findings.problems[:3])]


def _documents(source: Input, reading: Reading, findings: Findings) -> Iterator[tuple[str, str]]:
    """Read a file; yields (id, text) of each document."""
    parts = list[str]()
    for piece in read_pieces(source, reading, findings):
        parts.append(piece.text)
        if piece.ends:
            yield piece.id, "".join(parts)
            parts.clear()


def _without_repeated_parts(
    source: Input, documents: Sequence[tuple[str, str]], share: float, notes: list[str]
) -> Iterator[tuple[str, str]]:
    repeated = RepeatedParts.of([text for _, text in documents], share)
    notes += repeated.notes(share, f"the texts of {source.path.name}")
    return ((identifier, repeated.removed_from(text)) for identifier, text in documents)


def document_pairs(text: str) -> list[tuple[str, str, str]]:
    """Make pairs (kind, query, passage) from a document.

    The query is a heading or question and the passage a paragraph below it. Paragraphs without a heading above are
    paired with the next one. A lone paragraph gives its first sentence and the rest, or itself twice if it is one
    sentence.
    """
    blocks, pairs = list(_blocks(text)), list[tuple[str, str, str]]()
    title = next((block for block, is_heading in blocks if is_heading), "")
    heading, kind = "", NEIGHBOURS
    for (block, is_heading), (passage, is_next_heading) in pairwise(blocks):
        if is_heading:
            kind = QUESTION if block.endswith(("?", "\uff1f")) else TITLE
            heading = block if kind == QUESTION or block == title else f"{title} {block}"
        elif heading:
            kind = LATER
        if not is_next_heading:
            pairs.append((kind, heading or block, passage))
    lone = [_END.split(block, maxsplit=1) for block, is_heading in blocks if not is_heading and not pairs]
    return pairs or [(SAME_TEXT if len(parts) == 1 else SENTENCE, parts[0], parts[-1]) for parts in lone]


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Split a text into (block, is_heading). A heading has a mark, or is a short line without a stop at its end."""
    parts = re.split(r"\n[ \t]*\n", _HEADING.sub(r"\n\n\1\2\n\n", text.replace("\r\n", "\n")))
    for part in parts if len(parts) > 1 else text.splitlines():
        block = _HEADING_MARK.sub("", " ".join(part.split()), count=1)
        is_short = len(block) <= 150 and len(block.split()) < 16 and "\n" not in part.strip()
        is_heading = is_short and block[:1].isalnum() and block[-1] not in ".!:;,\u3002"
        if is_heading or len(block.split()) >= _LEAST_WORDS or len(block) >= 8 * _LEAST_WORDS:  # also without spaces
            yield block, is_heading


def cleaned(pairs: Iterable[Pair], source: Path, notes: list[str]) -> "pd.DataFrame":
    """Clean pairs and make their frame; `notes` gets counts by kind, and counts and reasons of pairs left out."""
    import pandas as pd

    frame = pd.DataFrame(pairs, columns=["query", "passage", "negatives", "kind", "where", "unit", "id", "value"])
    sides, left_out, number_before = ["plain_query", "plain_passage"], list[str](), len(frame)
    for name in ("query", "passage"):
        frame[f"plain_{name}"] = frame[name].astype(str).map(normalized)
    wrong = {
        "an empty side, or a row that cannot be read": lambda rows: (rows[sides] == "").any(axis=1),
        "equal sides": lambda rows: (rows.plain_query == rows.plain_passage) & ~rows.kind.isin(_MAY_BE_EQUAL),
        "no label": lambda rows: (rows.kind == LABELLED) & rows.value.isin([None, ""]),
        "the only text of its class": lambda rows: (rows.kind == LABELLED) & ~rows.duplicated("value", keep=False),
        "a score that is no number": lambda rows: (rows.kind == SCORED) & pd.to_numeric(rows.value, "coerce").isna(),
        "a pair a second time": lambda rows: rows.duplicated(sides),
        "an id that another query has": lambda rows: rows.groupby("id").plain_query.transform("nunique") > 1,
    }
    for reason, is_wrong in wrong.items():
        if (bad := is_wrong(frame)).any():
            left_out.append(f"left out: {reason}: {bad.sum():,} (first: {frame['where'][bad].iloc[0]})")
            frame = frame[~bad]
    if frame.empty:
        why = "; ".join([*notes, *left_out]) or "it has no row, or no paragraph beside a heading"
        raise ValueError(f"{source} gives no pair of texts; check it ({why})")
    if (share := 1 - len(frame) / number_before) > _MUCH:
        left_out.append(f"warning: {share:.0%} of the pairs are left out, for these reasons; correct the rows")
    counts = ", ".join(f"{kind} {number:,}" for kind, number in frame.kind.value_counts().items())
    notes += [f"{len(frame):,} pairs of {source.name}: {counts}", *left_out]
    frame = frame.assign(alike=near_numbers(frame.plain_passage.tolist()))
    if set(frame.kind) <= {LABELLED, SCORED}:
        frame = frame.assign(group=pd.factorize(frame.value)[0])
        teaches_nothing = frame.group.nunique() < 2
    else:
        frame = frame.assign(group=_connected(frame))
        teaches_nothing = frame.alike.nunique() < 2 or frame.plain_query.nunique() < 2
        notes += _notes_of_groups(frame)
    if teaches_nothing:
        raise ValueError(f"{source} has nothing to tell apart: one query, passage, class or score ({'; '.join(notes)})")
    return frame.reset_index(drop=True)


def _connected(frame: "pd.DataFrame") -> np.ndarray:
    """Number the groups of pairs, int64 [n]: pairs that share a query or nearly a passage, also through other pairs."""
    components = Components(len(frame))
    components.link_equal(frame.plain_query.to_numpy())
    components.link_equal(frame.alike.to_numpy())
    return components.numbers()


def _notes_of_groups(frame: "pd.DataFrame") -> Iterator[str]:
    shared = frame.duplicated("plain_query", keep=False) | frame.duplicated("alike", keep=False)
    if number := shared.sum():
        yield f"{number:,} pairs share a query, or nearly a passage, with another: these are no negatives of each other"
    largest = int(frame.group.value_counts().max())
    if largest > _LARGE_GROUP * len(frame) and largest > _UNIT:
        yield (
            f"{largest:,} pairs ({largest / len(frame):.0%}) share queries or passages, from pair to pair: if one of "
            "them is held out, the others are not trained on; --eval FILE with queries of its own avoids that"
        )


def asked_for(pairs: "pd.DataFrame") -> "pd.Series":
    """The key of each pair's query: its class (column `query_class`), otherwise the query itself.

    A passage of a query is no negative for any query with the same key.
    """
    return pairs.plain_query.where(pairs.value.isna(), "class\n" + pairs.value.astype(str))  # no query has \n


def relevant_keys(queries: np.ndarray, passages: np.ndarray, number: int) -> np.ndarray:
    """Encode each pair as query x `number` + passage, for `are_relevant`: int64, ascending, each once.

    Args:
        queries, passages: int64 [n], the numbers of each pair's query and passage.
        number: larger than each number of a passage.
    """
    return np.unique(queries.astype(np.int64) * number + passages)


def are_relevant(keys: np.ndarray, queries: np.ndarray, passages: np.ndarray, number: int) -> np.ndarray:
    """Whether any pair has the query and the passage: bool [q, p]; False for passages with a negative number."""
    wanted = queries.astype(np.int64)[:, None] * number + passages
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return (keys[places] == wanted) & (passages >= 0)


def divided(
    frame: "pd.DataFrame", fraction: float, seed: int, notes: list[str]
) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Split into (training pairs, held-out pairs). Whole units are held out, up to nearly `fraction` of the pairs.

    Training pairs that share a text with held-out pairs are dropped. Groups are not held out as a whole, because all
    neighbouring paragraphs of a document are one group.
    """
    import pandas as pd

    codes, units = pd.factorize(frame.unit)
    places = np.argsort(permutation(stream_key(seed, "held-out pairs"), len(units)))  # random order of the units
    held_out = held_out_in_order(places[codes], np.ones(len(frame)), fraction * len(frame))
    # The query of neighbouring paragraphs may be a passage of others.
    as_passage = frame.plain_query.map(dict(zip(frame.plain_passage, frame.alike, strict=True)))
    alike = frame.group.isin(frame.group[held_out]) | as_passage.isin(frame.alike[held_out])
    alike = (alike | frame.alike.isin(as_passage[held_out])) & ~held_out
    if frame.group[~held_out & ~alike].nunique() < 2:
        found = f" ({'; '.join(notes)})" if notes else ""
        raise ValueError(f"{len(frame):,} pairs are too few to hold some out; add some, or pass --eval FILE{found}")
    notes.append(f"held out: {held_out.sum():,} pairs; left out of the others as they are like these: {alike.sum():,}")
    if (share := alike.sum() / len(frame)) > _MUCH:
        notes.append(
            f"warning: {share:.0%} of the pairs are left out, as they share a query or nearly a passage with those "
            "that are held out; take out what so many rows share, or pass --eval FILE with queries of its own"
        )
    return frame[~held_out & ~alike], frame[held_out]


def without(frame: "pd.DataFrame", evaluated: "pd.DataFrame", notes: list[str]) -> "pd.DataFrame":
    """Remove the pairs of --eval from the training pairs. A passage of --eval may stay with another query."""
    import pandas as pd

    sides = ["plain_query", "plain_passage"]
    is_in_both = pd.MultiIndex.from_frame(frame[sides]).isin(pd.MultiIndex.from_frame(evaluated[sides]))
    if is_in_both.all():
        raise ValueError(
            "all pairs to train on are in --eval too; take them out of one, or omit --eval to hold some out"
        )
    if number := is_in_both.sum():
        notes.append(f"left out: pairs that are in --eval too: {number:,}")
    return frame[~is_in_both]
