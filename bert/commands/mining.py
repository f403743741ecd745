"""The job step that mines hard negatives after the training of vectors."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bert.checkpoints.chosen_weights import chosen_weights
from bert.checkpoints.directories import MANIFEST, CheckpointError
from bert.config.training_settings import derive
from bert.exit_codes import OK
from bert.files import checksum_of_file, json_of, read_json, waiting_lock, write_atomically
from bert.jobs.job import Execution, Step
from bert.launching.processes import module_command
from bert.reporting.run_record import SUMMARY_FILE
from bert.vectors.mined_files import CANDIDATES, MINED, NEGATIVES
from bert.vectors.mining_rule import MiningRule
from bert.vectors.settings import VectorConfig

_REQUEST = "request.json"
_TEXTS_OF_A_PAIR = 2
_SECONDS_OF_READING = 20.0  # start of a process that reads the pairs of 20 MB of text
_LEAST_PAIRS = 500  # fewest pairs that get negatives, however short the time
# Data settings that change neither the pairs nor the vectors.
_WITHOUT_EFFECT = {"compare", "num_workers", "temperature", "shortest_vector"}


@dataclass(frozen=True, kw_only=True)
class MineNegatives(Step):
    """Mines negatives of the training pairs and candidates of the held-out queries, with a trained model.

    Place it behind the step that trains the model. A stopped mining starts again from its beginning.

    Attributes:
        config: settings of the training whose result ranks the passages, and whose pairs get negatives.
        folder: folder of the mined files, such as OUTPUT_DIR/mined.
        share: approximate share of --hours that mining may take; it limits the number of pairs that get negatives.
    """

    config: VectorConfig
    folder: Path
    rule: MiningRule = field(default_factory=MiningRule)
    share: float = 0.1

    @property
    def title(self) -> str:
        sources = " and ".join({"model": "the model", "words": "BM25"}[source] for source in self.rule.sources)
        return f"mining up to {self.rule.number} negatives of each pair with {sources}"

    @property
    def product(self) -> Path:
        return self.negatives

    @property
    def negatives(self) -> Path:
        """The path of the file of negatives."""
        return self.folder / NEGATIVES

    @property
    def candidates(self) -> Path:
        """The path of the file of candidates of the held-out queries."""
        return self.folder / CANDIDATES

    def expected_seconds(self, execution: Execution) -> float:
        """The time that mining is expected to take: its share of --hours, and reading the pairs again."""
        return _SECONDS_OF_READING + self.share * 3600 * (execution.job.hours or 0.0)

    def is_done(self, execution: Execution) -> bool:
        record = read_json(self.folder / MINED)
        return bool(record) and self.negatives.exists() and self._made_with().items() <= record.items()

    def run(self, execution: Execution) -> int:
        """Mine, unless another node that shares the folder has mined meanwhile; returns the exit code."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with waiting_lock(self.folder / ".lock", f"start that mines into {self.folder}"):
            return OK if self.is_done(execution) else self._mine(execution)

    def _mine(self, execution: Execution) -> int:
        for name in (MINED, NEGATIVES, CANDIDATES):
            (self.folder / name).unlink(missing_ok=True)
        config = derive(self.config, compare=None)
        request = {"config": json_of(config.model_dump_json()), "rule": _plain(self.rule)}
        request |= {"most_pairs": self._most_pairs(execution.job.hours), "made_with": self._made_with()}
        write_atomically(self.folder / _REQUEST, f"{json.dumps(request, indent=1)}\n".encode())
        return execution.command(module_command("bert.vectors.mining_process", run=self.folder / _REQUEST))

    def _most_pairs(self, hours: float | None) -> int | None:
        """The number of pairs that the model can encode in its share of the time; None: no limit.

        The rate is taken from the evaluation of the training.
        """
        rate = read_json(self.config.stage_dir() / SUMMARY_FILE).get("inference_sequences_per_second")
        if hours is None or rate is None:
            return None
        return max(_LEAST_PAIRS, int(3600 * hours * self.share * rate / _TEXTS_OF_A_PAIR))

    def _made_with(self) -> dict[str, Any]:
        """Everything that decides the result: checksum of the weights, seed, data settings, rule."""
        config = self.config
        try:
            weights = checksum_of_file(chosen_weights(config.checkpoint_dir()).path / MANIFEST)
        except (CheckpointError, OSError):
            weights = ""
        data = config.data.model_dump(mode="json", exclude=_WITHOUT_EFFECT)
        return {"weights": weights, "seed": config.run.seed, "data": data, "rule": _plain(self.rule)}


def _plain(rule: MiningRule) -> Any:
    """The rule as JSON values: tuples become lists."""
    return json_of(json.dumps(asdict(rule)))
