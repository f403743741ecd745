"""What any training run is put together from: device, program, weights, checkpoints."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping

import numpy as np

from bert.checkpoints import files as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.state import Progress
from bert.checkpoints.writer import CheckpointWriter
from bert.config.base import TrainingConfig
from bert.model.objectives import Objective
from bert.model.optimization import Schedule, load_schedule
from bert.reporting.logs import RunLog
from bert.runtime.distributed import Collective, Group, initialize
from bert.runtime.hardware import peak_tflops, use_cores
from bert.runtime.paddle_api import default_device, place_of, static
from bert.training.interruption import StopRequest
from bert.training.trainer import Device, Outcome
from bert.training.watchdog import Watchdog
from program import TrainingProgram, build_training_program

MASTER_WEIGHTS_ON_GPU = "float16 parameters (--use-pure-fp16) need a GPU: Paddle has no CPU kernels for them"


def choose_device(config: TrainingConfig) -> str:
    """`cpu` or `gpu`; ValueError when what is asked for is not here."""
    device = default_device() if config.hardware.device == "auto" else config.hardware.device
    if device == "gpu" and default_device() != "gpu":
        raise ValueError(
            "device=gpu needs paddlepaddle-gpu and a visible CUDA card, found none; install "
            "requirements-gpu.txt, check CUDA_VISIBLE_DEVICES, or pass --device cpu"
        )
    if device == "cpu" and config.precision.use_pure_fp16:
        raise ValueError(f"use_pure_fp16=true on device=cpu: {MASTER_WEIGHTS_ON_GPU}; drop --use-pure-fp16")
    return device


def precision_notice(config: TrainingConfig, device: str) -> str | None:
    """What a user of mixed precision on CPU should know."""
    if not config.precision.amp or device == "gpu":
        return None
    return (
        f"mixed precision on CPU: Paddle has no {config.precision.amp_dtype} kernels there: arithmetic stays "
        "float32; loss scaling and its checks run as on a GPU"
    )


def build(config: TrainingConfig, objective: Objective, group: Group) -> tuple[TrainingProgram, Device]:
    """Build the training program and initialise its variables, the same on every rank."""
    objective = dataclasses.replace(objective, kernels=config.hardware.kernels(group.device))
    program = build_training_program(
        objective,
        config.optimizer,
        config.precision,
        group,
        gradient_accumulation_steps=config.batch.gradient_accumulation_steps(group.world_size),
        num_scheduled_steps=config.run.max_steps,
        seed=config.run.seed + 1,  # 0 would mean "a new seed each time" to Paddle
    )
    device = open_device(config, group)
    place, scope = device.place, device.scope
    device.executor.run(program.startup)
    optimizer = config.optimizer
    schedule = Schedule(
        optimizer.learning_rate,
        config.warmup_steps(),
        config.run.max_steps,
        optimizer.lr_decay_power,
        optimizer.warmup_start_lr,
        optimizer.end_learning_rate,
    )
    load_schedule(scope, schedule, place)
    if program.amp_optimizer is not None:
        program.amp_optimizer.amp_init(place, scope=scope)
    return program, device


def open_device(config: TrainingConfig, group: Group) -> Device:
    """An executor on this rank's device and the scope its programs share."""
    place = place_of(group.device)
    executor = static.Executor(place)
    peak = config.hardware.peak_tflops or peak_tflops(executor, group.device, _arithmetic(config))[0]
    return Device(executor, static.global_scope(), place, group, Collective(group, executor), peak)


def last_step(config: TrainingConfig, step: int) -> int:
    """The step at which a run that stands at `step` ends, as the settings limit it."""
    run = config.run
    if run.benchmark:
        return step + run.benchmark_warmup_steps + run.benchmark_steps
    return min(run.max_steps, step + run.steps_this_run) if run.steps_this_run else run.max_steps


def summary_of(config: TrainingConfig, outcome: Outcome, device: Device, program: TrainingProgram) -> dict:
    """The figures of a training by the names its users know; throughputs are of all ranks and leave saves out."""
    seconds = max(outcome.raw_train_seconds, 1e-9)
    metrics = outcome.final_metrics
    return {
        "steps": outcome.step,
        "finished": outcome.finished and not config.run.benchmark,
        "interrupted_by": outcome.interrupted_by,
        "e2e_train_time": outcome.total_seconds,
        "raw_train_time": outcome.raw_train_seconds,
        "training_sequences_per_second": outcome.sequences / seconds if outcome.sequences else None,
        "tokens_per_second": outcome.tokens / seconds if outcome.sequences else None,
        "final_loss": metrics.get("loss"),
        "skipped_steps": metrics.get("skipped_steps"),
        "mfu": outcome.mfu,
        "peak_tflops_per_rank": device.peak_tflops,
        "parameters": config.model.num_parameters(),
        "parameter_tensors": len(program.parameters),
        "world_size": device.group.world_size,
        **{name: value for name, value in metrics.items() if name.startswith("eval_")},
    }


