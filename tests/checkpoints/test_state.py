"""Resuming is exact, checkpoints that do not fit are refused with all differences, and weights can start a new run."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.progress import LoopState
from bert.checkpoints.state import CheckpointError, load, load_parameters
from bert.config.training_settings import derive
from bert.model.optimization import COUNTERS
from bert.printable import printable
from bert.runtime.paddle_api import place_of, read_variable, static
from tests.support import runs, tiny

FLOAT16 = {"amp": True, "scale_loss": 1024.0, "loss_scale_growth_interval": 4}
EXACT_CASES = {
    "lamb_float32": {},
    "lamb_float16_2_passes": {**FLOAT16, "gradient_merge_steps": 2},
    "lamb_bfloat16_2_passes": {"amp": True, "amp_dtype": "bfloat16", "gradient_merge_steps": 2},
    "adamw_fixed_scale": {"amp": True, "use_dynamic_loss_scaling": False, "scale_loss": 128.0, "optimizer": "AdamW"},
}


def config_of(directory, **changes):
    directory.mkdir(parents=True, exist_ok=True)
    return tiny.pretraining_config(directory, model=tiny.MODEL_WITH_DROPOUT, **changes)


def resuming(config, **changes):
    """Return the same run's settings, told to continue from its own output folder."""
    return derive(config, from_checkpoint=config.run.output_dir, **changes)


def parent(config) -> Path:
    return config.checkpoint_dir()


def state_of(directory: Path) -> tuple[bytes, bytes, dict]:
    """Return the bytes of parameters and optimizer state, and the progress without the settings of places."""
    progress = json.loads((directory / "bert_paddle_progress.json").read_text())
    del progress["settings"], progress["carried"]["totals"]  # where it was, and how long it took
    return (
        (directory / "bert_paddle.safetensors").read_bytes(),
        (directory / "bert_paddle_optimizer.safetensors").read_bytes(),
        progress,
    )


def overflow_in_step_1(step: int, feeds: list[dict]) -> list[dict]:
    return [tiny.overflowing(feeds[0]), *feeds[1:]] if step == 1 else feeds


QUICK = "lamb_float16_2_passes"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name != QUICK else []) for name in EXACT_CASES]
)
def test_three_steps_and_three_resumed_are_the_bytes_of_six(tmp_path, name):
    """The run has dropout, accumulation, mixed precision, and an update skipped before the interruption."""
    whole, parts = (config_of(tmp_path / kind, **EXACT_CASES[name]) for kind in ("whole", "parts"))
    runs.run(whole, 6, change=overflow_in_step_1)
    runs.run(parts, 3, change=overflow_in_step_1)
    resumed = runs.run(resuming(parts), 6, change=overflow_in_step_1)
    assert resumed.said[0] == f"continuing {parent(parts) / '3'} at step 3"
    assert state_of(parent(parts) / "6") == state_of(parent(whole) / "6")
    progress = state_of(parent(whole) / "6")[2]
    assert progress["counters"] == {"applied_updates": 5, "skipped_updates": 1, "consecutive_skipped_updates": 0}
    if name == "lamb_float16_2_passes":
        assert progress["loss_scale"] == 1024.0  # halved in step 1, doubled after steps 2 to 5
        assert load(parent(parts) / "3")[2].loss_scale == 512.0
        assert sorted(progress["loss_scale_counters"].values()) == [0, 0]
        assert sorted(load(parent(parts) / "3")[2].loss_scale_counters.values()) == [0, 1]


def test_updates_skipped_beside_a_stop_are_skipped_as_in_one_run(tmp_path):
    """The last update before the stop and the first after it are skipped: moments and beta powers stay as restored."""

    def change(at, feeds):
        return [tiny.overflowing(feeds[0]), *feeds[1:]] if at in (2, 3) else feeds

    whole, parts = (config_of(tmp_path / kind, **FLOAT16) for kind in ("whole", "parts"))
    runs.run(whole, 5, change=change)
    runs.run(parts, 3, change=change)
    runs.run(resuming(parts), 5, change=change)
    assert state_of(parent(parts) / "5") == state_of(parent(whole) / "5")
    assert state_of(parent(whole) / "5")[2]["counters"]["skipped_updates"] == 2


