"""CPU seconds with which each command starts, of the command and all processes that it starts.

    python -m tests.benchmarks.start_up [--baseline FOLDER] [--rounds N] [PART ...]

Each round runs every command once in this checkout and, with --baseline, once in another, in
turns. The first run of each is not counted: it compiles modules and loops. The table has the
least of the rounds, which other processes disturb least. Both checkouts run with this
interpreter. PART selects the commands that contain it, such as `help`.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bert import REPOSITORY
from bert.help_parser import HelpParser

TASKS = ("pretraining", "squad", "glue", "classify", "ner", "vectors")
OWN_ENVIRONMENT = ("PADDLE_", "FLAGS_", "PYTHONDONTWRITEBYTECODE")  # beginnings of variables that are not passed on
TINY_MODEL = (
    "--bert-model bert-test --vocab-size 106 --hidden-size 32 --num-hidden-layers 1 --num-attention-heads 4 "
    "--intermediate-size 37 --max-position-embeddings 32 --max-seq-length 32 --max-predictions-per-seq 4 "
    "--batch-size 8 --device cpu --no-visualdl --log-freq 1 --num-workers 1 --peak-tflops 1"
)


@dataclass(frozen=True)
class Case:
    """A command and its input.

    Attributes:
        command: its words, in which `{output}` is a new folder for each run.
    """

    command: str
    standard_input: str = ""


def help_cases() -> Iterator[Case]:
    """`--help` of each script that starts a training and of each module of the product that runs."""
    for path in sorted(REPOSITORY.glob("run_*.py")):
        yield Case(f"python {path.name} --help")
    for task in TASKS:
        yield Case(f"python -m bert.commands {task} --help")
    for task in TASKS:
        yield Case(f"bash scripts/run_{task}.sh --help")
    for path in sorted((REPOSITORY / "data").glob("*.py")):
        if path.stem != "__init__":
            yield Case(f"python -m data.{path.stem} --help")
    for module in ("bert.serving", "bert.doctor", "bert.reporting"):
        yield Case(f"python -m {module} --help")


def working_cases(data: Path, model: Path) -> Iterator[Case]:
    """Commands that plan, train one update and predict, on the files of `make_files`."""
    yield Case("bash scripts/run_pretraining.sh --config base --dry-run")
    files = f"--input-dir {data}/shards --vocab-file {data}/vocab.txt --output-dir {{output}}"
    training = f"--phase1 {TINY_MODEL} {files} --report-file {{output}}/report.json --max-steps 1"
    yield Case(f"python run_pretraining.py {training}")
    yield Case(f"python -m bert.commands pretraining {training}")
    yield Case(f"python run_predict.py {model} --device cpu", "some [MASK] here\n")
    yield Case('python -c "import bert.labels.task, bert.training.training_run"')
    yield Case('python -c "import bert.vectors.task, bert.training.training_run"')


def make_files(folder: Path) -> tuple[Path, Path]:
    """Shards with a vocabulary, and the output folder of a training on them, made in this checkout."""
    from tests.support.corpora import random_table, write_shards, write_vocabulary

    data, model = folder / "data", folder / "model"
    data.mkdir()
    write_vocabulary(data / "vocab.txt")
    write_shards(data / "shards", [random_table(100, 0, masked=True)])
    training = next(case for case in working_cases(data, model) if case.command.startswith("python run_pretraining.py"))
    cpu_seconds(Case(training.command.replace("{output}", str(model))), REPOSITORY)
    return data, model


def environment() -> dict[str, str]:
    """Ours, with this interpreter first on the PATH."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(OWN_ENVIRONMENT)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "PYTHONUTF8": "1"}


def cpu_seconds(case: Case, checkout: Path) -> float:
    """User and system time of a command, its children included.

    Raises:
        RuntimeError: the command failed.
    """
    with tempfile.TemporaryDirectory() as output, tempfile.TemporaryFile() as log:
        words = shlex.split(case.command.replace("{output}", output))
        settings = {"cwd": checkout, "env": environment(), "stdin": subprocess.PIPE, "stdout": log, "stderr": log}
        process = subprocess.Popen(words, **settings)
        assert process.stdin is not None
        process.stdin.write(case.standard_input.encode())
        process.stdin.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"{case.command} in {checkout}: {log.read().decode(errors='replace')[-2000:]}")
    return used.ru_utime + used.ru_stime


def measure(cases: Sequence[Case], checkouts: Sequence[Path], rounds: int) -> Mapping[Case, list[float]]:
    """The least CPU seconds of each command in each checkout."""
    table = {}
    for case in cases:
        seconds: list[list[float]] = [[] for _ in checkouts]
        for _ in range(rounds + 1):
            for checkout, values in zip(checkouts, seconds, strict=True):
                values.append(cpu_seconds(case, checkout))
        table[case] = [min(values[1:]) for values in seconds]
        print(row(case, table[case]), flush=True)
    return table


def row(case: Case, seconds: Sequence[float]) -> str:
    shown = re.sub(
        r"^(python run_pretraining.py|python -m bert.commands \w+) --phase1 .*", r"\1: one update", case.command
    )
    shown = re.sub(r"^(python run_predict.py) /\S+.*", r"\1: first answer", shown)
    return f"| `{shown}` | {' | '.join(f'{value:.2f}' for value in seconds)} |"


def main() -> None:
    parser = HelpParser(prog="start_up.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="measure the commands that contain one of these words")
    parser.add_argument(
        "--baseline", type=Path, metavar="FOLDER", help="another checkout, measured in turns with this one"
    )
    parser.add_argument("--rounds", type=int, default=3, help="counted runs of each command (default: 3)")
    arguments = parser.parse_args()
    checkouts = [*([arguments.baseline.resolve()] if arguments.baseline else []), REPOSITORY]
    with tempfile.TemporaryDirectory() as folder:
        cases = [*help_cases(), *working_cases(*make_files(Path(folder)))]
        cases = [case for case in cases if not arguments.parts or any(part in case.command for part in arguments.parts)]
        print("| command | CPU seconds |" if len(checkouts) == 1 else "| command | before | after |")
        print(f"|---|{'---|' * len(checkouts)}")
        measure(cases, checkouts, arguments.rounds)


if __name__ == "__main__":
    main()
