"""The summary of both phases."""

from bert.config.training_settings import derive
from bert.launching import pretraining
from bert.launching.pretraining_plan import parse_launch_arguments
from bert.reporting.report_reading import read_run


def test_the_table_leaves_out_what_is_unknown(capsys):
    pretraining.print_table({"phase1": {"steps": 7}, "phase2": {"eval_masked_lm_loss": 5.25}})
    out = capsys.readouterr().out
    assert "5.250" in out and "-" in out and "phase 2" in out


def test_the_table_of_masked_lm_alone_has_no_next_sentences(capsys):
    pretraining.print_table({"phase1": {"final_loss": 6.1, "eval_masked_lm_loss": 5.25}})
    out = capsys.readouterr().out
    assert "training loss (masked LM) " in out and "next" not in out
    both = {"final_loss": 6.1, "eval_masked_lm_loss": 5.25, "eval_next_sentence_accuracy": 0.6}
    pretraining.print_table({"phase1": both})
    assert "masked LM + next sentence" in capsys.readouterr().out


def test_repeated_steps_count_once_and_a_cut_line_not_at_all(tmp_path):
    config = derive(parse_launch_arguments([]).phases[0], output_dir=tmp_path)
    config.stage_dir().mkdir()
    (config.stage_dir() / "metrics.jsonl").write_text(
        '{"step": 2, "loss": 3}\n{"step": 1, "loss": 2}\n{"step": 2, "loss": 4}\n'
        '{"step": 2, "eval_masked_lm_loss": 5}\n{"st'
    )
    run = read_run(config.stage_dir(), config.stage())
    assert run.curve("loss") == [(1, 2), (2, 4)] and run.curve("eval_masked_lm_loss") == [(2, 5)]
    pretraining.draw(tmp_path / "loss.png", [run], [7])
    assert (tmp_path / "loss.png").stat().st_size > 1000
