"""A pre-training run put together: settings -> programs, data, weights -> trainer -> summary."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

from bert import checkpoint, checkpoint_files
from bert.checkpoint import CheckpointError, Progress
from bert.config import PretrainingConfig
from bert.distributed import Collective, Group
from bert.framework import default_device, place_of, static
from bert.hardware import peak_tflops
from bert.inference import evaluate_pretraining
from bert.logs import RunLog
from bert.optimization import Schedule, load_schedule
from bert.pretraining_data import LoaderSettings, PretrainingDataset, PretrainingLoader, evaluation_batches
from bert.tokenization import Vocabulary
from bert.training import Device, Outcome
from program import TrainingProgram, build_training_program

MASTER_WEIGHTS_ON_GPU = "float16 parameters (--use-pure-fp16) need a GPU: Paddle has no CPU kernels for them"


def choose_device(config: PretrainingConfig) -> str:
    """`cpu` or `gpu`; ValueError when what is asked for is not here."""
    device = default_device() if config.hardware.device == "auto" else config.hardware.device
    if device == "gpu" and default_device() != "gpu":
        raise ValueError("device=gpu needs paddlepaddle-gpu and a visible CUDA card, found none; install "
                         "requirements-gpu.txt, check CUDA_VISIBLE_DEVICES, or pass --device cpu")  # fmt: skip
    if device == "cpu" and config.precision.use_pure_fp16:
        raise ValueError(f"use_pure_fp16=true on device=cpu: {MASTER_WEIGHTS_ON_GPU}; drop --use-pure-fp16")
    return device


def precision_notice(config: PretrainingConfig, device: str) -> str | None:
    """What a user of mixed precision on CPU should know."""
    if not config.precision.amp or device == "gpu":
        return None
    return (f"mixed precision on CPU: Paddle has no {config.precision.amp_dtype} kernels there: arithmetic stays "
            "float32; loss scaling and its checks run as on a GPU")  # fmt: skip


def loader_settings(config: PretrainingConfig) -> LoaderSettings:
    data = config.data
    return LoaderSettings(
        max_seq_length=data.max_seq_length,
        max_predictions_per_seq=data.max_predictions_per_seq,
        masking=data.masking,
        whole_word_masking=data.whole_word_masking,
        masked_lm_ratio=data.masked_lm_ratio,
        seed=config.run.seed,
        sequence_length_multiple=data.sequence_length_multiple,
        num_workers=data.num_workers,
        group_by_length=data.group_by_length,
    )


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """Checked shards and this rank's loader."""

    vocabulary: Vocabulary
    train: PretrainingDataset
    loader: PretrainingLoader
    held_out: PretrainingDataset | None


def open_data(config: PretrainingConfig, group: Group) -> PretrainingData:
    """Open and check all shards: every ValueError about data comes from here, before any program is built."""
    vocabulary = Vocabulary.from_file(config.data.vocab_file)
    vocabulary.check_model_size(config.model.vocab_size)
    settings = loader_settings(config)
    train = PretrainingDataset(config.data.input_dir, vocabulary, settings)
    held_out = PretrainingDataset(config.data.eval_dir, vocabulary, settings) if config.data.eval_dir else None
    loader = PretrainingLoader(
        train,
        global_batch_size=config.batch.resolved_global_batch_size(group.world_size),
        micro_batch_size=config.batch.batch_size,
        rank=group.rank,
        world_size=group.world_size,
    )
    return PretrainingData(vocabulary, train, loader, held_out)


