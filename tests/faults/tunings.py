"""Fine-tunings of a tiny model in forks of the server of `trainings`: files, commands, and results to compare."""

import hashlib
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.checkpoints.directories import BEST, list_steps, named_step, step_directory
from tests.faults.trainings import MODEL, Reference, Training, must_end, whole_rows
from tests.support.corpora import WORDS
from tests.support.squad_files import file_of, paragraph, question

FLAGS = (
    "--max-seq-length 24 --batch-size 6 --predict-batch-size 4 --max-steps 12 --eval-freq 4 --log-freq 1 "
    "--num-steps-per-checkpoint 3 --keep-checkpoints 2 --learning-rate 1e-2 --device cpu --no-visualdl "
    "--peak-tflops 1 --last-step-of-checkpoint auto --do-train --do-eval --do-predict"
).split()
NAMES = ("glue", "ner", "squad")
OF_TIME = {"log.jsonl", "metrics.jsonl", "events.jsonl", "config.yaml", "summary.json", "progress.json"}  # of the stage


@dataclass(frozen=True)
class Tuning:
    """Names a task's files below `folder`."""

    name: str
    folder: Path

    def argv(self, output: Path, *more: str) -> list[str]:
        """Return the command that starts a fine-tuning or continues it."""
        files = {"--vocab-file": self.folder.parent / "vocab.txt", "--output-dir": output, "--from-checkpoint": output}
        files |= {"--report-file": output / "report.json", "--train-file": self.folder / "train"}
        files |= {"--predict-file": self.folder / ("dev" if self.name == "squad" else "new")}
        files |= {} if self.name == "squad" else {"--eval-file": self.folder / "dev"}
        own = {"glue": ["--task-name", "custom"], "squad": ["--max-query-length", "4", "--doc-stride", "8"]}
        words = [str(word) for pair in files.items() for word in pair]
        return [*MODEL, *FLAGS, *own.get(self.name, []), *words, *more]

    def stage(self, output: Path) -> Path:
        return next(path for path in output.iterdir() if (path / "metrics.jsonl").exists())

    def digest(self, output: Path) -> str:
        """Return the sha256 of losses and scores of all updates, of the last and best checkpoint, and of the
        results."""
        stage = self.stage(output)
        parent = next(path.parent.parent for path in (output / "bert-test").rglob("manifest.json"))
        assert max(list_steps(parent)) == 12, "the last checkpoint is missing"
        values: dict[int, dict] = {}
        for row in whole_rows(stage / "metrics.jsonl"):
            kept = {name: value for name, value in row.items() if "loss" in name or name.startswith("eval_")}
            values.setdefault(row["step"], {}).update(kept)
        seen = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
        best = named_step(parent, BEST)
        assert best is not None
        seen.update((parent / "best.json").read_bytes())
        for directory in (step_directory(parent, 12), step_directory(parent, best)):
            progress = json.loads(next(directory.glob("*_progress.json")).read_text())
            progress.pop("settings")
            progress["carried"].pop("totals")  # how long it took
            seen.update(json.dumps(progress, sort_keys=True).encode())
            for path in sorted(directory.glob("*.safetensors")):
                seen.update(path.read_bytes())
        results = sorted(path for path in stage.iterdir() if path.is_file() and path.name not in OF_TIME)
        assert any("predictions" in path.name for path in results), "no predictions"
        left = [path.name for path in (*stage.iterdir(), *parent.iterdir()) if path.suffix in (".tmp", ".partial")]
        left += [path.name for path in parent.glob(".saving*")]
        assert not left, f"left: {left}"
        for path in results:
            seen.update(path.name.encode() + path.read_bytes())
        return seen.hexdigest()


def make_files(name: str, folder: Path) -> Tuning:
    """Write 25 examples to train on, 14 to score, 40 to predict: several windows of the stream."""
    chance, words = random.Random(name), [word for word in WORDS if "##" not in word]
    folder.mkdir(parents=True)
    for part, size in {"train": 25, "dev": 14, "new": 40}.items():
        texts = [chance.choices(words, k=chance.randint(4, 9)) for _ in range(size)]
        if name == "glue":
            rows = [f"{' '.join(text)}\t{'sea' if 'sea' in text else 'land'}" for text in texts]
            rows = ["sentence\tlabel", *rows] if part != "new" else ["sentence", *(row.split("\t")[0] for row in rows)]
            (folder / part).write_text("\n".join(rows) + "\n")
        elif name == "ner":
            tags = {"sea": " B-PLACE", "river": " B-PLACE"}
            lines = (f"{word}{tags.get(word, ' O') if part != 'new' else ''}" for text in texts for word in [*text, ""])
            (folder / part).write_text("".join(line.strip() + "\n" if line.strip() != "O" else "\n" for line in lines))
        else:
            contexts = [" ".join([*text, "boats", *text]) for text in texts]
            asked = [question(f"q{n}", "water ?", ("boats", c.index("boats"))) for n, c in enumerate(contexts)]
            file_of(folder / part, *(paragraph(c, q) for c, q in zip(contexts, asked, strict=True)))
    return Tuning(name, folder)


@dataclass(frozen=True)
class WholeTuning:
    """Holds an uninterrupted fine-tuning; `boundaries` are by the parts of `forking`."""

    reference: Reference
    tuning: Tuning
    digest: str
    seconds: float
    boundaries: dict[str, int]

    def start(self, output: Path, *more: str, **options: Any) -> Training:
        argv = self.tuning.argv(output, *more)
        return self.reference.server.start(argv, output, command=f"run_{self.tuning.name}", **options)

    def run(self, output: Path, *more: str, **options: Any) -> Training:
        argv = self.tuning.argv(output, *more)
        return self.reference.server.run(argv, output, command=f"run_{self.tuning.name}", **options)

    def continue_and_compare(self, output: Path) -> None:
        must_end(self.run(output))
        assert self.tuning.digest(output) == self.digest, "it is not the uninterrupted run"


def whole_tuning(name: str, reference: Reference) -> WholeTuning:
    folder, server, command = reference.data.folder, reference.server, f"run_{name}"
    tuning = make_files(name, folder / name)
    output, counted = folder / f"whole-{name}", folder / f"boundaries-{name}"
    server.ask(do="warm", command=command, argv=tuning.argv(folder / "never"))
    begin = time.monotonic()
    must_end(server.run(tuning.argv(output), output, command=command, boundaries_file=str(counted)))
    seconds = time.monotonic() - begin
    return WholeTuning(reference, tuning, tuning.digest(output), seconds, json.loads(counted.read_text()))
