"""`bash scripts/run_classify.sh --train FILE`: trains a classifier on your own labelled texts, and scores it."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from pydantic import Field

from bert.commands.contrastive import with_contrastive_start
from bert.commands.fine_tuning import ArgumentSettings, FineTuningLauncher, planned_of
from bert.config.settings_base import Settings
from bert.config.training_settings import derive
from bert.exit_codes import OK
from bert.files import read_json, write_atomically
from bert.glue.config import ENTRY as GLUE
from bert.glue.config import OWN_FILES
from bert.help_parser import wrapped
from bert.jobs.job import Execution, Group, Job, Planned, Step, start
from bert.jobs.training import Train, parts_of_time, trainings
from bert.launching.arguments import CommandLine
from bert.launching.settings import LaunchSettings
from bert.reporting.run_record import BASELINE_FILE, SCORES_FILE, SUMMARY_FILE
from bert.reporting.spread import markdown, metric_rows, metrics_in
from data.text.columns import TableForm
from data.text.encodings import Decoding
from data.text.languages import are_foreign
from data.text.tables import user_table

CLASSIFIED_FROM = "bert-base-uncased"  # the weights that run_classify.sh starts from
_SAMPLED_ROWS = 500


class ClassifyStart(Settings):
    cross_validate: int | None = Field(
        None,
        ge=2,
        description="train this many times, each time with another part of --train held out; no --eval (default: off)",
    )
    contrastive_start: bool = Field(
        False, description="train the encoder first on pairs of lines of equal class, for 8 to 64 lines a class"
    )


class ClassifyLaunch(LaunchSettings):
    start: ClassifyStart = ClassifyStart()


def _argument_settings(line: CommandLine) -> ArgumentSettings:
    flags = line.training
    if line.positional or not flags.keys() & set(OWN_FILES):
        raise ValueError(
            "--train FILE must be given (a table of texts and labels), or --eval or --predict with --model"
        )
    if "cross_validate" in line.launch and ("train_file" not in flags or "eval_file" in flags):
        raise ValueError("--cross-validate holds out parts of --train; give --train, and omit --eval")
    if "cross_validate" in line.launch and flags.keys() & {"fold", "folds"}:
        raise ValueError("--cross-validate holds out each of its parts in turn; omit --fold and --folds")
    file = next(Path(str(flags[name])) for name in OWN_FILES if name in flags)
    folder = Path(flags.get("output_dir", f"results/classify-{file.name.partition('.')[0]}"))
    settings: dict[str, Any] = {"output_dir": folder, "report_file": folder / "report.json"}
    if "train_file" in flags and not flags.keys() & {"from_pretrained_params", "from_checkpoint", "bert_model"}:
        settings["from_pretrained_params"] = CLASSIFIED_FROM
        _refuse_other_languages(file, Decoding.of(SimpleNamespace(**flags)))
    if "cross_validate" in line.launch:
        settings |= {"folds": line.launch["cross_validate"], "fold": 0}
    return ArgumentSettings(settings | ({"config": line.launch["config"]} if "config" in line.launch else {}))


def _refuse_other_languages(file: Path, decoding: Decoding) -> None:
    """Raise ValueError if the texts are surely not English, because the default model has learned English alone."""
    texts = list[str]()
    with suppress(ValueError, OSError):  # the reader of the file reports what is wrong with it
        table = user_table(file, TableForm(None, decoding.header, "cells"), decoding=decoding)
        cells = (value for row in islice(table.rows, _SAMPLED_ROWS) for value in (row.values or {}).values())
        texts = [value for value in cells if isinstance(value, str) and " " in value]
    if are_foreign(texts):
        raise ValueError(
            f"{file}: its texts are not English. Without --model {CLASSIFIED_FROM} would be downloaded (440 MB), which "
            "has learned English alone and cuts the words of other languages into pieces; pass --model of this "
            f"language, bert-base-multilingual-cased, or your own of --text (--model {CLASSIFIED_FROM} takes it anyway)"
        )


LAUNCHER = FineTuningLauncher(
    script="scripts/run_classify.sh",
    entry=GLUE,
    usage="--train FILE [--eval FILE] [--model WEIGHTS]",
    description="Train a classifier on a table of your labelled texts, and score it. The table (.csv, .tsv, .jsonl, "
    ".json or .parquet) has a column of texts and a column of labels, which are inferred.",
    epilog="The same command resumes a stopped run.",
    names={"Recipes": ()},
    settings=ClassifyLaunch,
    examples=(
        "--train tickets.csv --text-column subject+body --label-column queue --dry-run",
        "--train tickets.csv --eval new.csv --model bert-base-multilingual-cased --hours 1",
    ),
    main_settings={
        "train_file": "",
        "eval_file": "",
        "predict_file": "",
        "text_column": "",
        "label_column": "",
        "from_pretrained_params": CLASSIFIED_FROM,
        "output_dir": "results/classify-NAME, by the name of the file",
        "epochs": "by the number of lines",
        "learning_rate": "by the number of lines",
        "batch_size": "by the number of lines",
    },
    argument_settings=_argument_settings,
)


def planned(words: Sequence[str]) -> Planned:
    """The plan of a command line. With --cross-validate the job has all trainings; the settings of one are shown."""
    one = planned_of(LAUNCHER, words)
    parts = one.plan.launch.start.cross_validate
    if one.plan.launch.start.contrastive_start:
        if parts is not None:
            raise ValueError("--contrastive-start and --cross-validate exclude each other; omit one of them")
        job = with_contrastive_start(one.job)
        return Planned(one.line, one.plan.shown_in_time(parts_of_time(job)[-1:]), job)  # shows the classifier's time
    if parts is None:
        return one
    if one.plan.questions:
        print(f"--cross-validate: this is one of {parts} trainings, each in part-N of its folder", file=sys.stderr)
    job = cross_validation(one.job, parts)
    return Planned(one.line, one.plan.shown_in_time(parts_of_time(job)), job)


main = partial(start, planned)


def cross_validation(job: Job, parts: int) -> Job:
    """The job of `--cross-validate 5`: one training for each held-out part of the rows, then scores over all rows.

    Args:
        job: the job of a single training; each part gets a folder inside the job's folder.
    """
    (training,), folds = trainings(job), list[Train]()
    for part in range(parts):
        own = job.output_dir / f"part-{part}"
        config = derive(training.config, fold=part, folds=parts, output_dir=own, report_file=own / "report.json")
        folds.append(replace(training, config=config, repeats=False))
    groups = [Group(f"part {number} ({number + 1} of {parts})", (step,)) for number, step in enumerate(folds)]
    return replace(job, steps=(*groups, AllParts(job.output_dir, tuple(folds))))


@dataclass(frozen=True)
class AllParts(Step):
    """The last step of a cross-validation: writes and prints the scores of each part and over the rows of all parts."""

    takes_time: ClassVar[bool] = False
    folder: Path
    folds: tuple[Train, ...]

    @property
    def title(self) -> str:
        return "scores of all parts"

    @property
    def product(self) -> Path:
        return self.folder / "cross_validation.md"

    def run(self, execution: Execution) -> int:
        folds = [step.config.log_dir() for step in self.folds]
        metrics = {part: metrics_in(read_json(fold / SUMMARY_FILE)) for part, fold in enumerate(folds)}
        table = [*markdown(metric_rows(metrics, "part")), *_all_rows([read_json(fold / SCORES_FILE) for fold in folds])]
        lines = [f"{self.folds[0].config.display_name()}: {len(folds)} parts", "", *table]
        if verdict := _verdict_of_all(self.folder, folds):
            lines += ["", verdict]
        write_atomically(self.product, ("\n".join(lines) + "\n").encode())
        end = f"The table is in {self.product}; each part has a model of its own."
        print("", wrapped("\n".join(lines)), "", wrapped(end), sep="\n")
        return OK


def _verdict_of_all(folder: Path, folds: Sequence[Path]) -> str:
    """The verdict over the rows of all parts, written to all summary.json files; "" if a part has no baseline."""
    records = [record for fold in folds if (record := read_json(fold / BASELINE_FILE))]
    if len(records) < len(folds):
        return ""
    from bert.labels.baseline import pooled  # here: it loads slowly

    figures = pooled(records, "the model of each part")
    words = f"Over all {len(folds)} parts: {figures['verdict']}"
    contents = {
        fold / SUMMARY_FILE: {**read_json(fold / SUMMARY_FILE), "verdict_of_all_parts": words} for fold in folds
    }
    for path, content in {**contents, folder / SUMMARY_FILE: {**figures, "verdict": words}}.items():
        write_atomically(path, f"{json.dumps(content, indent=1)}\n".encode())
    return words


def _all_rows(scores: list[dict[str, Any]]) -> list[str]:
    """Table of precision, recall and F1 of each class over all rows; every row was held out once."""
    parts = [found["classes"] for found in scores if found]
    if not parts:  # a regression has no classes
        return []
    rows = []
    for name in parts[0]:
        truths, said = (round(sum(part[name][key] for part in parts)) for key in ("support", "predicted"))
        hits = round(sum((part[name]["recall"] or 0.0) * part[name]["support"] for part in parts))
        shares = ((hits, said), (hits, truths), (2 * hits, said + truths))
        rows.append([name, *(f"{part / whole:.3f}" if whole else "-" for part, whole in shares), str(truths)])
    return ["", *markdown((["class, over all rows", "precision", "recall", "F1", "lines"], rows))]
