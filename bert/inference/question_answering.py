"""Answers questions about paragraphs with a fine-tuned model.

reader = load_model("results/squad")  # of bert.inference.loading
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
from bert.inference.lines import QUESTION_KEYS
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
        result: Result = {"answer": self.text, **_place(self.score, self.start, self.end)}
        listed = [candidate for candidate in self.n_best if candidate.text][:top_k]
        result["answers"] = [{"text": c.text, **_place(c.probability, c.start, c.end)} for c in listed]
        if self.null_odds is not None:
            empty = next(candidate.probability for candidate in self.n_best if not candidate.text)
            result["no_answer_probability"] = round(float(empty), 6)
        return result


def _place(probability: float, start: int, end: int) -> Result:
    return {"probability": round(float(probability), 6), "start": start, "end": end}


class QuestionAnswerer(TrainedModel):
    """A model fine-tuned on questions. Several can be used at the same time.

    Args:
        windows, answers: replace the settings beside the weights.
        others: as `TrainedModel`.
    """

    task = "question-answering"
    keys = (QUESTION_KEYS,)
    splits_tabs = True
    num_texts = (2,)

    def __init__(
        self,
        opened: OpenedModel,
        *,
        windows: WindowSettings | None = None,
        answers: AnswerSettings | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(opened, **settings)
        path, most = opened.path / READER_FILE, min(384, opened.most_positions)
        if path.is_file():
            trained_windows, trained_answers = read_reader_settings(path)
        else:
            trained_windows = WindowSettings(most, min(128, most // 3), min(64, most // 2 - 2), opened.tokens.lowercase)
            trained_answers = AnswerSettings()
        self.windows, self.answer_settings = windows or trained_windows, answers or trained_answers
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
        return self._answer(single_paragraph(paragraph, [question]))[0]

    def _answer(self, examples: SquadExamples) -> list[AnsweredQuestion]:
        features, _ = build_features(examples, self.vocabulary, self.windows, training=False)
        logits = {name: np.zeros(len(features.input_ids), "float32") for name in ("start_logits", "end_logits")}
        for batch in self.batches(table_of(features, self.vocabulary, labelled=False)):
            for name, row_values in self.network.run(self.task, batch.feed).items():
                for row, values in zip(batch.rows.tolist(), row_values, strict=True):
                    start, end = features.offsets[row : row + 2]
                    logits[name][start:end] = values[: end - start]
        predictions = predict(examples, features, **logits, settings=self.answer_settings)
        answered = []
        for question in examples.questions:
            n_best, text = tuple(predictions.n_best[question.id]), predictions.answers[question.id]
            best = next(candidate for candidate in n_best if candidate.text == text)
            null_odds = predictions.null_odds.get(question.id)
            answered.append(AnsweredQuestion(text, best.probability, best.start, best.end, n_best, null_odds))
        return answered
