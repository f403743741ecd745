"""Dropout with masks that the host makes: what the program computes with them, and their statistics."""

import numpy as np
import pytest

from bert.model.dropout import Dropout, MaskPool, dropout_of, take_masks_from_host
from bert.randomness import stream_key
from bert.runtime.paddle_api import paddle, place_of, static
from tests.support import tiny

F = paddle.nn.functional
CPU = place_of("cpu")


def pool(rate=0.1, elements=1_000_000) -> MaskPool:
    return MaskPool("masks", rate, [(-1, elements)])


def masks_of(pool: MaskPool, *key) -> np.ndarray:
    scope, feed = static.Scope(), {"input_ids": np.zeros(1), "attention_mask": np.zeros((1, 1))}
    pool.draw(scope, CPU, feed, stream_key(*key))
    return np.array(scope.find_var(pool.variable).get_tensor())[: pool.size(feed)]


def two_places(first_rate: float, second_rate: float, onednn: bool = True):
    """Build x [n, 3] -> dropout -> * 2 -> dropout -> sum; return program, pools and the variables of interest."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [-1, 3])
        x.stop_gradient = False
        once = F.dropout(x, first_rate)
        twice = F.dropout(once * 2.0, second_rate)
        ((_, gradient),) = static.append_backward(twice.sum(), parameter_list=[x])
    return main, take_masks_from_host(main, onednn), (once.name, twice.name, gradient.name)


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("rates", [(0.25, 0.25), (0.25, 0.5)], ids=["one pool", "two pools"])
def test_what_is_kept_is_scaled_and_its_gradient_too(rates, onednn):
    """Each place reads masks of its own; the loss is the sum of the kept values, so its gradient is their factors."""
    main, pools, names = two_places(*rates, onednn)
    scope, rows = static.Scope(), 50
    for pool in pools:
        pool.draw(scope, CPU, {"input_ids": np.zeros(rows), "attention_mask": np.zeros((1, 1))}, np.uint64(1))
    masks = [np.array(scope.find_var(pool.variable).get_tensor()) for pool in pools]
    first = masks[0][: 3 * rows].reshape(rows, 3)
    second = (masks[0][3 * rows :] if len(pools) == 1 else masks[1])[: 3 * rows].reshape(rows, 3)
    x = np.random.RandomState(0).randn(rows, 3).astype("float32")
    once, twice, gradient = static.Executor(CPU).run(main, feed={"x": x}, fetch_list=list(names), scope=scope)
    factors = [mask / (1 - rate) for mask, rate in zip((first, second), rates, strict=True)]
    np.testing.assert_allclose(once, x * factors[0], rtol=1e-6)
    np.testing.assert_allclose(twice, 2 * x * factors[0] * factors[1], rtol=1e-6)
    np.testing.assert_allclose(gradient, 2 * factors[0] * factors[1], rtol=1e-6)
    assert [pool.rate for pool in pools] == sorted(set(rates))


@pytest.mark.parametrize(("rate", "threshold"), [(0.1, 6554), (0.5, 32768), (1 - 1e-9, 65535)])
def test_a_rate_is_the_nearest_of_65536_shares(monkeypatch, rate, threshold):
    asked = []
    monkeypatch.setattr("bert.arrays.compiled.draw_at_least", lambda key, least, masks: asked.append((key, int(least))))
    pool(rate, 10).draw(static.Scope(), CPU, {"input_ids": np.zeros(1)}, np.uint64(9))
    assert asked == [(np.uint64(9) ^ stream_key("masks"), threshold)]


def test_too_few_masks_are_refused():
    main, (pool,), names = two_places(0.1, 0.1)
    scope = static.Scope()
    pool.draw(scope, CPU, {"input_ids": np.zeros(10), "attention_mask": np.zeros((1, 1))}, np.uint64(1))
    with pytest.raises(ValueError, match="reshape"):
        static.Executor(CPU).run(main, feed={"x": np.ones((2_000, 3), "float32")}, fetch_list=[names[1]], scope=scope)


def test_a_training_program_takes_as_many_masks_as_are_made():
    session = tiny.Session(model=tiny.MODEL_WITH_DROPOUT)
    block, (pool,) = session.program.main.global_block(), session.program.dropout.pools
    assert len(pool.places) == 1 + 3 * tiny.MODEL.num_hidden_layers
    assert not [op for op in block.ops if op.type == "dropout"]
    last = [name for name in block.vars if name.endswith(".end")][-1]
    for batch in (tiny.random_batch(0), tiny.random_batch(1, 5)):
        (feed,) = tiny.feeds(batch)
        session.program.dropout.draw(session.scope, session.place, feed, np.uint64(3))
        (used,) = session.executor.run(session.program.main, feed=feed, fetch_list=[last], scope=session.scope)
        tokens, wanted = feed["input_ids"].size, len(feed["input_ids"]) + len(feed["masked_lm_positions"])
        counted_too_many = 2 * tiny.MODEL.hidden_size * (max(tokens, wanted) - wanted)  # in the last layer
        assert int(used[0]) == pool.size(feed) - counted_too_many


def test_losses_follow_the_key_alone():
    def losses(keys):
        session = tiny.Session(model=tiny.MODEL_WITH_DROPOUT)
        (feed,) = tiny.feeds(tiny.random_batch(0))
        found = []
        for key in keys:
            paddle.seed(len(found))  # Paddle's generator has no part in it
            session.program.dropout.draw(session.scope, session.place, feed, np.uint64(key))
            found.append(
                session.executor.run(
                    session.program.main, feed=feed, scope=session.scope, fetch_list=["training_metrics"]
                )[0][1]
            )
        return np.diff(found, prepend=0.0)

    one, again, other = losses([1, 2]), losses([1, 2]), losses([3, 2])
    assert one.tobytes() == again.tobytes()
    assert one[0] != other[0]


def test_on_a_gpu_operators_draw_from_paddles_seeded_generator():
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [-1, 1_000])
        out = F.dropout(x, 0.5)
    found = dropout_of(main, (0.5, 0.0), "gpu")
    executor, feed = static.Executor(CPU), {"x": np.ones((1, 1_000), "float32")}
    drawn = []
    for key in (1, 1, 2):
        found.draw(static.global_scope(), CPU, feed, np.uint64(key))
        drawn.append(executor.run(main, feed=feed, fetch_list=[out])[0])
    assert [op.type for op in main.global_block().ops] == ["dropout"] and not found.pools
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])


def test_operators_with_a_seed_of_their_own_get_one_from_the_key_and_their_name():
    """Operators in layers that are computed again read their seed twice."""
    found, scope, names = Dropout(seeds=("a.seed", "b.seed")), static.Scope(), ("a.seed", "b.seed")
    for key in (2**63 + 5, 6):
        found.draw(scope, CPU, {}, np.uint64(key))
        seeds = [np.array(scope.find_var(name).get_tensor()) for name in names]
        assert [seed.dtype for seed in seeds] == [np.int32, np.int32]
        assert [seed.tolist() for seed in seeds] == [[(key ^ int(stream_key(name))) % 2**31] for name in names]


def test_the_masks_of_a_micro_step_are_counted_by_the_shapes_of_its_places():
    """Two groups have two sequences of 3 and 5 tokens: places are tokens, pairs in each group, and sequences."""
    feed = {"input_ids": np.ones(8), "group_0": np.ones((1, 3)), "group_1": np.ones((1, 5))}
    assert MaskPool("masks", 0.1, [(-1, 32)]).size(feed) == 8 * 32
    pairs = [(-1, 4, -1, -1), (-1, 4, -1, -1)]  # of the heads of each group
    assert MaskPool("masks", 0.1, pairs).size(feed) == 4 * (9 + 25)
    padded = {"input_ids": np.ones((2, 5)), "attention_mask": np.ones((2, 5)), "next_sentence_labels": np.ones(2)}
    places = [(-1, -1, 32), (-1, 4, -1, -1), (-1, 32)]
    assert MaskPool("masks", 0.1, places).size(padded) == 10 * 32 + 2 * 25 * 4 + 10 * 32


def test_without_dropout_nothing_is_drawn():
    found = dropout_of(static.Program(), (0.0, 0.0), "cpu")
    assert not found.pools and not found.seeds_paddle


# Statistics: bounds are 5 standard deviations, and the numbers are always the same.


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 0.001])
def test_the_rate_is_that_of_the_model(rate):
    drawn = masks_of(pool(rate, 4_000_000), 1, "rate")
    assert set(np.unique(drawn)) == {0, 1}
    assert abs((drawn == 0).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / drawn.size)
    blocks = (drawn[: drawn.size // 1000 * 1000].reshape(-1, 1000) == 0).sum(axis=1)  # binomial: variance n p (1 - p)
    assert abs(blocks.var() / (1000 * rate * (1 - rate)) - 1) < 5 * np.sqrt((2 + 1 / (1000 * rate)) / len(blocks))


def test_masks_are_uncorrelated_with_their_neighbours_and_with_other_places_steps_and_ranks():
    def correlation(one, other):
        return abs(np.corrcoef(one, other)[0, 1]) * np.sqrt(len(one))

    drawn = masks_of(pool(), 42, "dropout", 0, 0, 0)
    for distance in (1, 2, 3, 4, 32, 256, 1024, 4096, 128 * 256, 500_000):  # also the sizes of rows and of places
        assert correlation(drawn[:-distance], drawn[distance:]) < 5, distance
    for other in ((43, 0, 0, 0), (42, 1, 0, 0), (42, 0, 1, 0), (42, 0, 0, 1)):
        assert correlation(drawn, masks_of(pool(), other[0], "dropout", *other[1:])) < 5, other
    assert (
        correlation(drawn, masks_of(MaskPool("masks of another rate", 0.1, pool().places), 42, "dropout", 0, 0, 0)) < 5
    )


def test_masks_suffice_where_more_tokens_are_wanted_than_there_are():
    """The number of masked positions is padded to a multiple of 8, even for one token."""
    feed = {"input_ids": np.ones(1), "group_0": np.ones((1, 1)), "masked_lm_positions": np.zeros(8)}
    assert MaskPool("masks", 0.1, [(-1, 32)]).size(feed) >= 8 * 32
    assert MaskPool("masks", 0.1, [(-1, 32)]).size(feed | {"next_sentence_labels": np.ones(1)}) >= 9 * 32
