"""The rules of a plan for own text: a value, and why. `constants` has the figures.

What the user gave is taken as it is. Pure: nothing is read, measured or printed here.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from bert.own_text import constants
from bert.own_text.candidates import Candidate, layer_parameters, text_tokens
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.request import TextRequest
from bert.own_text.sources import REPLAY
from bert.planning.estimates import checkpoint_bytes
from data.preprocessing.estimates import own_text_bytes, own_text_seconds

Speeds = Mapping[str, float]  # name of the candidate -> sequences per second of all ranks
Value = TypeVar("Value")
GIVEN = "as given"
_BINS = 4
_LEAST_SAMPLES_IN_A_BIN = 50  # times the global batch: with fewer, a bin's last batches are too rare
_EVALUATION_SHARE = 0.05  # of the time
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_CHECKPOINTS = 6  # at most: the three newest, the best, that before the decay, and one that is being written


class Chosen(NamedTuple, Generic[Value]):
    value: Value
    reason: str


def chosen(given: Value | None, value: Value, reason: str) -> Chosen[Value]:
    """What was given, otherwise the value of the rule."""
    return Chosen(value, reason) if given is None else Chosen(given, GIVEN)


def short(number: float) -> str:
    for size, unit in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"


class Rules:
    """The choices for a text on a machine, each by its rule.

    Args:
        found: `candidates.candidates`.
        speeds: of every candidate.
        is_measured: the speeds are no estimates.
    """

    def __init__(
        self,
        text: TextFacts,
        machine: MachineFacts,
        request: TextRequest,
        found: tuple[Candidate, ...],
        speeds: Speeds,
        is_measured: bool = True,
    ) -> None:
        self.text, self.machine, self.request, self.is_measured = text, machine, request, is_measured
        self._found, self._speeds = found, speeds

    # ---- model and data ----------------------------------------------------------------------------------------------

    @cached_property
    def candidate(self) -> Candidate:
        """The largest one that reads enough tokens for its parameters in the time; the smallest if none does."""
        length, fitting = self.request.length, [self._found[0]]
        seconds = length.seconds() - self.preparation_seconds
        for candidate in self._found[1:]:
            read = candidate.text_tokens_of_sample() * seconds * self._speeds[candidate.name]
            if length.epochs is not None:
                read = min(read, length.epochs * text_tokens(self.text, candidate.model.vocab_size))
            if read >= constants.TOKENS_PER_PARAMETER * layer_parameters(candidate.model):
                fitting.append(candidate)
        return fitting[-1]

    @cached_property
    def tokens(self) -> float:
        """Of the text."""
        return text_tokens(self.text, self.candidate.model.vocab_size)

    @cached_property
    def duplicate_factor(self) -> int:
        """How many times the text is in the shards."""
        is_small = self.text.num_bytes <= constants.LARGEST_DUPLICATED_TEXT
        return self.request.duplicate_factor or (constants.DUPLICATE_FACTOR if is_small else 1)

    @cached_property
    def preparation_seconds(self) -> float:
        return own_text_seconds(self.text.all_bytes(), self.duplicate_factor, self.machine.cores)

    @cached_property
    def held_out(self) -> Chosen[float]:
        """The share of the text that is not trained on."""
        share = constants.HELD_OUT_BYTES / max(self.text.num_bytes, 1)
        share = round(min(constants.LARGEST_HELD_OUT, max(constants.SMALLEST_HELD_OUT, share)), 3)
        why = f"about {short(share * self.tokens)} tokens to measure on"
        return chosen(self.request.held_out_fraction, share, why)

    @cached_property
    def segmenter(self) -> str | None:
        """What finds the words that masks cover whole; None: masks cover single tokens."""
        request = self.request
        # The tokens of other vocabularies than a WordPiece may span the words that are found.
        is_wordpiece = request.tokens is None or request.tokens.vocabulary.is_wordpiece()
        usual = self.machine.segmenter if self.text.is_chinese and is_wordpiece else ""
        name = usual if request.word_segmenter == "auto" else request.word_segmenter
        return name if name not in ("", "none") else None

    @cached_property
    def samples(self) -> float:
        """Of a pass over the text, with those of --replay, which it has in addition."""
        replayed = sum(source.share for source in self.request.sources if source.name == REPLAY)
        return self.tokens * (1 - self.held_out.value) / self.candidate.text_tokens_of_sample() / (1 - replayed)

    @cached_property
    def bin_size(self) -> int | None:
        """Width of the bins of the shards, in tokens; None: there are too few samples for bins."""
        enough = _BINS * _LEAST_SAMPLES_IN_A_BIN * self.batch.value
        return self.candidate.length // _BINS if self.samples * self.duplicate_factor >= enough else None

    @cached_property
    def disk_bytes(self) -> float:
        """Of text, shards and checkpoints."""
        data = own_text_bytes(self.text.all_bytes(), self.duplicate_factor)
        return data + _CHECKPOINTS * checkpoint_bytes(self.candidate.model)

    # ---- length ------------------------------------------------------------------------------------------------------

    def _sequences_at(self, speed: float) -> float:
        """That the training reads in its time."""
        other = self.preparation_seconds + constants.START_SECONDS + constants.END_SECONDS
        return self.request.length.training_seconds(self.samples / speed, other) * speed

    def _updates_at(self, speed: float) -> int:
        return self.request.length.max_steps or max(1, round(self._sequences_at(speed) / self.batch.value))

    @cached_property
    def speed(self) -> float:
        """Sequences per second of all ranks; small models are measured without dropout."""
        rule, speed = self.candidate.rule, self._speeds[self.candidate.name]
        is_small = rule is not None and rule.dropout is None and self.candidate.placement.device == "cpu"
        costs = is_small and any(self.dropouts.value.values()) and self.request.length.max_steps is None
        return speed / constants.DROPOUT_COST if costs else speed

    @cached_property
    def updates(self) -> int:
        """That are expected."""
        return self._updates_at(self.speed)

    @cached_property
    def training_seconds(self) -> float:
        return self.updates * self.batch.value / self.speed

    @cached_property
    def epochs(self) -> float:
        """Passes over the text that are expected."""
        return self.updates * self.batch.value / self.samples

    # ---- training ----------------------------------------------------------------------------------------------------

    @cached_property
    def batch(self) -> Chosen[int]:
        """Sequences of an update, by the tokens that the whole training reads.

        Not so many that the training makes fewer than 200 updates, or that the samples are fewer than 8 batches.
        """
        request, placement, length = self.request, self.candidate.placement, self.candidate.mean_length()
        micro, given = request.setting("batch_size") or 1, request.setting("global_batch_size")
        sequences = self._sequences_at(self._speeds[self.candidate.name])
        if given and request.length.max_steps:
            sequences = request.length.max_steps * given
        wanted = constants.BATCH_ANCHOR * math.sqrt(sequences * length / constants.TOKENS_ANCHOR) / length
        least = 8 if placement.device == "cpu" else constants.LEAST_MICRO_BATCH["gpu"] * placement.ranks
        wanted = max(wanted, constants.SHORT_TRAINING_BATCH / length, least)
        most = max(min(sequences / 200, self.samples * self.duplicate_factor / 8), constants.LEAST_BATCH)
        wanted = min(wanted, most, constants.LARGEST_BATCH)
        share = max(1, 1 << round(math.log2(max(wanted / placement.ranks, 1))))
        batch = placement.ranks * max(share, micro if share % micro == 0 else -(-share // micro) * micro)
        why = f"about {short(batch * length)} tokens; grows with the root of the tokens that are read"
        return chosen(given, batch, why)

    @cached_property
    def dropouts(self) -> Chosen[dict[str, float]]:
        """Those of the layers and of the attention."""
        rule = self.candidate.rule
        if rule is None:
            rates, why = [getattr(self.candidate.model, name) for name in _DROPOUTS], "that of the weights"
        elif rule.dropout is not None:
            rates, why = 2 * [rule.dropout], "as published"
        else:
            epochs = self._updates_at(self._speeds[self.candidate.name]) * self.batch.value / self.samples
            rates = 2 * [constants.DROPOUT if epochs >= constants.DROPOUT_FROM_EPOCHS else 0.0]
            why = f"{constants.DROPOUT:g} from {constants.DROPOUT_FROM_EPOCHS:g} epochs on; without it {epochs:.3g}"
        given = {name: value for name in _DROPOUTS if (value := self.request.setting(name)) is not None}
        return Chosen(dict(zip(_DROPOUTS, rates, strict=True)) | given, GIVEN if given else why)

    @cached_property
    def optimizer(self) -> str:
        usual = "Lamb" if self.candidate.rule is not None else "AdamW"
        return self.request.setting("optimizer") or usual

    @cached_property
    def learning_rate(self) -> Chosen[float]:
        """Peak rate: that of the rule's anchor, scaled by the square root of the batch."""
        rule, weights = self.candidate.rule, self.request.weights
        if rule is not None and self.optimizer != "AdamW":
            rate, anchor, why = rule.rate, rule.batch_tokens, rule.source
        else:
            rate, anchor, why = constants.CONTINUED_RATE, constants.CONTINUED_BATCH_TOKENS, "Gururangan et al. (2020)"
            if rule is not None:  # random weights; Devlin et al. (2019) at width 768, more for narrower models
                rate, why = rate * max(1.0, 768 / self.candidate.model.hidden_size), "Devlin et al. (2019)"
        batch_tokens = self.batch.value * self.candidate.mean_length()
        rate = min(rate * math.sqrt(batch_tokens / anchor), constants.MOST_RATE)
        why = f"{why}, by the root of the batch"
        if weights is not None and "masked-LM head" not in weights.heads and rate < constants.NEW_HEAD_RATE:
            rate, why = constants.NEW_HEAD_RATE, "for a masked-LM head made anew; measured with MiniLM-L6"
        return chosen(self.request.setting("learning_rate"), float(f"{rate:.2g}"), why)

    @cached_property
    def warmup(self) -> Chosen[float]:
        """Share of the updates that are expected."""
        share, why = constants.WARMUP, "the quickstart's recipe"
        if self.batch.value >= constants.WARMUP_LARGE_BATCH:
            share, why = constants.WARMUP_OF_LARGE_BATCHES, "the published recipe"
        return chosen(self.request.setting("warmup_proportion"), share, why)

    @cached_property
    def schedule(self) -> Chosen[str]:
        why = f"a stable rate, and a decay in the last {self.decay_share:.0%}, so that time can decide"
        choice = chosen(self.request.setting("lr_schedule"), "wsd", why)
        self.request.length.refuse_schedule(choice.value)
        return choice

    @cached_property
    def decay_share(self) -> float:
        return float(self.request.setting("lr_decay_share", constants.DECAY_SHARE))

    # ---- evaluations -------------------------------------------------------------------------------------------------

    @cached_property
    def eval_samples(self) -> int:
        """Held-out sequences of an evaluation, at most."""
        return int(self.request.setting("eval_samples", constants.EVALUATED_SEQUENCES[self.candidate.placement.device]))

    @cached_property
    def evaluated(self) -> int:
        """Held-out sequences of an evaluation."""
        held_out = int(self.tokens * self.held_out.value / self.candidate.text_tokens_of_sample())
        return min(self.eval_samples, max(1, held_out)) if self.held_out.value else 0

    @cached_property
    def evaluation_seconds(self) -> float:
        """Of a held-out sequence or a labelled line."""
        return constants.EVALUATION_COST / self.speed

    @cached_property
    def eval_interval(self) -> int | None:
        """Updates between evaluations, which take a twentieth of the time; None without any."""
        if not (count := self.evaluated + self.request.probe_lines):
            return None
        number = max(2, int(_EVALUATION_SHARE * self.training_seconds / (self.evaluation_seconds * count)))
        return -(-self.updates // min(constants.EVALUATIONS, number))

    @cached_property
    def early_stopping(self) -> Chosen[int]:
        """Evaluations without a better one that end the training."""
        if not self.evaluated and self.request.setting("best_by") != "probe":
            return Chosen(0, "nothing is held out to measure")
        return chosen(self.request.setting("early_stopping"), constants.EARLY_STOPPING, "the best is the result")
