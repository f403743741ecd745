"""The job steps of `run_vectors.sh --reranker`: mining with the trained vectors, then training a reranker."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bert import REPOSITORY
from bert.commands.fine_tuning import FineTune, FineTuningResults
from bert.commands.mining import MineNegatives
from bert.config.setting_sources import resolve
from bert.config.training_settings import TrainingConfig, derive
from bert.conversion.usage import RERANKER_FOLDER
from bert.files import read_json
from bert.finetuning.config import with_global_batch
from bert.jobs.job import Execution, Job
from bert.reporting.run_record import SUMMARY_FILE
from bert.vectors.reranker_settings import ENTRY, MOST_QUERIES, TIMED
from bert.vectors.settings import VectorConfig
from data.text.encodings import Decoding

_MINED = "mined"
_RUN = ("seed", "log_freq")  # settings that the reranker's run takes from the vectors' run
_DATA = ("vocab_file", "do_lower_case", "strip_accents", "word_segmenter", "equal_letters")
_EVALUATION_SHARE = 0.05  # share of --hours that the evaluation may take
_LEAST_QUERIES = 50
_TOKENS_RATIO = 2  # tokens of a query with a passage, divided by the tokens of a text alone


@dataclass(frozen=True, kw_only=True)
class TrainReranker(FineTune):
    """Trains a reranker on the mined negatives of the previous step.

    Attributes:
        vectors: settings of the training of the vectors.
    """

    seconds_beside: ClassVar[float] = 20.0
    vectors: VectorConfig

    def launch(self, config: TrainingConfig, execution: Execution) -> int:
        """Start the ranks; --hours limits the number of held-out queries to a share of the time."""
        rate = read_json(self.vectors.stage_dir() / SUMMARY_FILE).get("inference_sequences_per_second")
        if execution.job.hours is not None and rate:
            sequences = 3600 * execution.job.hours * _EVALUATION_SHARE * rate / _TOKENS_RATIO
            queries = int(sequences / self.config.data.depth)  # type: ignore[attr-defined]
            config = derive(config, most_queries=max(_LEAST_QUERIES, min(MOST_QUERIES, queries)))
        return super().launch(config, execution)


def with_reranker(job: Job) -> Job:
    """Add steps to the job of vectors: mining, training of a reranker, and the reranker's results."""
    trainings = [step for step in job.steps if isinstance(step, FineTune)]
    vectors = trainings[-1].config
    assert isinstance(vectors, VectorConfig)
    if not vectors.run.do_train or not vectors.run.do_eval:
        raise ValueError("--reranker is trained after the vectors; give --text FOLDER or --pairs FILE to train on")
    _refuse_scores(vectors)
    mining = MineNegatives(config=vectors, folder=job.output_dir / _MINED)
    training = TrainReranker(
        script=REPOSITORY / ENTRY.script,
        config=with_global_batch(_config(vectors, mining, job.hours is not None), trainings[-1].ranks.world_size()),
        ranks=trainings[-1].ranks,
        data=(mining,),
        vectors=vectors,
    )
    once = [replace(step, repeats=False) for step in trainings]
    results = [step for step in job.steps if not isinstance(step, FineTune)]
    return replace(job, steps=(*once, training, FineTuningResults(training, is_alone=False), *results))


def _refuse_scores(vectors: VectorConfig) -> None:
    """ValueError for pairs with a score to measure on: an order of passages is not measured by them."""
    from bert.vectors.pairs import SCORED, table_pairs  # not for --help

    data = vectors.data
    if data.eval_file is None or not data.eval_file.is_file():
        return
    columns = data.query_column, data.passage_column
    first = next(table_pairs(data.eval_file, *columns, Decoding.of(data), [], to_measure=True), None)
    if first is not None and first["kind"] == SCORED:
        raise ValueError(
            f"--eval {data.eval_file} has pairs with a score, and --reranker is measured by the order of passages; "
            "give queries with their passages, or drop one of the two"
        )


def _config(vectors: VectorConfig, mining: MineNegatives, is_timed: bool) -> Any:
    """The settings of the reranker, with start weights, hardware and precision of the training of vectors."""
    values: dict[str, Any] = {name: getattr(vectors.run, name) for name in _RUN}
    values |= {name: getattr(vectors.data, name) for name in _DATA}
    values |= {"max_seq_length": vectors.data.max_seq_length}
    values |= vectors.hardware.model_dump() | vectors.precision.model_dump()
    folder = vectors.run.output_dir / RERANKER_FOLDER
    values |= {"output_dir": folder, "report_file": folder / "report.json"}
    values |= {"train_file": mining.negatives, "eval_file": mining.candidates}
    values |= {"from_pretrained_params": vectors.initialization.from_pretrained_params}
    return resolve([TIMED if is_timed else {}, values], ENTRY)
