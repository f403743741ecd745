"""Make the windows [CLS] question [SEP] part of the paragraph [SEP] from questions about paragraphs.

A paragraph that does not fit into one sequence is read in overlapping windows, each `doc_stride` tokens after the one
before (Devlin et al., 2019). All steps are array operations over whole files, and a paragraph is tokenised once however
many questions it has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from bert.arrays.ragged import offsets_of, ragged_indices
from bert.finetuning.squad.examples import SquadExamples
from bert.samples.sample_table import join_pairs
from bert.tokenization.offsets import OffsetTokenizer, TokenizedTexts
from bert.tokenization.vocabulary import Vocabulary

_EXAMPLES_PER_BLOCK = 8192  # bounds the memory of intermediate arrays
# Why a question cannot be trained on: no token in the paragraph or in the question, an answer that is not at its
# offset, an answer of characters that no token covers.
SKIPPED = ("empty_paragraph", "empty_question", "misplaced_answer", "answer_without_token")


@dataclass(frozen=True)
class WindowSettings:
    """The settings of windows.

    Attributes:
        max_seq_length: longest window, in tokens, with [CLS] and both [SEP].
        doc_stride: tokens of the paragraph between the starts of consecutive windows.
        max_query_length: longest question, in tokens; longer ones are truncated.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64
    lowercase: bool = True

    def __post_init__(self) -> None:
        for name in ("doc_stride", "max_query_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.max_seq_length < self.max_query_length + 4:
            raise ValueError(
                f"max_seq_length={self.max_seq_length} must leave room for a question of max_query_length="
                f"{self.max_query_length}, three special tokens and some paragraph; raise "
                "--max-seq-length, or lower --max-query-length"
            )


@dataclass(frozen=True)
class SquadFeatures:
    """n windows of T tokens in all, for E questions about paragraphs of P tokens.

    Attributes:
        input_ids: uint16 or int32 [T]; window i is input_ids[offsets[i]:offsets[i + 1]].
        offsets: int64 [n + 1].
        first_lengths: int32 [n], tokens of type 0: [CLS] question [SEP].
        examples: int32 [n], index of the window's question in the file; ascending.
        paragraph_starts: int64 [n], index among the P tokens of the first paragraph token in the window.
        start_positions, end_positions: int32 [n], first and last token of the answer in the window; 0 ([CLS]) if the
            window does not contain it. All 0 without labels.
        token_starts, token_ends: int32 [P], characters of the context that each paragraph token covers.
    """

    input_ids: np.ndarray
    offsets: np.ndarray
    first_lengths: np.ndarray
    examples: np.ndarray
    paragraph_starts: np.ndarray
    start_positions: np.ndarray
    end_positions: np.ndarray
    token_starts: np.ndarray
    token_ends: np.ndarray

    def __len__(self) -> int:
        return len(self.examples)

    def lengths(self) -> np.ndarray:
        """int64 [n]: tokens of each window."""
        return np.diff(self.offsets)

    def paragraph_lengths(self) -> np.ndarray:
        """int64 [n]: tokens of the paragraph in each window."""
        return self.lengths() - self.first_lengths - 1


@dataclass(frozen=True)
class _Tokens:
    """The tokens of a file's paragraphs and of its E questions."""

    paragraphs: TokenizedTexts
    questions: TokenizedTexts
    context_of: np.ndarray  # int64 [E], index of the question's paragraph
    query_lengths: np.ndarray  # int64 [E], tokens of the question that are kept

    def paragraph_lengths(self) -> np.ndarray:
        """int64 [E]: tokens of each question's paragraph."""
        return self.paragraphs.lengths()[self.context_of]


def build_features(
    examples: SquadExamples, vocabulary: Vocabulary, settings: WindowSettings, training: bool
) -> tuple[SquadFeatures, dict[str, int]]:
    """The windows of every question.

    Args:
        training: give windows the position of the question's first answer, and skip and count questions that cannot be
            trained on. Otherwise every question has at least one window.
    Returns:
        counts: of questions and windows; questions truncated to max_query_length; questions whose paragraph needs
            several windows; windows of an answerable question without its answer, which are trained as [CLS]; in
            training, questions skipped for each reason of SKIPPED.
    """
    tokens = _tokens(examples, OffsetTokenizer(vocabulary, settings.lowercase), settings.max_query_length)
    chosen = np.arange(len(examples))
    spans = np.full((len(examples), 2), _NO_ANSWER, np.int64)
    skipped: dict[str, int] = {}
    if training:
        spans, skipped = _answer_spans(examples, tokens)
        chosen = np.flatnonzero(spans[:, 0] > _SKIPPED)
        if len(chosen) * 2 < len(examples):
            _refuse(examples, skipped)
    blocks = [
        _windows(chosen[start : start + _EXAMPLES_PER_BLOCK], tokens, spans, vocabulary, settings)
        for start in range(0, len(chosen), _EXAMPLES_PER_BLOCK)
    ]
    features = _joined(blocks, tokens.paragraphs)
    windows_of = np.bincount(features.examples, minlength=len(examples))
    answered = spans[features.examples, 0] >= 0
    counts = {
        "questions": len(examples),
        "windows": len(features),
        "truncated_questions": int((tokens.questions.lengths() > settings.max_query_length).sum()),
        "long_paragraph": int((windows_of > 1).sum()),
        "windows_without_answer": int((answered & (features.end_positions == 0)).sum()),
        **skipped,
    }
    return features, counts


def _tokens(examples: SquadExamples, tokenizer: OffsetTokenizer, max_query_length: int) -> _Tokens:
    questions = tokenizer.encode_with_offsets([question.text for question in examples.questions])
    return _Tokens(
        tokenizer.encode_with_offsets(examples.contexts),
        questions,
        np.fromiter((question.context for question in examples.questions), np.int64, len(examples)),
        np.minimum(questions.lengths(), max_query_length),
    )


_NO_ANSWER, _SKIPPED = -1, -2  # instead of a span's first token


def _answer_spans(examples: SquadExamples, tokens: _Tokens) -> tuple[np.ndarray, dict[str, int]]:
    """int64 [E, 2]: first and last token of each question's first answer in its paragraph; and the numbers of skipped
    questions by reason.

    A token belongs to the answer if one of its characters does: where an answer ends within a token ("Japan" in
    "Japanese"), the whole token is the closest span that can be learned.
    """
    number, paragraphs, context_of = len(examples), tokens.paragraphs, tokens.context_of
    spans = np.full((number, 2), _NO_ANSWER, np.int64)
    starts, ends = np.zeros(number, np.int64), np.zeros(number, np.int64)
    misplaced = np.zeros(number, bool)
    for row, question in enumerate(examples.questions):
        if question.answers:
            text, start = question.answers[0]
            end = start + len(text)
            misplaced[row] = start < 0 or examples.contexts[question.context][start:end] != text
            starts[row], ends[row] = (start, end) if not misplaced[row] else (0, 0)
    answered = np.fromiter((bool(question.answers) for question in examples.questions), bool, number)
    # The characters of all contexts are numbered through, so that one search finds every question's tokens.
    room = max((len(context) for context in examples.contexts), default=0) + 1
    context_of_token = np.repeat(np.arange(len(examples.contexts)), paragraphs.lengths())
    first = np.searchsorted(context_of_token * room + paragraphs.ends, context_of * room + starts, side="right")
    last = np.searchsorted(context_of_token * room + paragraphs.starts, context_of * room + ends, side="left") - 1
    spans[answered, 0] = (first - paragraphs.offsets[context_of])[answered]
    spans[answered, 1] = (last - paragraphs.offsets[context_of])[answered]
    reasons = (tokens.paragraph_lengths() == 0, tokens.query_lengths == 0, misplaced, answered & (first > last))
    counts, skipped = {}, np.zeros(number, bool)
    for name, rows in zip(SKIPPED, reasons, strict=True):
        counts[name] = int((rows & ~skipped).sum())
        skipped |= rows
    spans[skipped] = _SKIPPED
    return spans, counts


def _refuse(examples: SquadExamples, skipped: Mapping[str, int]) -> NoReturn:
    for question in examples.questions:
        for text, start in question.answers[:1]:
            found = examples.contexts[question.context][max(0, start) : max(0, start) + len(text)]
            if found != text:
                raise ValueError(
                    f"{examples.source}: {skipped['misplaced_answer']} of {len(examples)} answers are "
                    f"not at their answer_start, e.g. id {question.id!r}: {text[:40]!r} at {start}, "
                    f"where the context has {found[:40]!r}; answer_start counts characters (code points) "
                    "from 0"
                )
    raise ValueError(
        f"{examples.source}: most of its {len(examples)} questions cannot be trained on ("
        + ", ".join(f"{name}: {count}" for name, count in skipped.items() if count)
        + "); correct the file, or pass another"
    )


def _windows(
    rows: np.ndarray, tokens: _Tokens, spans: np.ndarray, vocabulary: Vocabulary, settings: WindowSettings
) -> dict[str, np.ndarray]:
    """The arrays of SquadFeatures for the questions `rows`; `spans` are those of `_answer_spans`."""
    paragraphs, questions = tokens.paragraphs, tokens.questions
    lengths = tokens.paragraph_lengths()[rows]
    room = settings.max_seq_length - tokens.query_lengths[rows] - 3
    step = np.minimum(settings.doc_stride, room)
    number = 1 + -(-np.maximum(lengths - room, 0) // step)
    of = np.repeat(np.arange(len(rows)), number)  # window -> its place in `rows`
    starts = ragged_indices(np.zeros(len(rows), np.int64), number) * step[of]
    taken = np.minimum(lengths[of] - starts, room[of])
    examples = rows[of]
    query_lengths = tokens.query_lengths[examples]
    paragraph_starts = paragraphs.offsets[tokens.context_of[examples]] + starts
    first_ids = questions.ids[ragged_indices(questions.offsets[examples], query_lengths)]
    second_ids = paragraphs.ids[ragged_indices(paragraph_starts, taken)]
    input_ids, offsets = join_pairs(
        first_ids, query_lengths, second_ids, taken, vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]")
    )
    first_lengths = query_lengths + 2
    positions = np.zeros((len(examples), 2), np.int64)
    inside = (spans[examples, 0] >= starts) & (spans[examples, 1] < starts + taken)
    positions[inside] = (spans[examples] - starts[:, None] + first_lengths[:, None])[inside]
    return {
        "input_ids": input_ids,
        "lengths": np.diff(offsets),
        "first_lengths": first_lengths.astype(np.int32),
        "examples": examples.astype(np.int32),
        "paragraph_starts": paragraph_starts,
        "start_positions": positions[:, 0].astype(np.int32),
        "end_positions": positions[:, 1].astype(np.int32),
    }


def _joined(blocks: list[dict[str, np.ndarray]], paragraphs: TokenizedTexts) -> SquadFeatures:
    joined = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return SquadFeatures(
        offsets=offsets_of(joined.pop("lengths")), token_starts=paragraphs.starts, token_ends=paragraphs.ends, **joined
    )


def max_context(features: SquadFeatures) -> np.ndarray:
    """bool [T]: paragraph tokens that have more context in this window than in any other window of the question.

    The context of a token is the smaller of the numbers of tokens before and after it in the window, plus a hundredth
    of the window's length; among equals the first window wins. Tokens of questions and special tokens are False.
    """
    lengths = features.paragraph_lengths()
    places = ragged_indices(features.offsets[:-1] + features.first_lengths, lengths)
    window = np.repeat(np.arange(len(features)), lengths)
    result = np.zeros(len(features.input_ids), bool)
    alone = (np.bincount(features.examples, minlength=1)[features.examples] == 1)[window]
    result[places[alone]] = True
    places, window = places[~alone], window[~alone]
    if not len(places):
        return result
    inside = places - features.offsets[window] - features.first_lengths[window]
    score = np.minimum(inside, lengths[window] - 1 - inside) * 100 + lengths[window]
    token = features.paragraph_starts[window] + inside
    order = np.lexsort((window, -score, token, features.examples[window]))
    example, token = features.examples[window[order]], token[order]
    best = np.ones(len(order), bool)
    best[1:] = (example[1:] != example[:-1]) | (token[1:] != token[:-1])
    result[places[order[best]]] = True
    return result
