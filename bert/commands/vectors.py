"""`bash scripts/run_vectors.sh --text FOLDER`: trains vectors of texts for search, and measures how well they find."""

from functools import partial
from pathlib import Path

from bert.commands.fine_tuning import ArgumentSettings, FineTuningLauncher, planned_of
from bert.finetuning.config import TaskDataSettings
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
    description="Train a model's vectors for search: near for a query and what answers it. Pairs are the rows of "
    "--pairs or made of --text; the search for some that are held out is compared with BM25.",
    epilog="The same command resumes a stopped run.",
    names={},
    shown=("data",),
    hidden=(
        *TaskDataSettings.model_fields,
        "text_field",
        "query_prefix",
        "passage_prefix",
        "temperature",
        "shortest_vector",
    ),
    argument_settings=_argument_settings,
)
planned = partial(planned_of, LAUNCHER)
main = partial(start, planned)
