"""Draws the curves of the pages from records: `.venv/bin/python -m docs.curves` writes them again.

`quickstart.png` is drawn from the recorded run in tests/golden/runs/quickstart, by the function that writes `loss.png`
of every training. `recall.png` is drawn from the curve in tests/golden/results/search.json.
"""

from pathlib import Path

from matplotlib.figure import Figure

from bert.reporting import results as run_results
from bert.reporting.run_record import read_runs
from docs import results

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURES = REPOSITORY / "docs/pictures"


def quickstart(picture: Path) -> None:
    run_results.draw(picture, read_runs([REPOSITORY / "tests/golden/runs/quickstart"]))


def recall(picture: Path) -> None:
    """Recall at 10 over the updates, beside BM25."""
    curve = results.subject("search")["curve"]
    figure = Figure(figsize=(8, 4), layout="tight")
    axes = figure.subplots()
    axes.plot(curve["updates"], [float(value) for value in curve["recall"]], "o-", label="the model")
    axes.axhline(float(curve["baseline"]), color="0.5", linestyle="dotted", label="BM25")
    axes.set(xlabel="updates of 128 pairs", ylabel="recall at 10 (%)", ylim=(0, None), xticks=curve["updates"])
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(picture, dpi=120)


CURVES = {"quickstart.png": quickstart, "recall.png": recall}


def main() -> None:
    for name, draw in CURVES.items():
        draw(PICTURES / name)
        print(PICTURES / name)


if __name__ == "__main__":
    main()
