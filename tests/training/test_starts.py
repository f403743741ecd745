"""Start of a run from existing weights: chosen tensors and folder, and refusals.

A run that continues its own checkpoint: test_resumption.py and tests/checkpoints/test_state.py.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from bert.checkpoints.directories import BEST, name_step, write_checkpoint
from bert.checkpoints.state import CheckpointError
from bert.config.training_settings import derive
from bert.model.head_specs import TOKEN_WEIGHTS
from bert.runtime.distributed import Collective, Group
from bert.runtime.paddle_api import place_of, read_variable, static
from bert.training.devices import Device
from bert.training.starts import POSITIONS, load_start, load_weights_to_use, read_weights_to_use
from tests.support import runs, tiny
from tests.support.messages import messages

MODEL = tiny.MODEL.model_copy(update={"num_hidden_layers": 1})
LAYER = "bert.encoder.layer.0."
MATRICES = {
    "bert.embeddings.word_embeddings.weight": (104, 32),
    POSITIONS: (16, 32),
    "bert.embeddings.token_type_embeddings.weight": (2, 32),
    **{f"{LAYER}attention.self.{part}.weight": (32, 32) for part in ("query", "key", "value")},
    f"{LAYER}attention.output.dense.weight": (32, 32),
    f"{LAYER}intermediate.dense.weight": (32, 37),
    f"{LAYER}output.dense.weight": (37, 32),
    "bert.pooler.dense.weight": (32, 32),
}
NORMS = ("bert.embeddings", f"{LAYER}attention.output", f"{LAYER}output")
SHAPES = {
    **MATRICES,
    **{f"{name[:-7]}.bias": (shape[1],) for name, shape in MATRICES.items() if "embeddings" not in name},
    **{f"{name}.LayerNorm.{kind}": (32,) for name in NORMS for kind in ("weight", "bias")},
}


def weights(number: float, **shapes) -> dict[str, np.ndarray]:
    """Return the encoder's weights: the program of these tests has no head."""
    rng = np.random.RandomState(int(number))
    return {name: rng.randn(*shape).astype("float32") for name, shape in {**SHAPES, **shapes}.items()}


def settings(folder, **changes):
    return tiny.pretraining_config(folder, model=MODEL, **changes)


class Started:
    """Holds the scope of a program of these tensors, which are 0 before."""

    def __init__(self):
        scope, place, group = static.Scope(), place_of("cpu"), Group(0, 1, "cpu")
        for name, shape in SHAPES.items():
            scope.var(name).get_tensor().set(np.zeros(shape, "float32"), place)
        self.program = SimpleNamespace(parameters=tuple(sorted(SHAPES)), optimizer_state={}, loss_scale=None)
        self.device = Device(None, scope, place, group, Collective(group, None), 1.0)
        self.said = list[str]()

    def load(self, config):
        with messages() as self.said:
            return load_start(config, self.program, self.device, runs.fresh_progress(config))

    def use(self, config) -> None:
        with messages() as self.said:
            load_weights_to_use(read_weights_to_use(config), self.program.parameters, self.device)

    def values(self) -> dict[str, np.ndarray]:
        return {name: read_variable(self.device.scope, name) for name in self.program.parameters}


def save(folder, step: int, number: float, model=MODEL, **shapes):
    def write(path):
        save_file(weights(number, **shapes), path / "bert_paddle.safetensors")
        (path / "bert_config.json").write_text(model.to_json())

    return write_checkpoint(folder, step, write)


def test_given_weights_begin_a_run_of_its_own(tmp_path):
    started, config = Started(), settings(tmp_path, from_pretrained_params=tmp_path / "given")
    save(tmp_path / "given/bert/phase1", 4, 4)
    save(tmp_path / "given/bert/phase1", 6, 6)
    progress = started.load(config)
    tiny.assert_identical(started.values(), weights(6))
    path = tmp_path / "given/bert/phase1/6"
    assert (progress.step, progress.carried.started_from) == (0, str(path))
    assert started.said == [f"starting from the weights of {path}"], "nothing is repeated or left out"
    name_step(path.parent, BEST, 4, {"is_final": True})
    started.load(config)
    tiny.assert_identical(started.values(), weights(4))


def test_phase_2_takes_the_final_weights_of_phase_1_or_older_ones_if_they_are_damaged(tmp_path):
    phase1 = settings(tmp_path).checkpoint_dir()
    for step in (4, 6, 8):
        save(phase1, step, step)
    config = settings(tmp_path, phase=2, from_phase1_final_params=tmp_path / "results")
    started = Started()
    for expected in (8, 6):
        started.load(config)
        tiny.assert_identical(started.values(), weights(expected))
        (phase1 / str(expected) / "bert_paddle.safetensors").write_bytes(b"damaged")
    save(phase1, 8, 8)
    name_step(phase1, BEST, 4, {"is_final": True})
    started.load(config)
    tiny.assert_identical(started.values(), weights(4))