def test_a_capture_is_a_copy_and_the_next_one_uses_its_memory():
    session = tiny.Session()
    program = session.program
    first = checkpoint.capture(session.scope, program)
    before = {name: array.copy() for name, array in first[0].items()}
    session.update(tiny.feeds(tiny.random_batch(0, 12)))
    tiny.assert_identical(first[0], before)
    second = checkpoint.capture(session.scope, program, first[:2])
    for before_kind, after_kind in zip(first[:2], second[:2], strict=True):
        assert all(after_kind[name] is array for name, array in before_kind.items())
    tiny.assert_identical(second[0], session.parameters())
    tiny.assert_identical(second[1], session.optimizer_state())


def test_the_files_of_a_checkpoint_are_what_their_users_need(tmp_path):
    from bert.config.architecture import BertConfig

    config, vocabulary = config_of(tmp_path), tmp_path / "vocab.txt"
    content = vocabulary.read_bytes()

    def edit_vocabulary(step, feeds):
        vocabulary.write_text("of another run")
        return feeds

    trained = runs.run(config, 2, change=edit_vocabulary)
    directory = parent(config) / "2"
    assert {path.name for path in directory.iterdir()} == {
        "bert_paddle.safetensors",
        "bert_paddle_optimizer.safetensors",
        "bert_paddle_progress.json",
        "bert_config.json",
        "vocab.txt",
        "manifest.json",
    }
    tiny.assert_identical(load_file(directory / "bert_paddle.safetensors"), trained.parameters)
    assert BertConfig.from_json_file(directory / "bert_config.json") == tiny.MODEL_WITH_DROPOUT
    assert (directory / "vocab.txt").read_bytes() == content != vocabulary.read_bytes()


# Refusals


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train two updates in float32, with a checkpoint at each."""
    config = config_of(tmp_path_factory.mktemp("trained"), num_steps_per_checkpoint=1)
    runs.run(config, 2)
    return config


@pytest.mark.long
@pytest.mark.parametrize(
    "changes,lines",
    [
        (
            {"hidden_size": 36, "num_hidden_layers": 3},
            [
                "the checkpoint does not fit this run",
                "differs: bert.pooler.dense.weight is float32 [32, 32], needed float32 [36, 36]",
                "bert.encoder.layer.0.intermediate.dense.weight/moment2 is float32 [32, 37], needed",
                "missing: bert.encoder.layer.2.attention.self.query.weight [36, 36]",
                "missing: bert.encoder.layer.2.output.dense.bias/moment1 [36]",
            ],
        ),
        ({"num_hidden_layers": 1}, ["unknown: bert.encoder.layer.1.output.dense.bias [32]"]),
        (FLOAT16, ["differs: loss scale is None there, in use here"]),
        (
            {"seed": 43, "batch_size": 24},
            [
                "this run does not continue the checkpoint",
                "seed is 42 in the checkpoint, 43 in this run",
                "global_batch_size is 12 in the checkpoint, 24 in this run",
                "--from-pretrained-params",
            ],
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_does_not_fit_is_refused_with_the_differences(trained, changes, lines):
    with pytest.raises(CheckpointError) as error:
        runs.run(resuming(trained, **changes), 3, train=False)
    for line in lines:
        assert line in str(error.value)
    assert "\\n" not in printable(str(error.value), indented_lines=True)  # as a command shows it


@pytest.mark.long
def test_another_kind_of_mixed_precision_is_refused(tmp_path):
    """A loss scale fits one kind of gradients: a run of constant scale or bfloat16 would go on with a wrong one."""
    config = config_of(tmp_path, **FLOAT16)
    runs.run(config, 1)
    with pytest.raises(CheckpointError, match="loss scale is 1024.0 there, not in use here"):
        runs.run(resuming(config, amp_dtype="bfloat16"), 2, train=False)
    with pytest.raises(CheckpointError, match="the loss scale is dynamic there, constant here"):
        runs.run(resuming(config, use_dynamic_loss_scaling=False), 2, train=False)


def test_other_data_and_another_phase_are_refused(trained):
    other_data = "the training data in .* are not those with which the run began"
    cases = {"stage is .* in the checkpoint, .* in this run": {"stage": "phase2"}}
    cases |= {other_data: {"data_fingerprint": "other shards"}}
    for message, changes in cases.items():
        start = runs.fresh_progress(trained, **changes)
        with pytest.raises(CheckpointError, match=message):
            runs.run(resuming(trained), 3, train=False, start=start)


def test_other_data_names_the_settings_of_the_data_that_changed(trained):
    config = resuming(trained, max_predictions_per_seq=5, whole_word_masking=True, masking="dynamic")
    start = runs.fresh_progress(config, data_fingerprint="of other settings")
    with pytest.raises(CheckpointError, match="the training data in ") as error:
        runs.run(config, 3, train=False, start=start)
    before = trained.data.max_predictions_per_seq
    for line in (
        f"\n  max_predictions_per_seq=5 was {before}: pass --max-predictions-per-seq {before}",
        "\n  whole_word_masking=True was False: pass --no-whole-word-masking",
    ):
        assert line in str(error.value)
    assert "vocab_file" not in str(error.value)


def test_accumulation_may_change_while_the_global_batch_stays(trained):
    """A checkpoint of k passes loaded into a program of another k runs that program's k."""
    config = resuming(trained, batch_size=6, gradient_merge_steps=2)
    accumulated = runs.run(derive(config, output_dir=trained.run.output_dir.parent / "accumulated"), 4)
    assert "changed since the checkpoint: batch_size 12 -> 6" in accumulated.said
    whole = runs.run(resuming(trained, output_dir=trained.run.output_dir.parent / "plain"), 4)
    assert accumulated.outcome.step == whole.outcome.step == 4
    assert accumulated.outcome.totals.sequences == whole.outcome.totals.sequences == 48  # of the whole run


