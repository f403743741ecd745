"""The rules of a plan for the user's text: pure functions from facts and request to `decisions`.

A requested value is always taken as it is. `constants` has the figures of the rules, each with its source. Nothing is
read, measured or printed here.
"""

import math
from collections.abc import Sequence

from bert.own_text import constants
from bert.own_text.candidates import ModelCandidate, affordable, list_candidates, text_tokens
from bert.own_text.decisions import (
    GIVEN,
    Batch,
    Choice,
    Data,
    Decisions,
    Evaluations,
    Overhead,
    Rates,
    Speeds,
    Training,
    choose,
    disk_bytes,
    short_number,
)
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.length import Length
from bert.own_text.request import TextRequest
from bert.own_text.sources import REPLAY
from bert.own_text.words import normalization_of
from data.preprocessing.estimates import own_text_seconds

_BINS = 4
_LEAST_SAMPLES_IN_A_BIN = 50  # times the global batch: with fewer, a bin's last batches are too rare
_EVALUATION_SHARE = 0.05  # of the time
_LEAST_UPDATES = 200  # the batch is not so large that a training makes fewer
_LEAST_BATCHES_OF_TEXT = 8  # nor so large that the shards have fewer
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def decide(
    text: TextFacts, machine: MachineFacts, request: TextRequest, speeds: Speeds, used_seconds: float = 0.0
) -> Decisions:
    """Choose the model, and everything that depends on it.

    Args:
        speeds: a larger model without a speed is not chosen.
        used_seconds: of --hours, until now.
    Raises:
        ValueError: the request contradicts the text, the machine or the time.
    """
    candidates = list_candidates(text, machine, request)
    overhead = estimate_overhead(text, machine, request, speeds.is_measured, used_seconds)
    seconds = request.length.seconds() - overhead.before_training
    candidate = affordable(candidates, text, request.length, seconds, speeds.of_models)[-1]
    return _decide_for(candidate, text, machine, request, speeds, overhead)


def expected_batches(
    candidates: Sequence[ModelCandidate], text: TextFacts, machine: MachineFacts, request: TextRequest, speeds: Speeds
) -> dict[str, int]:
    """Expected global batch of each model, by name."""
    overhead = estimate_overhead(text, machine, request)
    return {
        candidate.name: _decide_for(candidate, text, machine, request, speeds, overhead).batch.size.value
        for candidate in candidates
    }


def _decide_for(
    candidate: ModelCandidate,
    text: TextFacts,
    machine: MachineFacts,
    request: TextRequest,
    speeds: Speeds,
    overhead: Overhead,
) -> Decisions:
    """All decisions except the model. Each one depends on earlier ones."""
    data = decide_data(text, machine, request, candidate)
    sequences = _sequences_in_time(request.length, data, speeds.of_models[candidate.name], overhead)
    batch = decide_batch(request, candidate, data, sequences)
    training = expect_training(request, candidate, data, batch, speeds.of_models[candidate.name], overhead)
    rates = decide_rates(request, candidate, batch)
    request.length.refuse_schedule(rates.schedule.value)
    return Decisions(
        text=text,
        machine=machine,
        request=request,
        candidate=candidate,
        overhead=overhead,
        data=data,
        batch=batch,
        training=training,
        rates=rates,
        evaluations=decide_evaluations(request, candidate, data, training),
        speed_is_measured=speeds.is_measured,
        disk_bytes=disk_bytes(text.all_bytes(), data.duplicate_factor, candidate.model),
    )


# ---- time and data ---------------------------------------------------------------------------------------------------


def estimate_overhead(
    text: TextFacts, machine: MachineFacts, request: TextRequest, is_measured: bool = True, used_seconds: float = 0.0
) -> Overhead:
    """Estimate the time before and after the updates.

    Args:
        is_measured: the ranks that measure the speed were started already, in the used seconds.
    """
    copies, slowness = duplicate_factor(text, request), text.slowness
    data = own_text_seconds(text.all_bytes(), copies, machine.cores, text.reading_seconds, slowness)
    start = constants.START_SECONDS[machine.device(request.setting("device", "auto"))]
    starts = 1 if is_measured else 2  # also of the ranks that will measure the speed
    before_training = used_seconds + data + starts * start * slowness
    return Overhead(data, before_training, request.length.end_seconds(slowness))


def duplicate_factor(text: TextFacts, request: TextRequest) -> int:
    """Number of copies of the text in the shards: several for a small text, so that pairs are not memorised."""
    is_small = text.num_bytes <= constants.LARGEST_DUPLICATED_TEXT
    return request.duplicate_factor or (constants.DUPLICATE_FACTOR if is_small else 1)


