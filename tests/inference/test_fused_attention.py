"""Tests that the column order of NVIDIA's fused attention is checked by the checkpoint's masked-LM loss."""

import pytest

import run_convert
from bert.conversion.model import read
from bert.conversion.settings import ModelSource
from bert.inference import fused_attention_check
from bert.inference.fused_attention_check import check_fused_qkv, masked_lm_loss
from bert.tokenization.vocabulary import SPECIAL_TOKENS
from tests.conversion.test_formats import EXPECTED, nvidia_file, nvidia_names
from tests.support import foreign

OWN = f"heads:{foreign.HEADS}"


@pytest.fixture
def fused(tmp_path):
    """Make a random model with fused attention whose masks have very different losses in the two orders."""
    tensors = {name: 4 * array if ".attention." in name else array for name, array in EXPECTED.items()}
    folder = nvidia_file(tmp_path / "m", nvidia_names(tensors, "blocks"))
    words = [f"word{number}" for number in range(foreign.VOCAB - len(SPECIAL_TOKENS))]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]) + "\n")
    return folder


def test_the_order_with_the_lower_loss_is_taken_and_the_other_refused(fused, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fused_attention_check, "MARGIN", 0.0)
    losses = {order: masked_lm_loss(read(ModelSource(source=str(fused), fused_qkv=order))) for order in ("blocks", OWN)}
    right, wrong = sorted(losses, key=losses.__getitem__)
    assert losses[right] < losses[wrong]
    words = ["--from", str(fused), "--to", str(tmp_path / "ours"), "--to-format", "native", "--fused-qkv"]
    with pytest.raises(SystemExit) as ended:
        run_convert.main([*words, wrong])
    shown = f"{wrong} {losses[wrong]:.2f}, {right} {losses[right]:.2f}; pass --fused-qkv {right}"
    err = capsys.readouterr().err
    assert ended.value.code == 2 and f"--fused-qkv {wrong} is wrong" in err and shown in err
    assert not (tmp_path / "ours").exists() and run_convert.main([*words, right]) == 0
    assert f"{right} {losses[right]:.2f}, {wrong} {losses[wrong]:.2f}\n" in capsys.readouterr().out


def test_what_the_losses_do_not_tell_is_said(fused, tmp_path, monkeypatch):
    monkeypatch.setattr(fused_attention_check, "MARGIN", 100.0)
    assert check_fused_qkv(ModelSource(source=str(fused), fused_qkv=OWN)).endswith(
        "; this does not tell which is right\n"
    )
    (fused / "vocab.txt").unlink()
    assert "was not checked: that needs" in check_fused_qkv(ModelSource(source=str(fused), fused_qkv=OWN))
    plain = nvidia_file(tmp_path / "plain", nvidia_names(EXPECTED))
    assert check_fused_qkv(ModelSource(source=str(plain), fused_qkv=OWN)) == ""
