"""The flags --plan and --hardware, and their answer."""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from bert.config.entry_point import Inquiry
from bert.config.flags import add_flag, flag_name
from bert.config.settings_base import Settings
from bert.planning.hardware import parse_hardware
from bert.planning.hardware_parts import PARTS_FILE, load_parts
from bert.planning.planner import Plan, gigabytes, make_plan, plan_report
from bert.reporting.progress import duration


class PlanFlags(Settings):
    """The flags that go with --plan."""

    hardware: str = Field(
        description="with --plan: [NODES x GPUS x] PART, such as 8xA100-80GB or 4x8xA100-80GB, of the parts in "
        "bert/planning/hardware_parts.yaml"
    )
    price_per_hour: float | None = Field(None, ge=0, description="with --plan: price of one node")
    mean_padded_length: float | None = Field(
        None,
        ge=1,
        description="with --plan: mean length in tokens of a padded sequence, where samples are shorter than "
        "--max-seq-length",
    )
    parts: Path | None = Field(None, description="with --plan: another table than bert/planning/hardware_parts.yaml")


PLAN_FLAGS = ("plan", *PlanFlags.model_fields)


def _add_plan_flags(group: Any) -> None:
    group.add_argument("--plan", action="store_true", help="print memory, time and cost on --hardware, and stop")
    for name, field in PlanFlags.model_fields.items():
        add_flag(group, name, field)


def take_plan_flags(flags: MutableMapping[str, Any]) -> PlanFlags | None:
    """Remove the planner's flags from a command line's flags; None without --plan."""
    planning = flags.pop("plan", False)
    values = {name: flags.pop(name) for name in PlanFlags.model_fields if name in flags}
    if planning and "hardware" not in values:
        raise ValueError(
            f"--plan needs --hardware, such as --hardware 8xA100-80GB; the parts are {', '.join(load_parts())}"
        )
    for name, value in values.items() if not planning else ():
        raise ValueError(f"{flag_name(name)}={value} is for --plan; add --plan, or drop it")
    return PlanFlags(**values) if planning else None


def plan_inquiry(
    settings_of: Callable[[Any, int], Any], rows_of: Callable[[Any, int], Mapping[str, str]] = lambda *_: {}
) -> Inquiry:
    """The inquiry --plan. settings_of gives the settings for a number of devices, rows_of more rows."""

    def answer(flags: PlanFlags, configs: Sequence[Any], _: int) -> str:
        """The plans of consecutive runs, and their sum."""
        hardware = parse_hardware(flags.hardware, load_parts(flags.parts or PARTS_FILE))
        mean, price, plans, texts = flags.mean_padded_length, flags.price_per_hour, list[Plan](), list[str]()
        for config in (settings_of(config, hardware.world_size()) for config in configs):
            length = min(mean, config.data.max_seq_length) if mean and len(configs) > 1 else mean
            plans.append(make_plan(config, hardware, price_per_hour=price, mean_padded_length=length))
            rows = rows_of(config, hardware.world_size())
            texts.append(plan_report(plans[-1], f"{config.display_name()} of {config.run.bert_model}", rows))
        seconds = [time for plan in plans if (time := plan.seconds()) is not None]
        if len(seconds) == len(plans) > 1:
            disk = f", {gigabytes(sum(plan.disk_bytes for plan in plans))} of checkpoints at most"
            cost = "" if price is None else f", {sum(plan.cost() or 0.0 for plan in plans):,.2f}"
            texts.append(f"{'together':<11}{duration(sum(seconds))}{cost}{disk}")
        return "\n\n".join(texts)

    return Inquiry(_add_plan_flags, take_plan_flags, answer, title="plan")