def test_a_refused_checkpoint_changes_nothing():
    session = tiny.Session()
    program = session.program
    parameters, optimizer, scalars = checkpoint.capture(session.scope, program)
    before = {**session.parameters(), **session.optimizer_state()}
    changed = {name: value + 1 for name, value in parameters.items()}
    changed["cls.predictions.bias"] = np.zeros(7, "float32")
    progress = checkpoint.Progress(1, 3, 0, 42, 12, "", settings={}, **scalars)
    with pytest.raises(CheckpointError, match="cls.predictions.bias"):
        checkpoint.restore(session.scope, session.place, program, changed, optimizer, progress)
    tiny.assert_identical({**session.parameters(), **session.optimizer_state()}, before)


class Scope:
    """Stands in for a program's scope: three variables and the counters."""

    def __init__(self, number: float, loss_scale: float | None = None, counters: tuple[str, ...] = ()):
        self.scope, self.place = static.Scope(), place_of("cpu")
        scale = None if loss_scale is None else "loss_scaling_0"
        self.program = SimpleNamespace(
            parameters=("a.weight", "b.bias"),
            optimizer_state={"a.weight/moment1": "moment_0"},
            loss_scale=scale,
            loss_scale_counters=counters,
        )
        values = {"a.weight": np.full((2, 3), number, "float32"), "b.bias": np.full(3, number + 1, "float32")}
        values |= {"moment_0": np.full((2, 3), number + 2, "float32")}
        values |= {name: np.array([int(number) + place], "int64") for place, name in enumerate(COUNTERS)}
        values |= {name: np.array([int(number) + place], "int32") for place, name in enumerate(counters)}
        values |= {} if scale is None else {scale: np.array([loss_scale], "float32")}
        self.names = list(values)
        for name, value in values.items():
            self.scope.var(name).get_tensor().set(value, self.place)

    def values(self) -> dict[str, list]:
        return {name: read_variable(self.scope, name).tolist() for name in self.names}

    def capture(self) -> tuple[dict, dict, checkpoint.Progress]:
        parameters, optimizer, scalars = checkpoint.capture(self.scope, self.program)
        return parameters, optimizer, checkpoint.Progress("phase1", 3, 0, 42, 12, "", settings={}, **scalars)

    def restore(self, captured) -> None:
        checkpoint.restore(self.scope, self.place, self.program, *captured)


COUNTING = ("num_bad_steps_0", "num_good_steps_0")


def test_everything_that_was_captured_is_restored():
    source, other = Scope(3.0, 512.0, COUNTING), Scope(8.0, 2.0, COUNTING)
    parameters, optimizer, progress = source.capture()
    assert progress.counters == dict(zip(COUNTERS, (3, 4, 5), strict=True))
    assert (progress.loss_scale, progress.loss_scale_counters) == (512.0, dict(zip(COUNTING, (3, 4), strict=True)))
    assert list(parameters) == ["a.weight", "b.bias"] and list(optimizer) == ["a.weight/moment1"]
    other.restore((parameters, optimizer, progress))
    assert other.values() == source.values()


