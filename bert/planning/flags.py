"""The planner's flags, the same for every entry point: `--plan --hardware 8xA100-80GB`."""

import dataclasses
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

from bert.config.entry_point import Inquiry
from bert.planning.hardware import PARTS_FILE, Hardware, load_parts, parse_hardware
from bert.planning.planner import make_plan, plan_report
from bert.reporting.figures import duration

_VALUES = {  # name -> (metavar, help)
    "hardware": (
        "[NODES x GPUS x] PART",
        "with --plan: such as 8xA100-80GB or 4x8xA100-80GB, of the parts in bert/planning/hardware_parts.yaml",
    ),
    "price_per_hour": ("PRICE", "with --plan: of one node"),
    "mean_padded_length": (
        "TOKENS",
        "with --plan: mean length of a padded sequence, where samples are shorter than --max-seq-length",
    ),
    "parts": ("FILE", "with --plan: another table than bert/planning/hardware_parts.yaml"),
}
PLAN_FLAGS = ("plan", *_VALUES)


@dataclasses.dataclass(frozen=True)
class PlanRequest:
    """The values of the planner's flags."""

    hardware: Hardware
    price_per_hour: float | None
    mean_padded_length: float | None


def add_plan_flags(group: Any) -> None:
    """Add them to an argparse parser or group."""
    group.add_argument("--plan", action="store_true", help="print memory, time and cost on --hardware, and stop")
    for name, (metavar, text) in _VALUES.items():
        group.add_argument("--" + name.replace("_", "-"), metavar=metavar, help=text)


def take_plan_request(flags: MutableMapping[str, Any]) -> PlanRequest | None:
    """Remove the planner's flags from those that were given; None without --plan."""
    planning = flags.pop("plan", False)
    given = {name: flags.pop(name, None) for name in _VALUES}
    if not planning:
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"--{name.replace('_', '-')}={value} is for --plan; add --plan, or drop it")
        return None
    if given["hardware"] is None:
        raise ValueError(
            f"--plan needs --hardware, such as --hardware 8xA100-80GB; the parts are {', '.join(load_parts())}"
        )
    parts = load_parts(Path(given["parts"] or PARTS_FILE))
    return PlanRequest(
        parse_hardware(given["hardware"], parts),
        _number("price_per_hour", given["price_per_hour"]),
        _number("mean_padded_length", given["mean_padded_length"]),
    )


def _number(name: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise ValueError(f"{name}={text} must be a number; change --{name.replace('_', '-')}") from None


def planned(configs: Sequence[Any], request: PlanRequest) -> str:
    """The plans of runs that follow each other, and their sum."""
    mean, price = request.mean_padded_length, request.price_per_hour
    plans, texts = [], []
    for config in configs:
        length = min(mean, config.data.max_seq_length) if mean and len(configs) > 1 else mean
        plans.append(make_plan(config, request.hardware, price_per_hour=price, mean_padded_length=length))
        texts.append(plan_report(plans[-1], f"{config.stage()} of {config.run.bert_model}"))
    seconds = [time for plan in plans if (time := plan.seconds()) is not None]
    if len(seconds) == len(plans) > 1:
        cost = "" if price is None else f", {sum(plan.cost() or 0.0 for plan in plans):,.2f}"
        fused = [plan.fused_seconds() or plan.seconds() or 0.0 for plan in plans]
        faster = "" if fused == seconds else f"; {duration(sum(fused))} with the kernels that are auto"
        texts.append(f"{'together':<11}{duration(sum(seconds))}{cost}{faster}")
    return "\n\n".join(texts)


PLAN = Inquiry(add_plan_flags, take_plan_request, planned)
