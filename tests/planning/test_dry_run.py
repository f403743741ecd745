"""What --dry-run and --plan print of every recipe fits a terminal of 100 columns."""

import pytest

from bert.commands import glue, ner, pretrain, squad
from bert.config.training_settings import derive
from bert.planning.dry_run import report_text, size_rows, update_rows
from bert.planning.run_device import run_device
from bert.pretraining.recipes import RECIPES as RECIPES_OF_PRETRAINING

# Those that differ in rows: ranks, precision, growing batches, missing data; quickstarts also say what they lack.
RECIPES = {
    pretrain: ("quickstart", "base", "large_pytorch", "modernbert_base", "dgxa100-80g_32x8gpu_tf32"),
    squad: ("squad_large", "squad_quickstart"),
    glue: ("mnli_large", "quickstart_pairs"),
    ner: ("conll2003", "quickstart_entities"),
}


@pytest.mark.parametrize("question", ["--dry-run", "--plan --hardware 1xH100-80GB --price-per-hour 3"])
@pytest.mark.parametrize("command", RECIPES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_plans_fit_100_columns(command, question, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for recipe in RECIPES[command]:
        assert command.main(["--config", recipe, *question.split()]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert len(shown) > 8 and not [line for line in shown if len(line) > 100]


def test_rows_are_continued_below_their_text():
    lines = report_text({"data": f"{'word ' * 30}\n           a note", "none": ""}).splitlines()
    assert [line[:14] for line in lines] == ["data       wor", "           wor", "           a n"]


def test_the_disk_holds_the_kept_checkpoints_and_one_that_is_written():
    """A checkpoint of BERT-tiny has three float32 numbers for each parameter."""
    config = derive(RECIPES_OF_PRETRAINING["quickstart_phase1"](), keep_checkpoints=2, num_steps_per_checkpoint=13)
    one = 12 * config.model.num_parameters()
    for keeps_best, schedule, number in ((False, "linear", 3), (True, "linear", 4), (True, "wsd", 5)):
        changed = derive(config, lr_schedule=schedule, keep_best_checkpoint=keeps_best, device="cpu")
        device = run_device(changed, 1, [])
        rows = size_rows(device.resolve(changed), 1, device)
        best = " and the best" if keeps_best else ""
        assert rows["disk"] == (
            f"{one / 1e6:.1f} MB a checkpoint every 13 updates, 2 kept{best}: {number * one / 1e6:.1f} MB at most"
        )


def test_the_plan_of_an_update_has_its_batch_its_growth_and_its_warm_up():
    config = derive(
        RECIPES_OF_PRETRAINING["quickstart_phase1"](),
        batch_size=4,
        global_batch_size=24,
        max_steps=100,
        warmup_proportion=0.25,
        batch_size_warmup_min_size=8,
        batch_size_warmup_sequences=72,
    )
    rows = update_rows(config, world_size=2)
    assert rows["batch"] == (
        "4 x 3 micro-steps x 2 ranks = 24 sequences an update; the first 6 grow by 8 from 8, with 3 of each size, "
        "72 sequences in all"
    )
    assert "after 25 steps of warm-up" in rows["optimizer"]
    always_full = derive(config, batch_size_warmup_min_size=None, batch_size_warmup_sequences=None, max_steps=1)
    assert update_rows(always_full, 2)["batch"].endswith("24 sequences an update")
    assert "after 0 steps of warm-up" in update_rows(always_full, 2)["optimizer"]
    run = config.run.model_copy(update={"max_steps": -1})  # as many as epochs need
    assert "after 25.0% of the steps of warm-up" in update_rows(config.model_copy(update={"run": run}), 2)["optimizer"]


def test_what_is_not_used_has_no_strategy():
    config = derive(RECIPES_OF_PRETRAINING["phase1_large"](), batch_size=16, global_batch_size=128)
    either = "losses are equal either way (--fleet-strategies)"
    for world_size, amp, strategy in (
        (8, True, f"amp: ours; {either}"),
        (4, False, f"gradient_merge: ours; {either}"),
        (8, False, ""),
    ):
        assert update_rows(derive(config, amp=amp), world_size)["strategy"] == strategy
