"""Properties of the decisions for any text, machine and hours."""

import dataclasses
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bert.own_text import constants
from bert.own_text.candidates import Placement, list_candidates
from bert.own_text.decisions import Choice, Data, Decisions, Overhead
from bert.own_text.length import Length
from bert.own_text.request import TextRequest
from bert.own_text.rules import decide_batch, decide_dropouts, decide_evaluations, expect_training
from bert.tokenization.normalization import UNCASED
from tests.own_text.plans import LAPTOP, MACHINES, decisions_for, text

MEGABYTES = st.floats(0.1, 20_000).map(lambda size: round(size, 3))
HOURS = st.floats(0.02, 100).map(lambda hours: round(hours, 3))
NAMES = st.sampled_from((None, "quickstart", "mini", "large"))
WHATEVER = settings(max_examples=60, deadline=None, derandomize=True)
FIXED = {"global_batch_size": 64, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def decisions_or_none(*arguments, **asked) -> Decisions | None:
    """Return the decisions; None if the request is refused, for example if the data take all of the time."""
    try:
        return decisions_for(*arguments, **asked)
    except ValueError:
        return None


def sequences_of(decisions: Decisions) -> int:
    """Return the number of sequences that the training reads."""
    return decisions.training.updates * decisions.batch.size.value


@WHATEVER
@given(MEGABYTES, st.sampled_from(MACHINES), HOURS, NAMES, st.sampled_from((None, 1, 3, 4)))
def test_the_decisions_fit_together(megabytes, machine, hours, name, micro):
    asked = {} if micro is None else {"settings": {"batch_size": micro}}
    decisions = decisions_or_none(text(megabytes), machine, hours=hours, model=name, **asked)
    assume(decisions is not None)
    batch, training, ranks = decisions.batch.size.value, decisions.training, decisions.candidate.placement.ranks
    assert batch % (ranks * (micro or 1)) == 0
    assert training.updates >= 1 and decisions.rates.warmup_updates(training.updates) < training.updates
    of_an_update = batch / training.speed
    assert decisions.seconds() <= 3600 * hours + of_an_update, "the plan fits the time"
    assert decisions.seconds() >= 3600 * hours - of_an_update, "and uses it"
    interval = decisions.evaluations.interval
    assert 1 <= interval <= training.updates and training.updates / interval <= constants.EVALUATIONS
    assert training.epochs * decisions.data.samples == pytest.approx(training.updates * batch)


@WHATEVER
@given(MEGABYTES, st.sampled_from(MACHINES), HOURS, HOURS)
def test_more_hours_never_give_fewer_updates_of_the_same_model_and_batch(megabytes, machine, one, other):
    asked = {"model": "quickstart", "settings": FIXED}
    short, long = (decisions_or_none(text(megabytes), machine, hours=h, **asked) for h in sorted((one, other)))
    assume(short is not None)
    assert long is not None, "more hours are never refused"
    assert short.training.updates <= long.training.updates


@WHATEVER
@given(MEGABYTES, st.sampled_from(MACHINES), HOURS, HOURS)
def test_more_hours_choose_no_smaller_model_and_no_smaller_batch(megabytes, machine, one, other):
    """More hours may give fewer updates: of a larger batch, or with dropout."""
    short, long = (decisions_or_none(text(megabytes), machine, hours=h) for h in sorted((one, other)))
    assume(short is not None)
    names = [rule.name for rule in constants.MODELS]
    assert names.index(short.candidate.name) <= names.index(long.candidate.name)
    if short.candidate.name == long.candidate.name:
        assert short.batch.size.value <= long.batch.size.value
        rounding = (short.batch.size.value + long.batch.size.value) / 2
        assert sequences_of(short) <= sequences_of(long) * constants.DROPOUT_COST + rounding


# ---- each rule by figures worked out by hand -------------------------------------------------------------------------


def quickstart(ranks: int):
    candidate = list_candidates(text(5), LAPTOP, TextRequest(model="quickstart"))[0]
    return dataclasses.replace(candidate, placement=Placement("cpu", ranks, 1, 32))


def data(samples: float, tokens: float = 1e6, held_out: float = 0.05) -> Data:
    return Data(tokens, 5, Choice(held_out, ""), UNCASED, None, samples)


def test_the_batch_grows_with_the_root_of_what_is_read_and_divides_by_ranks():
    """The quickstart's recipe: 64 sequences of 64, 77% filled, for 160,000 of them. AdamW takes half of its tokens."""
    tokens = 0.59 * 128  # of a sequence of mixed lengths
    for factor in (1, 4, 16):
        sequences = factor * 160_000 * 64 * 0.77 / tokens
        wanted = math.sqrt(factor) * 64 * 64 * 0.77 / tokens / 2  # 20.9, 41.8, 83.5
        for ranks in (1, 2, 3):
            chosen = decide_batch(TextRequest(), quickstart(ranks), data(1e6), sequences).size.value
            assert chosen == ranks * 2 ** round(math.log2(wanted / ranks)), (factor, ranks)
    of_threes = decide_batch(TextRequest(settings={"batch_size": 3}), quickstart(2), data(1e6), 160_000)
    assert of_threes.size.value % 6 == 0


def test_dropout_begins_at_twenty_epochs_and_slows_the_updates_down():
    for epochs, dropout in ((19.9, 0.0), (20.0, 0.1)):
        rates = decide_dropouts(TextRequest(), quickstart(1), epochs)
        assert set(rates.value.values()) == {dropout}
    # 1,000 samples, 10 per second, 1 hour of which 100 seconds are no training: 35,000 sequences without dropout.
    candidate, request = quickstart(1), TextRequest(length=Length(hours=1), settings={"global_batch_size": 16})
    batch = decide_batch(request, candidate, data(1000), 35_000)
    training = expect_training(request, candidate, data(1000), batch, 10.0, Overhead(50, 60, 40))
    assert (training.speed, training.updates) == (10 / 1.16, round(3500 * 10 / 1.16 / 16))
    assert training.epochs == training.updates * 16 / 1000 and training.dropouts.value["hidden_dropout_prob"] == 0.1


def test_dropout_makes_updates_slower_also_if_their_number_was_set():
    """3,000 updates of 16 are 48 passes over 1,000 samples: dropout is on, and an update takes 1.16 times as long."""
    candidate, request = quickstart(1), TextRequest(length=Length(max_steps=3000), settings={"global_batch_size": 16})
    batch = decide_batch(request, candidate, data(1000), 48_000)
    training = expect_training(request, candidate, data(1000), batch, 10.0, Overhead(0, 0, 0))
    assert training.dropouts.value["hidden_dropout_prob"] == 0.1
    assert (training.updates, training.seconds) == (3000, pytest.approx(1.16 * 3000 * 16 / 10))


def test_evaluations_take_a_twentieth_of_the_time():
    """400 seconds of training at 50 a second: an evaluation of 200 takes 0.4 x 200 / 50 = 1.6 s; 20 s allow 12."""
    candidate, request = quickstart(1), TextRequest(settings={"eval_samples": 200})
    batch = decide_batch(TextRequest(settings={"global_batch_size": 16}), candidate, data(1e5), 20_000)
    by_updates = TextRequest(length=Length(max_steps=1250), settings={"eval_samples": 200})
    training = expect_training(by_updates, candidate, data(1e5), batch, 50.0, Overhead(0, 0, 0))
    assert training.seconds == 400.0
    evaluations = decide_evaluations(request, candidate, data(1e5), training)
    assert (evaluations.samples, evaluations.interval) == (200, math.ceil(1250 / 12))
    nothing = decide_evaluations(request, candidate, data(1e5, held_out=0.0), training)
    assert (nothing.samples, nothing.interval, nothing.early_stopping.value) == (0, None, 0)
