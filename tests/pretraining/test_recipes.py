"""Every shipped recipe is valid and documented, and has the published values."""

from pathlib import Path

import pytest

from bert.config.run_file import dump_yaml
from bert.config.setting_sources import resolve_config
from bert.config.training_settings import BUILT_IN_MODELS
from bert.pretraining.entry import ENTRY, dry_run_report
from bert.pretraining.recipes import PRESETS, RECIPES
from bert.pretraining.recipes.published import NODE_COUNTS


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_survives_yaml(name, tmp_path, monkeypatch):
    monkeypatch.delenv("BERT_PREP_WORKING_DIR", raising=False)
    config = RECIPES[name]()
    assert resolve_config({"config": name}, ENTRY) == config
    (tmp_path / "settings.yaml").write_text(dump_yaml(config))
    assert resolve_config({"config": tmp_path / "settings.yaml"}, ENTRY) == config


@pytest.mark.parametrize("name", RECIPES)
def test_the_name_of_the_model_and_its_sizes_agree(name):
    config = RECIPES[name]()
    base = {"global_rope_theta": config.model.global_rope_theta}  # of rotary positions: it grows with the length
    assert config.model == BUILT_IN_MODELS[config.run.bert_model].model_copy(update=base)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_planned(name):
    preset = PRESETS[name]
    first, second = RECIPES[preset.phase1](), RECIPES[preset.phase2]()
    assert (first.run.phase, second.run.phase) == (1, 2)
    base = {"global_rope_theta": second.model.global_rope_theta}
    assert first.model.model_copy(update=base) == second.model
    assert first.data.max_seq_length < second.data.max_seq_length
    for config in (first, second):
        assert dry_run_report(config, preset.world_size())


@pytest.mark.parametrize(
    # length, predictions, micro-batch, micro-steps on 8 GPUs, global batch, peak of the rate, warm-up, updates, --amp
    ("name", "expected"),
    [
        ("phase1_large", (128, 20, 256, 32, 65_536, 6e-3, 2000, 7038, True)),
        ("phase2_large", (512, 80, 64, 64, 32_768, 4e-3, 200, 1563, True)),
        ("phase1_large_tf32", (128, 20, 128, 64, 65_536, 6e-3, 2000, 7038, False)),
        ("phase2_large_tf32", (512, 80, 32, 128, 32_768, 4e-3, 200, 1563, False)),
    ],
)
def test_the_published_table(name, expected):
    config = RECIPES[name]()
    batch, optimizer, precision, run = config.batch, config.optimizer, config.precision, config.run
    sizes = (config.data.max_seq_length, config.data.max_predictions_per_seq, batch.batch_size)
    updates = (batch.gradient_accumulation_steps(8), batch.resolved_global_batch_size(8))
    assert (*sizes, *updates, optimizer.learning_rate, config.warmup_steps(), run.max_steps, precision.amp) == expected
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon) == (0.9, 0.999, 1e-6)
    assert (optimizer.weight_decay, optimizer.max_grad_norm, optimizer.lr_decay_power) == (0.01, 1.0, 1.0)
    assert (precision.scale_loss, precision.use_dynamic_loss_scaling) == (2**20, True)
    growth = (precision.loss_scale_growth_interval, precision.loss_scale_growth_factor)
    assert (*growth, precision.loss_scale_backoff_factor) == (2000, 2.0, 0.5)
    assert (run.num_steps_per_checkpoint, run.keep_checkpoints, precision.tf32) == (
        200,
        3,
        "auto" if precision.amp else "on",
    )


def test_the_other_frameworks_decay_by_the_square_root():
    for name in ("phase1_large_pytorch", "phase2_large_pytorch", "phase1_large_tensorflow", "phase2_large_tensorflow"):
        assert RECIPES[name]().optimizer.lr_decay_power == 0.5
        assert RECIPES[name]().optimizer.always_adapt is name.endswith("tensorflow")


@pytest.mark.parametrize("precision", ["amp", "tf32"])
def test_more_nodes_keep_the_global_batch(precision):
    for nodes in NODE_COUNTS:
        preset = PRESETS[f"dgxa100-80g_{'' if nodes == 1 else f'{nodes}x'}8gpu_{precision}"]
        assert preset.world_size() == 8 * nodes
        sizes = [
            RECIPES[recipe]().batch.resolved_global_batch_size(preset.world_size())
            for recipe in (preset.phase1, preset.phase2)
        ]
        assert sizes == [65_536, 32_768]


def test_the_quickstart_keeps_to_its_folder():
    for name in ("quickstart_phase1", "quickstart_phase2"):
        config = RECIPES[name]()
        for path in (config.data.input_dir, config.data.eval_dir, config.data.vocab_file, config.run.output_dir):
            assert Path("results/quickstart") in (path, *path.parents)
