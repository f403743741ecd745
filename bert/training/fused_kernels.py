"""Decides which fused kernels a training uses: by the settings, the card and Paddle.

`auto` means FlashAttention in mixed precision on the cards that have it, as in NVIDIA's presets; the other two are off.
The self-test of GPUs (scripts/run_gpu_selftest.sh) compares all three with plain operators and says what to set.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from bert.config.architecture import FusedKernels
from bert.runtime.distributed import Group, exchange_texts
from bert.runtime.paddle_api import core, default_device, paddle

logger = logging.getLogger(__name__)

OPERATORS = {"linear": "fused_gemm_epilogue", "dropout_add": "fused_dropout_add", "attention": "flash_attn"}
ATTENTION_OF_PACKED_TOKENS = "flash_attn_unpadded"
CAPABILITY = {"attention": (8, 0)}  # its kernels are compiled for Ampere and later


def choose_kernels(config: Any, group: Group) -> FusedKernels:
    """The fused kernels of this run, the same on every rank (none on a CPU), and whether its tokens are packed."""
    unpad = config.hardware.unpads(group.device)
    if group.device == "cpu":
        return FusedKernels(unpad=unpad)
    wanted = sorted(config.wanted_kernels())
    reasons = {name: lacking(name, unpad) for name in wanted}
    if wanted and group.world_size > 1:  # the cards may differ
        reasons = agreed([json.loads(other) for other in exchange_texts(group, json.dumps(reasons))])
    used = {name: not reason for name, reason in reasons.items()}
    if group.is_main:
        logger.info(f"fused kernels: {', '.join(name for name in used if used[name]) or 'none'}")
        for name, reason in reasons.items():
            if reason:
                logger.info(f"fuse_{name}: plain operators instead, because {reason}")
    return FusedKernels(**used, unpad=unpad)


def agreed(reasons: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Why each kernel cannot be used, over all ranks: what the card of one lacks is used by none."""
    return {
        name: next((f"{of_rank[name]} (rank {rank})" for rank, of_rank in enumerate(reasons) if of_rank[name]), "")
        for name in reasons[0]
    }


def lacking(name: str, unpad: bool = False) -> str:
    """What this wheel or this card lacks for a kernel, of packed tokens with `unpad`; "" if it can be used."""
    operator = ATTENTION_OF_PACKED_TOKENS if unpad and name == "attention" else OPERATORS[name]
    if operator not in core.get_all_op_names():
        return f"this Paddle has no {operator}"
    if default_device() != "gpu":
        return "there is no GPU"
    needed, has = CAPABILITY.get(name, (0, 0)), paddle.device.cuda.get_device_capability()
    if tuple(has) < needed:
        return f"{operator} needs compute capability {needed[0]}.{needed[1]}, this card has {has[0]}.{has[1]}"
    return ""
