"""Settings are checked once, where they enter; every refusal says the value, the rule and the remedy."""

import json
import re
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.config.batch_settings import BatchSettings
from bert.config.training_settings import BUILT_IN_MODELS, BertConfig, TrainingConfig, derive
from bert.pretraining.config import PretrainingConfig


def tiny_config(**changes) -> PretrainingConfig:
    config = PretrainingConfig(
        model=BertConfig(
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=37,
            max_position_embeddings=64,
        ),
        data={"input_dir": "shards", "vocab_file": "vocab.txt", "max_seq_length": 16, "max_predictions_per_seq": 3},
        run={"phase": 1, "max_steps": 7},
    )
    return derive(config, **changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (dict(pad_token_id=99), "pad_token_id=99 must be below vocab_size=99"),
        (dict(max_predictions_per_seq=17), "max_predictions_per_seq=17 must be at most max_seq_length=16"),
        (dict(whole_word_masking=True), "needs masking=dynamic"),
        (dict(warmup_start_lr=1.0), "warmup_start_lr=1.0 must be at most the peak learning_rate=0.0001"),
        (dict(end_learning_rate=1.0), "end_learning_rate=1.0 must be at most the peak"),
        (dict(use_pure_fp16=True), "use_pure_fp16=true needs amp=true; pass --amp"),
        (dict(use_pure_fp16=True, amp=True, amp_dtype="bfloat16"), "needs amp_dtype=float16, not bfloat16"),
        (dict(early_stopping=3, keep_best_checkpoint=False), "early_stopping=3 ends with the best checkpoint, which"),
        (dict(last_step_of_checkpoint=0, from_checkpoint="a"), "must be auto, none or a step above 0"),
        (dict(from_checkpoint="a", from_pretrained_params="b"), "continues a run and b starts one; give only one"),
        (dict(from_pretrained_params="a", from_phase1_final_params="b", phase=2), "both set the initial weights"),
        (dict(from_phase1_final_params="b"), "is for phase 2; pass --phase2"),
        (dict(batch_size=True), "batch_size=true must not be true or false"),
        (dict(learning_rate=float("nan")), "finite"),
        (dict(beta1=1.0), "less than 1"),
        (dict(bert_model="../x"), "pattern"),
        (dict(learning_rat=1e-4), "learning_rat=0.0001 is not a setting"),
    ],
)
def test_impossible_settings_are_refused(changes, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        tiny_config(**changes)


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        *((name, 1, 0) for name in ("max_steps", "steps_this_run", "log_freq", "num_steps_per_checkpoint")),
        *((name, 1, 0) for name in ("keep_checkpoints", "benchmark_steps", "max_consecutive_skipped_steps")),
        *((name, 0, -1) for name in ("seed", "eval_freq", "benchmark_warmup_steps", "rank_check_freq", "cpu_threads")),
        ("seed", 2**31 - 1, 2**31),
        ("watchdog_seconds", 0.0, -1.0),
        ("loss_spike_factor", 0.0, -1.0),
        ("loss_spike_factor", 1.01, 1.0),
        ("peak_tflops", 0.1, 0.0),
        ("output_dir", Path("a"), 3),
        ("bert_model", "a.b-c_D9", "-a"),
        ("model_prefix", "a.b-c_D9", ".a"),
        ("report_to", "wandb,mlflow", "wandb,none"),
        ("last_step_of_checkpoint", None, "none "),
    ],
)
def test_a_setting_of_a_run_out_of_its_range_is_refused(name, allowed, refused):
    sections = tiny_config(**{name: allowed}).model_dump()
    assert allowed in [values[name] for values in sections.values() if name in values]
    with pytest.raises(ValueError, match=name):
        tiny_config(**{name: refused})


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7_200), ("1.5h", 5_400)])
def test_the_time_of_a_run_is_a_duration_and_needs_a_decay_that_can_begin_early(text, seconds):
    assert tiny_config(finish_in=text, lr_schedule="wsd").run.finish_in == seconds
    with pytest.raises(ValueError, match=f"finish_in={seconds} needs lr_schedule=wsd"):
        tiny_config(finish_in=text)
    for wrong in ("0", "soon", "-1h", 0.0):
        with pytest.raises(ValueError, match="finish_in"):
            tiny_config(finish_in=wrong, lr_schedule="wsd")


@pytest.mark.parametrize(
    ("report_to", "visualdl", "trackers"),
    [
        ("none", True, ["visualdl"]),
        ("none", False, []),
        ("wandb,mlflow,wandb", True, ["visualdl", "wandb", "mlflow"]),
        ("tensorboard", False, ["tensorboard"]),
    ],
)
def test_each_tracker_is_used_once(report_to, visualdl, trackers):
    assert tiny_config(report_to=report_to, visualdl=visualdl).hardware.trackers() == trackers