def test_only_given_weights_may_lack_a_head(tmp_path):
    """Weights of phase 1 must have all tensors."""
    started, bias = Started(), "cls.predictions.bias"
    started.program.parameters = (*started.program.parameters, bias)
    started.device.scope.var(bias).get_tensor().set(np.ones(104, "float32"), started.device.place)
    save(tmp_path / "given", 2, 2)
    started.load(settings(tmp_path, from_pretrained_params=tmp_path / "given"))
    assert any("no masked-LM head is taken from the weights, it starts" in line for line in started.said)
    assert (started.values()[bias] == 1).all()
    with pytest.raises(CheckpointError, match="missing: cls.predictions.bias"):
        started.load(settings(tmp_path, phase=2, from_phase1_final_params=tmp_path / "given"))


def test_token_weights_of_given_weights_are_left_out_of_a_training(tmp_path):
    save(tmp_path / "given", 2, 2, **{TOKEN_WEIGHTS: (104, 3), "classifier.weight": (32, 3), "classifier.bias": (3,)})
    started = Started()
    started.load(settings(tmp_path, from_pretrained_params=tmp_path / "given"))
    tiny.assert_identical(started.values(), weights(2))
    path = tmp_path / "given/2"
    assert started.said[0] == (
        f"not used: the token weights of {path}, learned from its lines; train on both sets of lines together to have "
        "them"
    )
    assert not any(TOKEN_WEIGHTS in line for line in started.said)


def test_fewer_positions_are_repeated_for_longer_sequences(tmp_path):
    started, config = Started(), settings(tmp_path, from_pretrained_params=tmp_path / "given")
    model = MODEL.model_copy(update={"max_position_embeddings": 6})
    save(tmp_path / "given", 2, 2, model, **{POSITIONS: (6, 32)})
    started.load(config)
    table = weights(2, **{POSITIONS: (6, 32)})[POSITIONS]
    assert started.values()[POSITIONS].tolist() == [table[row % 6].tolist() for row in range(16)]
    assert "its 6 position embeddings are repeated to 16, for longer sequences" in started.said[0]


HEADS = {"num_attention_heads": 8}, "was trained with 8 attention heads, this run has num_attention_heads=4; give"
ROBERTA = {"model_type": "roberta"}, "is a roberta, this run has model_type=bert; pass --model-type roberta"


@pytest.mark.parametrize(
    ("flag", "change", "rule"),
    [("from_pretrained_params", *HEADS), ("from_phase1_final_params", *HEADS), ("from_phase1_final_params", *ROBERTA)],
)
def test_weights_of_another_network_with_the_same_tensors_are_refused(tmp_path, change, rule, flag):
    save(tmp_path / "given", 2, 2, MODEL.model_copy(update=change))
    started, phase = Started(), 2 if flag == "from_phase1_final_params" else 1
    config = settings(tmp_path, phase=phase, **{flag: tmp_path / "given"})
    with pytest.raises(CheckpointError, match=rule):
        started.load(config)
    assert not any(value.any() for value in started.values().values())


def test_settings_that_no_tensor_shows_are_named(tmp_path):
    other = MODEL.model_copy(update={"hidden_act": "relu", "layer_norm_eps": 1e-3})
    save(tmp_path / "given", 2, 2, other)
    started = Started()
    started.load(settings(tmp_path, from_pretrained_params=tmp_path / "given"))
    found = [line.split(": ", 1)[1] for line in started.said if " here" in line]
    assert found == ["hidden_act was relu there, is gelu here", "layer_norm_eps was 0.001 there, is 1e-12 here"]


def test_a_new_run_does_not_overwrite_an_earlier_one(tmp_path):
    config, started = settings(tmp_path), Started()
    assert started.load(config) == runs.fresh_progress(config)
    save(config.checkpoint_dir(), 4, 4)
    with pytest.raises(
        CheckpointError, match=r"holds steps \[4\] of an earlier run; continue it with --from-checkpoint"
    ):
        started.load(config)
    assert started.load(derive(config, benchmark=True)).step == 0, "a benchmark saves nothing"


def test_weights_that_are_used_without_training_may_have_more_tensors_and_not_fewer(tmp_path):
    started, config = Started(), settings(tmp_path)
    with pytest.raises(CheckpointError, match="no weights to use: pass --from-pretrained-params"):
        started.use(config)
    path = save(tmp_path / "given", 2, 2, **{"qa_outputs.weight": (32, 2), "qa_outputs.bias": (2,)})
    started.use(derive(config, from_pretrained_params=tmp_path / "given"))
    tiny.assert_identical(started.values(), weights(2))
    assert started.said[-1] == f"using the weights of {path}"
    save(tmp_path / "other", 2, 3)
    started.program.parameters = (*started.program.parameters, "classifier.bias")
    started.device.scope.var("classifier.bias").get_tensor().set(np.zeros(3, "float32"), started.device.place)
    with pytest.raises(CheckpointError) as error:
        started.use(derive(config, from_pretrained_params=tmp_path / "other"))
    assert "does not fit this task and model:\n  missing: classifier.bias [3]" in str(error.value)
    assert (started.values()[POSITIONS] == weights(2)[POSITIONS]).all(), "nothing was written"
