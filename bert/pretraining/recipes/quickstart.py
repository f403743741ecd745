"""Small recipes that learn something in minutes on two CPU cores, through the same program as the large ones."""

from pathlib import Path

from bert.config.training_settings import BUILT_IN_MODELS, BatchSettings, OptimizerSettings, derive
from bert.pretraining.config import DataSettings, PretrainingConfig, PretrainingRunSettings

QUICKSTART_DIR = Path("results/quickstart")
_DATA = QUICKSTART_DIR / "data"


def quickstart_phase1() -> PretrainingConfig:
    """2 layers of 128 with a vocabulary of 4,096, sequences of 64; LAMB on batches of 64, beta2 of RoBERTa.

    What else was tried with the same processor time: the README of pre-training.
    """
    return PretrainingConfig(
        model=BUILT_IN_MODELS["bert-quickstart"],
        data=DataSettings(
            input_dir=_DATA / "phase1/train",
            eval_dir=_DATA / "phase1/held_out",
            vocab_file=_DATA / "vocab.txt",
            max_seq_length=64,
            max_predictions_per_seq=10,
            masking="dynamic",
            num_workers=0,
        ),
        batch=BatchSettings(batch_size=32, global_batch_size=64),
        optimizer=OptimizerSettings(learning_rate=8.5e-3, warmup_proportion=0.1, beta2=0.98),
        run=PretrainingRunSettings(
            phase=1,
            max_steps=2500,
            output_dir=QUICKSTART_DIR,
            bert_model="bert-quickstart",
            num_steps_per_checkpoint=250,
            eval_freq=250,
            eval_samples=1000,
        ),
    )


def quickstart_phase2() -> PretrainingConfig:
    """Sequences of 128 in bins of 32, continuing phase 1 at two thirds of its rate for fewer updates."""
    return derive(
        quickstart_phase1(),
        phase=2,
        max_steps=500,
        max_seq_length=128,
        max_predictions_per_seq=20,
        group_by_length=True,
        input_dir=_DATA / "phase2/train",
        eval_dir=_DATA / "phase2/held_out",
        learning_rate=5.7e-3,
        eval_freq=50,
        num_steps_per_checkpoint=50,
    )