def test_flash_attention_and_fleets_mixed_precision_need_half_precision():
    with pytest.raises(ValueError, match="fuse_attention=on needs amp=true"):
        tiny_config(fuse_attention="on")
    with pytest.raises(ValueError, match="fleet_strategies=amp needs amp_dtype=float16, not bfloat16"):
        tiny_config(amp=True, amp_dtype="bfloat16", fleet_strategies="amp")
    tiny_config(amp=True, fleet_strategies="amp")
    for changes in ({"amp": False}, {"amp": True, "fleet_strategies": "gradient_merge"}):
        tiny_config(**{"amp_dtype": "bfloat16", "fleet_strategies": "amp", **changes})


def test_warm_up_is_a_whole_share_of_the_updates_and_folders_are_named_by_model_and_stage():
    config = tiny_config(max_steps=199, warmup_proportion=0.03, output_dir="out", bert_model="own")
    plain = TrainingConfig(run={"max_steps": 199}, optimizer={"warmup_proportion": 0.03})
    assert config.warmup_steps() == plain.warmup_steps() == 5
    assert config.checkpoint_dir() == Path("out/own/phase1")
    assert (config.stage_dir(), config.log_dir()) == (Path("out/phase1"), Path("out/phase1"))
    assert derive(config, benchmark=True).log_dir() == Path("out/phase1/benchmark")


def test_a_benchmark_whose_warm_up_takes_all_updates_is_refused():
    config = tiny_config(benchmark=True, benchmark_steps=3, benchmark_warmup_steps=4, max_steps=5)
    config.check_benchmark()
    with pytest.raises(ValueError, match=r"max_steps=5 leaves 4 updates after step 1, .* raise --max-steps to 8, or"):
        config.check_benchmark(first_step=1)
    too_short = derive(config, max_steps=4)
    with pytest.raises(ValueError, match=r"nothing in phase1: max_steps=4 leaves 4 updates, .* raise --max-steps to 7"):
        too_short.check_benchmark()
    derive(too_short, benchmark=False).check_benchmark()


def test_a_missing_path_with_a_dot_is_no_name_of_a_published_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given, expected in (("./none/x", tmp_path / "none/x"), ("owner/name", Path("owner/name")), (".", Path("."))):
        assert tiny_config(from_pretrained_params=given).initialization.from_pretrained_params == expected


def test_a_step_to_resume_from_needs_the_run():
    with pytest.raises(ValueError, match="last_step_of_checkpoint=5 needs from_checkpoint"):
        tiny_config(last_step_of_checkpoint="5")
    assert tiny_config(last_step_of_checkpoint="5", from_checkpoint="a").initialization.last_step_of_checkpoint == 5
    with pytest.raises(ValueError, match="continues a run and b starts one"):
        tiny_config(last_step_of_checkpoint=5, from_checkpoint="a", from_pretrained_params="b")


def test_continuing_may_fall_back_to_a_start_only_with_auto():
    config = tiny_config(phase=2, from_checkpoint="a", last_step_of_checkpoint="auto", from_phase1_final_params="b")
    assert config.initialization.last_step_of_checkpoint == "auto"


@pytest.mark.parametrize(
    ("batch", "world_size", "steps", "resolved"),
    [
        (dict(batch_size=13), 1, 1, 13),
        (dict(batch_size=13, gradient_merge_steps=3), 2, 3, 78),
        (dict(batch_size=256, global_batch_size=65_536), 8, 32, 65_536),
        (dict(batch_size=256, global_batch_size=65_536), 256, 1, 65_536),
        (dict(batch_size=256, global_batch_size=65_536, gradient_merge_steps=32), 8, 32, 65_536),
    ],
)
def test_batch_arithmetic(batch, world_size, steps, resolved):
    settings = BatchSettings(**batch)
    assert settings.gradient_accumulation_steps(world_size) == steps
    assert settings.resolved_global_batch_size(world_size) == resolved


@pytest.mark.parametrize(
    ("batch", "world_size", "text"),
    [
        (
            dict(batch_size=32, global_batch_size=100),
            1,
            "global_batch_size=100 must be a multiple of batch_size x world_size = 32 x 1 = 32",
        ),
        (dict(batch_size=32, global_batch_size=32), 2, "must be a multiple of batch_size x world_size = 32 x 2 = 64"),
        (dict(batch_size=32, global_batch_size=64, gradient_merge_steps=3), 1, "contradicts global_batch_size=64"),
    ],
)
def test_impossible_batches_are_refused(batch, world_size, text):
    with pytest.raises(ValueError, match=text):
        BatchSettings(**batch).gradient_accumulation_steps(world_size)


