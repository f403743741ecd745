"""Makes windows [CLS] question [SEP] part of the paragraph [SEP] from questions about paragraphs.

A paragraph that does not fit into one sequence is read in overlapping windows, each `doc_stride` tokens after the one
before (Devlin et al., 2019). All steps are array operations over whole files, and a paragraph is tokenised once however
many questions it has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from bert.arrays.ragged import offsets_of, ragged_indices
from bert.finetuning.loader import FeatureTable
from bert.finetuning.squad.answer_settings import ReaderSettings
from bert.finetuning.squad.examples import SquadExamples
from bert.samples.sample_table import Slices, join_pairs
from bert.tokenization.library import text_tokenizer
from bert.tokenization.vocabulary import Vocabulary
from bert.tokenization.wordpiece import TokenizedTexts

_EXAMPLES_PER_BLOCK = 8192  # bounds the memory of intermediate arrays
# Why a question cannot be trained on: no token in the paragraph or in the question, an answer that is not at its
# offset, an answer of characters that no token covers.
SKIPPED = ("empty_paragraph", "empty_question", "misplaced_answer", "answer_without_token")


@dataclass(frozen=True, kw_only=True)
class SquadFeatures(FeatureTable):
    """Features of n windows, from E questions about paragraphs with P tokens.

    Attributes:
        labels: start_positions, end_positions: int32 [n], first and last token of the answer in the window; 0 ([CLS])
            if the window does not contain it, and without labels.
        token_starts, token_ends: int32 [P], characters of the context that each paragraph token covers.
    """

    first_lengths: np.ndarray  # int32 [n], number of tokens of [CLS] question [SEP]
    examples: np.ndarray  # int32 [n], index of the window's question in the file; ascending
    paragraph_starts: np.ndarray  # int64 [n], index (of P) of the window's first paragraph token
    token_starts: np.ndarray
    token_ends: np.ndarray


@dataclass(frozen=True)
class _Tokens:
    """Tokens of a file's paragraphs and of its E questions."""

    paragraphs: TokenizedTexts
    questions: TokenizedTexts
    context_of: np.ndarray  # int64 [E], index of the question's paragraph
    query_lengths: np.ndarray  # int64 [E], tokens of the question after truncation

    def paragraph_lengths(self) -> np.ndarray:
        """Number of tokens of each question's paragraph, int64 [E]."""
        return self.paragraphs.lengths()[self.context_of]


def build_features(
    examples: SquadExamples, vocabulary: Vocabulary, settings: ReaderSettings, training: bool
) -> tuple[SquadFeatures, dict[str, int]]:
    """Windows of every question, and counts. `windows_without_answer` of answerable questions predict [CLS].

    Args:
        training: give windows the position of the question's first answer, and skip and count questions that cannot be
            trained on. Otherwise every question has at least one window.
    """
    tokenizer = text_tokenizer(vocabulary, settings.normalization())
    paragraphs = tokenizer.encode_with_offsets(examples.contexts)
    questions = tokenizer.encode_with_offsets([question.text for question in examples.questions])
    context_of = np.fromiter((question.context for question in examples.questions), np.int64, len(examples))
    tokens = _Tokens(paragraphs, questions, context_of, np.minimum(questions.lengths(), settings.max_query_length))
    chosen = np.arange(len(examples))
    spans, skipped = _answer_spans(examples if training else _with_shortest_answers(examples), tokens)
    lengths = spans[:, 1] - spans[:, 0] + 1
    too_long = lengths[(spans[:, 0] >= 0) & (lengths > settings.max_answer_length)]
    if not training:
        spans, skipped = np.full((len(examples), 2), _NO_ANSWER, np.int64), {}
    else:
        chosen = np.flatnonzero(spans[:, 0] > _SKIPPED)
        if len(chosen) * 2 < len(examples):
            _refuse(examples, skipped)
    blocks = [
        _windows(chosen[start : start + _EXAMPLES_PER_BLOCK], tokens, spans, vocabulary, settings)
        for start in range(0, len(chosen), _EXAMPLES_PER_BLOCK)
    ]
    ids, lengths, first_lengths, of, paragraph_starts, first, last = map(np.concatenate, zip(*blocks, strict=True))
    features = SquadFeatures(
        input_ids=ids,
        offsets=offsets_of(lengths),
        first_lengths=first_lengths,
        labels={"start_positions": first, "end_positions": last},
        pad_id=vocabulary.id_of("[PAD]"),
        second_type=vocabulary.second_type(),
        examples=of,
        paragraph_starts=paragraph_starts,
        token_starts=paragraphs.starts,
        token_ends=paragraphs.ends,
    )
    counts = {
        "questions": len(examples),
        "windows": len(features),
        "truncated_questions": int((questions.lengths() > settings.max_query_length).sum()),
        "long_paragraph": int((np.bincount(of, minlength=len(examples)) > 1).sum()),
        "long_answers": len(too_long),
        "windows_without_answer": int(((spans[of, 0] >= 0) & (last == 0)).sum()),
        **skipped,
    }
    return features, counts


