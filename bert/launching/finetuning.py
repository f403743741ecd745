"""Start a fine-tuning on the ranks of this machine, or of several, so that the same command continues it.

The scripts (scripts/run_squad.sh ...) come here through their tasks, which turn what was typed into settings.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bert.config.base import derive
from bert.config.command_line import EntryPoint, dump_yaml, parse_flags, settings_or_answers, usage_errors
from bert.exit_codes import INTERRUPTED
from bert.files import write_atomically
from bert.finetuning.config import FineTuningConfig
from bert.launching.launcher import ENDED_BY_SIGNAL, MASTER_TIMEOUT_SECONDS, Runner, has_checkpoint
from bert.launching.plan import REPOSITORY, num_gpus
from bert.launching.rendezvous import launcher_addresses, wait_for_master, without_proxy

# What may differ between a run and its continuation.
_FREE_SECTIONS = ("initialization", "hardware")
_FREE_SETTINGS = (
    "do_train",
    "do_eval",
    "do_predict",
    "steps_this_run",
    "log_freq",
    "report_file",
    "benchmark",
    "benchmark_steps",
    "benchmark_warmup_steps",
    "num_steps_per_checkpoint",
    "keep_checkpoints",
    "predict_batch_size",
    "cache_dir",
    "num_workers",
    "rank_check_freq",
    "async_checkpoint",
    "watchdog_seconds",
    "max_consecutive_skipped_steps",
    "loss_spike_factor",
    "loss_spike_action",
)


@dataclass(frozen=True)
class Ranks:
    """Where the processes of a run are: on each of `num_nodes` machines `num_processes` of them."""

    num_processes: int = 1
    num_nodes: int = 1
    node_rank: int | None = None
    master: str | None = None


def add_rank_flags(parser: argparse.ArgumentParser, default_processes: int | None = None) -> None:
    """--num-gpus, --num-nodes, --node-rank, --master, as scripts/run_pretraining.sh has them."""
    add = parser.add_argument
    add(
        "--num-processes",
        "--num-gpus",
        dest="num_processes",
        type=int,
        default=default_processes,
        metavar="N",
        help="processes (GPUs) on each node; without it, one for each GPU, or one",
    )
    add("--num-nodes", type=int, default=1, metavar="N", help="nodes; start the same command on each of them")
    add("--node-rank", type=int, metavar="R", help="number of this node; none: the launcher agrees on one")
    add("--master", metavar="HOST:PORT", help="address of the first node")


def ranks_of(arguments: argparse.Namespace, device: str) -> Ranks:
    """Checked against the machine.

    Raises:
        ValueError: more processes than GPUs, or nodes without an address.
    """
    available = 0 if device == "cpu" else num_gpus()
    wanted = arguments.num_processes or max(1, available)
    if device != "cpu" and wanted > 1 and wanted > available:
        remedy = f"--num-gpus {available}" if available else "--device cpu to start them on the CPU"
        raise ValueError(f"num_gpus={wanted} must be at most the {available} GPUs of this machine; pass {remedy}")
    if arguments.num_nodes > 1 and arguments.master is None:
        raise ValueError(
            f"num_nodes={arguments.num_nodes} needs the address of the first node; pass --master "
            "HOST:PORT on every node"
        )
    return Ranks(wanted, arguments.num_nodes, arguments.node_rank, arguments.master)


def parse(
    entry: EntryPoint, words: Sequence[str], parser: argparse.ArgumentParser, defaults: dict[str, Any] | None = None
) -> tuple[argparse.Namespace, FineTuningConfig]:
    """The launcher's own flags (those of `parser`) and the settings that the others make, over `defaults`.

    Raises:
        ValueError: an unknown flag, or settings that contradict each other.
    """
    own, rest = parser.parse_known_args(words)
    flags = parse_flags(rest, entry, [flag for action in parser._actions for flag in action.option_strings])
    return own, settings_or_answers({**(defaults or {}), **flags}, entry)


def launch(entry: EntryPoint, config: FineTuningConfig, ranks: Ranks) -> int:
    """Run the entry point's script on all ranks, continuing what is there; returns its exit code."""
    with usage_errors():
        config.check_files()
        _refuse_other_run(config)
        started = config
        if has_checkpoint(config.checkpoint_dir()) and config.run.do_train and not config.run.benchmark:
            if not isinstance(config.initialization.last_step_of_checkpoint, int):
                started = derive(
                    config,
                    from_checkpoint=config.checkpoint_dir(),
                    last_step_of_checkpoint="auto",
                    from_pretrained_params=None,
                )
        settings_file = config.stage_dir() / "launch.yaml"
        settings_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(settings_file, dump_yaml(started).encode())  # other nodes read it meanwhile
        if config.run.do_train:
            _asked_file(config).write_text(dump_yaml(config), encoding="utf-8")
        command = _command(entry, config, ranks, settings_file)
    runner = Runner()
    if ranks.num_nodes > 1:
        with usage_errors():
            _meet(command[command.index("--master") + 1], ranks, runner)
    code = runner.run(command, phase=config)
    if code == INTERRUPTED or (runner.stop_requested and code in ENDED_BY_SIGNAL):
        print("stopped; the same command continues from here", file=sys.stderr)
        return INTERRUPTED
    return code


