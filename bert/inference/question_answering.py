"""Answers questions about paragraphs with a fine-tuned model.

from bert.inference.question_answering import QuestionAnswerer
reader = QuestionAnswerer("results/squad")
print(reader.answer("How long is the Nile?", paragraph).text)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bert.conversion.model_usage import READER_FILE
from bert.finetuning.squad.config import read_reader_settings
from bert.finetuning.squad.examples import Question, SquadExamples, single_paragraph
from bert.finetuning.squad.features import WindowSettings, build_features
from bert.finetuning.squad.predictions import AnswerSettings, Candidate, predict
from bert.finetuning.squad.task import table_of
from bert.inference.model_folder import OpenedModel
from bert.inference.trained_model import Request, Result, TrainedModel


@dataclass(frozen=True)
class AnsweredQuestion:
    """The model's answer to one question."""

    text: str  # as in the paragraph; "" for no answer
    score: float  # probability among the n best
    start: int  # first character in the paragraph; 0 for no answer
    end: int  # after the last character; 0 for no answer
    n_best: tuple[Candidate, ...]  # best first
    null_odds: float | None = None  # score of no answer minus that of the best; None for a model that always answers

    def to_result(self, top_k: int) -> Result:
        """For JSON: the answer, the best `top_k` answers, and the probability that there is none."""
        result: Result = {
            "answer": self.text,
            "probability": _rounded(self.score),
            "start": self.start,
            "end": self.end,
        }
        listed = [candidate for candidate in self.n_best if candidate.text][:top_k]
        result["answers"] = [
            {"text": found.text, "probability": _rounded(found.probability), "start": found.start, "end": found.end}
            for found in listed
        ]
        if self.null_odds is not None:
            empty = [candidate.probability for candidate in self.n_best if not candidate.text]
            result["no_answer_probability"] = _rounded(empty[0])
        return result


class QuestionAnswerer(TrainedModel):
    """A model fine-tuned on questions. Several can be used at the same time.

    Args:
        windows, answers: replace the settings beside the weights.
        others: as `TrainedModel`.
    """

    task = "question-answering"
    keys = (("question", "context"),)
    splits_tabs = True
    num_texts = (2,)

    def __init__(
        self,
        *source: Any,
        windows: WindowSettings | None = None,
        answers: AnswerSettings | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*source, **settings)
        kept = _settings(self.opened)
        self.windows, self.answer_settings = windows or kept[0], answers or kept[1]
        if windows is None and settings.get("max_seq_length"):
            self.windows = replace(self.windows, max_seq_length=self.max_seq_length)
        self.max_seq_length = self.windows.max_seq_length

    def check(self, texts: Request) -> None:
        if len(texts) != 2:
            raise ValueError(
                f"{len(texts)} texts in one request; a question and its context are needed (separated by a tab, or "
                '{"question": ..., "context": ...})'
            )

    def run(self, requests: Sequence[Request]) -> list[Result]:
        contexts = {context: number for number, context in enumerate(dict.fromkeys(context for _, context in requests))}
        questions = [Question(str(row), text, contexts[context]) for row, (text, context) in enumerate(requests)]
        examples = SquadExamples("the requests", tuple(contexts), tuple(questions))
        return [answered.to_result(self.top_k) for answered in self._answer(examples)]

    def answer(self, question: str, paragraph: str) -> AnsweredQuestion:
        """The answer to one question about a paragraph of any length."""
        return self.answer_all([question], paragraph)[0]

    def answer_all(self, questions: Sequence[str], paragraph: str) -> list[AnsweredQuestion]:
        """The answers to several questions about one paragraph, in their order."""
        return self._answer(single_paragraph(paragraph, questions)) if questions else []

    def _answer(self, examples: SquadExamples) -> list[AnsweredQuestion]:
        features, _ = build_features(examples, self.vocabulary, self.windows, training=False)
        table = table_of(features, self.vocabulary, labelled=False)
        logits = {name: np.zeros(len(features.input_ids), "float32") for name in ("start_logits", "end_logits")}
        for batch in self.batches(table):
            outputs = self.network.run(self.task, batch.feed)
            for name, row_values in outputs.items():
                for row, values in zip(batch.rows.tolist(), row_values, strict=True):
                    start, end = features.offsets[row : row + 2]
                    logits[name][start:end] = values[: end - start]
        found = predict(examples, features, logits["start_logits"], logits["end_logits"], self.answer_settings)
        answered = []
        for question in examples.questions:
            n_best, text = tuple(found.n_best[question.id]), found.answers[question.id]
            best = next(candidate for candidate in n_best if candidate.text == text)
            null_odds = found.null_odds.get(question.id)
            answered.append(AnsweredQuestion(text, best.probability, best.start, best.end, n_best, null_odds))
        return answered


def _settings(opened: OpenedModel) -> tuple[WindowSettings, AnswerSettings]:
    """The settings of the training if they are beside the weights, otherwise the defaults."""
    path = opened.path / READER_FILE
    if path.is_file():
        return read_reader_settings(path)
    most = min(384, opened.most_positions)
    windows = WindowSettings(most, min(128, most // 3), min(64, most // 2 - 2), opened.tokens.lowercase)
    return windows, AnswerSettings()


def _rounded(value: float) -> float:
    return round(float(value), 6)
