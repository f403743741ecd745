"""Compares the planner with NVIDIA's published throughputs of BERT-large.

    python -m tests.benchmarks.planner_check                # the summary of the README
    python -m tests.benchmarks.planner_check --rows         # every row
    python -m tests.benchmarks.planner_check --cross-check  # each table as planned by constants fitted on the others

Six constants of hardware_parts.yaml were fitted, each on one row of FITTED; every other row is a prediction.
"""

import dataclasses
import functools
import math
import statistics
from collections.abc import Sequence

from scipy.optimize import least_squares

from bert.config.training_settings import derive
from bert.help_parser import HelpParser
from bert.planning.hardware import Hardware, parse_hardware
from bert.planning.hardware_parts import HardwarePart, load_parts
from bert.planning.planner import update_time
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.recipes import RECIPES
from tests.benchmarks import published_throughput as published
from tests.benchmarks.processes import markdown
from tests.benchmarks.published_throughput import TABLES, Table, Task

GOAL = 0.10
PARTS = load_parts()
BINS = tuple(
    range(64, 513, 64)
)  # phase 2 in bins: as many sequences in each, padded to its end (256 tokens are not padding)


@dataclasses.dataclass(frozen=True)
class Row:
    """One published figure, sequences/s over all devices."""

    table: Table
    task: Task
    devices: int
    sequences_per_second: float

    def planned(self, part: HardwarePart | None = None) -> float:
        """Return the planner's sequences/s, with the constants of `part` if it is given."""
        nodes, per_node = max(1, self.devices // 8), min(self.devices, 8)
        hardware = parse_hardware(f"{nodes}x{per_node}x{self.table.part}", PARTS)
        hardware = dataclasses.replace(hardware, part=part) if part else hardware
        return _sequences_per_second(self.table, self.task, hardware)

    def error(self, part: HardwarePart | None = None) -> float:
        """Return (planned - published) / published."""
        return self.planned(part) / self.sequences_per_second - 1

    def name(self) -> str:
        table = self.table
        return f"{table.name}, {table.precision}, {self.task}, {self.devices} x {table.part}"


ROWS = tuple(Row(table, task, devices, value) for table in TABLES for (task, devices), value in table.figures().items())


def _row(table: Table, task: Task, devices: int) -> Row:
    return Row(table, task, devices, table.figures()[task, devices])


FITTED: dict[str, Row] = {  # constant -> the row it was fitted on
    "gemm": _row(published.PADDLE_ATTENTION, "phase 1", 8),
    "bandwidth": _row(published.PADDLE_PLAIN, "phase 1", 8),
    "attention": _row(published.PADDLE_ATTENTION, "phase 2", 8),
    "gemm_float32": _row(published.PADDLE_TF32, "phase 1", 8),
    "update_overhead_ms": _row(published.PADDLE_ATTENTION, "SQuAD", 1),
    "node_exponent": _row(published.PADDLE_TF32, "phase 1", 256),
}
_NOT_SHARES = ("update_overhead_ms", "node_exponent")  # of the part itself; the others are of its efficiency


def _sequences_per_second(table: Table, task: Task, hardware: Hardware) -> float:
    config, batch_size, micro_steps = _workload(table, task, hardware.world_size())
    lengths = BINS if task == "phase 2" and table.binned else (config.data.max_seq_length,)
    kind = table.kind(task)
    updates = [update_time(config, hardware, batch_size, micro_steps, length, kind) for length in lengths]
    return batch_size * micro_steps * hardware.world_size() / statistics.mean(update.total() for update in updates)


@functools.cache
def _settings(task: Task, precision: str) -> PretrainingConfig:
    config = RECIPES["phase1_large" if task == "phase 1" else "phase2_large"]()
    if task == "SQuAD":  # AdamW, sequences of 384, no masked-LM head
        config = derive(config, optimizer="AdamW", max_seq_length=384, max_predictions_per_seq=1)
    return config if precision == "AMP" else derive(config, amp=False, tf32=precision == "TF32")


def _workload(table: Table, task: Task, devices: int) -> tuple[PretrainingConfig, int, int]:
    """Return (settings, sequences of a micro-batch, micro-steps of an update)."""
    config = _settings(task, table.precision)
    if task == "SQuAD":
        return config, table.batch_sizes[2], 1
    phase = 0 if task == "phase 1" else 1
    share = table.per_device[phase] * min(1.0, 8 / devices)  # strong scaling from 8 devices on
    return config, table.batch_sizes[phase], round(share / table.batch_sizes[phase])


def gain_of_bins() -> float:
    """Return the throughput of phase 2 with bins over that without them, in PyTorch on 8 GPUs."""
    hardware = parse_hardware("8xA100-80GB", PARTS)
    tables = published.PYTORCH, dataclasses.replace(published.PYTORCH, binned=False)
    binned, unbinned = (_sequences_per_second(table, "phase 2", hardware) for table in tables)
    return binned / unbinned


def hours_on_32_nodes(table: Table) -> float:
    """Return the hours of both phases of the published recipe on 256 GPUs, without start and checkpoints."""
    hardware = parse_hardware(f"32x8x{table.part}", PARTS)
    tasks: tuple[tuple[Task, int, int], ...] = (("phase 1", 7_038, 65_536), ("phase 2", 1_563, 32_768))
    return sum(n * batch / _sequences_per_second(table, task, hardware) for task, n, batch in tasks) / 3600


def _with(part: HardwarePart, constants: dict[str, float]) -> HardwarePart:
    """Return the part with these of its constants changed."""
    top = {name: value for name, value in constants.items() if name in _NOT_SHARES}
    shares = {name: value for name, value in constants.items() if name not in top}
    return part.model_copy(update={**top, "efficiency": part.efficiency.model_copy(update=shares)})


def fit(rows: Sequence[Row], part: HardwarePart) -> HardwarePart:
    """Return the part with the constants of FITTED that minimise the squares of log(planned / published) over `rows`.

    A constant that no row depends on stays as it is.
    """
    start = {name: getattr(part if name in _NOT_SHARES else part.efficiency, name) for name in FITTED}

    def errors(factors: dict[str, float]) -> list[float]:
        changed = _with(part, {name: start[name] * factor for name, factor in factors.items()})
        return [math.log(1 + row.error(changed)) for row in rows]

    names = [name for name in FITTED if errors({name: 1.01}) != errors({})]
    found = least_squares(
        lambda factors: errors(dict(zip(names, factors, strict=True))),
        [1.0] * len(names),
        bounds=(0.2, 5.0),
        diff_step=1e-3,
    ).x
    return _with(part, {name: start[name] * factor for name, factor in zip(names, found, strict=True)})


def summary() -> str:
    """Return a line of Markdown for each table's tasks: how many rows are within the goal, and the worst row."""
    lines: list[tuple] = []
    for table in TABLES:
        for task in ("phase 1", "phase 2", "SQuAD"):
            rows = [row for row in ROWS if row.table is table and row.task == task and row not in FITTED.values()]
            if rows:
                devices = f"{rows[0].devices}" + (f" to {rows[-1].devices}" if len(rows) > 1 else "")
                errors = [row.error() for row in rows]
                lines.append((table.name, table.precision, table.part, task, devices, *_spread(errors)))
    head = ("program", "precision", "part", "task", "devices", "rows within 10%", "off by, median and worst")
    figures: list[tuple] = []
    for table, hours in published.HOURS_ON_32_NODES:
        name = f"{table.name}, {table.precision}: both phases on 32 x 8 A100"
        figures.append((name, f"{hours} h", f"{hours_on_32_nodes(table):.2f} h"))
    figures.append(("PyTorch, AMP: gain of bins of 64 in phase 2", published.GAIN_OF_BINS, f"{gain_of_bins():.2f}"))
    return f"{markdown(head, lines)}\n\n{markdown(('figure', 'published', 'planned'), figures)}"


def all_rows() -> str:
    """Every row as Markdown."""
    lines = []
    for row in ROWS:
        constant = next((name for name, fitted in FITTED.items() if fitted == row), None)
        workload = (row.table.name, row.table.precision, row.task, f"{row.devices} x {row.table.part}")
        figures = (f"{row.sequences_per_second:,.0f}", f"{row.planned():,.0f}", f"{row.error():+.1%}")
        lines.append((*workload, *figures, f"fitted: {constant}" if constant else "predicted"))
    return markdown(("program", "precision", "task", "devices", "published", "planned", "off by", ""), lines)


def cross_check() -> str:
    """Plan each table on the A100 with constants that are fitted on all rows of the other tables."""
    lines = []
    part = PARTS["A100-80GB"]
    tables = [table for table in TABLES if table.part == "A100-80GB" and table is not published.TENSORFLOW]
    for table in tables:
        fitted = fit([row for row in ROWS if row.table in tables and row.table is not table], part)
        errors = [row.error(fitted) for row in ROWS if row.table is table]
        lines.append((f"{table.name}, {table.precision}", *_spread(errors)))
    return markdown(("left out", "rows within 10%", "off by, median and worst"), lines)


def _spread(errors: list[float]) -> tuple[str, str]:
    """Return how many rows are within the goal, and the median and the worst error."""
    within = sum(abs(error) <= GOAL for error in errors)
    return f"{within} of {len(errors)}", f"{statistics.median(map(abs, errors)):.0%}, {max(errors, key=abs):+.0%}"


if __name__ == "__main__":
    parser = HelpParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", action="store_true", help="every row")
    parser.add_argument("--cross-check", action="store_true", help="each table planned by the constants of the others")
    flags = parser.parse_args()
    print(all_rows() if flags.rows else cross_check() if flags.cross_check else summary())
