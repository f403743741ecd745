"""Answers questions about paragraphs with a fine-tuned model.

from bert.inference.question_answering import QuestionAnswerer
reader = QuestionAnswerer("results/squad")
print(reader.answer("How long is the Nile?", paragraph).text)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bert.checkpoints import state as checkpoint
from bert.checkpoints.directories import weights_folder
from bert.checkpoints.state import CheckpointError
from bert.config.architecture import BertConfig
from bert.conversion.model_usage import READER_FILE
from bert.finetuning.model_files import VOCABULARY_FILE, implied_by_weights
from bert.finetuning.prediction import predict as run_model
from bert.finetuning.squad.config import read_reader_settings
from bert.finetuning.squad.examples import SquadExamples, single_paragraph
from bert.finetuning.squad.features import WindowSettings, build_features
from bert.finetuning.squad.predictions import AnswerSettings, Candidate, predict
from bert.finetuning.squad.task import flat, table_of
from bert.model.objectives import QuestionAnsweringObjective
from bert.runtime.distributed import Collective, Group
from bert.runtime.paddle_api import place_of, static
from bert.tokenization.vocabulary import Vocabulary
from bert.training.initialization import pretrained_parameters
from bert.training.trainer import Device
from program import build_prediction_program


@dataclass(frozen=True)
class AnsweredQuestion:
    """The model's answer to one question."""

    text: str  # as in the paragraph; "" for no answer
    score: float  # probability among the n best
    start: int  # first character in the paragraph; 0 for no answer
    end: int  # after the last character; 0 for no answer
    n_best: tuple[Candidate, ...]  # best first
    null_odds: float | None = None  # score of no answer minus that of the best; None for a model that always answers


class QuestionAnswerer:
    """A fine-tuned model, loaded once. Logs what was loaded. Several can be used at the same time.

    Args:
        source: a checkpoint, or the output folder of a run (its best weights); or weights of any format that
            run_convert.py reads, with a question-answering head.
        device: "cpu" or "gpu".
        vocab_file, model, windows, answers: replace the settings beside the weights.
    Raises:
        ValueError: weights that are missing, damaged or without the head, or no vocabulary.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        device: str = "cpu",
        vocab_file: Path | None = None,
        model: BertConfig | None = None,
        windows: WindowSettings | None = None,
        answers: AnswerSettings | None = None,
    ) -> None:
        folder = weights_folder(Path(source).expanduser())
        if not folder.exists():
            raise ValueError(
                f"{source} must be the folder of a fine-tuned model, or of its run; it does not exist: check the path"
            )
        implied = implied_by_weights({"from_pretrained_params": folder})
        if model is None and "hidden_size" not in implied:
            raise ValueError(f"{folder} has no description of the model beside the weights; pass model=BertConfig(...)")
        self._model = model or BertConfig(**{name: implied[name] for name in BertConfig.model_fields})
        vocab_file = vocab_file or implied.get("vocab_file")
        if vocab_file is None:
            raise ValueError(f"{folder} has no {VOCABULARY_FILE} beside the weights; pass vocab_file=")
        self.vocabulary = Vocabulary.from_file(vocab_file)
        kept = _settings(folder, implied.get("do_lower_case", True), self._model.max_position_embeddings)
        self.windows, self.answer_settings = windows or kept[0], answers or kept[1]
        self._program = build_prediction_program(QuestionAnsweringObjective(self._model))
        self._device = _own_device(device)
        self._device.executor.run(self._program.startup, scope=self._device.scope)
        self._load(folder)

    def _load(self, folder: Path) -> None:
        parameters = pretrained_parameters(folder, self._model)
        names = self._program.parameters
        current = {name: checkpoint.read_variable(self._device.scope, name) for name in names}
        wrong = [line for line in checkpoint.differences(parameters, current) if not line.startswith("unknown: ")]
        if wrong:
            title = f"{folder} is not a model fine-tuned for questions; fine-tune it with run_squad.py --do-train:"
            raise CheckpointError("\n  ".join([title, *wrong]))
        checkpoint.write_parameters(self._device.scope, self._device.place, {name: parameters[name] for name in names})

    def answer(self, question: str, paragraph: str) -> AnsweredQuestion:
        """The answer to one question about a paragraph of any length."""
        return self.answer_all([question], paragraph)[0]

    def answer_all(self, questions: Sequence[str], paragraph: str, batch_size: int = 16) -> list[AnsweredQuestion]:
        """The answers to several questions about one paragraph, in their order."""
        return self._answer(single_paragraph(paragraph, questions), batch_size) if questions else []

    def _answer(self, examples: SquadExamples, batch_size: int) -> list[AnsweredQuestion]:
        features, _ = build_features(examples, self.vocabulary, self.windows, training=False)
        table = table_of(features, self.vocabulary, labelled=False)
        outputs = run_model(self._device, self._program, table, batch_size, max_seq_length=self.windows.max_seq_length)
        start_logits, end_logits = (flat(outputs[name], features) for name in ("start_logits", "end_logits"))
        found = predict(examples, features, start_logits, end_logits, self.answer_settings)
        answered = []
        for question in examples.questions:
            n_best, text = tuple(found.n_best[question.id]), found.answers[question.id]
            best = next((candidate for candidate in n_best if candidate.text == text), n_best[0])
            null_odds = found.null_odds.get(question.id)
            answered.append(AnsweredQuestion(text, best.probability, best.start, best.end, n_best, null_odds))
        return answered


def _own_device(device: str) -> Device:
    place, executor = place_of(device), static.Executor(place_of(device))
    group = Group(0, 1, device)
    return Device(executor, static.Scope(), place, group, Collective(group, executor), 1.0)


def _settings(folder: Path, lowercase: bool, most: int) -> tuple[WindowSettings, AnswerSettings]:
    """The settings of the training if they are beside the weights, otherwise the defaults."""
    path = (folder if folder.is_dir() else folder.parent) / READER_FILE
    if path.is_file():
        return read_reader_settings(path)
    return WindowSettings(max_seq_length=min(384, most), lowercase=lowercase), AnswerSettings()
