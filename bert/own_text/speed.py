"""Measures the candidates of a plan for own text: the training's own programs, for a second or two each."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bert import REPOSITORY
from bert.config.command_line import dump_yaml, resolve_config
from bert.files import read_json, write_atomically
from bert.interpreter import repository_environment, shell_command
from bert.launching.process_runner import ranks_of
from bert.launching.settings import Ranks
from bert.own_text import rules
from bert.own_text.candidates import Candidate
from bert.own_text.facts import MachineFacts
from bert.own_text.plan import Speeds, probe_settings
from bert.planning.estimates import training_flops_per_sequence
from bert.pretraining.entry import ENTRY

_PROBE = REPOSITORY / "bert/own_text/speed_probe.py"
_START_SECONDS = "start_seconds"  # of the probe, which is a script that loads Paddle
_TIMEOUT_SECONDS = 600.0  # a GPU's first program may take minutes to load


def measure_speeds(found: Sequence[Candidate], machine: MachineFacts, cache_file: Path | None) -> Speeds:
    """Sequences per second of all ranks, of every candidate in every phase.

    Those of an earlier start are taken from `cache_file`, if it is of the same programs and machine. Models that are
    too slow to measure in seconds are estimated by their arithmetic.
    """
    configs = {
        f"{candidate.name}.phase{phase}": dump_yaml(
            resolve_config({**probe_settings(candidate, phase), "phase": phase, **_UNUSED}, ENTRY)
        )
        for candidate in found
        for phase in candidate.lengths
    }
    key = hashlib.sha256(json.dumps([configs, machine.cores, machine.gpu_name, found[0].ranks]).encode()).hexdigest()
    cached = read_json(cache_file) if cache_file is not None else {}
    if cached.get("key") == key:
        measured = cached["sequences_per_second"]
    else:
        measured = _measure(configs, found[0])
        if cache_file is not None:
            cache_file.parent.mkdir(parents=True, exist_ok=True)
            content = {"key": key, "sequences_per_second": measured, _START_SECONDS: measured.pop(_START_SECONDS, None)}
            write_atomically(cache_file, (json.dumps(content, indent=1) + "\n").encode())
    return _completed(found, measured)


_UNUSED = {"max_steps": 1000, "input_dir": "none", "vocab_file": "none"}


def _measure(configs: Mapping[str, str], candidate: Candidate) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.yaml" for name in configs}
        for name, file in files.items():
            file.write_text(configs[name], encoding="utf-8")
        target = Path(folder) / "speeds.json"
        ranks = Ranks(num_processes=candidate.ranks)
        devices = ranks.devices(candidate.device)
        on = ["--devices", devices] if devices else ["--nproc_per_node", str(candidate.ranks)]
        # The folder of the probe has modules of common names.
        variables = {"PYTHONSAFEPATH": "1", **ranks.environment(candidate.device)}
        launcher = [sys.executable, "-m", "paddle.distributed.launch", "--log_level", "CRITICAL"]
        command = [*launcher, "--log_dir", f"{folder}/log", *on, str(_PROBE), str(target), *map(str, files.values())]
        code, output = _run(command, repository_environment() | variables)
        speeds = read_json(target)
        if not speeds and code is None:
            raise ValueError(
                f"the model {candidate.name} is too slow here to be measured in {_TIMEOUT_SECONDS:.0f} s; pass a "
                "smaller --config"
            )
        if not speeds:
            last = (output.strip().splitlines() or ["it wrote nothing"])[-1]
            raise ValueError(
                f"measuring the speed of this machine ended with exit code {code}: {last}; "
                f"`{shell_command('bert.doctor')}` examines the machine"
            )
        found = {name: speeds[str(file)] for name, file in files.items() if str(file) in speeds}
        return {**found, _START_SECONDS: speeds[_START_SECONDS]}


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Exit code and output of Paddle's launcher; None, and its ranks ended, if it takes longer than the limit."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=_TIMEOUT_SECONDS)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            ranks = ranks_of(process)
            process.kill()
            process.wait()
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(rank, signal.SIGKILL)
            return None, ""


def expected_start(cache_file: Path) -> float:
    """Seconds that the ranks of a phase take to start and to end on this machine as it is now, updates excluded."""
    measured = read_json(cache_file).get(_START_SECONDS)
    return rules.START_SECONDS if measured is None else max(rules.LEAST_START_SECONDS, rules.START_COST * measured)


def _completed(found: Sequence[Candidate], measured: Mapping[str, float]) -> Speeds:
    """The measured speeds, and those of the models that were too slow, by the arithmetic of the last one measured."""
    speeds: dict[tuple[str, int], float] = {}
    last = 0.0  # FLOP/s
    for candidate in found:
        for phase, length in candidate.lengths.items():
            flops = training_flops_per_sequence(candidate.model, length, candidate.predictions(phase))
            speed = measured.get(f"{candidate.name}.phase{phase}")
            if speed is None:
                speed = last / flops
            last = speed * flops
            speeds[candidate.name, phase] = speed
    return speeds
