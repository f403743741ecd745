"""Mines negatives and candidates with a trained model: `python -m bert.vectors.mining_process --run FILE`.

A job starts it after the training of the vectors. It writes into the folder of FILE

negatives.jsonl   one line {"query", "passage", "negatives"} for each training pair
candidates.jsonl  one line {"query", "candidates", "relevant", "answers", "scores"} for each held-out query, by the
                  hybrid ranking; "answers" is the number of all relevant passages, candidates or not
mined.json        settings and counts of the mining, written after both files
"""

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from bert.arrays.vectors import unit
from bert.checkpoints.chosen_weights import chosen_weights
from bert.config.setting_errors import usage_errors
from bert.exit_codes import INTERRUPTED, OK
from bert.files import json_of, write_atomically
from bert.help_parser import HelpParser, wrapped
from bert.inference.heads import SentenceEncoder, load_model
from bert.parent_death import end_with_launcher
from bert.printable import printable
from bert.reporting.progress import progress
from bert.runtime.hardware import use_cores
from bert.search.fusion import cross_fitted
from bert.search.words import WordIndex
from bert.vectors.measures import relevance, scored, searched
from bert.vectors.mined_files import CANDIDATES, MINED, NEGATIVES, write_lines, write_negatives
from bert.vectors.mining import MinedNegatives, different_queries, drawn, mine
from bert.vectors.mining_rule import MiningRule
from bert.vectors.pairs import SCORED
from bert.vectors.settings import VectorConfig
from bert.vectors.task import VectorTask

if TYPE_CHECKING:
    import pandas as pd

DEPTH = 100  # most candidates of a held-out query
_TEXTS_AT_ONCE = 1024  # texts that are encoded between two updates of the progress bar
_SHOWN_CHARACTERS = 160  # most characters of a text in the printed example


class MiningRequest(BaseModel):
    """The request of a mining, which the process reads from its run file.

    Attributes:
        config: settings of the training whose weights rank the passages, and whose pairs get negatives.
        most_pairs: most pairs that get negatives, drawn by the seed; None: all pairs.
        made_with: everything that decides the result; it is written to mined.json.
    """

    config: VectorConfig
    rule: MiningRule
    most_pairs: int | None = None
    made_with: dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    end_with_launcher()
    description = "Mine hard negatives with a trained model, for the training of a reranker."
    parser = HelpParser(prog="python -m bert.vectors.mining_process", description=description)
    parser.add_argument(
        "--run", type=Path, required=True, metavar="FILE", help="what to mine, as run_vectors.sh writes"
    )
    file = parser.parse_args(argv).run
    signal.signal(signal.SIGTERM, _stop)  # Paddle's own handler prints a stack
    with usage_errors():
        run(MiningRequest.model_validate(json_of(file.read_bytes())), file.parent)
    return OK


def _stop(number: int, frame: Any) -> None:
    raise SystemExit(INTERRUPTED)


def run(request: MiningRequest, folder: Path) -> None:
    """Mine negatives, write the files, and print the counts with an example."""
    config = request.config
    task = VectorTask(config)
    pairs, held_out = task.training, task.held_out
    weights = chosen_weights(config.checkpoint_dir()).path
    print(wrapped(f"mining negatives of {len(pairs):,} pairs with {weights}"), flush=True)
    use_cores(config.hardware.cpu_threads, is_bound=False, local_rank=0, local_world_size=1)
    loaded = load_model(
        weights,
        "encoder",
        device=config.hardware.device,
        max_seq_length=config.data.max_seq_length,
        batch_size=config.batch.predict_batch_size,
    )
    assert isinstance(loaded, SentenceEncoder)
    places = drawn(len(pairs), request.most_pairs or len(pairs), config.run.seed)
    own = pairs.iloc[places]
    passages, queries = searched(own), different_queries(own)
    vectors = _encoded(loaded, queries, passages.passage.tolist(), "training texts")
    mined = mine(own, pairs, passages, vectors, WordIndex(passages.passage), request.rule)
    negatives: list[list[str]] = [[] for _ in range(len(pairs))]
    for place, texts in zip(places, mined.negatives, strict=True):
        negatives[place] = texts
    write_negatives(folder / NEGATIVES, pairs, negatives)
    counts = counts_of(mined)
    if held_out is not None and not (held_out.kind == SCORED).all():
        rows = list(candidate_rows(held_out, loaded))
        write_lines(folder / CANDIDATES, rows)
        counts["held_out_queries"] = len(rows)
    record = {**request.made_with, **counts}
    write_atomically(folder / MINED, (json.dumps(record, indent=1) + "\n").encode())
    if len(own) < len(pairs):
        print(wrapped(f"{len(own):,} of the {len(pairs):,} pairs get negatives, as the time allows"), flush=True)
    for line in lines_of(counts, own, mined, request.rule):
        print(wrapped(printable(line)), flush=True)