@pytest.mark.parametrize(
    ("scale", "counters", "rule"),
    [
        (None, (), "loss scale is 512.0 there, not in use here"),
        (512.0, (), "the loss scale is dynamic there, constant here"),
    ],
)
def test_a_loss_scale_of_another_kind_is_refused(scale, counters, rule):
    dynamic, other = Scope(3.0, 512.0, COUNTING), Scope(3.0, scale, counters)
    with pytest.raises(CheckpointError, match=rule):
        other.restore(dynamic.capture())
    words = {"512.0 there, not in": "None there, in", "dynamic there, constant": "constant there, dynamic"}
    reverse = next(rule.replace(old, new) for old, new in words.items() if old in rule)
    with pytest.raises(CheckpointError, match=reverse):
        dynamic.restore(other.capture())


def test_every_difference_is_listed_and_another_dtype_is_one():
    expected = {"a": np.zeros((2, 3), "float32"), "b": np.zeros(3, "float32"), "c": np.zeros(1, "float32")}
    found = {"a": np.zeros((2, 3), "float64"), "b": np.zeros((3, 1), "float32")}
    found |= {name: np.zeros((4, 5), "float32") for name in ("g", "e", "d", "f")}
    assert checkpoint.differences(found, expected) == [
        "missing: c [1]",
        *(f"unknown: {name} [4, 5]" for name in "defg"),
        "differs: a is float64 [2, 3], needed float32 [2, 3]",
        "differs: b is float32 [3, 1], needed float32 [3]",
    ]
    assert checkpoint.differences(expected, expected) == []
    source = Scope(3.0)
    parameters, optimizer, progress = source.capture()
    before = source.values()
    for kind in ("float16", "float64"):
        other = {"a.weight/moment1": optimizer["a.weight/moment1"].astype(kind)}
        with pytest.raises(CheckpointError, match=f"differs: a.weight/moment1 is {kind}"):
            source.restore((parameters, other, progress))
    assert source.values() == before


def test_weights_alone_may_have_any_precision(tmp_path):
    target, halves = Scope(3.0), {"a.weight": np.full((2, 3), 0.5, "float16"), "b.bias": np.full(3, 7.0)}
    checkpoint.initialize_from(target.scope, target.place, target.program, halves, tmp_path, False)
    values = target.values()
    assert values["a.weight"] == [[0.5] * 3] * 2 and values["b.bias"] == [7.0] * 3
    assert read_variable(target.scope, "a.weight").dtype == np.float32
    assert values["moment_0"] == [[5.0] * 3] * 2, "the optimizer's state is left alone"
    integers = {**halves, "b.bias": np.arange(3)}
    with pytest.raises(CheckpointError, match="differs: b.bias is int64"):
        checkpoint.initialize_from(target.scope, target.place, target.program, integers, tmp_path, True)


def test_a_save_has_what_other_tools_read(tmp_path):
    """Other tools can read the tensors' format, and other users than the owner can read the files."""
    parameters, optimizer, progress = Scope(3.0).capture()
    directory = checkpoint.save(tmp_path, "bert", parameters, optimizer, progress, {"vocab.txt": b"a\n"})
    assert directory == tmp_path / "3" and (directory / "vocab.txt").read_bytes() == b"a\n"
    for name in ("bert.safetensors", "bert_optimizer.safetensors"):
        with safe_open(directory / name, "numpy") as file:
            assert file.metadata() == {"format": "pd"}
        assert (directory / name).stat().st_mode & 0o777 == 0o644
    expected = json.dumps(dataclasses.asdict(progress), indent=1, sort_keys=True)
    assert (directory / "bert_progress.json").read_text() == expected
    loaded = load(directory)
    tiny.assert_identical(loaded[0], parameters)
    tiny.assert_identical(loaded[1], optimizer)
    assert loaded[2] == progress


def test_a_save_needs_the_room_of_its_tensors_and_a_megabyte(tmp_path, monkeypatch):
    captured, needed = Scope(3.0).capture(), []
    monkeypatch.setattr(checkpoint_files, "require_space", lambda folder, size: needed.append((folder, size)))
    monkeypatch.setattr(checkpoint_files, "make_room", lambda folder, size, keep: needed.append((folder, size, keep)))
    checkpoint.save(tmp_path / "new/er", "bert", *captured, {}, keep=4)
    size = (6 + 3 + 6) * 4 + 1024**2
    assert needed == [(tmp_path / "new/er", size, 4), (tmp_path / "new/er", size)]
    checkpoint.save(tmp_path / "new/er", "bert", *captured, {})
    assert len(needed) == 3, "without a number to keep nothing is pruned"


