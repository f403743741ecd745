"""`python -m tests.faults [--full] [--rows 1,2,5] [--broken]`: run rows of the fault matrix and say what was lost.

Exit codes: 0 nothing was lost; 1 something was (with --broken: a row lost nothing although its protection was gone).
"""

import argparse
import sys
from pathlib import Path

import bert  # noqa: F401 - before Paddle, whichever module loads it
from tests.faults.harness import Outcome, Row, line, run_row, write_report
from tests.faults.table import ROWS

PROVES_NOTHING = "LOSES NOTHING: the row proves nothing"


def chosen_rows(text: str | None) -> list[Row]:
    known = {row.number: row for row in ROWS}
    if text is None:
        return [known[number] for number in sorted(known)]
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if not word.isdecimal() or int(word) not in known]
    if unknown or not words:
        raise SystemExit(f"error: --rows {text} must list rows of {sorted(known)}, such as --rows 1,2,5")
    return [known[int(word)] for word in words]


def prove(rows: list[Row]) -> int:
    """Each row without each of its protections: it must lose."""
    useless = 0
    for row in rows:
        for name in row.breaks:
            outcome = run_row(row, broken=name)
            useless += outcome.lost == 0
            print(
                f"{line(outcome)}\n        without its protection ({name}) it "
                f"{'loses, as it must: ' + outcome.losses[0][-150:] if outcome.lost else PROVES_NOTHING}",
                flush=True,
            )
    return 1 if useless else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("run_fault_tests.sh", description="Inject faults and count what survives.")
    parser.add_argument("--full", action="store_true", help="as many trials as the project promises: an hour or more")
    parser.add_argument("--rows", help="numbers of rows, such as 1,2,5; all without it")
    parser.add_argument("--broken", action="store_true", help="take each row's protection away and see it lose")
    parser.add_argument("--report", type=Path, default=Path("results/faults/report"), help="REPORT.json and REPORT.md")
    options = parser.parse_args(argv)
    rows = chosen_rows(options.rows)
    if options.broken:
        return prove(rows)
    outcomes: list[Outcome] = []
    for row in rows:
        outcomes.append(run_row(row, options.full))
        print(line(outcomes[-1]), flush=True)
        for text in [*outcomes[-1].notes, *outcomes[-1].losses]:
            print(f"        {text}", flush=True)
        write_report(options.report, outcomes)
    lost = sum(outcome.lost for outcome in outcomes)
    print(f"{sum(o.tried for o in outcomes):,} tried, {lost:,} lost; {options.report}.md")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
