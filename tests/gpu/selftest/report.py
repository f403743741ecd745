"""The report to send back: one page for people; results.json beside it has everything for programs.

Its first table answers the most likely failures (driver, NCCL, kernels, memory, speed), each with what to type next.
"""

import dataclasses
import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert.files import write_atomically
from bert.reporting.logs import to_json
from bert.reporting.progress import duration
from tests.benchmarks.processes import markdown
from tests.gpu.selftest.machine import Machine, describe

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
REPORT, RESULTS = "report.md", "results.json"
FIRST_CHECKS = ("doctor", "nccl", "fused-kernels-float16", "throughput-phase1_large")  # in this order
NOT_COVERED = "Not covered: the speed of training on packed tokens and of the fine-tuning recipes, several nodes."
LONGEST_CELL, MOST_FAILURES = 300, 8
WORKS, FAILS, UNKNOWN, UNJUDGED = "works", "FAILS", "not measured", "not judged"
_SELF_TEST = "bash scripts/run_gpu_selftest.sh --only"
_OUT_OF_MEMORY = ("resourceexhausted", "out of memory", "memoryerror")


@dataclasses.dataclass(frozen=True)
class Result:
    """Of one check; `text` is one line: what was found, or why the check failed or was skipped."""

    name: str
    title: str
    status: str
    seconds: float
    text: str
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    output: str = ""  # of a failed check


class Report:
    """The results of this start, and those of an earlier one on the same machine, in the two files of a folder."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder, self.machine = folder, machine
        self.results: dict[str, Result] = {}

    def add(self, result: Result) -> None:
        if not self.results:
            self._facts, self.results = describe(self.machine), self._earlier()
        self.results[result.name] = result
        rows = [dataclasses.asdict(row) for row in self.results.values()]
        self.folder.mkdir(parents=True, exist_ok=True)
        text = to_json({"machine": self._facts, "results": rows}, indent=1)
        write_atomically(self.folder / RESULTS, f"{text}\n".encode())
        write_atomically(self.folder / REPORT, page(self._facts, list(self.results.values())).encode())

    def _earlier(self) -> dict[str, Result]:
        try:
            record = json.loads((self.folder / RESULTS).read_text(encoding="utf-8"))
            identity = json.loads(to_json(self.machine.identity()))
            is_same = all(record["machine"][name] == value for name, value in identity.items())
            return {row["name"]: Result(**row) for row in record["results"]} if is_same else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}


# ---- the most likely failures ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Answer:
    topic: str
    question: str
    verdict: str
    figure: str
    command: str  # to type next; "" if nothing is to be done


def answers(results: Mapping[str, Result], device: str) -> list[Answer]:
    """One for each of the five most likely failures, whichever checks have run.

    Args:
        results: by the names of the checks.
        device: cpu | gpu.
    """
    found = []
    for topic, (question, check, judge, command) in _TOPICS.items():
        result = results.get(check)
        verdict, figure = judge(result, device) if result else (UNKNOWN, f"the check {check} was not run")
        next_command = {FAILS: command, UNKNOWN: f"{_SELF_TEST} {check}"}.get(verdict, "")
        if topic == "speed" and verdict in (WORKS, UNJUDGED) and device == "gpu":
            next_command = "bash scripts/run_pretraining.sh --config large"
        found.append(Answer(topic, question, verdict, figure, next_command))
    return found


def _driver(result: Result, device: str) -> tuple[str, str]:
    findings = {finding["name"]: finding for finding in result.figures.get("findings", ())}
    judged = [findings[name] for name in ("GPU", "Paddle") if name in findings]
    if not judged:
        return UNKNOWN, result.text
    spoilt = [f for f in judged if f["level"] == "failure" or (device, f["level"]) == ("gpu", "warning")]
    if spoilt or (device == "gpu" and judged[0]["found"].startswith("none")):
        return FAILS, "; ".join(
            f"{f['found']}: {f['advice'] or 'nvidia-smi lists no GPU'}" for f in spoilt or judged[:1]
        )
    return WORKS, "; ".join(finding["found"] for finding in judged)


def _by_status(result: Result, device: str) -> tuple[str, str]:
    """A check that is skipped is not needed, as NCCL with one GPU."""
    return {PASSED: WORKS, FAILED: FAILS}.get(result.status, "not needed"), result.text


def _measured(topic: str, text: Callable[[dict[str, Any]], str]) -> Callable[[Result, str], tuple[str, str]]:
    """The answer to `topic` by the training of BERT-large, which measures memory and speed."""

    def judge(result: Result, device: str) -> tuple[str, str]:
        if "peak bytes" not in result.figures:
            said = f"{result.text}\n{result.output}".lower()
            is_full = result.status != FAILED or any(words in said for words in _OUT_OF_MEMORY)
            return (FAILS if topic == "memory" and is_full else UNKNOWN), result.text
        if topic in (problems := result.figures.get("shortfalls", {})):
            return FAILS, f"{text(result.figures)}: {problems[topic]}"
        if device == "cpu":
            return UNJUDGED, f"{text(result.figures)} (a tiny model on a CPU)"
        if topic == "speed" and not result.figures.get("speed is judged"):
            return UNJUDGED, f"{text(result.figures)} (nobody has compared a plan for this card with a measurement)"
        return WORKS, text(result.figures)

    return judge


def speed_text(figures: dict[str, Any]) -> str:
    planned, speed = figures.get("planned sequences per second"), figures["sequences per second"] or 0.0
    return f"{speed:,.1f} sequences/s" + (f", planned {planned:,.1f}" if planned else "")


def memory_text(figures: dict[str, Any]) -> str:
    peak, estimate = figures["peak bytes"]["allocated"] / 1e9, figures["estimated bytes"]["total"] / 1e9
    return f"peak {peak:.2f} GB, estimated {estimate:.2f}"


# topic -> question, the check that answers it, how, the command to type where it fails
_TOPICS: dict[str, tuple[str, str, Callable[[Result, str], tuple[str, str]], str]] = {
    "driver": (
        "Does the framework (Paddle) compute on the cards?",
        "doctor",
        _driver,
        "nvidia-smi; .venv/bin/python -m bert.doctor",
    ),
    "NCCL": (
        "Do the cards sum their gradients, and how fast?",
        "nccl",
        _by_status,
        f"NCCL_DEBUG=INFO NCCL_P2P_DISABLE=1 {_SELF_TEST} nccl",
    ),
    "kernels": (
        "Do the fast kernels compute what plain operators do?",
        "fused-kernels-float16",
        _by_status,
        f"{_SELF_TEST} train-amp --only throughput-phase1_large-plain",
    ),
    "memory": (
        "Does BERT-large fit as estimated?",
        "throughput-phase1_large",
        _measured("memory", memory_text),
        "bash scripts/run_pretraining.sh --config large --dry-run",
    ),
    "speed": (
        "Does BERT-large train as fast as planned?",
        "throughput-phase1_large",
        _measured("speed", speed_text),
        "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER",
    ),
}


# ---- the page --------------------------------------------------------------------------------------------------------


def page(facts: dict[str, Any], results: list[Result]) -> str:
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
        *[f"Exports for Paddle Inference: {r.text}." for r in others if "precisions" in r.figures and r.text],
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