def decide_data(text: TextFacts, machine: MachineFacts, request: TextRequest, candidate: ModelCandidate) -> Data:
    """Choose the held-out part, the word segmenter, and the number of samples in a pass over the rest."""
    tokens = text_tokens(text, candidate.model.vocab_size)
    held_out = _held_out(text, request, tokens)
    replayed = sum(source.share for source in request.sources if source.name == REPLAY)
    samples = tokens * (1 - held_out.value) / candidate.text_tokens_of_sample() / (1 - replayed)
    return Data(
        tokens=tokens,
        duplicate_factor=duplicate_factor(text, request),
        held_out=held_out,
        normalization=normalization_of(request, text),
        segmenter=_segmenter(text, machine, request),
        samples=samples,
    )


def _held_out(text: TextFacts, request: TextRequest, tokens: float) -> Choice[float]:
    """Size of the held-out text: enough for a precise loss, at most a tenth of the text."""
    share = constants.HELD_OUT_BYTES / max(text.num_bytes, 1)
    share = round(min(constants.LARGEST_HELD_OUT, max(constants.SMALLEST_HELD_OUT, share)), 3)
    return choose(request.held_out_fraction, share, f"about {short_number(share * tokens)} tokens to measure on")


def _segmenter(text: TextFacts, machine: MachineFacts, request: TextRequest) -> str | None:
    """The word segmenter: jieba for Chinese text if installed; its words need WordPiece tokens."""
    is_wordpiece = request.tokens is None or request.tokens.vocabulary.is_wordpiece()
    usual = machine.segmenter if text.is_chinese and is_wordpiece else ""
    name = usual if request.word_segmenter == "auto" else request.word_segmenter
    return name if name == "jieba" else None  # others cut the text itself


# ---- batch, dropout and updates --------------------------------------------------------------------------------------


