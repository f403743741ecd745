"""`--text FOLDER --plan --hardware 8xA100-80GB`: plans the training on another machine, with time and cost.

Nothing is started or written: text and speed of the machine are read and computed, or assumed with --words.
"""

from bert.help_parser import wrapped
from bert.own_text import constants
from bert.own_text.candidates import list_candidates
from bert.own_text.decisions import Speeds
from bert.own_text.facts import MachineFacts
from bert.own_text.plan import TextPlan
from bert.own_text.plan_table import make_plan, table
from bert.own_text.request import TextRequest
from bert.own_text.rules import decide, expected_batches
from bert.own_text.speed import speeds_on
from bert.own_text.start import read_text
from bert.planning.hardware import Hardware, parse_hardware
from bert.planning.hardware_parts import PARTS_FILE, load_parts
from bert.planning.plan_inquiry import PlanFlags
from bert.reporting.progress import duration

_LEAST_COMPARED_WIDTH = 768
_PASSES = 2  # over the speeds, which depend on the batch, which depends on the speeds


def hardware_plan(request: TextRequest) -> str:
    """The plan as text; ValueError for hardware that is not a single machine of the table."""
    flags = request.elsewhere
    assert flags is not None
    hardware = parse_hardware(flags.hardware, load_parts(flags.parts or PARTS_FILE))
    if hardware.num_nodes > 1:
        one = f"{hardware.devices_per_node}x{hardware.name}"
        raise ValueError(
            f"hardware={flags.hardware} has {hardware.num_nodes} nodes, and --text trains on one machine; pass "
            f"--hardware {one}"
        )
    text, machine = read_text(request), machine_of(hardware)
    candidates = list_candidates(text, machine, request)
    speeds = dict.fromkeys((candidate.name for candidate in candidates), 1e3 * hardware.world_size())
    for _ in range(_PASSES):
        batches = expected_batches(candidates, text, machine, request, Speeds(speeds, is_measured=False))
        speeds = speeds_on(candidates, hardware, batches)
    plan = make_plan(decide(text, machine, request, Speeds(speeds, is_measured=False)))
    lines = ["", table(plan, request), "", *_cost(plan, hardware, flags, request.length.hours is not None)]
    lines += [f"warning: {warning}" for warning in plan.warnings]
    return "\n".join(line if "  " in line else wrapped(line) for line in lines)


def machine_of(hardware: Hardware) -> MachineFacts:
    """Facts of a machine that is known by name only; cores and memory are typical values."""
    part, count = hardware.part, hardware.devices_per_node
    if part.device == "cpu":
        return MachineFacts(count, int(count * part.memory_gb * 1e9), 0, is_planned=True)
    cores = constants.CORES_OF_A_GPU * count
    return MachineFacts(
        cores,
        cores * constants.MEMORY_OF_A_CORE,
        0,
        gpus=count,
        gpu_name=hardware.name,
        gpu_bytes=int(part.memory_gb * 1e9),
        is_planned=True,
    )


def _cost(plan: TextPlan, hardware: Hardware, flags: PlanFlags, is_time_given: bool) -> list[str]:
    """Lines about the accuracy of the time, and the cost; with --hours, the number of updates that fit."""
    slow, fast = hardware.part.speed_range
    least, most = plan.seconds / fast, plan.seconds / slow
    share = f"{fast:.0%} to {slow:.0%} of its speed, which was compared with {hardware.part.checked}"
    if is_time_given:
        least = most = plan.seconds
        range_of = f"{slow * plan.updates:,.0f} to {fast * plan.updates:,.0f} updates in them with {share}"
    else:
        range_of = f"{duration(least)} to {duration(most)} with {share}"
    lines = [f"On {hardware.full_name()}: {duration(plan.seconds)}, by the planner's arithmetic; {range_of}."]
    if hardware.part.device == "gpu" and plan.settings["hidden_size"] < _LEAST_COMPARED_WIDTH:
        lines.append("The arithmetic was compared with large models; a model this small is slower than it says.")
    if (price := flags.price_per_hour) is None:
        return [*lines, "With --price-per-hour (of the machine) the plan also says the cost."]
    cost, dear = plan.seconds / 3600 * price, most / 3600 * price
    at_most = "" if is_time_given else f", at most about {dear:,.2f}"
    return [*lines, f"Cost: {cost:,.2f} at {price:g} an hour{at_most}."]
