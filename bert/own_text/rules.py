"""The rules of a plan for own text: a value, and why. `constants` has the figures.

What the user gave is taken as it is. Pure: nothing is read, measured or printed here.
"""

import math
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from bert.own_text import constants
from bert.own_text.candidates import Candidate, affordable, text_tokens
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.request import TextRequest
from bert.own_text.sources import REPLAY
from bert.own_text.words import normalization_of
from bert.planning.estimates import checkpoint_bytes
from data.preprocessing.estimates import own_text_bytes, own_text_seconds

Speeds = Mapping[str, float]  # name of the candidate -> sequences per second of all ranks
Value = TypeVar("Value")
GIVEN = "as given"
_BINS = 4
_LEAST_SAMPLES_IN_A_BIN = 50  # times the global batch: with fewer, a bin's last batches are too rare
_EVALUATION_SHARE = 0.05  # of the time
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_CHECKPOINTS = 6  # `TrainingConfig.most_checkpoints` of the three newest


class Choice(NamedTuple, Generic[Value]):
    value: Value
    reason: str


def choice(given: Value | None, value: Value, reason: str) -> Choice[Value]:
    """What was given, otherwise the value of the rule."""
    return Choice(value, reason) if given is None else Choice(given, GIVEN)


def short_number(number: float) -> str:
    for size, unit in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"


