"""What any training run is put together from: device, program, weights, checkpoints."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from bert import checkpoint, checkpoint_files
from bert.architecture import BertConfig
from bert.checkpoint import CheckpointError, Progress
from bert.checkpoint_sources import read_pretrained
from bert.config import TrainingConfig
from bert.distributed import Collective, Group
from bert.framework import default_device, place_of, static
from bert.hardware import peak_tflops
from bert.logs import RunLog
from bert.objectives import Objective
from bert.optimization import Schedule, load_schedule
from bert.training import Device
from program import TrainingProgram, build_training_program

MASTER_WEIGHTS_ON_GPU = "float16 parameters (--use-pure-fp16) need a GPU: Paddle has no CPU kernels for them"


def choose_device(config: TrainingConfig) -> str:
    """`cpu` or `gpu`; ValueError when what is asked for is not here."""
    device = default_device() if config.hardware.device == "auto" else config.hardware.device
    if device == "gpu" and default_device() != "gpu":
        raise ValueError("device=gpu needs paddlepaddle-gpu and a visible CUDA card, found none; install "
                         "requirements-gpu.txt, check CUDA_VISIBLE_DEVICES, or pass --device cpu")  # fmt: skip
    if device == "cpu" and config.precision.use_pure_fp16:
        raise ValueError(f"use_pure_fp16=true on device=cpu: {MASTER_WEIGHTS_ON_GPU}; drop --use-pure-fp16")
    return device


def precision_notice(config: TrainingConfig, device: str) -> str | None:
    """What a user of mixed precision on CPU should know."""
    if not config.precision.amp or device == "gpu":
        return None
    return (f"mixed precision on CPU: Paddle has no {config.precision.amp_dtype} kernels there: arithmetic stays "
            "float32; loss scaling and its checks run as on a GPU")  # fmt: skip


def build(config: TrainingConfig, objective: Objective, group: Group) -> tuple[TrainingProgram, Device]:
    """Build the training program and initialise its variables, the same on every rank."""
    program = build_training_program(
        objective,
        config.optimizer,
        config.precision,
        group,
        gradient_accumulation_steps=config.batch.gradient_accumulation_steps(group.world_size),
        num_scheduled_steps=config.run.max_steps,
        seed=config.run.seed + 1,  # 0 would mean "a new seed each time" to Paddle
    )
    place, scope = place_of(group.device), static.global_scope()
    executor = static.Executor(place)
    executor.run(program.startup)
    optimizer = config.optimizer
    schedule = Schedule(optimizer.learning_rate, config.warmup_steps(), config.run.max_steps,
                        optimizer.lr_decay_power, optimizer.warmup_start_lr, optimizer.end_learning_rate)  # fmt: skip
    load_schedule(scope, schedule, place)
    if program.amp_optimizer is not None:
        program.amp_optimizer.amp_init(place, scope=scope)
    peak = config.hardware.peak_tflops or peak_tflops(executor, group.device, _arithmetic(config))[0]
    return program, Device(executor, scope, place, group, Collective(group, executor), peak)


def initialize_weights(config: TrainingConfig, program: TrainingProgram, device: Device, progress: Progress,
                       say: Callable[[str], None]) -> Progress:  # fmt: skip
    """Continue a checkpoint, or start from given or random weights; returns where the run stands.

    Every rank reads the same files, so all start from the same bytes (and `Trainer.check_ranks` compares them).

    Raises:
        CheckpointError: what was asked for is missing, damaged, or does not fit, with all differences.
    """
    settings, variables = config.initialization, checkpoint.variables_of(program)
    if settings.from_checkpoint:
        directory = _checkpoint_to_continue(config, say)
        if directory is not None:
            parameters, optimizer, found = checkpoint.load(directory)
            checkpoint.check_continues(found, progress)
            checkpoint.restore(device.scope, device.place, variables, parameters, optimizer, found)
            for line in _changed_settings(found.settings, progress.settings):
                say(f"changed since the checkpoint: {line}")
            say(f"continuing {directory} at step {found.step}")
            return found
        say(f"no checkpoint of {config.stage()} in {settings.from_checkpoint} yet")
    if (steps := checkpoint_files.list_steps(config.checkpoint_dir())) and not config.run.benchmark:
        raise CheckpointError(
            f"{config.checkpoint_dir()} holds steps {steps} of an earlier run; continue it with --from-checkpoint "
            f"{config.run.output_dir} --last-step-of-checkpoint auto, or start afresh in another --output-dir"
        )
    if source := settings.initial_weights():
        path = Path(source)
        if is_strict := getattr(settings, "from_phase1_final_params", None) is not None:
            path = newest(path, config, "phase1", say) or path
        parameters = checkpoint.load_parameters(path) if is_strict else pretrained_parameters(path, config.model, say)
        checkpoint.initialize_from(device.scope, device.place, variables, parameters, path, say,
                                   heads_may_differ=not is_strict)  # fmt: skip
        if program.amp_optimizer is not None:
            program.amp_optimizer.amp_init(device.place, scope=device.scope, rewrite_master_weight=True)
        say(f"starting from the weights of {path}")
    return progress


def pretrained_parameters(path: Path, model: BertConfig, say: Callable[[str], None]) -> Mapping[str, np.ndarray]:
    """Weights of any known format for `model`; what was left out or filled in is said.

    Raises:
        CheckpointError: unreadable, or made for a network whose shapes are the same and whose outputs are not.
    """
    pretrained = read_pretrained(path)
    for line in pretrained.notes:
        if not line.startswith("not there: "):  # said tensor by tensor when the weights are put in place
            say(f"{path}: {line}")
    if pretrained.config is not None:
        there, here = pretrained.config.num_attention_heads, model.num_attention_heads
        if there != here:
            raise CheckpointError(f"{path} was trained with {there} attention heads, this run has num_attention_heads="
                                  f"{here}; give the run the model's own sizes: --config-file")
        for name in ("hidden_act", "layer_norm_eps"):
            if getattr(pretrained.config, name) != getattr(model, name):
                say(f"{path}: {name} was {getattr(pretrained.config, name)} there, is {getattr(model, name)} here")
    return pretrained.parameters


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


def saver(config: TrainingConfig, program: TrainingProgram, device: Device, start: Progress,
          say: Callable[[str], None],
          texts: Mapping[str, str] | None = None) -> Callable[[int, int], None]:  # fmt: skip
    """`save(step, epoch)`: rank 0 writes the checkpoint and prunes old ones; the others go on.

    `texts` are further files of each checkpoint, by name: what a fine-tuned model needs to be used.
    """

    def save(step: int, epoch: int) -> None:
        if not device.group.is_main:
            return
        parameters, optimizer, scalars = checkpoint.capture(device.scope, checkpoint.variables_of(program))
        progress = dataclasses.replace(start, step=step, epoch=epoch, **scalars)
        parent = config.checkpoint_dir()
        for path in checkpoint_files.set_aside_newer(parent, step):
            say(f"this run went back; a newer checkpoint of the one it left is now {path}")
        directory = checkpoint.save(parent, config.run.model_prefix, parameters, optimizer, progress,
                                    config.model.to_json(), config.vocabulary_file(), texts or {})  # fmt: skip
        checkpoint_files.verify(directory)  # before older ones go
        checkpoint_files.prune(parent, config.run.keep_checkpoints)
        say(f"saved {directory}")

    return save


def say_to(log: RunLog | None) -> Callable[[str], None]:
    return log.say if log else lambda message: None


def allow_tf32(config: TrainingConfig) -> None:
    """float32 means float32 unless TF32 is asked for; cuBLAS would otherwise use it on Ampere. Before CUDA starts."""
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if config.precision.tf32 else "0"


def _arithmetic(config: TrainingConfig) -> str:
    if config.precision.amp:
        return "short"
    return "tf32" if config.precision.tf32 else "float32"


def _checkpoint_to_continue(config: TrainingConfig, say: Callable[[str], None]) -> Path | None:
    """The step directory named by --from-checkpoint; None only with `auto` and nothing there yet."""
    assert config.initialization.from_checkpoint is not None
    source, step = config.initialization.from_checkpoint, config.initialization.last_step_of_checkpoint
    if isinstance(step, int):
        return _existing_step(source, config, step)
    if (source / checkpoint_files.MANIFEST).exists():
        return source
    found = newest(source, config, config.stage(), say)
    if found is None and (step != "auto" or not _is_own(source, config)):
        raise CheckpointError(
            f"from_checkpoint={source} holds no valid checkpoint of {config.stage()}; check the folder, or "
            f"pass --from-checkpoint {config.run.output_dir} --last-step-of-checkpoint auto, which starts afresh when "
            "the run has none yet"
        )
    if found is None and any(checkpoint_files.list_steps(p) for p in _parents(source, config, config.stage())):
        raise CheckpointError(
            f"from_checkpoint={source} holds checkpoints of {config.stage()}, none of them valid; nothing was "
            "overwritten: move the folder away to start afresh"
        )
    return found


def _is_own(source: Path, config: TrainingConfig) -> bool:
    """Whether a folder is where this run itself saves: only there may `auto` find nothing."""
    return source.resolve() in {parent.resolve() for parent in (config.run.output_dir, config.checkpoint_dir(),
                                                                config.checkpoint_dir().parent)}


def _existing_step(source: Path, config: TrainingConfig, step: int) -> Path:
    for parent in _parents(source, config, config.stage()):
        if (directory := checkpoint_files.step_directory(parent, step)).is_dir():
            return directory
    present = [s for p in _parents(source, config, config.stage()) for s in checkpoint_files.list_steps(p)]
    raise CheckpointError(f"last_step_of_checkpoint={step} is not in {source}, which holds {present or 'no steps'}; "
                          "name one of them, or auto")  # fmt: skip


def newest(source: Path, config: TrainingConfig, stage: str, say: Callable[[str], None]) -> Path | None:
    """The newest valid checkpoint of a stage at or below `source`; None without any."""
    for parent in _parents(source, config, stage):
        if checkpoint_files.list_steps(parent):
            return checkpoint_files.newest_valid(parent, say)
    return None


def _parents(source: Path, config: TrainingConfig, stage: str) -> list[Path]:
    """Where STEP folders may be: in the folder itself, or in that of the stage below it or below the model's."""
    return [source, source / stage, source / config.run.bert_model / stage]


def _changed_settings(before: dict, now: dict) -> list[str]:
    lines = []
    for section in now:
        if section in ("initialization", "hardware"):
            continue
        old = before.get(section, {})
        for name in sorted(now[section].keys() | old.keys()):
            if old.get(name) != now[section].get(name):
                lines.append(f"{name} {old.get(name)} -> {now[section].get(name)}")
    return lines