def build(config: PretrainingConfig, group: Group) -> tuple[TrainingProgram, Device]:
    """Build the training program and initialise its variables, the same on every rank."""
    program = build_training_program(
        config.model,
        config.optimizer,
        config.precision,
        group,
        gradient_accumulation_steps=config.batch.gradient_accumulation_steps(group.world_size),
        num_scheduled_steps=config.run.max_steps,
        fuse_mha=config.hardware.fuse_mha,
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


def initialize_weights(config: PretrainingConfig, program: TrainingProgram, device: Device, progress: Progress,
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
        say(f"no checkpoint of phase {config.run.phase} in {settings.from_checkpoint} yet")
    if (steps := checkpoint_files.list_steps(config.checkpoint_dir())) and not config.run.benchmark:
        raise CheckpointError(
            f"{config.checkpoint_dir()} holds steps {steps} of an earlier run; continue it with --from-checkpoint "
            f"{config.run.output_dir} --last-step-of-checkpoint auto, or start afresh in another --output-dir"
        )
    source = settings.from_phase1_final_params or settings.from_pretrained_params
    if source:
        if settings.from_phase1_final_params:
            source = _newest(Path(source), config, phase=1, say=say) or Path(source)
        parameters = checkpoint.load_parameters(Path(source))
        checkpoint.initialize_from(device.scope, device.place, variables, parameters, Path(source), say,
                                   allow_missing_heads=settings.from_pretrained_params is not None)  # fmt: skip
        if program.amp_optimizer is not None:
            program.amp_optimizer.amp_init(device.place, scope=device.scope, rewrite_master_weight=True)
        say(f"starting from the weights of {source}")
    return progress


def start_of_run(config: PretrainingConfig, data: PretrainingData, group: Group) -> Progress:
    """The progress of a run that has not made a step; what a checkpoint must agree with to be continued."""
    return Progress(
        phase=config.run.phase,
        step=0,
        epoch=0,
        seed=config.run.seed,
        global_batch_size=config.batch.resolved_global_batch_size(group.world_size),
        data_fingerprint=data.train.fingerprint,
        counters={},
        loss_scale=None,
        loss_scale_counters={},
        settings=json.loads(config.model_dump_json()),
    )


def saver(config: PretrainingConfig, program: TrainingProgram, device: Device, start: Progress,
          say: Callable[[str], None]) -> Callable[[int, int], None]:  # fmt: skip
    """`save(step, epoch)`: rank 0 writes the checkpoint and prunes old ones; the others go on."""

    def save(step: int, epoch: int) -> None:
        if not device.group.is_main:
            return
        parameters, optimizer, scalars = checkpoint.capture(device.scope, checkpoint.variables_of(program))
        progress = dataclasses.replace(start, step=step, epoch=epoch, **scalars)
        parent = config.checkpoint_dir()
        for path in checkpoint_files.set_aside_newer(parent, step):
            say(f"this run went back; a newer checkpoint of the one it left is now {path}")
        directory = checkpoint.save(parent, config.run.model_prefix, parameters, optimizer, progress,
                                    config.model.to_json(), config.data.vocab_file)  # fmt: skip
        checkpoint_files.verify(directory)  # before older ones go
        checkpoint_files.prune(parent, config.run.keep_checkpoints)
        say(f"saved {directory}")

    return save


def evaluator(config: PretrainingConfig, evaluation_program, data: PretrainingData,
              device: Device) -> Callable[[], dict[str, float]] | None:  # fmt: skip
    """`evaluate()` on the held-out shards, None without them."""
    held_out = data.held_out
    if held_out is None:
        return None

    def evaluate() -> dict[str, float]:
        batches = evaluation_batches(
            held_out,
            micro_batch_size=config.batch.batch_size,
            rank=device.group.rank,
            world_size=device.group.world_size,
            max_samples=config.run.eval_samples,
        )
        return evaluate_pretraining(device.executor, evaluation_program, batches, device.collective, device.scope)

    return evaluate


def summary(config: PretrainingConfig, outcome: Outcome, device: Device, program: TrainingProgram,
            unigram_entropy: float | None) -> dict:  # fmt: skip
    """The figures of a run by the names its users know; throughputs are of all ranks and leave saves out."""
    seconds = max(outcome.raw_train_seconds, 1e-9)
    metrics = outcome.final_metrics
    return {
        "phase": config.run.phase,
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
        "unigram_entropy": unigram_entropy,
        **{name: value for name, value in metrics.items() if name.startswith("eval_")},
    }


def say_to(log: RunLog | None) -> Callable[[str], None]:
    return log.say if log else lambda message: None


def allow_tf32(config: PretrainingConfig) -> None:
    """float32 means float32 unless TF32 is asked for; cuBLAS would otherwise use it on Ampere. Before CUDA starts."""
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if config.precision.tf32 else "0"


def _arithmetic(config: PretrainingConfig) -> str:
    if config.precision.amp:
        return "short"
    return "tf32" if config.precision.tf32 else "float32"


def _checkpoint_to_continue(config: PretrainingConfig, say: Callable[[str], None]) -> Path | None:
    """The step directory named by --from-checkpoint; None only with `auto` and nothing there yet."""
    assert config.initialization.from_checkpoint is not None
    source, step = config.initialization.from_checkpoint, config.initialization.last_step_of_checkpoint
    if isinstance(step, int):
        return _existing_step(source, config, step)
    if (source / checkpoint_files.MANIFEST).exists():
        return source
    newest = _newest(source, config, config.run.phase, say)
    if newest is None and (step != "auto" or not _is_own(source, config)):
        raise CheckpointError(
            f"from_checkpoint={source} holds no valid checkpoint of phase {config.run.phase}; check the folder, or "
            f"pass --from-checkpoint {config.run.output_dir} --last-step-of-checkpoint auto, which starts afresh when "
            "the run has none yet"
        )
    if newest is None and any(checkpoint_files.list_steps(p) for p in _parents(source, config, config.run.phase)):
        raise CheckpointError(
            f"from_checkpoint={source} holds checkpoints of phase {config.run.phase}, none of them valid; nothing was "
            "overwritten: move the folder away to start afresh"
        )
    return newest


def _is_own(source: Path, config: PretrainingConfig) -> bool:
    """Whether a folder is where this run itself saves: only there may `auto` find nothing."""
    return source.resolve() in {parent.resolve() for parent in (config.run.output_dir, config.checkpoint_dir(),
                                                                config.checkpoint_dir().parent)}


def _existing_step(source: Path, config: PretrainingConfig, step: int) -> Path:
    for parent in _parents(source, config, config.run.phase):
        if (directory := checkpoint_files.step_directory(parent, step)).is_dir():
            return directory
    present = [s for p in _parents(source, config, config.run.phase) for s in checkpoint_files.list_steps(p)]
    raise CheckpointError(f"last_step_of_checkpoint={step} is not in {source}, which holds {present or 'no steps'}; "
                          "name one of them, or auto")  # fmt: skip


def _newest(source: Path, config: PretrainingConfig, phase: int, say: Callable[[str], None]) -> Path | None:
    for parent in _parents(source, config, phase):
        if checkpoint_files.list_steps(parent):
            return checkpoint_files.newest_valid(parent, say)
    return None


def _parents(source: Path, config: PretrainingConfig, phase: int) -> list[Path]:
    """Where STEP folders may be: in the folder itself, or in that of the phase below it or below the model's."""
    return [source, source / f"phase{phase}", source / config.run.bert_model / f"phase{phase}"]


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
