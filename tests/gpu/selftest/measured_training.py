"""run_pretraining.py that also writes the peak of each rank's memory: peak_memory.RANK.json beside the settings."""

import json
import sys
from pathlib import Path

import run_pretraining
from bert.config.command_line import parse_arguments
from bert.files import write_atomically
from bert.pretraining.entry import ENTRY
from bert.runtime.distributed import group_from_environment
from bert.runtime.paddle_api import core, paddle
from bert.training.devices import choose_device


def peak_memory(device: str) -> dict[str, int]:
    """Return bytes: of tensors; on a GPU also the allocator's reserve for them."""
    if device == "cpu":
        return {"allocated": core.host_memory_stat_peak_value("Allocated", 0)}
    cuda = paddle.device.cuda
    return {"allocated": cuda.max_memory_allocated(), "reserved": cuda.max_memory_reserved()}


def main() -> int:
    code = run_pretraining.main()
    config = parse_arguments(ENTRY)
    group = group_from_environment(choose_device(config))
    target = Path(sys.argv[sys.argv.index("--config") + 1]).with_name(f"peak_memory.{group.rank}.json")
    write_atomically(target, json.dumps(peak_memory(group.device)).encode())
    return code


if __name__ == "__main__":
    sys.exit(main())
