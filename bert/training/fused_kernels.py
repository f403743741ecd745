"""Decides which fused kernels a training uses: those that are on, and the automatic ones whose self-test agrees.

The self-test of a rank is a process of its own (`bert.training.kernel_self_test`), so a kernel that breaks the device
or the process breaks nothing here. The ranks then exchange what they found: a kernel is used by all of them or by none.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from bert.config.architecture import FusedKernels
from bert.config.training_settings import TrainingConfig
from bert.interpreter import repository_environment
from bert.runtime.distributed import Group, exchange_texts

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 300.0
Findings = Mapping[str, str]  # kernel -> why it cannot be used; "" if it can
SelfTest = Callable[[TrainingConfig, Sequence[str], Sequence[str]], Findings]
Exchange = Callable[[Group, str], list[str]]


def choose_kernels(
    config: TrainingConfig, group: Group, self_test: SelfTest | None = None, exchange: Exchange = exchange_texts
) -> FusedKernels:
    """The fused kernels of this run, the same on every rank, and whether its tokens are packed. A CPU has no kernels.

    Args:
        self_test: (settings, kernels to compare, kernels whose card is only looked at) -> findings of this rank.
        exchange: the text of every rank, in their order.
    """
    fusions = config.hardware.fusions()
    unpad = config.hardware.unpads(group.device)
    if group.device == "cpu":
        return FusedKernels(unpad=unpad)
    forced = [name for name, value in fusions.items() if value == "on"]
    automatic = [name for name, value in fusions.items() if value == "auto"]
    reasons = {}
    if automatic and not config.precision.amp:
        reasons = dict.fromkeys(automatic, "they are for mixed precision (--amp)")
        automatic = []
    if forced or automatic:
        found = (self_test or self_test_in_a_process)(config, automatic, forced)
        reasons |= agreed([json.loads(text) for text in exchange(group, json.dumps(dict(found)))])
    if group.is_main:
        _log(fusions, reasons)
    used = {name: value != "off" and not reasons[name] for name, value in fusions.items()}
    return FusedKernels(**used, unpad=unpad)


def agreed(findings: Sequence[Findings]) -> dict[str, str]:
    """The reasons of all ranks together: a kernel that one of them cannot use is used by none."""
    reasons = {}
    for name in findings[0]:
        against = [(rank, found[name]) for rank, found in enumerate(findings) if found[name]]
        reasons[name] = f"{against[0][1]} (rank {against[0][0]})" if against else ""
    return reasons


def self_test_in_a_process(config: TrainingConfig, automatic: Sequence[str], forced: Sequence[str]) -> Findings:
    """The findings of this rank's card; a self-test that ends badly or hangs speaks against all that it should test."""
    request = {
        "model": json.loads(config.model.model_dump_json()),
        "amp_dtype": config.precision.amp_dtype,
        "compare": list(automatic),
        "look_at_card": list(forced),
        "unpad": config.hardware.unpads("gpu"),
    }
    found, reason = _answer(json.dumps(request))
    # What is forced is used all the same: only a card without the kernel speaks against it.
    return found or {**dict.fromkeys(automatic, reason), **dict.fromkeys(forced, "")}


@lru_cache(maxsize=None)  # own text is planned with several programs of a model
def _answer(request: str) -> tuple[Findings, str]:
    """What the process finds, or why it finds nothing."""
    command = [sys.executable, "-m", "bert.training.kernel_self_test", request]
    try:
        done = subprocess.run(
            command, env=repository_environment(), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        if done.returncode == 0:
            return dict(json.loads(done.stdout.splitlines()[-1])), ""
        return {}, f"the self-test ended with exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        return {}, f"the self-test took more than {TIMEOUT_SECONDS:g} s"
    except (ValueError, IndexError):
        return {}, "the self-test gave no answer"


def _log(fusions: Mapping[str, str], reasons: Mapping[str, str]) -> None:
    used = [name for name, value in fusions.items() if value != "off" and not reasons[name]]
    logger.info(f"fused kernels: {', '.join(used) or 'none'}")
    for name, value in fusions.items():
        if value != "off" and reasons[name]:
            logger.info(f"fuse_{name}={value}: plain operators instead, because {reasons[name]}")