def start_of_run(config: TrainingConfig, data_fingerprint: str, group: Group) -> Progress:
    """The progress of a run that has not made a step; what a checkpoint must agree with to be continued."""
    return Progress(
        stage=config.stage(),
        step=0,
        epoch=0,
        seed=config.run.seed,
        global_batch_size=config.batch.resolved_global_batch_size(group.world_size),
        data_fingerprint=data_fingerprint,
        counters={},
        loss_scale=None,
        loss_scale_counters={},
        settings=json.loads(config.model_dump_json()),
    )


@dataclasses.dataclass(frozen=True)
class Keeper:
    """Writes a run's checkpoints and brings them back.

    `texts` are further files of each checkpoint, by name: what a fine-tuned model needs to be used.
    """

    config: TrainingConfig
    program: TrainingProgram
    device: Device
    start: Progress
    say: Callable[[str], None]
    writer: CheckpointWriter
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    _before: list = dataclasses.field(default_factory=list)  # the arrays of the last save, for the next one

    def save(self, step: int, epoch: int, carried: dict) -> None:
        """Rank 0 copies the state and writes it, in the background if the writer does; the others go on.

        Raises:
            SaveFailed
        """
        if self.device.group.is_main:
            self.writer.save(step, lambda: self._capture(step, epoch, carried))

    def _capture(self, step: int, epoch: int, carried: dict) -> Callable[[], None]:
        # The writer has finished with the arrays of the save before: one save is in flight at most.
        state = checkpoint.capture(self.device.scope, checkpoint.variables_of(self.program), *self._before)
        self._before[:] = [state[:2]]
        progress = dataclasses.replace(self.start, step=step, epoch=epoch, carried=carried, **state[2])
        return lambda: self._write(state[0], state[1], progress)

    def _write(self, parameters: dict, optimizer: dict, progress: Progress) -> None:
        config, parent = self.config, self.config.checkpoint_dir()
        for path in checkpoint_files.set_aside_newer(parent, progress.step):
            self.say(f"this run went back; a newer checkpoint of the one it left is now {path}")
        directory = checkpoint.save(
            parent,
            config.run.model_prefix,
            parameters,
            optimizer,
            progress,
            config.model.to_json(),
            config.vocabulary_file(),
            self.texts,
        )
        checkpoint_files.verify(directory)  # before older ones go
        checkpoint_files.prune(parent, config.run.keep_checkpoints)
        self.say(f"saved {directory}")

    def restore(self, step: int) -> Progress | None:
        """Bring back the newest valid checkpoint up to `step` on every rank; None if there is none."""
        self.writer.finish()
        parent, found = self.config.checkpoint_dir(), 0
        if self.device.group.is_main:
            directory = checkpoint_files.newest_valid(parent, self.say, up_to=step)
            found = int(directory.name) if directory else 0
        found = int(self.device.collective.sum(np.array([found], "int64"))[0])
        if found == 0:
            return None
        parameters, optimizer, progress = checkpoint.load(checkpoint_files.step_directory(parent, found))
        checkpoint.restore(
            self.device.scope, self.device.place, checkpoint.variables_of(self.program), parameters, optimizer, progress
        )
        self.device.collective.sum(np.zeros(1, "int64"))  # all have read it before anything is moved
        if self.device.group.is_main:
            checkpoint_files.set_aside_newer(parent, found)
        return progress


def prepare_to_stop(config: TrainingConfig, group: Group, stop: StopRequest, say: Callable[[str], None]) -> None:
    """From now on a file STOP in the output folder stops the run too; rank 0 looks for it."""
    if group.is_main:
        stop.watch(config.run.output_dir, say)


def watchdog(config: TrainingConfig, group: Group) -> Watchdog:
    """For `with`, around the training: its evaluations are not limited in time."""
    return Watchdog(config.run.watchdog_seconds, config.stage_dir(), group.rank)


def say_to(log: RunLog | None) -> Callable[[str], None]:
    return log.say if log else lambda message: None


def join_ranks(config: TrainingConfig, group: Group, say: Callable[[str], None]) -> int:
    """Settle this process on its cores and meet the other ranks; returns the threads of a rank."""
    allow_tf32(config)
    hardware = config.hardware
    threads = use_cores(hardware.cpu_threads, hardware.enable_cpu_affinity, group.local_rank, group.local_world_size)
    initialize(group)
    if notice := precision_notice(config, group.device):
        say(notice)
    return threads


def allow_tf32(config: TrainingConfig) -> None:
    """float32 means float32 unless TF32 is asked for; cuBLAS would otherwise use it on Ampere. Before CUDA starts."""
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if config.precision.tf32 else "0"


def _arithmetic(config: TrainingConfig) -> str:
    if config.precision.amp:
        return "short"
    return "tf32" if config.precision.tf32 else "float32"
