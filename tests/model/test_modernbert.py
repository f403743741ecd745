"""The block of ModernBERT: its parameters, the window, rotary positions, and that it trains as BERT does.

That its outputs are those of transformers: tests/conversion/test_networks.py.
"""

from dataclasses import replace

import numpy as np
import pytest

from bert.config.architecture import BUILT_IN_MODELS, BertConfig, FusedKernels
from bert.config.training_settings import derive
from bert.model.initial_attention import attend_to_neighbours
from bert.model.objectives import MaskedLMObjective
from bert.model.optimization import decays
from bert.samples.packing import pack
from tests.support import tiny

MODEL = tiny.MODEL.model_copy(
    update={
        "model_type": "modernbert",
        "num_hidden_layers": 3,
        "global_attn_every_n_layers": 2,  # the second layer is local
        "local_attention": 4,
        "layer_norm_eps": 1e-5,
    }
)
OBJECTIVE = MaskedLMObjective(MODEL)
PACKED = replace(OBJECTIVE, kernels=FusedKernels(unpad=True))


def batch_of(objective: MaskedLMObjective, step: int, micro_steps: int = 1) -> list[dict]:
    """Return micro-batches of a step as the objective's program reads them."""
    feeds = tiny.feeds(tiny.random_batch(step, 12), micro_steps, num_padding=0)
    packing = objective.packing()
    feeds = feeds if packing is None else [pack(feed, packing) for feed in feeds]
    names = [*objective.encoder_inputs(), *objective.labels]
    return [{name: feed[name] for name in names} for feed in feeds]


def losses_of(
    session: tiny.Session, objective: MaskedLMObjective, micro_steps: int = 1, steps: int = 12
) -> list[float]:
    batches = [batch_of(objective, step % 4, micro_steps) for step in range(steps)]
    return [session.update(batch)["loss"] / micro_steps for batch in batches]


@pytest.fixture(scope="module")
def parameters():
    rng = np.random.RandomState(2)
    found = tiny.Session(objective=OBJECTIVE).parameters()
    return {name: value + 0.3 * rng.randn(*value.shape).astype("float32") for name, value in found.items()}


def test_parameters_are_as_many_as_the_settings_say_and_have_one_bias(parameters):
    assert sum(value.size for value in parameters.values()) == MODEL.num_parameters()
    assert [name for name in parameters if name.endswith("bias")] == ["cls.predictions.bias"]
    assert "bert.encoder.layer.0.attention.LayerNorm.weight" not in parameters, "the embeddings are normalised"
    norms = {name for name, value in parameters.items() if value.ndim == 1} - {"cls.predictions.bias"}
    assert len(norms) == 3 * 2 - 1 + 3  # each layer's two but one; of embeddings, end and head
    assert {name for name in parameters if not decays(name)} == {*norms, "cls.predictions.bias"}
    published = BUILT_IN_MODELS["modernbert-base"].model_copy(update={"vocab_size": 50_368})
    assert published.num_parameters() == 149_655_232  # as transformers counts them


def test_initial_weights_before_a_residual_sum_are_smaller():
    found = tiny.Session(objective=OBJECTIVE).parameters()
    wide, narrow = (found[f"bert.encoder.layer.1.{part}.dense.weight"].std() for part in ("intermediate", "output"))
    assert narrow == pytest.approx(wide / 6**0.5, rel=0.1)


def test_without_far_tokens_there_is_no_band():
    assert [MODEL.attends_locally(layer) for layer in range(3)] == [False, True, False]
    short = MODEL.model_copy(update={"max_position_embeddings": 3})  # at most two apart
    assert not any(short.attends_locally(layer) for layer in range(3))
    assert [short.uses_local_positions(layer) for layer in range(3)] == [False, True, False]


@pytest.mark.long
@pytest.mark.parametrize("optimizer", [tiny.STEADY_LAMB, tiny.STEADY_ADAMW], ids=["Lamb", "AdamW"])
def test_packed_and_accumulated_training_is_that_of_padded_micro_batches(optimizer):
    padded = tiny.Session(objective=OBJECTIVE, optimizer=optimizer)
    losses = losses_of(padded, OBJECTIVE)
    assert losses[-1] < losses[0] - 0.04, "it learns"
    for objective, micro_steps in ((PACKED, 1), (replace(OBJECTIVE, fuse_mha=True), 2)):
        other = tiny.Session(objective=objective, optimizer=optimizer, micro_steps=micro_steps)
        np.testing.assert_allclose(losses_of(other, objective, micro_steps), losses, atol=2e-4)


def test_settings_that_do_not_fit_are_refused(tmp_path):
    config = tiny.pretraining_config(tmp_path, model=MODEL, objective="mlm")
    assert config.model == MODEL
    with pytest.raises(ValueError, match="objective=mlm_nsp is not for model_type=modernbert.*pass --objective mlm"):
        derive(config, objective="mlm_nsp")
    with pytest.raises(ValueError, match="hidden_size=12 / num_attention_heads=4 must be even"):
        BertConfig(model_type="modernbert", hidden_size=12, num_attention_heads=4)


def test_heads_can_begin_with_attention_to_the_tokens_before_and_after():
    model = MODEL.model_copy(update={"hidden_size": 128, "intermediate_size": 64, "initializer_range": 0.05})
    session = tiny.Session(objective=MaskedLMObjective(model))
    before = session.parameters()
    attend_to_neighbours(model, session.scope, session.place)
    after = session.parameters()
    changed = {name for name in before if (before[name] != after[name]).any()}
    names = {
        f"bert.encoder.layer.{layer}.attention.self.{part}.weight" for layer in (0, 1) for part in ("query", "key")
    }
    assert changed == names | {"bert.embeddings.word_embeddings.weight"}

    embedded = after["bert.embeddings.word_embeddings.weight"][10:50]
    hidden = (embedded - embedded.mean(1, keepdims=True)) / embedded.std(1, keepdims=True)
    size = model.head_size()
    speeds = model.global_rope_theta ** (-2 * np.arange(size // 2) / size)
    turns = np.exp(1j * np.arange(len(hidden))[:, None] * speeds)  # of the pairs as complex numbers
    for head in range(model.num_attention_heads):
        queries, keys = (
            hidden @ after[f"bert.encoder.layer.0.attention.self.{part}.weight"][:, head * size : (head + 1) * size]
            for part in ("query", "key")
        )
        queries, keys = ((x[:, : size // 2] + 1j * x[:, size // 2 :]) * turns for x in (queries, keys))
        scores = (queries @ keys.conj().T).real
        mean = {offset: np.diagonal(scores, offset).mean() for offset in range(-8, 9)}
        assert max(mean, key=mean.get) == (1 if head % 2 else -1)
        assert max(mean[-8], mean[8]) < 0.5 * max(mean.values())
