"""A micro-batch that does not fit in memory: the error names one that does; Paddle's error is simulated."""

import pytest

from bert.config.automatic import CPU, DeviceFeatures, resolve_auto
from bert.pretraining.recipes import RECIPES
from bert.runtime.distributed import Group
from bert.training import memory
from bert.training.memory import memory_errors, too_large
from tests.support import tiny


def test_the_error_names_the_largest_batch_that_fits_and_keeps_the_update(tmp_path):
    config = resolve_auto(tiny.pretraining_config(tmp_path, batch_size=12, gradient_merge_steps=2), CPU)
    assert "pass --batch-size 6 --global-batch-size 48," in too_large(config, 2, 80e9)
    odd = tiny.pretraining_config(tmp_path, batch_size=9, gradient_merge_steps=1, global_batch_size=18)
    odd = resolve_auto(odd, CPU)
    assert "pass --batch-size 3 --global-batch-size 18," in too_large(odd, 1, 80e9)  # 4 does not divide 18
    assert "does not fit in the 0.0001 GB of memory of a rank; pass --recompute, a shorter" in too_large(config, 2, 1e5)


@pytest.mark.parametrize(("capability", "fitting"), [((7, 0), 16), ((8, 0), 32)])
def test_the_batch_that_fits_is_that_of_the_kernels_of_this_card(capability, fitting, monkeypatch):
    """Phase 2 of BERT-large fits fewer sequences into 40 GB of an older card, which keeps the attention matrices."""
    monkeypatch.setattr(memory, "device_features", lambda group: DeviceFeatures("gpu", capability))
    monkeypatch.setattr(memory, "_memory_bytes", lambda group: 40e9)
    with pytest.raises(ValueError, match=f"pass --batch-size {fitting} --global-batch-size 32768,"):
        with memory_errors(RECIPES["phase2_large"](), Group(0, 8, "gpu")):
            raise MemoryError("Out of memory error on GPU 0")


def test_only_errors_of_memory_are_explained(tmp_path):
    config = tiny.pretraining_config(tmp_path)
    for error, expected in (
        (MemoryError("ResourceExhaustedError: Out of memory error on GPU 0"), "batch_size=12 does not fit"),
        (RuntimeError("CUDA error: out of memory"), "batch_size=12 does not fit"),
        (RuntimeError("a broken kernel"), "a broken kernel"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=expected), memory_errors(config, tiny.ONE_RANK):
            raise error