def decide_batch(request: TextRequest, candidate: ModelCandidate, data: Data, sequences: float) -> Batch:
    """Choose the global batch, and bins if each bin has enough samples for a batch.

    Args:
        sequences: that the training reads.
    """
    size = _global_batch(request, candidate, data, sequences)
    has_enough = data.stored_samples() >= _BINS * _LEAST_SAMPLES_IN_A_BIN * size.value
    return Batch(size, candidate.length // _BINS if has_enough else None)


def _global_batch(request: TextRequest, candidate: ModelCandidate, data: Data, sequences: float) -> Choice[int]:
    """Global batch: grows with the square root of all training tokens; a power of two for each rank.

    Not so large that there are fewer than 200 updates, or that the shards have fewer than 8 batches.
    """
    ranks, length = candidate.placement.ranks, candidate.mean_length()
    micro, requested = request.setting("batch_size") or 1, request.setting("global_batch_size")
    if requested and request.length.max_steps:
        sequences = request.length.max_steps * requested
    wanted = constants.BATCH_ANCHOR * math.sqrt(sequences * length / constants.TOKENS_ANCHOR) / length
    wanted *= constants.ADAMW_BATCH if candidate.is_small_with_adamw() else 1.0
    least = 8 if candidate.placement.device == "cpu" else constants.LEAST_MICRO_BATCH["gpu"] * ranks
    wanted = max(wanted, constants.SHORT_BATCH / length, least)
    most = min(sequences / _LEAST_UPDATES, data.stored_samples() / _LEAST_BATCHES_OF_TEXT)
    wanted = min(wanted, max(most, constants.LEAST_BATCH), constants.LARGEST_BATCH)
    of_rank = max(1, 1 << round(math.log2(max(wanted / ranks, 1))))
    of_rank = max(of_rank, micro * math.ceil(of_rank / micro))  # whole micro-batches
    batch = ranks * of_rank
    why = f"about {short_number(batch * length)} tokens; grows with the root of the tokens that are read"
    return choose(requested, batch, why)


def expect_training(
    request: TextRequest, candidate: ModelCandidate, data: Data, batch: Batch, measured_speed: float, overhead: Overhead
) -> Training:
    """Choose dropout by the number of epochs, then estimate speed and updates with that dropout.

    Small models are measured without dropout, which makes their updates on a CPU slower.
    """
    length, size, speed = request.length, batch.size.value, measured_speed
    updates = _updates(length, _sequences_in_time(length, data, speed, overhead), size)
    dropouts = decide_dropouts(request, candidate, epochs=updates * size / data.samples)
    is_slower = candidate.has_free_dropout() and candidate.placement.device == "cpu" and any(dropouts.value.values())
    if is_slower:
        speed /= constants.DROPOUT_COST
        updates = _updates(length, _sequences_in_time(length, data, speed, overhead), size)
    sequences = updates * size
    return Training(dropouts, speed, updates, epochs=sequences / data.samples, seconds=sequences / speed)


def _sequences_in_time(length: Length, data: Data, speed: float, overhead: Overhead) -> float:
    """Number of sequences that the training reads, unless --max-steps decides."""
    return length.training_seconds(data.samples / speed, overhead.seconds()) * speed


def _updates(length: Length, sequences: float, batch: int) -> int:
    return length.max_steps or max(1, round(sequences / batch))


def decide_dropouts(request: TextRequest, candidate: ModelCandidate, epochs: float) -> Choice[dict[str, float]]:
    """Choose the dropout of layers and attention: only a text that is read often needs it."""
    rule = candidate.rule
    if rule is None:
        rates, why = [getattr(candidate.model, name) for name in _DROPOUTS], "as in the weights"
    elif rule.dropout is not None:
        rates, why = 2 * [rule.dropout], "as published"
    else:
        rates = 2 * [constants.DROPOUT if epochs >= constants.DROPOUT_FROM_EPOCHS else 0.0]
        why = f"{constants.DROPOUT:g} from {constants.DROPOUT_FROM_EPOCHS:g} epochs on; without it {epochs:.3g}"
    requested = {name: value for name in _DROPOUTS if (value := request.setting(name)) is not None}
    return Choice(dict(zip(_DROPOUTS, rates, strict=True)) | requested, GIVEN if requested else why)


# ---- rates -----------------------------------------------------------------------------------------------------------


def decide_rates(request: TextRequest, candidate: ModelCandidate, batch: Batch) -> Rates:
    """Choose peak, warm-up and schedule of the learning rate."""
    learning_rate = _learning_rate(request, candidate, batch)
    factor = constants.NEW_HEAD_RATE / learning_rate.value if _has_new_head(request) else 1.0
    decay_share = request.setting("lr_decay_share", constants.DECAY_SHARE)
    why = f"a stable rate, and a decay in the last {decay_share:.0%}, so that time can decide"
    return Rates(
        learning_rate=learning_rate,
        head_rate_factor=request.setting("head_rate_factor", float(f"{max(1.0, factor):.2g}")),
        warmup=_warmup(request, batch),
        schedule=choose(request.setting("lr_schedule"), "wsd", why),
        decay_share=decay_share,
    )


def _learning_rate(request: TextRequest, candidate: ModelCandidate, batch: Batch) -> Choice[float]:
    """Peak learning rate of a published or measured recipe, scaled by the square root of the batch in tokens."""
    rule, most = candidate.rule, constants.MOST_RATE
    if rule is not None and candidate.optimizer != "AdamW":
        rate, anchor_tokens, why = rule.rate, rule.batch_tokens, rule.source
    elif rule is not None and candidate.is_small_with_adamw():
        share = (rule.adamw_share or 1.0) * 128 / candidate.model.hidden_size
        rate, anchor_tokens = constants.ADAMW_RATE * share, constants.ADAMW_BATCH_TOKENS
        most, why = rate * constants.MOST_ADAMW_GROWTH, "measured with 128 units to 32 sequences"
    else:
        rate, anchor_tokens = constants.CONTINUED_RATE, constants.CONTINUED_BATCH_TOKENS
        why = "Gururangan et al. (2020)" if rule is None else "Devlin et al. (2019)"
    batch_tokens = batch.size.value * candidate.mean_length()
    rate = min(rate * math.sqrt(batch_tokens / anchor_tokens), most)
    why = f"{why}, by the root of the batch"
    if _has_new_head(request):
        rate = max(rate, constants.RATE_BELOW_A_NEW_HEAD)
        why = f"below a new masked-LM head, which learns at {constants.NEW_HEAD_RATE:g}; measured"
    return choose(request.setting("learning_rate"), float(f"{rate:.2g}"), why)


def _has_new_head(request: TextRequest) -> bool:
    """Whether existing weights lack a masked-LM head, so that a new one is initialised."""
    return request.weights is not None and "masked-LM head" not in request.weights.heads


def _warmup(request: TextRequest, batch: Batch) -> Choice[float]:
    share, why = constants.WARMUP, "the quickstart's recipe"
    if batch.size.value >= constants.WARMUP_LARGE_BATCH:
        share, why = constants.WARMUP_OF_LARGE_BATCHES, "the published recipe"
    return choose(request.setting("warmup_proportion"), share, why)


# ---- evaluations -----------------------------------------------------------------------------------------------------


def decide_evaluations(request: TextRequest, candidate: ModelCandidate, data: Data, training: Training) -> Evaluations:
    """Choose the evaluations: 2 to 20, in about a twentieth of the training time."""
    usual = constants.EVALUATED_SEQUENCES[candidate.placement.device]
    most_samples = request.setting("eval_samples", usual)
    if not data.held_out.value:
        return Evaluations(most_samples, 0, None, Choice(0, "nothing is held out to measure"))
    held_out_samples = max(1, int(data.tokens * data.held_out.value / candidate.text_tokens_of_sample()))
    samples = min(most_samples, held_out_samples)
    seconds = constants.EVALUATION_COST / training.speed * samples
    number = min(constants.EVALUATIONS, max(2, int(_EVALUATION_SHARE * training.seconds / seconds)))
    interval = math.ceil(training.updates / number)
    patience = choose(request.setting("early_stopping"), constants.EARLY_STOPPING, "the best is the result")
    return Evaluations(most_samples, samples, interval, patience)