def _meet(master: str, ranks: Ranks, runner: Runner) -> None:
    """Keep Paddle's launcher from a proxy; wait for the first node with an end and a message, unlike its own wait."""
    os.environ.update(without_proxy(os.environ, master))
    if ranks.node_rank:
        wait_for_master(
            master, MASTER_TIMEOUT_SECONDS, lambda line: print(line, flush=True), stopped=lambda: runner.stop_requested
        )


def _command(entry: EntryPoint, config: FineTuningConfig, ranks: Ranks, settings_file: Path) -> list[str]:
    on_cpu = config.hardware.device == "cpu" or num_gpus() == 0
    devices = ",".join(map(str, range(ranks.num_processes)))
    processes = ["--nproc_per_node", str(ranks.num_processes)] if on_cpu else ["--devices", devices]
    log_dir, nodes = config.stage_dir() / "launch", list[str]()
    if ranks.num_nodes > 1:
        master, own_address = launcher_addresses(str(ranks.master))
        nodes = ["--nnodes", str(ranks.num_nodes), "--master", master, "--host", own_address]
        nodes += ["--rank", str(ranks.node_rank)] if ranks.node_rank is not None else []
        log_dir /= own_address if ranks.node_rank is None else f"node{ranks.node_rank}"  # the nodes share the folder
    return [
        sys.executable,
        "-u",
        "-m",
        "paddle.distributed.launch",
        "--log_level",
        "CRITICAL",
        "--log_dir",
        str(log_dir),
        "--job_id",
        config.stage(),
        *nodes,
        *processes,
        str(REPOSITORY / entry.script),
        "--config",
        str(settings_file),
    ]


def _asked_file(config: FineTuningConfig) -> Path:
    return config.run.output_dir / f"{config.stage()}.yaml"


def _refuse_other_run(config: FineTuningConfig) -> None:
    """A run that learns something else must not continue what is in the folder."""
    if not (config.run.do_train and _asked_file(config).exists() and has_checkpoint(config.checkpoint_dir())):
        return
    before = yaml.safe_load(_asked_file(config).read_text(encoding="utf-8")) or {}
    for section, values in config.model_dump(mode="json").items():
        for name, value in values.items():
            if section in _FREE_SECTIONS or name in _FREE_SETTINGS or before.get(name) == value:
                continue
            raise ValueError(
                f"{name}={value} differs from {before.get(name)} of the run in {config.run.output_dir}; "
                "pass another --output-dir, delete that one, or repeat its settings"
            )
