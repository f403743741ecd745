"""The report to send back: one page for people; results.json beside it has everything for programs."""

import textwrap
from typing import Any

from bert.reporting.progress import duration
from tests.benchmarks.processes import markdown
from tests.gpu.selftest.answers import FAILS, FIRST_CHECKS, UNJUDGED, UNKNOWN, Answer, answers
from tests.gpu.selftest.checks import FAILED, PASSED, RESULTS, SKIPPED, Result

NOT_COVERED = "Not covered: the speed of training on packed tokens and of the fine-tuning recipes, several nodes."
LONGEST_CELL, MOST_FAILURES = 300, 8


def report(facts: dict[str, Any], results: list[Result]) -> str:
    """Markdown of at most 60 lines.

    Args:
        facts: what `machine.describe` gives.
    """
    found = answers({result.name: result for result in results}, facts["device"])
    others = [result for result in results if result.name not in FIRST_CHECKS]
    failed = [result for result in results if result.status == FAILED and not _is_answered(result, found)]
    parts = [
        f"# Self-test of BERT on Paddle: {_headline(found)}",
        "This machine was asked whether it trains BERT, a language model, correctly and at full speed. Send back this "
        f"page and {RESULTS}, which has every figure and the output of what failed.",
        _machine(facts),
        "## The five most likely failures",
        _table(
            ("", "question", "verdict", "figure", "next command"),
            [(a.topic, a.question, a.verdict, a.figure, f"`{a.command}`" if a.command else "") for a in found],
        ),
        f"## All {len(results)} checks",
        f"{_counts(results)} in {duration(sum(result.seconds for result in results))}. {NOT_COVERED}",
        *([_failures(failed)] if failed else []),
        *_throughput(others),
    ]
    return "\n\n".join(parts) + "\n"


def _headline(found: list[Answer]) -> str:
    failing = [answer.topic for answer in found if answer.verdict == FAILS]
    if failing:
        return f"{' and '.join(failing)} failed"
    parts = []
    for verdict in (UNKNOWN, UNJUDGED):
        if topics := [answer.topic for answer in found if answer.verdict == verdict]:
            parts.append(f"{', '.join(topics)} {verdict}")
    return "; ".join(parts) or "the first five questions are answered well"


def _is_answered(result: Result, found: list[Answer]) -> bool:
    """Whether a failure stands in the table of answers already; the doctor judges more than the driver."""
    return result.name in FIRST_CHECKS[1:] or (result.name == "doctor" and found[0].verdict == FAILS)


def _counts(results: list[Result]) -> str:
    return ", ".join(f"{sum(r.status == status for r in results)} {status}" for status in (PASSED, FAILED, SKIPPED))


def _machine(facts: dict[str, Any]) -> str:
    cards = [f"{gpu['name']}, {gpu['memory_mib']} MiB, driver {gpu['driver']}" for gpu in facts["gpus"]]
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    return (
        f"Machine: {'; '.join(f'{cards.count(card)} x {card}' for card in dict.fromkeys(cards)) or 'no GPU'}; "
        f"{facts['device']}, {facts['ranks']} ranks; {packages}; Python {facts['python']}, {facts['system']}; commit "
        f"{facts['commit']}, {facts['date']}."
    )


def _failures(failed: list[Result]) -> str:
    lines = [f"- `{result.name}` failed ({result.title}): {_short(result.text)}" for result in failed[:MOST_FAILURES]]
    more = len(failed) - MOST_FAILURES
    return "\n".join([*lines, *([f"- {more} more in {RESULTS}"] if more > 0 else [])])


def _throughput(results: list[Result]) -> list[str]:
    rows = []
    for result in [result for result in results if "estimated bytes" in result.figures]:
        figures = result.figures
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
    return markdown(header, [[_short(str(cell)).replace("|", "\\|") for cell in row] for row in rows])


def _short(text: str) -> str:
    return textwrap.shorten(text, LONGEST_CELL, placeholder=" ...")
