"""The entry point of run_pretraining.py: its settings, recipes and inquiries, such as `--dry-run`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert.config.entry_point import EntryPoint, Rule
from bert.interpreter import shell_command
from bert.planning.dry_run import dry_run_inquiry, report_text, size_rows, update_rows
from bert.planning.estimates import training_flops_per_sequence
from bert.planning.plan_inquiry import plan_inquiry
from bert.planning.planner import make_plan
from bert.planning.run_device import RunDevice, run_device
from bert.pretraining.config import LENGTHS, DataSettings, PretrainingConfig
from bert.pretraining.epochs import sample_set
from bert.pretraining.recipes import RECIPES
from bert.reporting.progress import duration, megabytes
from bert.runtime.topology import visible_gpus
from bert.samples.settings import predictions_of

_WORDS_OF_WIKIPEDIA = 2.5e9  # English, without lists and tables (Devlin et al., 2019)
# Words of text that a sample uses for each token of its longest length: about nine tenths of it are text that is read
# once, the rest special tokens, short samples and random next sentences, and a word has about 1.3 WordPiece tokens.
_WORDS_OF_A_TOKEN = 0.9 / 1.3


def dry_run_report(config: PretrainingConfig, world_size: int) -> str:
    """The plan of a run as text: model, batches, tokens, epochs, memory and disk."""
    device = run_device(config, world_size, visible_gpus())
    config = device.resolve(config.with_known_steps(world_size))
    run, data = config.run, config.data
    flops = training_flops_per_sequence(config.model, data.max_seq_length, data.max_predictions_per_seq)
    return report_text(
        {
            "phase": f"{run.phase}, sequences of up to {data.max_seq_length} tokens, "
            f"{data.max_predictions_per_seq} of them predicted, {data.masking} masking",
            "model": f"{run.bert_model}, {config.model.num_parameters():,} parameters",
            **update_rows(config, world_size),
            **_length(config, flops, world_size),
            **size_rows(config, world_size, device),
            "data": _shards(data.input_dir),
            **_speed(config, world_size, device),
            "output": f"{config.checkpoint_dir()} (checkpoints), {config.stage_dir()} (logs)",
        }
    )


def _length(config: PretrainingConfig, flops: int, world_size: int) -> dict[str, str]:
    """Rows about the length of the training; epochs are known once the shards exist."""
    steps, epochs, a_sequence = config.run.max_steps, config.run.epochs, f"{flops / 1e9:,.1f} GFLOP a sequence"
    if epochs is not None:
        unknown = f"as many as {epochs:g} epochs need, known once {config.data.input_dir} has shards"
        return {"steps": unknown, "arithmetic": a_sequence}
    sequences, peak = config.batch.schedule(world_size).sequences(steps), config.hardware.peak_tflops
    samples = sample_set(config.data.input_dir)
    ideal = ""
    if peak is not None:
        hours = flops * sequences / (peak * 1e12 * world_size) / 3600
        ideal = f", {hours:,.2f} h at the peak of {peak:g} TFLOP/s a rank"
    known = samples and samples.describe(sequences)
    return {
        "steps": f"{steps:,} updates, {sequences:,} sequences, up to {sequences * config.data.max_seq_length:,} tokens",
        "epochs": known or f"known once {config.data.input_dir} has shards",
        "arithmetic": f"{a_sequence}, {flops * sequences:.3g} FLOP in all{ideal}",
    }


def epochs_row(config: PretrainingConfig, world_size: int) -> dict[str, str]:
    """The row `epochs`: passes over the shards, or over English Wikipedia if there are none."""
    if config.run.epochs is not None or config.run.max_steps < 1:
        return {}
    sequences = config.batch.schedule(world_size).sequences(config.run.max_steps)
    if samples := sample_set(config.data.input_dir):
        return {"epochs": samples.describe(sequences)}
    words = _WORDS_OF_A_TOKEN * config.data.max_seq_length * sequences
    return {
        "epochs": f"about {words / _WORDS_OF_WIKIPEDIA:,.3g} over English Wikipedia of {_WORDS_OF_WIKIPEDIA / 1e9:g} "
        f"billion words, {words / 1e8:,.3g} over 100 million words; --words 120M --plan plans a training for such text"
    }


def _speed(config: PretrainingConfig, world_size: int, device: RunDevice) -> dict[str, str]:
    """The planner's estimate for a known GPU; none for a CPU, whose speed depends on padding in the data."""
    hardware = device.hardware(world_size)
    if hardware is None or device.features.kind == "cpu":
        return {}
    plan = make_plan(config, hardware)
    seconds = plan.seconds()
    if not plan.fits or seconds is None:
        return {}
    text = f"about {plan.sequences_per_second():,.0f} sequences/s, {duration(seconds)} for all updates"
    limit = config.run.finish_in
    if limit is not None and seconds > limit:
        text += f", of which about {config.run.max_steps * limit / seconds:,.0f} fit in {duration(limit)}"
    return {"speed": f"{text} (--plan --hardware {hardware.full_name()} explains this estimate)"}


def _shards(folder: Path) -> str:
    """Row about the disk space of the training data, as far as it is known."""
    size = sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
    if size:
        return f"{megabytes(size)} in {folder}"
    estimate = shell_command("data/create_datasets_from_start.sh", "--dry-run")
    return f"not made yet, and not counted; of Wikipedia, `{estimate}` estimates their disk space"


def _implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings implied by others: predictions by the masked share, objective and pooling by the model type."""
    implied = {"objective": "mlm"} if values.get("model_type") in ("modernbert", "roberta") else {}
    if values.get("model_type") == "modernbert":  # masked words alone train no first token
        implied["classifier_pooling"] = "mean"
    try:
        length = int(values.get("max_seq_length", DataSettings.model_fields["max_seq_length"].default))
        return {**implied, "max_predictions_per_seq": predictions_of(length, float(values["masked_lm_ratio"]))}
    except (KeyError, ValueError, TypeError):  # not given, or refused later
        return implied


ENTRY = EntryPoint(
    script="run_pretraining.py",
    config_class=PretrainingConfig,
    task="bert.pretraining.task:Pretraining",
    recipes=RECIPES,
    usage="(--phase1 | --phase2 | --config NAME_OR_FILE) [flags]",
    description="Pre-train BERT on PaddlePaddle.",
    examples=(
        "--config phase1_large --input-dir shards/phase1 --vocab-file vocab.txt --dry-run",
        "--config phase1_large --plan --hardware 8xA100-80GB",
    ),
    inquiries=(dry_run_inquiry(dry_run_report), plan_inquiry(PretrainingConfig.with_known_steps, epochs_row)),
    rules=(
        Rule(given=LENGTHS, drops=LENGTHS),
        Rule(given=("masked_lm_ratio",), drops=("max_predictions_per_seq",)),
        Rule(given=("model_type",), drops=("classifier_pooling",)),
        Rule(implies=_implied),
    ),
    default_model="bert-large-uncased",
)
