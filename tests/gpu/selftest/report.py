"""The file to send back: tables for people, and everything again as JSON in its last section."""

from pathlib import Path
from typing import Any

from bert.files import write_atomically
from bert.reporting.figures import duration
from bert.reporting.logs import to_json
from tests.gpu.selftest.running import FAILED, PASSED, SKIPPED, Result

NOT_COVERED = "Not covered: the speed of training on packed tokens and of the fine-tuning recipes, several nodes."
LONG_FIGURES = 2000  # characters: longer ones stand in the JSON alone


def write_report(path: Path, machine: dict[str, Any], results: dict[str, Result]) -> None:
    write_atomically(path, report(machine, list(results.values())).encode())


def report(machine: dict[str, Any], results: list[Result]) -> str:
    """Markdown."""
    counts = ", ".join(f"{sum(r.status == status for r in results)} {status}" for status in (PASSED, FAILED, SKIPPED))
    parts = [
        "# Self-test of BERT on Paddle",
        f"{counts}; {duration(sum(result.seconds for result in results))} in all. {NOT_COVERED}",
        "## Machine",
        _machine(machine),
        "## Checks",
        _table(("check", "result", "time", "found"), [_row(result) for result in results]),
        *(_failure(result) for result in results if result.status == FAILED),
        *_throughput(results),
        "## Everything as JSON",
        _fenced(to_json({"machine": machine, "results": [vars(result) for result in results]}), "json"),
    ]
    return "\n\n".join(parts) + "\n"


def _machine(machine: dict[str, Any]) -> str:
    cards = [f"{gpu['name']}, {gpu['memory_mib']} MiB, driver {gpu['driver']}" for gpu in machine["gpus"]]
    values = {
        "device": f"{machine['device']}, {machine['ranks']} ranks",
        "GPUs": "; ".join(f"{cards.count(card)} x {card}" for card in dict.fromkeys(cards)) or "none",
        "packages": ", ".join(f"{name} {version}" for name, version in machine["packages"].items()),
        **{name: machine[name] for name in ("python", "system", "commit", "date")},
    }
    text = _table(("", ""), list(values.items()))
    links = machine["links between GPUs"]
    return text + (f"\n\n{_fenced(links, 'text')}" if links else "")


def _row(result: Result) -> tuple[str, ...]:
    return f"`{result.name}`: {result.title}", result.status, duration(result.seconds), result.text


def _failure(result: Result) -> str:
    figures = to_json(result.figures) if result.figures else ""
    parts = [f"### {result.name} failed", result.text]
    if figures and len(figures) <= LONG_FIGURES:
        parts.append(_fenced(figures, "json"))
    if result.output:
        parts.append(_fenced(result.output, "text"))
    return "\n\n".join(parts)


def _throughput(results: list[Result]) -> list[str]:
    rows = []
    for result in results:
        figures = result.figures
        if "estimated bytes" not in figures:
            continue
        speed, planned = figures["sequences per second"], figures.get("planned sequences per second")
        rows.append(
            (
                result.name.removeprefix("throughput-"),
                figures["model"],
                " x ".join(map(str, figures["ranks x micro-batches x sequences"])),
                ", ".join(figures["fused kernels"]) or "none",
                f"{speed:,.1f}" if speed else "none",
                f"{planned:,.1f} ({speed / planned - 1:+.0%})" if planned and speed else "no plan",
                f"{figures['peak bytes']['allocated'] / 1e9:.2f}",
                f"{figures['estimated bytes']['total'] / 1e9:.2f}",
            )
        )
    if not rows:
        return []
    header = ("recipe", "model", "ranks x micro-batches x sequences", "fused kernels", "sequences/s", "planned")
    return ["## Speed and memory", _table((*header, "peak, GB", "estimated, GB"), rows)]


def _table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _fenced(text: str, language: str) -> str:
    return f"````{language}\n{text}\n````"