def _encoded(model: SentenceEncoder, queries: Sequence[str], passages: Sequence[str], what: str) -> np.ndarray:
    """Encode queries, then passages, with a progress bar: float32 [q + p, width]."""
    parts = list[np.ndarray]()
    with progress(f"encoding {what}", len(queries) + len(passages), "texts") as bar:
        for kind, texts in (("query", queries), ("passage", passages)):
            for first in range(0, len(texts), _TEXTS_AT_ONCE):
                parts.append(model.encode(texts[first : first + _TEXTS_AT_ONCE], kind))
                bar.update(len(parts[-1]))
    return np.concatenate(parts)


def candidate_rows(held_out: "pd.DataFrame", model: SentenceEncoder) -> Iterator[dict[str, Any]]:
    """The candidates of each held-out query, at most 100 and best first, as lines of candidates.jsonl.

    The scores are hybrid, with the weight that was fitted on the other half of the queries (`cross_fitted`).
    """
    queries, passages = scored(held_out), searched(held_out)
    texts = queries["query"].tolist(), passages.passage.tolist()
    relevant, itself = relevance(queries, held_out)
    units = unit(_encoded(model, *texts, "held-out texts"))
    cosines, words = units[: len(queries)] @ units[len(queries) :].T, WordIndex(texts[1]).score_matrix(texts[0])
    scores = np.where(itself, -np.inf, cross_fitted(words, cosines, relevant, itself))
    best = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    for query, places, row, answers in zip(texts[0], best, scores, relevant & ~itself, strict=True):
        places = places[np.isfinite(row[places])]
        yield {
            "query": query,
            "candidates": [texts[1][place] for place in places],
            "relevant": answers[places].tolist(),
            "answers": int(answers.sum()),
            "scores": [round(float(score), 6) for score in row[places]],
        }


def counts_of(mined: MinedNegatives) -> dict[str, Any]:
    """Counts for mined.json: pairs, negatives, pairs by number of negatives, candidates, refused candidates."""
    numbers = [len(negatives) for negatives in mined.negatives]
    by_number = {str(number): numbers.count(number) for number in sorted(set(numbers))}
    return {
        "pairs": len(numbers),
        "negatives": sum(numbers),
        "pairs_by_negatives": by_number,
        "candidates": mined.candidates,
        "refused": mined.refused,
    }


def lines_of(counts: dict[str, Any], pairs: "pd.DataFrame", mined: MinedNegatives, rule: MiningRule) -> Iterator[str]:
    """Sentences with the counts, and the first pair with a negative as an example."""
    with_all = counts["pairs_by_negatives"].get(str(rule.number), 0)
    without = counts["pairs_by_negatives"].get("0", 0)
    yield (
        f"mined {counts['negatives']:,} negatives: {with_all:,} of {counts['pairs']:,} pairs have {rule.number}, "
        f"{without:,} have none"
    )
    yield (
        f"refused {counts['refused']:,} of {counts['candidates']:,} candidates, whose cosine is above {rule.share:g} "
        "of the right passage's: they may be answers that nobody marked"
    )
    for query, passage, negatives in zip(pairs["query"], pairs.passage, mined.negatives, strict=True):
        if negatives:
            yield f"for example, query: {_shown(query)}"
            yield f"right passage: {_shown(passage)}"
            yield f"mined negative: {_shown(negatives[0])}"
            return


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS].rstrip()} ..."


if __name__ == "__main__":
    sys.exit(main())
