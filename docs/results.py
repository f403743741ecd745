"""Writes results.md from tests/golden/results/*.json: `.venv/bin/python docs/results.py` writes the page again."""

import json
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
RECORDS = REPOSITORY / "tests/golden/results"
PAGE = REPOSITORY / "docs/results.md"
SUBJECTS = ("quickstart", "your_text", "labels", "search", "speed", "exports", "planner")

INTRODUCTION = """# Results: what was measured

Look here before you believe a score of these pages. Each row has a baseline, and the number of its run in the [list of
runs](#which-runs-are-these): commit, date, machine and command.

All figures are from CPUs, unless a row names a GPU. Most are of one run with one seed. Another machine has other
documentation to train on, and so has other figures.
"""

RUNS = """If a commit is marked with *recorded*, the details do not name the program; this commit wrote the figure down.

"""

Record = dict[str, str]


def subject(name: str) -> dict:
    """Title, text and rows of a subject."""
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    lines.insert(1, f"{'|---' * len(head)}|")
    return "\n".join(lines) + "\n"


def with_unit(value: str, unit: str) -> str:
    return f"{value}{unit}" if unit in ("", "%") else f"{value} {unit}"


def compared_with(row: Record) -> str:
    """The baseline and its name; empty if there is none."""
    unit = "%" if row["unit"] == "%" else ""
    return f"{row['baseline']}{unit} ({row['baseline_name']})" if row["baseline"] else ""


def run_of(row: Record) -> tuple[str, ...]:
    """Commit, date, machine, command and details of a row, as they stand in the table of runs."""
    recorded = " *recorded*" if row.get("commit_is") == "of the record" else ""
    command = f"`{row['command']}`" if row["command"] else ""
    removed = ", a removed program" if row.get("command_is_removed") else ""
    return f"`{row['commit']}`{recorded}", row["date"], row["machine"], command + removed, f"`{row['details']}`"


def measured(name: str, runs: list[tuple[str, ...]]) -> str:
    """The section of a subject: its figures, each with the number of its run. New runs are added to `runs`."""
    record, rows = subject(name), list[tuple[str, ...]]()
    for row in record["rows"]:
        run = run_of(row)
        if run not in runs:
            runs.append(run)
        number = str(runs.index(run) + 1)
        rows.append((row["what"], with_unit(row["value"], row["unit"]), compared_with(row), number))
    return f"## {record['title']}\n\n{record['text']}\n\n{table(('what', 'result', 'compared with', 'run'), rows)}"


def all_runs(runs: list[tuple[str, ...]]) -> str:
    """The section with the runs behind all figures."""
    numbered = [(str(number), *run) for number, run in enumerate(runs, start=1)]
    return (
        "## Which runs are these?\n\n"
        + RUNS
        + table(("run", "commit", "date", "machine", "command", "details"), numbered)
    )


def planned() -> str:
    """The section of the planner: published figures as targets."""
    record = subject("planner")
    targets = [
        (
            row["what"],
            with_unit(row["published"], row["unit"]),
            row["planned"],
            row["planned_with_fused_kernels"],
            row["measured"] or "not yet",
            f"`{row['command']}`" if row["command"] else "",
        )
        for row in record["rows"]
    ]
    head = ("what", "published", "planned, default", "planned, all fused kernels", "measured here", "command")
    first = record["rows"][0]
    return (
        f"## {record['title']}\n\n{record['text']}\n\n{table(head, targets)}\n"
        "Add `--fuse-linear on --fuse-dropout-add on` for the column with all fused kernels. All plans are of commit "
        f"`{first['commit']}`, {first['date']}. How far to trust them: `{first['details']}`. "
        "[Which model do I need?](choose.md#what-it-costs-on-gpus) has planned times of whole trainings.\n"
    )


def page() -> str:
    runs = list[tuple[str, ...]]()
    sections = [measured(name, runs) for name in SUBJECTS if name != "planner"]
    return "\n".join([INTRODUCTION, *sections, planned(), all_runs(runs)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
