"""The answers of the first five minutes: driver, NCCL, kernels, memory, speed, each with what to type next."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bert.interpreter import shell_command
from tests.gpu.selftest.checks import FAILED, PASSED, Result
from tests.gpu.selftest.recipe_checks import memory_text, speed_text

FIRST_CHECKS = ("doctor", "nccl", "fused-kernels-float16", "throughput-phase1_large")  # in this order
WORKS, FAILS, UNKNOWN, UNJUDGED = "works", "FAILS", "not measured", "not judged"
_SELF_TEST = "bash scripts/run_gpu_selftest.sh --again --only"
_OUT_OF_MEMORY = ("resourceexhausted", "out of memory", "memoryerror")


@dataclass(frozen=True)
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
            next_command = f"{shell_command('scripts/run_pretraining.sh')} --config large"
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


# topic -> question, the check that answers it, how, the command to type where it fails
_TOPICS: dict[str, tuple[str, str, Callable[[Result, str], tuple[str, str]], str]] = {
    "driver": (
        "Does the framework (Paddle) compute on the cards?",
        "doctor",
        _driver,
        f"nvidia-smi; {shell_command('bert.doctor')}",
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
        f"{shell_command('scripts/run_pretraining.sh')} --config large --fit-batch-size",
    ),
    "speed": (
        "Does BERT-large train as fast as planned?",
        "throughput-phase1_large",
        _measured("speed", speed_text),
        "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER",
    ),
}
