"""`--cross-validate 5`: one training for each part of the user's rows, which is held out; scores over all rows."""

from pathlib import Path
from typing import Any

from bert.config.training_settings import derive
from bert.exit_codes import OK
from bert.files import read_json, write_atomically
from bert.finetuning.config import FineTuningConfig
from bert.launching.process_runner import Runner
from bert.launching.ranks import Ranks
from bert.launching.start_training import launch
from bert.reporting.run_record import SCORES_FILE
from bert.reporting.spread import metric_table, metrics_of


def cross_validate(script: Path, config: FineTuningConfig, ranks: Ranks, parts: int) -> int:
    """Train on all parts but one, for each of them; returns the exit code. The same command resumes."""
    folder, runner, metrics, scores = config.run.output_dir, Runner(), {}, []
    for part in range(parts):
        print(f"\n==== part {part} ({part + 1} of {parts})", flush=True)
        own = folder / f"part-{part}"
        fold = derive(config, fold=part, folds=parts, output_dir=own, report_file=own / "report.json")
        code = launch(script, fold, ranks, runner)
        if code != OK:
            return code
        metrics[part] = metrics_of(own)
        scores.append(read_json(fold.log_dir() / SCORES_FILE))
    lines = [f"{config.stage()}: {parts} parts", "", *metric_table(metrics, "part"), *_all_rows(scores)]
    write_atomically(folder / "cross_validation.md", ("\n".join(lines) + "\n").encode())
    print(
        "\n" + "\n".join(lines) + f"\n\nThe table is in {folder}/cross_validation.md; each part has a model of its own."
    )
    return OK


def _all_rows(scores: list[dict[str, Any]]) -> list[str]:
    """The classes, counted over all parts: every row was held out once."""
    parts = [found["classes"] for found in scores if found]
    if not parts:  # of a regression
        return []
    lines = ["", "| class, over all rows | precision | recall | F1 | lines |", "|---|---|---|---|---|"]
    for name in parts[0]:
        truths, said = (round(sum(part[name][key] for part in parts)) for key in ("support", "predicted"))
        hits = round(sum(part[name]["recall"] * part[name]["support"] for part in parts))
        row = (hits / max(said, 1), hits / max(truths, 1), 2 * hits / max(said + truths, 1))
        lines.append(f"| {name} | {' | '.join(f'{value:.3f}' for value in row)} | {truths} |")
    return lines
