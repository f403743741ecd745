"""Recomputed layers give the same losses and parameters with less memory."""

import numpy as np
import pytest

import program
from bert.config.architecture import FusedKernels
from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings
from bert.model.dropout import Dropout
from bert.model.objectives import PretrainingObjective
from bert.model.optimization import GRADIENT_NORM
from bert.samples.packing import pack
from tests.support import runs, tiny

MODEL = tiny.MODEL_WITH_DROPOUT.model_copy(update={"num_hidden_layers": 3})
BFLOAT16 = PrecisionSettings(amp=True, amp_dtype="bfloat16")
FLEETS = OptimizerSettings(learning_rate=1e-2, epsilon=1e-4, fleet_strategies="amp,gradient_merge")


def session(recompute=True, *, packed=False, model=MODEL, **settings):
    objective = PretrainingObjective(model, True, FusedKernels(unpad=packed))
    return tiny.Session(**{"optimizer": tiny.STEADY_LAMB, **settings}, objective=objective, recompute=recompute)


def losses(session, updates=3):
    packing, micro_steps = session.program.objective.packing(), session.program.gradient_accumulation_steps
    result = []
    for step in range(updates):
        feeds = tiny.feeds(tiny.random_batch(step, 12), micro_steps)
        feeds = feeds if packing is None else [pack(feed, packing) for feed in feeds]
        result.append(list(session.update(feeds).values()))
    return result


def computed_once(session):
    """Return the session with a backward pass that reads what forward computed, without computing it again."""
    for operator in session.program.main.global_block().ops:
        if not any(name.endswith(".again") for name in operator.output_arg_names):
            for name in [name for name in operator.input_arg_names if name.endswith(".again")]:
                operator.desc._rename_input(name, name.removesuffix(".again"))
    return session


def test_all_layers_but_the_last_are_computed_again_with_the_same_dropout():
    """Loss and norm equal a program's that keeps all states; backward reads only the inputs of these layers."""
    found = {}
    for recompute in (True, False):
        session = tiny.Session(model=tiny.MODEL_WITH_DROPOUT, recompute=recompute)
        (feed,) = tiny.feeds(tiny.random_batch(0, 12))
        found[recompute] = [session.update([feed])["loss"], session.value(GRADIENT_NORM)]
        if recompute:
            operators = session.program.main.global_block().ops
    np.testing.assert_allclose(found[True], found[False], rtol=1e-4)
    again = [operator for operator in operators if any(name.endswith(".again") for name in operator.output_arg_names)]
    assert [operator.type for operator in again].count("softmax") == tiny.MODEL.num_hidden_layers - 1
    first = next(
        number for number, operator in enumerate(operators) if operator.type == "softmax_with_cross_entropy_grad"
    )
    copied = {name.removesuffix(".again") for operator in again for name in operator.output_arg_names}
    read = {name for operator in operators[first:] if operator not in again for name in operator.input_arg_names}
    shapes = {name for operator in operators if "XShape" in operator.output_names for name in operator.output("XShape")}
    assert len(copied) > 10 and len(copied & read - shapes) == 1, "the output, which is the next layer's input"


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {"packed": True, "micro_steps": 2},
        {"precision": BFLOAT16},
        {"precision": tiny.FLOAT16, "micro_steps": 2, "optimizer": FLEETS},
    ],
)
def test_updates_with_dropout_are_those_of_layers_computed_once(settings, monkeypatch):
    monkeypatch.setattr(tiny, "build", program.build_training_program)  # without its cache, as one is edited
    again, once, plain = session(**settings), computed_once(session(**settings)), session(False, **settings)
    found = losses(again)
    assert found == losses(once)
    tiny.assert_identical(again.parameters(), once.parameters())
    np.testing.assert_allclose(found, losses(plain), rtol=1e-5)  # on CPU by other kernels
    assert tiny.relative_difference(again.parameters(), plain.parameters()) < 1e-4


@pytest.mark.long
def test_operators_that_draw_themselves_draw_twice_from_one_seed(monkeypatch):
    """GPUs have such operators; another micro-step draws other masks, which repeat with its key."""
    monkeypatch.setattr(tiny, "build", program.build_training_program)
    monkeypatch.setattr(program, "dropout_of", lambda *_, **__: Dropout(seeds_paddle=True))
    again, once = session(), computed_once(session())
    assert len(again.program.dropout.seeds) == 3 * (MODEL.num_hidden_layers - 1)
    assert losses(again) == losses(once)
    tiny.assert_identical(again.parameters(), once.parameters())
    feed = tiny.feeds(tiny.random_batch(0, 12))[0]
    masks = {}
    for key in (1, 2, 1):
        again.program.dropout.draw(again.scope, again.place, feed, np.uint64(key))
        seeds = [again.value(name) for name in again.program.dropout.seeds]
        assert masks.setdefault(key, seeds) == seeds and len(set(seeds)) == len(seeds)
    assert not set(masks[1]) & set(masks[2])


@pytest.mark.long
def test_a_run_trains_on_long_sequences_from_weights_of_fewer_positions(tmp_path):
    """The first 16 positions are repeated; the run reads 2,048 tokens, started as a user starts it."""
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few = runs.run(tiny.pretraining_config(tmp_path / "few", max_steps=1), 1)
    model = tiny.MODEL_WITH_DROPOUT.model_copy(update={"max_position_embeddings": 2048})
    settings = {"model": model, "from_pretrained_params": tmp_path / "few" / "results", "recompute": True}
    config = tiny.pretraining_config(tmp_path / "many", max_seq_length=2048, **settings)
    grown = runs.run(config, 0, train=False)
    table = "bert.embeddings.position_embeddings.weight"
    np.testing.assert_array_equal(grown.parameters[table], np.tile(few.parameters[table], (128, 1)))
    assert "its 16 position embeddings are repeated to 2,048, for longer sequences" in "\n".join(grown.said)
    ours = session(model=model)
    found = [list(ours.update(tiny.feeds(tiny.random_batch(step, 1, 2048, masked=(300,)))).values()) for step in (0, 0)]
    assert found[1][1] < found[0][1]
