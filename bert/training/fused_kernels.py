"""Chooses the fused kernels of a training, the same on every rank, and logs why others are not used.

`bert.config.automatic` has the rules. The self-test of GPUs (scripts/run_gpu_selftest.sh) compares the kernels with
plain operators and says what to set.
"""

import json
import logging
from collections.abc import Mapping, Sequence

from bert.config.architecture import FusedKernels
from bert.config.automatic import lacking_kernels, resolve_auto
from bert.config.training_settings import TrainingConfig
from bert.runtime.distributed import Group, exchange_texts
from bert.training.devices import device_features

logger = logging.getLogger(__name__)


def choose_kernels(config: TrainingConfig, group: Group) -> FusedKernels:
    """Fused kernels of this run (none on a CPU), and whether its tokens are packed."""
    device = device_features(group)
    lacking = lacking_kernels(config, device)
    if group.device == "gpu":
        if lacking and group.world_size > 1:  # the cards may differ
            lacking = agreed([json.loads(other) for other in exchange_texts(group, json.dumps(lacking))])
        if group.is_main:
            _log(lacking)
    return resolve_auto(config, device, lacking).kernels()


def agreed(lacking: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Kernels that any rank lacks, each with the reason: no rank uses them.

    Args:
        lacking: of each rank, {kernel: reason}, with the same kernels; the reason is empty if it can be used.
    """
    return {
        name: next((f"{of_rank[name]} (rank {rank})" for rank, of_rank in enumerate(lacking) if of_rank[name]), "")
        for name in lacking[0]
    }


def _log(lacking: Mapping[str, str]) -> None:
    used = [name for name, reason in lacking.items() if not reason]
    logger.info(f"fused kernels: {', '.join(used) or 'none'}")
    for name, reason in lacking.items():
        if reason:
            logger.info(f"fuse_{name}: plain operators instead, because {reason}")
