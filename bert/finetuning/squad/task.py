"""Question answering as a fine-tuning task: files -> windows, logits -> answers, scores and files."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from bert.conversion.usage import READER_FILE, Usage
from bert.finetuning.prediction_files import WINDOW_CHARACTERS, WINDOW_EXAMPLES, json_ends
from bert.finetuning.run import RunnableTask
from bert.finetuning.squad.config import SquadConfig
from bert.finetuning.squad.examples import SquadExamples, read_squad
from bert.finetuning.squad.features import SKIPPED, SquadFeatures, build_features
from bert.finetuning.squad.metrics import answers_of, best_thresholds, score_squad_1, score_squad_2
from bert.finetuning.squad.predictions import Predictions, predict
from bert.finetuning.task import Features, Outputs, Part, ResultsFile
from bert.model.objectives import QuestionAnsweringObjective
from data.text.encodings import Decoding

logger = logging.getLogger(__name__)
_JSON_FILE = ResultsFile(b"{\n", b",\n", b"\n}\n", json_ends)


class SquadTask(RunnableTask):
    unit = "questions"
    summary_names = {"eval_exact_match": "exact_match", "eval_f1": "F1"}
    near_zero = 5.0
    results_beside_checkpoints = True  # where NVIDIA's run_squad.py writes its results

    def __init__(self, config: SquadConfig) -> None:
        super().__init__(config)
        self._config, data, run = config, config.data, config.run
        self._version_2 = data.version_2_with_negative
        if data.eval_script is not None:
            logger.info(f"eval_script={data.eval_script} is not run: the official scores are computed by this program")
        if data.null_score_diff_threshold and not self._version_2:
            self.notes = ["not used: null_score_diff_threshold, as --version-2-with-negative is off"]
        if run.do_train:
            assert data.train_file is not None
            self.training_file = data.train_file
            self.training = self._read(data.train_file)
        if run.do_eval or run.do_predict:
            assert data.predict_file is not None
            names = ["predictions.json", "nbest_predictions.json", *["null_odds.json"] * self._version_2]
            part = Part(data.predict_file.name, data.predict_file, dict.fromkeys(names, _JSON_FILE))
            if run.do_eval:  # which writes the predictions too
                self.evaluated = [part]
            else:
                self.predicted = [part]
                self._unlabelled = self._read(part.path, labelled=False)

    def objective(self) -> QuestionAnsweringObjective:
        return QuestionAnsweringObjective(self._config.model, self._config.hardware.fuse_mha)

    def usage(self) -> Usage:
        return Usage("squad", self._config.data.max_seq_length)

    def texts(self) -> dict[str, str]:
        return {READER_FILE: self._config.data.file_content(), **super().texts()}

    def read(self, part: Part) -> SquadExamples:
        return self._read(part.path)

    def _read(self, path: Path, labelled: bool = True) -> SquadExamples:
        decoding = Decoding.of(self._config.data)
        examples = read_squad(path, version_2=self._version_2, labelled=labelled, decoding=decoding)
        self.notes = [*self.notes, *examples.notes]
        return examples

    def windows(self, part: Part) -> Iterator[SquadExamples]:
        return self._unlabelled.windows(WINDOW_EXAMPLES, WINDOW_CHARACTERS)

    def features(self, examples: SquadExamples, training: bool = False) -> tuple[SquadFeatures, dict[str, int]]:
        return build_features(examples, self.vocabulary, self._config.data, training)

    def describe(self, path: Path, counts: Mapping[str, int]) -> list[str]:
        """Lines that tell how many questions were used, truncated or skipped, and why."""
        lines = [
            f"{path}: {counts['questions']:,} questions in {counts['windows']:,} windows, "
            f"{counts['long_paragraph']:,} questions with a paragraph of several windows, "
            f"{counts['truncated_questions']:,} questions truncated"
        ]
        if number := counts["long_answers"]:
            lines.append(
                f"{path}: {number:,} right answers are longer than --max-answer-length "
                f"{self._config.data.max_answer_length} and are never predicted; raise it"
            )
        if number := counts["windows_without_answer"]:
            lines.append(f"{path}: {number:,} windows do not contain the answer: they teach [CLS]")
        if skipped := {name.replace("_", " "): counts[name] for name in SKIPPED if counts.get(name)}:
            reasons = ", ".join(f"{number:,} {name}" for name, number in skipped.items())
            lines.append(f"{path}: {sum(skipped.values()):,} questions are not used for training: {reasons}")
        return lines

    def decode(self, features: Features, outputs: Outputs) -> Predictions:
        start, end = outputs["start_logits"], outputs["end_logits"]
        return predict(features.examples, features.table, start, end, self._config.data)

    def score(self, part: Part, features: Features, predictions: Predictions) -> dict[str, float]:
        """The official scores in percent; for SQuAD 2.0 also the scores at the best null threshold."""
        answers = answers_of(features.examples)
        if not self._version_2:
            scores = score_squad_1(answers, predictions.answers)
        else:
            scores = score_squad_2(answers, predictions.answers)
            scores["exact_match"] = scores.pop("exact")
            scores |= best_thresholds(answers, predictions.best_answers, predictions.null_odds)
        return {f"eval_{name}": value for name, value in scores.items()}

    def render(self, part: Part, features: Features, predictions: Predictions) -> list[bytes]:
        contents = [predictions.answers, predictions.n_best_as_json(), *[predictions.null_odds] * self._version_2]
        texts = (json.dumps(content, indent=1, ensure_ascii=False) for content in contents)
        return [text.removeprefix("{\n").removesuffix("\n}").encode() for text in texts]