class Rules:
    """The choices for a text on a machine, each by its rule.

    Args:
        candidates: `candidates.list_candidates`.
        speeds: of every candidate.
        is_measured: the speeds are no estimates.
        used_seconds: of the time, until now.
    Attributes:
        candidate: the model.
        tokens: of the text.
        held_out: the share of the text that is not trained on.
        data_seconds: of import, vocabulary and shards.
        first_seconds: before the first update.
        samples: of a pass over the text, with those of --replay, which it has in addition.
        normalization: of the text, before it becomes tokens.
        speed: sequences per second of all ranks.
        updates, epochs: that are expected; epochs are passes over the text.
        warmup: share of those updates.
        evaluated: held-out sequences of an evaluation.
        evaluation_seconds: of one of them.
        eval_interval: updates between evaluations; None without any.
        early_stopping: evaluations without a better one that end the training.
        disk_bytes: of text, shards and checkpoints.
    """

    def __init__(
        self,
        text: TextFacts,
        machine: MachineFacts,
        request: TextRequest,
        candidates: tuple[Candidate, ...],
        speeds: Speeds,
        is_measured: bool = True,
        used_seconds: float = 0.0,
    ) -> None:
        self.text, self.machine, self.request, self.is_measured = text, machine, request, is_measured
        is_small = text.num_bytes <= constants.LARGEST_DUPLICATED_TEXT
        self.duplicate_factor = request.duplicate_factor or (constants.DUPLICATE_FACTOR if is_small else 1)
        size, copies, slowness = text.all_bytes(), self.duplicate_factor, text.slowness
        self.data_seconds = own_text_seconds(size, copies, machine.cores, text.reading_seconds, slowness)
        starts = 1 if is_measured else 2  # also of the ranks that measure the speed
        start_seconds = constants.START_SECONDS[candidates[0].placement.device]
        self.first_seconds = used_seconds + self.data_seconds + starts * start_seconds * slowness
        seconds = request.length.seconds() - self.first_seconds
        self.candidate = affordable(candidates, text, request.length, seconds, speeds)[-1]
        self.tokens = text_tokens(text, self.candidate.model.vocab_size)
        self.held_out, self.segmenter = self._held_out(), self._segmenter()
        self.normalization = normalization_of(request, text)
        replayed = sum(source.share for source in request.sources if source.name == REPLAY)
        used_tokens = self.tokens * (1 - self.held_out.value)
        self.samples = used_tokens / self.candidate.text_tokens_of_sample() / (1 - replayed)
        self._decide_length(speeds[self.candidate.name])
        enough = _BINS * _LEAST_SAMPLES_IN_A_BIN * self.batch.value
        self.bin_size = self.candidate.length // _BINS if self.samples * self.duplicate_factor >= enough else None
        self.learning_rate, self.warmup = self._learning_rate(), self._warmup()
        self.head_rate_factor = self._head_rate_factor()
        self.decay_share: float = request.setting("lr_decay_share", constants.DECAY_SHARE)
        why = f"a stable rate, and a decay in the last {self.decay_share:.0%}, so that time can decide"
        self.schedule = choice(request.setting("lr_schedule"), "wsd", why)
        request.length.refuse_schedule(self.schedule.value)
        self._decide_evaluations()
        data = own_text_bytes(size, copies)
        self.disk_bytes = data + _CHECKPOINTS * checkpoint_bytes(self.candidate.model)

    def _decide_length(self, measured_speed: float) -> None:
        """Batch, dropout, speed and number of updates. Small models are measured without dropout."""
        length, rule = self.request.length, self.candidate.rule
        self.other_seconds = other = self.first_seconds + length.end_seconds(self.text.slowness)

        def updates_at(speed: float) -> int:
            seconds = length.training_seconds(self.samples / speed, other)
            return length.max_steps or max(1, round(seconds * speed / self.batch.value))

        sequences = length.training_seconds(self.samples / measured_speed, other) * measured_speed
        self.batch, self.speed = self._batch(sequences), measured_speed
        self.updates = updates_at(measured_speed)
        self.dropouts = self._dropouts(self.updates * self.batch.value / self.samples)
        is_cheaper_without = rule is not None and rule.dropout is None and self.candidate.placement.device == "cpu"
        if is_cheaper_without and any(self.dropouts.value.values()) and not length.max_steps:
            self.speed /= constants.DROPOUT_COST
            self.updates = updates_at(self.speed)
        self.epochs = self.updates * self.batch.value / self.samples
        self.training_seconds = self.updates * self.batch.value / self.speed

    def _decide_evaluations(self) -> None:
        """They take a twentieth of the time."""
        request, held_out = self.request, self.held_out.value
        usual = constants.EVALUATED_SEQUENCES[self.candidate.placement.device]
        self.eval_samples: int = request.setting("eval_samples", usual)
        held_out_samples = max(1, int(self.tokens * held_out / self.candidate.text_tokens_of_sample()))
        self.evaluated = min(self.eval_samples, held_out_samples) if held_out else 0
        self.evaluation_seconds = constants.EVALUATION_COST / self.speed
        self.eval_interval: int | None = None
        if count := self.evaluated:
            number = max(2, int(_EVALUATION_SHARE * self.training_seconds / (self.evaluation_seconds * count)))
            self.eval_interval = -(-self.updates // min(constants.EVALUATIONS, number))
        given = request.setting("early_stopping")
        self.early_stopping = choice(given, constants.EARLY_STOPPING, "the best is the result")
        if not self.evaluated:
            self.early_stopping = Choice(0, "nothing is held out to measure")

    def _held_out(self) -> Choice[float]:
        share = constants.HELD_OUT_BYTES / max(self.text.num_bytes, 1)
        share = round(min(constants.LARGEST_HELD_OUT, max(constants.SMALLEST_HELD_OUT, share)), 3)
        why = f"about {short_number(share * self.tokens)} tokens to measure on"
        return choice(self.request.held_out_fraction, share, why)

    def _segmenter(self) -> str | None:
        """What finds the words that masks cover whole; None: masks cover single tokens."""
        request = self.request
        # The tokens of other vocabularies than a WordPiece may span the words that jieba finds.
        is_wordpiece = request.tokens is None or request.tokens.vocabulary.is_wordpiece()
        usual = self.machine.segmenter if self.text.is_chinese and is_wordpiece else ""
        name = usual if request.word_segmenter == "auto" else request.word_segmenter
        return name if name == "jieba" else None  # others cut the text itself

    def _batch(self, sequences: float) -> Choice[int]:
        """Sequences of an update, by the tokens that the whole training reads.

        Not so many that the training makes fewer than 200 updates, or that the samples are fewer than 8 batches.

        Args:
            sequences: that the training reads.
        """
        request, placement, length = self.request, self.candidate.placement, self.candidate.mean_length()
        micro, given = request.setting("batch_size") or 1, request.setting("global_batch_size")
        if given and request.length.max_steps:
            sequences = request.length.max_steps * given
        wanted = constants.BATCH_ANCHOR * math.sqrt(sequences * length / constants.TOKENS_ANCHOR) / length
        wanted *= constants.ADAMW_BATCH if self.candidate.is_small_with_adamw() else 1.0
        least = 8 if placement.device == "cpu" else constants.LEAST_MICRO_BATCH["gpu"] * placement.ranks
        wanted = max(wanted, constants.SHORT_BATCH / length, least)
        most = max(min(sequences / 200, self.samples * self.duplicate_factor / 8), constants.LEAST_BATCH)
        wanted = min(wanted, most, constants.LARGEST_BATCH)
        share = max(1, 1 << round(math.log2(max(wanted / placement.ranks, 1))))
        batch = placement.ranks * max(share, micro if share % micro == 0 else -(-share // micro) * micro)
        why = f"about {short_number(batch * length)} tokens; grows with the root of the tokens that are read"
        return choice(given, batch, why)

    def _dropouts(self, epochs: float) -> Choice[dict[str, float]]:
        """Those of the layers and of the attention."""
        rule = self.candidate.rule
        if rule is None:
            rates, why = [getattr(self.candidate.model, name) for name in _DROPOUTS], "that of the weights"
        elif rule.dropout is not None:
            rates, why = 2 * [rule.dropout], "as published"
        else:
            rates = 2 * [constants.DROPOUT if epochs >= constants.DROPOUT_FROM_EPOCHS else 0.0]
            why = f"{constants.DROPOUT:g} from {constants.DROPOUT_FROM_EPOCHS:g} epochs on; without it {epochs:.3g}"
        given = {name: value for name in _DROPOUTS if (value := self.request.setting(name)) is not None}
        return Choice(dict(zip(_DROPOUTS, rates, strict=True)) | given, GIVEN if given else why)

    def _learning_rate(self) -> Choice[float]:
        """Peak rate: that of the rule's anchor, scaled by the square root of the batch."""
        rule, most = self.candidate.rule, constants.MOST_RATE
        if rule is not None and self.candidate.optimizer != "AdamW":
            rate, anchor, why = rule.rate, rule.batch_tokens, rule.source
        elif rule is not None and self.candidate.is_small_with_adamw():
            share = (rule.adamw_share or 1.0) * 128 / self.candidate.model.hidden_size
            rate, anchor = constants.ADAMW_RATE * share, constants.ADAMW_BATCH_TOKENS
            most, why = rate * constants.MOST_ADAMW_GROWTH, "measured with 128 units to 32 sequences"
        else:
            rate, anchor = constants.CONTINUED_RATE, constants.CONTINUED_BATCH_TOKENS
            why = "Gururangan et al. (2020)" if rule is None else "Devlin et al. (2019)"
        batch_tokens = self.batch.value * self.candidate.mean_length()
        rate = min(rate * math.sqrt(batch_tokens / anchor), most)
        why = f"{why}, by the root of the batch"
        if self._has_new_head():
            rate = max(rate, constants.RATE_BELOW_A_NEW_HEAD)
            why = f"below a masked-LM head made anew, which learns at {constants.NEW_HEAD_RATE:g}; measured"
        return choice(self.request.setting("learning_rate"), float(f"{rate:.2g}"), why)

    def _has_new_head(self) -> bool:
        """Whether weights are given that have no masked-LM head, which is made anew."""
        return self.request.weights is not None and "masked-LM head" not in self.request.weights.heads

    def _head_rate_factor(self) -> float:
        """The learning rate of the masked-LM head, as a multiple of that of the encoder."""
        factor = constants.NEW_HEAD_RATE / self.learning_rate.value if self._has_new_head() else 1.0
        given: float = self.request.setting("head_rate_factor", float(f"{max(1.0, factor):.2g}"))
        return given

    def _warmup(self) -> Choice[float]:
        share, why = constants.WARMUP, "the quickstart's recipe"
        if self.batch.value >= constants.WARMUP_LARGE_BATCH:
            share, why = constants.WARMUP_OF_LARGE_BATCHES, "the published recipe"
        return choice(self.request.setting("warmup_proportion"), share, why)
