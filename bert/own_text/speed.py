"""Training speed of the candidate models: measured for a second or two each, or estimated from the machine."""

import math
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bert import REPOSITORY
from bert.config.run_file import dump_yaml
from bert.config.setting_sources import resolve_config
from bert.files import read_json, temporary_folder
from bert.interpreter import shell_command
from bert.launching.processes import start_process
from bert.launching.ranks import Ranks, start_of_ranks
from bert.own_text import constants
from bert.own_text.candidates import ModelCandidate, Placement
from bert.own_text.facts import MachineFacts
from bert.planning.estimates import training_flops_per_sequence
from bert.planning.hardware import Hardware
from bert.planning.hardware_parts import load_parts, part_of
from bert.planning.planner import update_time
from bert.pretraining.entry import ENTRY

_PROBE = REPOSITORY / "bert/own_text/speed_probe.py"
_CPU, _UNKNOWN_GPU = "CPU-core", "RTX-3090"  # parts of the planner's table


def estimate_speeds(candidates: Sequence[ModelCandidate], machine: MachineFacts) -> dict[str, float]:
    """Estimated sequences per second of all ranks, for every candidate; runs nothing."""
    parts, speeds = load_parts(), dict[str, float]()
    for candidate in candidates:
        placement = candidate.placement
        name = _CPU if placement.device == "cpu" else part_of(machine.gpu_name) or _UNKNOWN_GPU
        config = resolve_config(probe_settings(candidate, math.inf), ENTRY)
        batch, hardware = config.batch.batch_size, Hardware(name, parts[name], 1, placement.ranks)
        seconds = update_time(config, hardware, batch, 1, candidate.mean_length()).total()
        speeds[candidate.name] = batch * placement.ranks / seconds
    return speeds


def speeds_on(
    candidates: Sequence[ModelCandidate], hardware: Hardware, batches: Mapping[str, float]
) -> dict[str, float]:
    """Estimated sequences per second of all devices, for every candidate with its batch.

    Args:
        hardware: that --plan names.
        batches: sequences of an update, by the names of the candidates.
    """
    speeds = dict[str, float]()
    for candidate in candidates:
        ranks = candidate.placement.ranks
        of_rank = max(1, round(batches[candidate.name] / ranks))
        micro = max(
            size for size in range(1, min(of_rank, candidate.placement.most_sequences) + 1) if of_rank % size == 0
        )
        config = resolve_config(probe_settings(candidate, math.inf), ENTRY)
        used = Hardware(hardware.name, hardware.part, 1, ranks)
        update = update_time(config, used, micro, of_rank // micro, candidate.mean_length())
        speeds[candidate.name] = of_rank * ranks / update.total()
    return speeds


def measure_speeds(
    candidates: Sequence[ModelCandidate], batches: Mapping[str, float]
) -> tuple[dict[str, float], float]:
    """Measure the speeds: start ranks that train each candidate for a moment.

    Args:
        batches: sequences of an update, by the names of the candidates.
    Returns:
        Sequences per second of all ranks, of every candidate that can be measured in time; and the slowness: start-up
        time here divided by an idle machine's.
    """
    configs = {one.name: dump_yaml(resolve_config(probe_settings(one, batches[one.name]), ENTRY)) for one in candidates}
    return _measure(configs, candidates[0].placement)


def probe_settings(candidate: ModelCandidate, batch: float) -> dict[str, Any]:
    """Settings of a speed measurement: one micro-batch in each update.

    It takes about a second, and is at most a rank's part of the batch. A smaller one would look too slow, as the update
    itself takes as long.

    Args:
        batch: sequences of an update, of all ranks.
    """
    placement, length = candidate.placement, candidate.length
    flops = training_flops_per_sequence(candidate.model, length, candidate.predictions())
    if placement.device == "gpu":
        usual = 64
    else:
        usual = 32 if 32 * flops < constants.FLOPS_OF_A_SECOND else 16
    most = int(max(1, min(placement.most_sequences, usual, batch / placement.ranks)))
    dropout = (candidate.rule.dropout or 0.0) if candidate.rule is not None else constants.DROPOUT
    return {
        **candidate.settings(),
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "batch_size": most,
        "global_batch_size": most * placement.ranks,
        "device": placement.device,
        "cpu_threads": placement.threads,
        "phase": 1,
        "max_steps": 1000,
        "input_dir": "none",
        "vocab_file": "none",  # unused
    }


def _slowness(seconds: float, placement: Placement) -> float:
    """Start-up time of the ranks relative to an idle machine: between 1 and MOST_SLOWNESS."""
    usual = constants.FIRST_STEP_SECONDS[placement.device]
    if placement.ranks > 1:
        usual += constants.LAUNCHER_SECONDS[placement.device]
    return min(constants.MOST_SLOWNESS, max(1.0, seconds / usual))


def _measure(configs: Mapping[str, str], placement: Placement) -> tuple[dict[str, float], float]:
    with temporary_folder("speed") as folder:
        files = {name: folder / f"{name}.yaml" for name in configs}
        for name, file in files.items():
            file.write_text(configs[name], encoding="utf-8")
        target = folder / "speeds.json"
        ranks = Ranks(num_processes=placement.ranks)
        devices = ranks.devices(placement.device)
        program, options = [_PROBE, target, *files.values()], ["--log_level", "CRITICAL"]
        command, variables = start_of_ranks(ranks, placement.device, devices, folder / "log", program, options)
        variables["PYTHONSAFEPATH"] = "1"  # the folder of the probe has modules of common names
        begun = time.time()
        process = start_process(command, variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output, _ = process.communicate()
        measured = read_json(target)
        speeds = measured.get("speeds")
        if not speeds and time.time() - begun > constants.PROBE_TIMEOUT_SECONDS:
            raise ValueError(
                f"the model {next(iter(configs))} is too slow here to be measured in "
                f"{constants.PROBE_TIMEOUT_SECONDS} s; pass a smaller --config"
            )
        if not speeds:
            last = (output.strip().splitlines() or ["it wrote nothing"])[-1]
            raise ValueError(
                f"measuring the speed of this machine ended with exit code {process.returncode}: {last}; "
                f"`{shell_command('bert.doctor')}` examines the machine"
            )
        slowness = _slowness(measured["began"] - begun, placement)
        return {name: speeds[str(file)] for name, file in files.items() if str(file) in speeds}, slowness
