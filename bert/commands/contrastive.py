"""The job steps of `run_classify.sh --contrastive-start`: the encoder is trained on pairs before the classifier.

The measurements are in tests/research/finetuning.md, "Few labelled lines".
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bert import REPOSITORY
from bert.commands.fine_tuning import FineTune, FineTuningResults
from bert.exit_codes import OK
from bert.files import write_atomically
from bert.finetuning.config import FineTuningBatchSettings, FineTuningRunSettings, is_small_modern, with_global_batch
from bert.jobs.job import Execution, Job, Step
from bert.labels.settings import LabelConfig
from bert.vectors.settings import ENTRY, VectorConfig, VectorDataSettings

FOLDER = "contrastive"  # in the output folder of the classifier
SHARE = 0.25  # weight of this training in the division of --hours; the classifier has 1
_PAIRS_OF_A_BATCH = 32
_RATE_OF_SMALL, _EPOCHS_OF_SMALL = 1e-3, 3.0  # small models of own text; published models are trained for one epoch
_RATE_SHARE = 0.4  # learning rate, divided by the classifier's learning rate


@dataclass(frozen=True)
class WritePairs(Step):
    """Writes a file of pairs: training lines that have the same class."""

    config: LabelConfig
    file: Path

    @property
    def title(self) -> str:
        return "writing pairs of lines of equal class"

    @property
    def product(self) -> Path:
        return self.file

    def run(self, execution: Execution) -> int:
        from bert.labels.equal_class_pairs import pairs_file  # here: it loads slowly

        content = pairs_file(self.config)
        if not (self.file.is_file() and self.file.read_bytes() == content):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.file, content)
        return OK


@dataclass(frozen=True, kw_only=True)
class ContrastiveStart(FineTune):
    """Trains the encoder on the pairs, as `run_vectors.py` trains vectors."""

    @property
    def title(self) -> str:
        return "training the encoder on pairs of equal class"


def with_contrastive_start(job: Job) -> Job:
    """Add the contrastive start to the job of a classifier, which then begins with the trained encoder."""
    (classifier,) = [step for step in job.steps if isinstance(step, FineTune)]
    config = classifier.config
    assert isinstance(config, LabelConfig)
    _refuse(config)
    pairs = job.output_dir / FOLDER / "pairs.jsonl"
    first = ContrastiveStart(
        script=REPOSITORY / ENTRY.script,
        config=with_global_batch(_config(config, pairs), classifier.ranks.world_size()),
        ranks=classifier.ranks,
        data=(*classifier.data, WritePairs(config, pairs)),
        share=SHARE,
    )
    second = replace(classifier, start={"from_pretrained_params": first.config.checkpoint_dir()})
    steps: list[Step] = [first]
    for step in job.steps:
        if isinstance(step, FineTuningResults):
            step = replace(step, training=second)
        steps.append(second if step is classifier else step)
    return replace(job, steps=tuple(steps))


def _refuse(config: LabelConfig) -> None:
    """Raise ValueError unless the classifier trains on single texts with one class each, from given weights."""
    data = config.data
    wrong = {
        "--train FILE must be given": not config.run.do_train,
        "the labels are numbers": data.regression,
        "a text may have several labels": data.label_separator is not None,
        "the lines have two texts": data.text_pair_column is not None,
        "it begins with --model": config.initialization.from_pretrained_params is None,
    }
    for reason in (reason for reason, is_wrong in wrong.items() if is_wrong):
        raise ValueError(f"contrastive_start is for single texts of one class each: {reason}; omit --contrastive-start")


def _config(config: LabelConfig, pairs: Path) -> VectorConfig:
    """The settings of the training on pairs; model, precision and hardware are the classifier's."""
    is_small = is_small_modern(dict(config.model))
    rate = _RATE_OF_SMALL if is_small else _RATE_SHARE * config.optimizer.learning_rate
    folder = pairs.parent
    run: dict[str, Any] = {name: getattr(config.run, name) for name in FineTuningRunSettings.model_fields}
    run |= {
        "output_dir": folder,
        "report_file": folder / "report.json",
        "epochs": _EPOCHS_OF_SMALL if is_small else 1.0,
    }
    run |= {"do_train": True, "do_eval": False, "do_predict": False, "max_steps": -1, "benchmark": False}
    names = VectorDataSettings.model_fields.keys() & type(config.data).model_fields.keys() - {"train_file", "eval_file"}
    data: dict[str, Any] = {name: getattr(config.data, name) for name in names}
    return VectorConfig(
        model=config.model,
        batch=FineTuningBatchSettings(batch_size=_PAIRS_OF_A_BATCH, global_batch_size=_PAIRS_OF_A_BATCH),
        optimizer=config.optimizer.model_copy(update={"learning_rate": rate}),
        precision=config.precision,
        run=FineTuningRunSettings(**run),
        initialization=config.initialization,
        hardware=config.hardware,
        data=VectorDataSettings(**{**data, "train_file": pairs}),
    )
