"""`bash scripts/run_vectors.sh --text FOLDER`: trains vectors of texts for search, and measures how well they find."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pydantic import Field

from bert.commands.fine_tuning import ArgumentSettings, FineTuningLauncher, planned_of
from bert.commands.reranking import with_reranker
from bert.config.settings_base import Settings
from bert.jobs.job import Planned, start
from bert.jobs.training import parts_of_time
from bert.launching.arguments import CommandLine
from bert.launching.settings import LaunchSettings
from bert.vectors.settings import ENTRY, TIMED


class VectorStart(Settings):
    reranker: bool = Field(
        False, description="train also a reranker, which reads a query and a passage together, in OUTPUT_DIR/reranker"
    )


class VectorLaunch(LaunchSettings):
    start: VectorStart = VectorStart()


def _argument_settings(line: CommandLine) -> ArgumentSettings:
    sources = [Path(str(line.training[name])) for name in ("text", "train_file", "eval_file") if name in line.training]
    if line.positional or not sources or "from_pretrained_params" not in line.training:
        raise ValueError("give --model, and --text FOLDER or --pairs FILE (to measure only: --eval FILE)")
    folder = Path(line.training.get("output_dir", f"results/vectors-{sources[0].name.partition('.')[0]}"))
    timed = TIMED if "hours" in line.launch else {}
    return ArgumentSettings({"output_dir": folder, "report_file": folder / "report.json", **timed})


LAUNCHER = FineTuningLauncher(
    script="scripts/run_vectors.sh",
    entry=ENTRY,
    usage="(--text FOLDER | --pairs FILE) --model WEIGHTS [--hours H]",
    description="Train a model whose vectors find the passages that answer a query. The training pairs are the rows of "
    "--pairs, or are made of the titles and paragraphs of --text. The search on held-out pairs is compared with BM25.",
    epilog="The same command resumes a stopped run.",
    names={},
    settings=VectorLaunch,
    examples=(
        "--text my_texts --model results/quickstart --hours 0.5",
        "--pairs questions.csv --model sentence-transformers/all-MiniLM-L6-v2 --dry-run",
    ),
    main_settings={
        "text": "",
        "train_file": "",
        "eval_file": "",
        "query_column": "",
        "passage_column": "",
        "compare": "",
        "from_pretrained_params": "",
        "output_dir": "results/vectors-NAME, by the name of the file",
        "epochs": "by the number of pairs",
        "learning_rate": "by the number of pairs",
        "batch_size": "by the number of pairs",
    },
    argument_settings=_argument_settings,
)


def planned(words: Sequence[str]) -> Planned:
    """The plan of a command line. Questions are about the vectors; with --reranker the job also trains a reranker."""
    one = planned_of(LAUNCHER, words)
    if not one.plan.launch.start.reranker:
        return one
    job = with_reranker(one.job)
    return Planned(one.line, one.plan.shown_in_time(parts_of_time(job)), job)


main = partial(start, planned)
