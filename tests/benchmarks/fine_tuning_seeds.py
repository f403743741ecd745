"""Fine-tuning beside transformers, several seeds each: does a difference come from the order, or from the windows?

    .venv/bin/python -m tests.benchmarks.fine_tuning_seeds --encoder MINILM --torch-python PYTHON --folder F --seeds 5

Ours is run_squad.py and run_glue.py on one core, as users start them; the other one is fine_tuning_torch.py. Both have
the same encoder, rate, batch, epochs and warm-up, and their last weights are scored by our entry points. `paragraphs`
joins two paragraphs of the project's questions to one, so that several windows are needed as in SQuAD; there we also
train with windows that start as far apart as transformers', whose stride is the overlap. All are scored with the same
windows. F/results.jsonl keeps what is finished; a second start goes on.
"""

import argparse
import dataclasses
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert import REPOSITORY
from bert.files import write_atomically
from bert.finetuning.squad.examples import read_squad
from data.examples import sample_questions
from tests.benchmarks.processes import markdown, run

LENGTH, STRIDE, JOINED = 128, 64, 2  # of `paragraphs`: half of each window is in the next, as with SQuAD at 256
NEVER = 10**6


@dataclasses.dataclass(frozen=True)
class Case:
    """A set, with the settings that both sides share.

    Attributes:
        metric: of summary.json, and the factor that makes it per cent.
        strides: of our windows; 0 in classification.
    """

    name: str
    train: Path
    held_out: Path
    metric: tuple[str, float]
    shared: dict[str, Any]
    recipe: str
    script: str
    strides: tuple[int, ...] = (0,)


def joined(source: Path, target: Path) -> None:
    """Write a SQuAD file whose paragraphs are JOINED paragraphs of `source`, in its order."""
    paragraphs = [p for article in json.loads(source.read_text())["data"] for p in article["paragraphs"]]
    longer = []
    for start in range(0, len(paragraphs), JOINED):
        context, questions = "", []
        for paragraph in paragraphs[start : start + JOINED]:
            context += " " if context else ""
            for question in paragraph["qas"]:
                moved = [a | {"answer_start": a["answer_start"] + len(context)} for a in question["answers"]]
                questions.append(question | {"answers": moved})
            context += paragraph["context"]
        longer.append({"context": context, "qas": questions})
    document = {"version": "1.1", "data": [{"title": "joined", "paragraphs": longer}]}
    target.write_text(json.dumps(document))


def cases(folder: Path) -> dict[str, Case]:
    sample_questions.write(folder)
    for part in ("train", "held_out"):
        joined(folder / f"{part}-answerable.json", folder / f"{part}-joined.json")
    squad = {"batch_size": 8, "learning_rate": 1e-4, "warmup_proportion": 0.1, "epochs": 5.0, "max_seq_length": 128}
    long = squad | {"batch_size": 16, "epochs": 2.0, "max_seq_length": LENGTH}
    glue = {"batch_size": 16, "learning_rate": 5e-5, "warmup_proportion": 0.1, "epochs": 6.0, "max_seq_length": 64}
    answers, accuracy = ("eval_f1", 1.0), ("eval_accuracy", 100.0)
    files = {part: folder / f"{part}-answerable.json" for part in ("train", "held_out")}
    longer = {part: folder / f"{part}-joined.json" for part in ("train", "held_out")}
    both = {"metric": answers, "recipe": "squad_small", "script": "run_squad.py"}
    found = [
        Case("questions", **files, shared=squad, **both),
        Case("paragraphs", **longer, shared=long, **both, strides=(STRIDE, transformers_stride(longer["train"]))),
    ]
    for name, source in (("sentiment", "sentiment"), ("pairs", "paraphrases")):
        examples = REPOSITORY / "data/examples" / source
        parts = {part: examples / f"{part}.tsv" for part in ("train", "held_out")}
        found.append(Case(name, **parts, metric=accuracy, shared=glue, recipe=f"small_{name}", script="run_glue.py"))
    return {case.name: case for case in found}


def transformers_stride(file: Path) -> int:
    """Tokens between the starts of windows that share STRIDE tokens, with a question of mean length (1.2 tokens a
    word)."""
    words = [len(question.text.split()) for question in read_squad(file).questions]
    return LENGTH - 3 - round(1.2 * float(np.mean(words))) - STRIDE


def rows_of(case: Case) -> list[dict[str, Any]]:
    """The training examples, for fine_tuning_torch.py."""
    if case.script == "run_glue.py":
        header, *lines = (line.split("\t") for line in case.train.read_text().splitlines())
        names = {"sentence": "text", "sentence1": "text", "sentence2": "text_pair", "label": "label"}
        return [{names[key]: value for key, value in zip(header, line, strict=True) if key in names} for line in lines]
    examples = read_squad(case.train)
    return [
        {
            "question": question.text,
            "context": examples.contexts[question.context],
            "answer": question.answers[0].text,
            "start": question.answers[0].start,
        }
        for question in examples.questions
    ]