def test_an_amendment_changes_the_state_of_the_loop_and_the_texts_alone(tmp_path):
    parameters, optimizer, progress = Scope(3.0).capture()
    checkpoint.save(tmp_path, "bert", parameters, optimizer, progress, {"labels.txt": b"old", "vocab.txt": b"a\n"})
    state = LoopState(warmup_steps=7)
    state.evaluations.best = (3, 2.5)
    checkpoint.amend(tmp_path, "bert", 3, state, {"labels.txt": "new"})
    loaded = load(tmp_path / "3")
    amended = dataclasses.replace(progress, carried=state)
    assert loaded[2] == amended
    expected = json.dumps(dataclasses.asdict(amended), indent=1, sort_keys=True)
    assert (tmp_path / "3/bert_progress.json").read_text() == expected
    tiny.assert_identical(loaded[0], parameters)
    assert (tmp_path / "3/labels.txt").read_text() == "new" and (tmp_path / "3/vocab.txt").read_text() == "a\n"


# Which checkpoint


def test_damage_of_the_newest_falls_back_to_the_one_before_and_says_so(trained, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(parent(trained), copy)
    weights = copy / "2" / "bert_paddle.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    run = runs.run(derive(trained, from_checkpoint=copy, last_step_of_checkpoint="auto"), 2, train=False)
    assert run.said[0].startswith(f"checkpoint refused, trying an older one: {weights} has ")
    assert run.said[1] == f"continuing {copy / '1'} at step 1"
    with pytest.raises(CheckpointError, match="bert_paddle.safetensors has"):
        runs.run(derive(trained, from_checkpoint=copy, last_step_of_checkpoint=2), 2, train=False)
    shutil.rmtree(copy / "1")
    for step in ("auto", None):
        with pytest.raises(CheckpointError, match="holds"):
            runs.run(derive(trained, from_checkpoint=copy, last_step_of_checkpoint=step), 2, train=False)


def test_a_checkpoint_that_is_not_there_is_an_error_unless_auto(trained, tmp_path):
    with pytest.raises(CheckpointError, match="holds no valid checkpoint of phase1; check the folder, or pass --from"):
        runs.run(derive(trained, from_checkpoint=tmp_path), 1, train=False)
    with pytest.raises(CheckpointError, match=r"last_step_of_checkpoint=7 is not in .*\[1, 2\]"):
        runs.run(resuming(trained, last_step_of_checkpoint=7), 1, train=False)
    with pytest.raises(CheckpointError, match="holds no valid checkpoint of phase1"):  # a mistyped folder
        runs.run(derive(trained, from_checkpoint=tmp_path, last_step_of_checkpoint="auto"), 1, train=False)
    elsewhere = derive(trained, output_dir=tmp_path, from_checkpoint=tmp_path, last_step_of_checkpoint="auto")
    run = runs.run(elsewhere, 1, train=False)
    assert run.said == [f"no checkpoint of phase1 in {tmp_path} yet"]


@pytest.mark.parametrize("where", ["", "bert-test/phase1", "bert-test/phase1/1"])
def test_the_folder_of_the_run_of_its_steps_or_a_step_can_be_named(trained, where):
    run = runs.run(derive(trained, from_checkpoint=trained.run.output_dir / where), 2, train=False)
    assert f"at step {1 if where.endswith('/1') else 2}" in run.said[-1]


def test_saves_of_several_runs_are_pruned_together_and_a_run_that_goes_back_sets_aside_what_it_leaves(tmp_path):
    """Otherwise `auto` would later continue the abandoned run, and pruning would remove the new run's steps."""
    config = config_of(tmp_path, num_steps_per_checkpoint=1, keep_checkpoints=2)
    runs.run(config, 3)
    assert checkpoint_files.list_steps(parent(config)) == [2, 3]
    runs.run(resuming(config), 4)
    assert checkpoint_files.list_steps(parent(config)) == [3, 4]
    (parent(config) / "7.set-aside-1").mkdir()
    shutil.copytree(parent(config) / "4", parent(config) / "7")
    run = runs.run(resuming(config, last_step_of_checkpoint=3), 4)
    assert checkpoint_files.list_steps(parent(config)) == [3, 4]
    assert (parent(config) / "7.set-aside-2").is_dir()
    assert any("7.set-aside-2" in line for line in run.said)


# Weights alone


def test_phase_2_starts_from_the_weights_of_phase_1_and_a_schedule_of_its_own(trained, tmp_path):
    config = config_of(tmp_path, phase=2, from_phase1_final_params=trained.run.output_dir)
    run = runs.run(config, 1, train=False)
    tiny.assert_identical(run.parameters, load_parameters(parent(trained) / "2"))
    assert not any(value.any() for key, value in run.optimizer_state.items() if "moment" in key)
    assert run.said == [f"starting from the weights of {parent(trained) / '2'}"]
    assert runs.run(config, 1).outcome.step == 1
    assert (tmp_path / "results" / "bert-test" / "phase2" / "1").is_dir()


def test_heads_that_differ_are_called_by_their_names_and_only_where_allowed(trained, tmp_path):
    weights = load_parameters(parent(trained) / "2")
    encoder = {n: v for n, v in weights.items() if not n.startswith(("cls.", "bert.pooler."))}
    removed = {"classifier.weight": np.zeros((32, 3), "float32"), "classifier.bias": np.zeros(3, "float32")}
    pooler = {f"bert.pooler.dense.{kind}": weights[f"bert.pooler.dense.{kind}"] for kind in ("weight", "bias")}
    save_file(encoder | pooler | removed, tmp_path / "classifier.safetensors")
    run = runs.run(config_of(tmp_path, from_pretrained_params=tmp_path / "classifier.safetensors"), 1, train=False)
    assert any(
        line.endswith("classifier not used by this model: classifier.bias [3], classifier.weight [32, 3]")
        for line in run.said
    )
    save_file(encoder, tmp_path / "encoder.safetensors")
    run = runs.run(config_of(tmp_path, from_pretrained_params=tmp_path / "encoder.safetensors"), 1, train=False)
    reported = [line for line in run.said if "starts from its random initialisation" in line]
    assert sum(line.count(" [") for line in reported) == len(weights) - len(encoder) == 9
    heads = [line.split(": no ")[1].split(" is taken from the weights")[0] for line in reported]
    assert heads == ["pooler", "masked-LM head", "next-sentence head"]
    assert "cls.seq_relationship.weight [32, 2]" in reported[2]
    for name, value in encoder.items():
        assert run.parameters[name].tobytes() == value.tobytes()
    config = config_of(tmp_path, phase=2, from_phase1_final_params=tmp_path / "encoder.safetensors")
    with pytest.raises(CheckpointError, match="(?s)does not fit this model:\n  missing: bert.pooler.*--config-file"):
        runs.run(config, 1, train=False)


@pytest.mark.parametrize(
    "damage,message",
    [
        (lambda weights: weights.pop("bert.embeddings.LayerNorm.bias"), "missing: bert.embeddings.LayerNorm.bias [32]"),
        (lambda weights: weights.update({"extra": np.zeros(3, "float32")}), "unknown: extra [3]"),
        (
            lambda weights: weights.update({"bert.pooler.dense.bias": np.zeros(99, "float32")}),
            "bert.pooler.dense.bias is [99], must be [32]",
        ),
    ],
    ids=["missing", "unknown", "shape"],
)
def test_pretrained_weights_that_do_not_fit_are_refused(trained, tmp_path, damage, message):
    weights = load_parameters(parent(trained) / "2")
    damage(weights)
    save_file(weights, tmp_path / "weights.safetensors")
    with pytest.raises(CheckpointError) as error:
        runs.run(config_of(tmp_path, from_pretrained_params=tmp_path / "weights.safetensors"), 1, train=False)
    assert message in str(error.value)


def test_files_of_weights_that_are_none_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist; name a checkpoint directory or a .safetensors file"):
        load_parameters(tmp_path / "nothing.safetensors")
    with pytest.raises(CheckpointError, match=r"must hold exactly one \*.safetensors, found none"):
        load_parameters(tmp_path)
    (tmp_path / "torn.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{}")
    with pytest.raises(CheckpointError, match="is not a complete safetensors file"):
        load_parameters(tmp_path / "torn.safetensors")


def test_progress_of_another_shape_is_refused_though_whole(trained, tmp_path):
    parameters, optimizer, progress = load(parent(trained) / "2")
    values = dataclasses.asdict(progress)
    del values["seed"]

    def write(directory: Path) -> None:
        save_file(parameters, directory / "bert_paddle.safetensors")
        save_file(optimizer, directory / "bert_paddle_optimizer.safetensors")
        (directory / "bert_paddle_progress.json").write_text(json.dumps(values))

    with pytest.raises(CheckpointError, match="does not describe a run .*seed"):
        load(checkpoint_files.write_checkpoint(tmp_path, 2, write))
