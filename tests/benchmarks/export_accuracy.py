"""What exports lose: scores of fine-tuned models on this project's held-out sets, in every format and precision.

    .venv/bin/python -m tests.benchmarks.export_accuracy --folder .benchmark/exports --encoder MINILM

Fine-tunes the encoder on the sets of data/examples (questions, sentiment, pairs, entities; about 20 CPU minutes, only
once), exports each model, loads each export with `Predictor`, and prints the scores as a table.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import run_export
from bert import REPOSITORY
from bert.config.command_line import parse_arguments
from bert.config.entry_point import load_task
from bert.files import write_atomically
from bert.finetuning.glue.config import ENTRY as GLUE
from bert.finetuning.loader import FeatureTable, prediction_batches
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.finetuning.task import Outputs
from bert.inference.model_folder import Forward, open_model
from data.examples import sample_questions
from tests.benchmarks.processes import markdown

ENTRIES = {
    "questions": ("run_squad.py", "squad_small", SQUAD, ("eval_f1", "eval_exact_match")),
    "sentiment": ("run_glue.py", "small_sentiment", GLUE, ("eval_accuracy",)),
    "pairs": ("run_glue.py", "small_pairs", GLUE, ("eval_accuracy",)),
    "entities": ("run_ner.py", "small_entities", NER, ("eval_f1",)),
}
_CALIBRATED_DENSE = ("onnx", "int8", "--calibration", "--keep-float", "*.output.dense")
EXPORTS: dict[str, tuple[str, ...]] = {
    "Paddle Inference, float32": ("paddle-inference", "float32"),
    "Paddle Inference, bfloat16": ("paddle-inference", "bfloat16"),
    "Paddle Inference, INT8, calibrated": ("paddle-inference", "int8", "--calibration"),
    "ONNX, float32": ("onnx", "float32"),
    "ONNX, float16": ("onnx", "fp16"),
    "ONNX, INT8": ("onnx", "int8"),
    "ONNX, INT8, `*.output.dense` in float32": ("onnx", "int8", "--keep-float", "*.output.dense"),
    "ONNX, INT8, the first three layers in float32": ("onnx", "int8", "--keep-float", "bert.encoder.layer.[012].*"),
    "ONNX, INT8, calibrated": ("onnx", "int8", "--calibration"),
    "ONNX, INT8, calibrated, `*.output.dense` in float32": _CALIBRATED_DENSE,
}


def fine_tuned(name: str, folder: Path, encoder: Path) -> tuple[Path, list[str]]:
    """The best weights of a task, trained once, and the arguments that name its files."""
    script, recipe, *_ = ENTRIES[name]
    arguments = ["--config", recipe, "--from-pretrained-params", str(encoder), "--output-dir", str(folder / name)]
    if name == "questions":
        sample_questions.write(folder)
        arguments += ["--train-file", str(folder / "train.json"), "--predict-file", str(folder / "held_out.json")]
        arguments += ["--do-train", "--do-eval"]
    if not (done := list((folder / name).rglob("summary.json"))):
        command = [sys.executable, str(REPOSITORY / script), *arguments, "--device", "cpu"]
        subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
        done = list((folder / name).rglob("summary.json"))
    best = [path.parent for path in (folder / name).rglob("best.json")]
    assert len(done) == len(best) == 1, (done, best)
    return best[0], arguments


def training_texts(name: str, folder: Path) -> Path:
    """A file of lines with typical texts for a calibration: those of the training set."""
    if name in ("sentiment", "pairs"):
        return REPOSITORY / "data/examples" / {"sentiment": "sentiment", "pairs": "paraphrases"}[name] / "train.tsv"
    if name == "questions":
        document = json.loads((folder / "train.json").read_text())
        rows: list[dict[str, str]] = [
            {"question": question["question"], "context": paragraph["context"]}
            for article in document["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    else:
        sentences = (REPOSITORY / "data/examples/entities/train.conll").read_text().split("\n\n")
        rows = [{"text": " ".join(line.split()[0] for line in s.splitlines() if line.strip())} for s in sentences]
    target = folder / f"{name}-calibration.jsonl"
    target.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows if all(row.values())))
    return target


def outputs_of(forward: Forward, task: str, table: FeatureTable, per_token: bool, max_seq_length: int) -> Outputs:
    """As bert.finetuning.run.predict, with a loaded model in place of a program."""
    outputs: dict[str, np.ndarray] = {}
    for rows, feed in prediction_batches(table, 8, max_seq_length=max_seq_length):
        for name, values in forward(task, feed).items():
            if per_token:
                values = values[feed["attention_mask"][:, : values.shape[1]].astype(bool)]
            array = outputs.setdefault(
                name, np.zeros((len(table.input_ids) if per_token else len(table), *values.shape[1:]), "float32")
            )
            array[table.tokens_of(rows) if per_token else rows] = values
    return outputs


def measured(name: str, folder: Path, encoder: Path) -> Iterator[dict[str, Any]]:
    """A row of the scores for the model itself, and one for each export."""
    _, _, entry, metrics = ENTRIES[name]
    model, arguments = fine_tuned(name, folder, encoder)
    config: Any = parse_arguments(entry, [*arguments, "--from-pretrained-params", str(model)])
    task = load_task(entry.task)(config)
    evaluated = task.read_data().evaluated
    texts = str(training_texts(name, folder))
    for kind, settings in {"the model": (), **EXPORTS}.items():
        source = model
        if settings:
            source = folder / f"{name}-{'-'.join(word.strip('*.-') for word in settings)}"
            words = [word for s in settings[2:] for word in ((s, texts) if s == "--calibration" else (s,))]
            if not source.exists():
                flags = ["--checkpoint", str(model), "--to", str(source), "--format", settings[0]]
                run_export.main([*flags, "--precision", settings[1], *words, "--sample", texts, "--tolerance", "10"])
        opened = open_model(source)
        scores: dict[str, float] = {}
        for part, features in evaluated:
            per_token = task.objective().outputs_per_token
            found = outputs_of(opened.forward, opened.task, features.table, per_token, config.data.max_seq_length)
            scores |= task.score(part, features, task.decode(features, found))
        check = json.loads((source / "serving.json").read_text())["check"] if settings else {"relative_error": 0.0}
        yield {
            "set": name,
            "kind": kind,
            "relative_error": check["relative_error"],
            **{metric: scores[metric] * (1 if name == "questions" else 100) for metric in metrics},  # percent
        }


def table(rows: list[dict[str, Any]]) -> str:
    columns = [(name, metric) for name in ENTRIES for metric in ENTRIES[name][-1]]
    cells = {(row["kind"], row["set"], metric): row.get(metric) for row in rows for _, metric in columns}
    head = ["", *(f"{name}, {metric.removeprefix('eval_')}" for name, metric in columns), "relative error"]
    lines = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        errors = [row["relative_error"] for row in rows if row["kind"] == kind]
        values = [cells.get((kind, *column)) for column in columns]
        shown = ["" if value is None else f"{value:.1f}" for value in values]
        lines.append([kind, *shown, f"{min(errors):.1g} to {max(errors):.1g}"])
    return markdown(head, lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, required=True, help="MiniLM-L6, or another BERT without a head")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".benchmark/exports")
    parser.add_argument("--sets", nargs="+", choices=ENTRIES, default=list(ENTRIES))
    arguments = parser.parse_args(argv)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in arguments.sets:
        for row in measured(name, folder, arguments.encoder.resolve()):
            rows.append(row)
            write_atomically(folder / "accuracy.json", (json.dumps(rows, indent=1) + "\n").encode())
    print(table(rows))


if __name__ == "__main__":
    main()
