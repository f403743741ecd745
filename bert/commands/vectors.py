"""`bash scripts/run_vectors.sh --text FOLDER`: trains vectors of texts for search, and measures how well they find."""

from functools import partial
from pathlib import Path

from bert.commands.fine_tuning import ArgumentSettings, FineTuningLauncher, planned_of
from bert.jobs.job import start
from bert.launching.arguments import CommandLine
from bert.vectors.settings import ENTRY, TIMED


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
planned = partial(planned_of, LAUNCHER)
main = partial(start, planned)