_NO_ANSWER, _SKIPPED = -1, -2  # instead of a span's first token


def _with_shortest_answers(examples: SquadExamples) -> SquadExamples:
    """Keep only the shortest right answer of each question."""
    by_length = (sorted(question.answers, key=lambda answer: len(answer.text)) for question in examples.questions)
    chosen = (tuple(answers[:1]) for answers in by_length)
    return replace(examples, questions=tuple(q._replace(answers=next(chosen)) for q in examples.questions))


def _answer_spans(examples: SquadExamples, tokens: _Tokens) -> tuple[np.ndarray, dict[str, int]]:
    """First and last token of each question's first answer, int64 [E, 2]; also the counts of SKIPPED questions.

    A token belongs to the answer if one of its characters does: where an answer ends within a token ("Japan" in
    "Japanese"), the whole token is the closest span that can be learned.
    """
    number, paragraphs, context_of = len(examples), tokens.paragraphs, tokens.context_of
    starts, ends = np.zeros((2, number), np.int64)
    answered, misplaced = np.zeros((2, number), bool)
    for row, question in enumerate(examples.questions):
        for text, start in question.answers[:1]:
            answered[row] = True
            misplaced[row] = start < 0 or not examples.contexts[question.context].startswith(text, start)
            if not misplaced[row]:
                starts[row], ends[row] = start, start + len(text)
    # The characters of all contexts are numbered through, so that one search finds every question's tokens.
    room = max((len(context) for context in examples.contexts), default=0) + 1
    context_of_token = np.repeat(np.arange(len(examples.contexts)), paragraphs.lengths())
    first = np.searchsorted(context_of_token * room + paragraphs.ends, context_of * room + starts, side="right")
    last = np.searchsorted(context_of_token * room + paragraphs.starts, context_of * room + ends, side="left") - 1
    spans = np.where(answered, np.stack([first, last]) - paragraphs.offsets[context_of], _NO_ANSWER).T
    reasons = (tokens.paragraph_lengths() == 0, tokens.query_lengths == 0, misplaced, answered & (first > last))
    counts, skipped = {}, np.zeros(number, bool)
    for name, rows in zip(SKIPPED, reasons, strict=True):
        counts[name] = int((rows & ~skipped).sum())
        skipped |= rows
    spans[skipped] = _SKIPPED
    return spans, counts


def _refuse(examples: SquadExamples, skipped: Mapping[str, int]) -> NoReturn:
    reasons = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in skipped.items() if number)
    example = ""
    for question in examples.questions:
        for text, start in question.answers[:1]:
            passage = examples.contexts[question.context][max(0, start) : max(0, start) + len(text)]
            if passage != text and not example:
                example = (
                    f"; answer_start counts characters (code points) from 0, and id {question.id!r} has {text[:40]!r} "
                    f"at {start}, where the context has {passage[:40]!r}"
                )
    raise ValueError(
        f"{examples.source}: most of its {len(examples)} questions cannot be trained on ({reasons}); correct the file, "
        f"or pass another{example}"
    )


def _windows(
    rows: np.ndarray, tokens: _Tokens, spans: np.ndarray, vocabulary: Vocabulary, settings: ReaderSettings
) -> tuple[np.ndarray, ...]:
    """Arrays of the windows of questions `rows`: ids, lengths, first_lengths, examples, starts and positions."""
    paragraphs, questions = tokens.paragraphs, tokens.questions
    lengths = tokens.paragraph_lengths()[rows]
    separators = vocabulary.pair_separators()
    room = settings.max_seq_length - tokens.query_lengths[rows] - 2 - separators
    step = np.minimum(settings.doc_stride, room)
    number = 1 + -(-np.maximum(lengths - room, 0) // step)
    of = np.repeat(np.arange(len(rows)), number)  # window -> its place in `rows`
    starts = ragged_indices(np.zeros(len(rows), np.int64), number) * step[of]
    taken = np.minimum(lengths[of] - starts, room[of])
    examples = rows[of]
    query_lengths = tokens.query_lengths[examples]
    paragraph_starts = paragraphs.offsets[tokens.context_of[examples]] + starts
    first = Slices(questions.ids, questions.offsets[examples], query_lengths)
    second = Slices(paragraphs.ids, paragraph_starts, taken)
    special = vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]")
    input_ids, offsets = join_pairs(first, second, *special, separators=separators)
    first_lengths = query_lengths + 1 + separators
    inside = (spans[examples, 0] >= starts) & (spans[examples, 1] < starts + taken)
    positions = np.where(inside, spans[examples].T - starts + first_lengths, 0).astype(np.int32)
    first_lengths, examples = first_lengths.astype(np.int32), examples.astype(np.int32)
    return input_ids, np.diff(offsets), first_lengths, examples, paragraph_starts, *positions
