"""Decides which fused kernels a training uses: those that are on, and the automatic ones that are right and fast.

The self-test of a rank compares fused kernels with plain operators on its card, in values (forward and backward, with
dropout, at the run's length) and in time (the run's micro-batch). It is a process of its own (`kernel_comparison`), so
a kernel that breaks the device or the process breaks nothing here. The ranks then exchange their findings: a kernel is
used by all of them or by none.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from bert.config.architecture import FusedKernels
from bert.interpreter import repository_environment
from bert.runtime.distributed import Group, exchange_texts

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 300.0
Findings = Mapping[str, str]  # kernel -> why it cannot be used; "" if it can


def choose_kernels(config: Any, group: Group) -> FusedKernels:
    """The fused kernels of this run, the same on every rank (none on a CPU), and whether its tokens are packed."""
    fusions, unpad = config.hardware.fusions(), config.hardware.unpads(group.device)
    if group.device == "cpu":
        return FusedKernels(unpad=unpad)
    forced = [name for name, value in fusions.items() if value == "on"]
    automatic = [name for name, value in fusions.items() if value == "auto"]
    reasons, times = {}, dict[str, str]()
    if automatic and not config.precision.amp:
        reasons = dict.fromkeys(automatic, "they are for mixed precision (--amp)")
        automatic = []
    if forced or automatic:
        findings, times = self_test(config, automatic, forced)
        reasons |= agreed([json.loads(other) for other in exchange_texts(group, json.dumps(findings))])
    if unpad and config.model.has_window() and fusions["attention"] != "off":
        reasons["attention"] = "FlashAttention of packed tokens has no window here, which --local-attention needs"
    used = {name: value != "off" and not reasons[name] for name, value in fusions.items()}
    if group.is_main:
        texts = [f"{name} ({times[name]})" if name in times else name for name in used if used[name]]
        logger.info(f"fused kernels: {', '.join(texts) or 'none'}")
        for name, value in fusions.items():
            if value != "off" and reasons[name]:
                logger.info(f"fuse_{name}={value}: plain operators instead, because {reasons[name]}")
    return FusedKernels(**used, unpad=unpad)


def agreed(findings: Sequence[Findings]) -> dict[str, str]:
    """The reasons of all ranks together: a kernel that one of them cannot use is used by none."""
    reasons = {}
    for name in findings[0]:
        against = [f"{reason} (rank {rank})" for rank, of_rank in enumerate(findings) if (reason := of_rank[name])]
        reasons[name] = against[0] if against else ""
    return reasons


def self_test(config: Any, automatic: Sequence[str], forced: Sequence[str]) -> tuple[Findings, dict[str, str]]:
    """The findings of this rank's card, and the times of the kernels that are right.

    A self-test that ends badly or hangs speaks against all that it should compare.

    Args:
        config: a TrainingConfig with a data section.
        automatic: kernels to compare.
        forced: kernels that only a card without them speaks against.
    """
    request = {
        "model": json.loads(config.model.model_dump_json()),
        "amp_dtype": config.precision.amp_dtype,
        "compare": list(automatic),
        "look_at_card": list(forced),
        "unpad": config.hardware.unpads("gpu"),
        "batch_size": config.batch.batch_size,
        "length": config.data.max_seq_length,
    }
    answer, reason = _answer(json.dumps(request))
    reasons = answer.get("reasons") or {**dict.fromkeys(automatic, reason), **dict.fromkeys(forced, "")}
    return reasons, answer.get("times", {})


@lru_cache(maxsize=None)  # own text is planned with several programs of a model
def _answer(request: str) -> tuple[dict[str, dict[str, str]], str]:
    """What the process prints, or why it printed nothing."""
    command = [sys.executable, "-m", "bert.training.kernel_comparison", request]
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