def flags(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), str(value))]


def run_entry(case: Case, output: Path, weights: Path, settings: dict[str, Any], *further: str) -> None:
    """Run our entry point on one core."""
    squad = case.script == "run_squad.py"
    parts = ("--train-file", "--predict-file") if squad else ("--train-file", "--eval-file")
    words = ["--config", case.recipe, "--from-pretrained-params", weights, "--output-dir", output, "--device", "cpu"]
    words += [parts[0], case.train, parts[1], case.held_out, "--cpu-threads", 1, "--eval-freq", NEVER]
    if squad:
        words.append("--no-version-2-with-negative")
    run([sys.executable, case.script, *words, *flags(settings), *further])


def score(case: Case, folder: Path, weights: Path) -> float:
    """Per cent, of weights whichever windows they were trained with."""
    settings = {"max_seq_length": case.shared["max_seq_length"]} | ({"doc_stride": STRIDE} if case.strides[0] else {})
    run_entry(case, folder / "scored", weights, settings, "--no-do-train", "--do-eval")
    (summary,) = (folder / "scored").rglob("summary.json")
    name, factor = case.metric
    return json.loads(summary.read_text())[name] * factor


def ours(case: Case, folder: Path, encoder: Path, seed: int, stride: int) -> float:
    settings = case.shared | {"global_batch_size": case.shared["batch_size"], "seed": seed}
    if stride:
        settings["doc_stride"] = stride
    run_entry(case, folder / "trained", encoder, settings, "--do-train", "--no-do-eval")
    return score(case, folder, folder / "trained")


def theirs(case: Case, folder: Path, encoder: Path, seed: int, python: Path) -> float:
    rows = rows_of(case)
    labels = sorted({row["label"] for row in rows}) if case.script == "run_glue.py" else []
    task = case.shared | {"rows": rows, "labels": labels, "seed": seed, "overlap": STRIDE if case.strides[0] else 0}
    folder.mkdir(parents=True, exist_ok=True)
    task |= {"encoder": str(encoder), "output": str(folder / "model")}
    (folder / "task.json").write_text(json.dumps(task))
    run([python, "-m", "tests.benchmarks.fine_tuning_torch", folder / "task.json"], HF_HUB_OFFLINE="1")
    return score(case, folder, folder / "model")


def trainings(case: Case, seeds: int, torch: bool) -> Iterator[tuple[str, int, int]]:
    """Who trains, with which seed and stride (0: transformers')."""
    for seed in range(1, seeds + 1):
        for stride in case.strides:
            yield (f"ours, windows every {stride}" if stride else "ours"), seed, stride
        if torch:
            yield "transformers", seed, 0


def table(results: list[dict[str, Any]]) -> str:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in results:
        found[row["set"], row["who"]].append(row["score"])
    lines = []
    for (name, who), scores in found.items():
        spread = np.std(scores, ddof=1) if len(scores) > 1 else 0.0
        each = ", ".join(f"{value:.1f}" for value in scores)
        lines.append((name, who, f"{np.mean(scores):.1f}", f"{spread:.1f}", each))
    return markdown(("set", "trained by", "mean", "standard deviation", "each seed"), lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, required=True, help="MiniLM-L6, or another BERT without a head")
    parser.add_argument("--torch-python", type=Path, help="interpreter with torch and transformers; none: leave out")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".benchmark/fine_tuning_seeds")
    parser.add_argument("--sets", nargs="+", default=["questions", "paragraphs", "sentiment", "pairs"])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args(argv)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    encoder = str(arguments.encoder.resolve())
    if others := {row["encoder"] for row in results} - {encoder}:
        raise ValueError(f"{file} has results of {', '.join(others)}, not of {encoder}; pass another --folder")
    known = cases(folder)
    for case in (known[name] for name in arguments.sets):
        for who, seed, stride in trainings(case, arguments.seeds, arguments.torch_python is not None):
            if any((row["set"], row["who"], row["seed"]) == (case.name, who, seed) for row in results):
                continue
            place = folder / f"{case.name}-{who.replace(' ', '-')}-{seed}"
            shutil.rmtree(place, ignore_errors=True)
            if who == "transformers":
                found = theirs(case, place, arguments.encoder.resolve(), seed, arguments.torch_python)
            else:
                found = ours(case, place, arguments.encoder.resolve(), seed, stride)
            shutil.rmtree(place)
            results.append({"set": case.name, "who": who, "seed": seed, "score": found, "encoder": encoder})
            print(json.dumps(results[-1]), flush=True)
            write_atomically(file, "".join(json.dumps(row) + "\n" for row in results).encode())
    print(table(results))


if __name__ == "__main__":
    main()