def test_keys_that_a_modernberts_description_leaves_out_have_hugging_faces_values(tmp_path):
    theirs = {"vocab_size": 50_368, "pad_token_id": 50_283, "classifier_pooling": "cls"}
    published = BUILT_IN_MODELS["modernbert-base"].model_copy(update=theirs)
    for values, model in (
        ({}, published),
        ({"mlp_dropout": 0.1}, published.model_copy(update={"hidden_dropout_prob": 0.1})),
        ({"vocab_size": 99}, published.model_copy(update={"vocab_size": 99, "pad_token_id": 0})),
    ):
        (tmp_path / "model.json").write_text(json.dumps({"model_type": "modernbert", **values}))
        assert BertConfig.from_json_file(tmp_path / "model.json") == model


@pytest.mark.parametrize(
    ("model_type", "trains", "advice"),
    [
        (
            "bert",
            True,
            "; lower --max-seq-length, or pass --max-position-embeddings 128: the positions of given weights",
        ),
        ("bert", False, "of the model; lower --max-seq-length"),
        ("modernbert", False, "lower --max-seq-length, or pass --max-position-embeddings 128"),
    ],
)
def test_more_positions_are_advised_only_where_they_are_trained(monkeypatch, model_type, trains, advice):
    config = tiny_config(model_type=model_type, objective="mlm")
    monkeypatch.setattr(type(config), "trains", lambda _: trains)
    with pytest.raises(ValueError) as refusal:
        config._check_length(128)
    assert advice in str(refusal.value) and (trains or str(refusal.value).endswith(advice))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"hiden_size": 32}', "hiden_size=32 in .* did you mean hidden_size?"),
        ('{"position_embedding_type": "relative_key"}', 'must be "absolute"'),
        ("[1]", "must hold a JSON object, not a list"),
        ("{", "must be readable JSON"),
        ('{"hidden_act": "swish"}', "model.json: hidden_act=swish must be one of gelu, gelu_tanh, relu"),
        ('{"layer_norm_eps": 0.01}', "model.json: layer_norm_eps=0.01 must be less than or equal to 0.001"),
        ('{"hidden_size": 0}', "model.json: hidden_size=0 must be greater than or equal to 1; change it in this file"),
        ('{"hidden_size": 31}', "model.json: hidden_size=31 must be a multiple of num_attention_heads=12"),
    ],
)
def test_a_wrong_model_file_is_refused(tmp_path, text, message):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        BertConfig.from_json_file(tmp_path / "model.json")


def test_missing_files_are_refused_before_anything_starts(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n" + "x\n" * 98)
    config = tiny_config(input_dir=tmp_path, vocab_file=tmp_path / "vocab.txt")
    config.check_files()
    for changes, text in (
        (dict(input_dir=tmp_path / "none"), "input_dir=.* must be an existing folder of shards; pass --input-dir"),
        (dict(eval_dir=tmp_path / "none"), "eval_dir=.* pass --eval-dir"),
        (dict(vocab_file=tmp_path / "none"), "vocab_file=.* must be an existing vocabulary; pass --vocab-file"),
        (dict(vocab_file=Path("$NO_SUCH_VARIABLE/v")), "environment variable in .* is not set"),
        (dict(pad_token_id=98), "must have .PAD. in line 99, as pad_token_id=98 says; pass --pad-token-id"),
        (dict(vocab_size=80), "has 99 tokens and must have at most 80"),
    ):
        with pytest.raises(ValueError, match=text):
            derive(config, **changes).check_files()


def test_a_vocabulary_may_use_the_padding_rows(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n" + "x\n" * 103)
    tiny_config(input_dir=tmp_path, vocab_file=tmp_path / "vocab.txt").check_files()


_NOT_READERS = ("config.py", "command_line.py", "layers.py", "architecture.py", "estimates.py")
READERS = [
    path
    for path in [*(REPOSITORY / "bert").rglob("*.py"), *REPOSITORY.glob("*.py")]
    if path.name not in _NOT_READERS and not {"recipes", "launching"} & set(path.parts)
]


def test_every_setting_is_read_somewhere():
    """A flag that nothing reads misleads users: delete it, or read it."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in READERS)
    read = set(re.findall(r"\.([a-z]\w*)\b", source))
    read |= {name for names in re.findall(r"include=\{([^}]*)\}", source) for name in re.findall(r'"(\w+)"', names)}
    # Methods of the settings stand for the fields they read.
    methods = {
        "global_batch_size": "resolved_global_batch_size",
        "gradient_merge_steps": "gradient_accumulation_steps",
        "warmup_proportion": "warmup_steps",
        "output_dir": "stage_dir",
        "bert_model": "checkpoint_dir",
        "vocab_size": "padded_vocab_size",
        "pad_token_id": "check_files",
        "global_attn_every_n_layers": "uses_local_positions",
        "eval_masked_lm_ratio": "for_evaluation",
        "from_phase1_final_params": "initial_weights",
        "fuse_linear": "fusions",
        "fuse_dropout_add": "fusions",
        "fuse_attention": "fusions",
    }
    names = [name for holder in PretrainingConfig.model_fields.values() for name in holder.annotation.model_fields]
    assert [name for name in names if not {name, methods.get(name, name)} & read] == []
