"""Every `auto` setting on each kind of hardware, compared with values written by hand."""

import pytest

from bert.config.architecture import FusedKernels
from bert.config.automatic import CPU, DeviceFeatures, lacking_kernels, resolve_auto
from tests.config.test_training_settings import tiny_config

V100, T4, A100, H100 = (DeviceFeatures("gpu", capability) for capability in ((7, 0), (7, 5), (8, 0), (9, 0)))
AUTOMATIC = ("device", "enable_cpu_affinity", "fuse_linear", "fuse_dropout_add", "fuse_attention", "unpad", "tf32")


def resolved(device: DeviceFeatures, **settings) -> tuple[str, ...]:
    """Return the automatic settings, in the order of AUTOMATIC, of a run on this device."""
    config = resolve_auto(tiny_config(**settings), device)
    values = {**config.hardware.model_dump(), **config.precision.model_dump()}
    return tuple(values[name] for name in AUTOMATIC)


@pytest.mark.parametrize("device", [CPU, V100, T4, A100, H100], ids=["CPU", "V100", "T4", "A100", "H100"])
@pytest.mark.parametrize("amp", [False, True])
def test_each_automatic_setting_on_each_kind_of_hardware(device, amp):
    """FlashAttention is for mixed precision on Ampere and newer; TF32 for Ampere and newer; packed tokens for CPUs."""
    by_hand = {
        # device, affinity, linear, dropout_add, attention, unpad, tf32
        (CPU, False): ("cpu", "off", "off", "off", "off", "on", "off"),
        (CPU, True): ("cpu", "off", "off", "off", "off", "on", "off"),
        (V100, False): ("gpu", "on", "off", "off", "off", "off", "off"),
        (V100, True): ("gpu", "on", "off", "off", "off", "off", "off"),
        (T4, False): ("gpu", "on", "off", "off", "off", "off", "off"),
        (T4, True): ("gpu", "on", "off", "off", "off", "off", "off"),
        (A100, False): ("gpu", "on", "off", "off", "off", "off", "on"),
        (A100, True): ("gpu", "on", "off", "off", "on", "off", "on"),
        (H100, False): ("gpu", "on", "off", "off", "off", "off", "on"),
        (H100, True): ("gpu", "on", "off", "off", "on", "off", "on"),
    }
    assert resolved(device, amp=amp) == by_hand[device, amp]


ALL_ON = dict(
    amp=True,
    enable_cpu_affinity="on",
    fuse_linear="on",
    fuse_dropout_add="on",
    fuse_attention="on",
    unpad="on",
    tf32="on",
)


@pytest.mark.parametrize(
    ("device", "by_hand"),
    [
        (CPU, ("cpu", "on", "off", "off", "off", "on", "off")),
        (V100, ("gpu", "on", "on", "on", "off", "on", "off")),
        (A100, ("gpu", "on", "on", "on", "on", "on", "on")),
    ],
    ids=["CPU", "V100", "A100"],
)
def test_what_is_on_is_used_where_the_device_has_it(device, by_hand):
    assert resolved(device, **ALL_ON) == by_hand


@pytest.mark.parametrize("device", [CPU, V100, A100], ids=["CPU", "V100", "A100"])
def test_what_is_off_stays_off(device):
    off = dict.fromkeys((name for name in AUTOMATIC if name != "device"), "off")
    assert resolved(device, amp=True, **off) == (device.kind, *["off"] * 6)


@pytest.mark.parametrize("device", [CPU, V100, A100], ids=["CPU", "V100", "A100"])
@pytest.mark.parametrize("settings", [{}, {"amp": True}, ALL_ON])
def test_resolved_settings_are_the_same_when_they_are_resolved_again(device, settings):
    once = resolve_auto(tiny_config(**settings), device)
    assert resolve_auto(once, device) == once


def test_settings_that_are_not_resolved_name_no_kernels():
    with pytest.raises(AssertionError, match="must be resolved for a device first"):
        tiny_config(amp=True).kernels()
    kernels = resolve_auto(tiny_config(amp=True, fuse_linear="on"), A100).kernels()
    assert kernels == FusedKernels(linear=True, attention=True)


def test_automatic_binding_needs_the_cores_near_the_gpu():
    unknown = DeviceFeatures("gpu", (8, 0), has_near_cores=False)
    assert resolved(unknown)[1] == "off" and resolved(unknown, enable_cpu_affinity="on")[1] == "on"


def test_the_variable_of_nvidia_forbids_automatic_tf32_alone():
    forbidden = DeviceFeatures("gpu", (8, 0), allows_tf32=False)
    assert [resolved(forbidden, tf32=setting)[6] for setting in ("auto", "on", "off")] == ["off", "on", "off"]


@pytest.mark.parametrize(
    ("device", "settings", "reasons"),
    [
        (A100, {}, {}),
        (A100, {"amp": True}, {"attention": ""}),
        (A100, {"fuse_linear": "on", "fuse_dropout_add": "on"}, {"linear": "", "dropout_add": ""}),
        (
            V100,
            {"amp": True, "fuse_linear": "on"},
            {"linear": "", "attention": "flash_attn needs compute capability 8.0, this card has 7.0"},
        ),
        (
            DeviceFeatures("gpu", (8, 0), operators={"flash_attn"}),
            {"amp": True, "fuse_linear": "on"},
            {"linear": "this Paddle has no fused_gemm_epilogue", "attention": ""},
        ),
        (
            DeviceFeatures("gpu", (8, 0), operators={"flash_attn"}),
            {"amp": True, "unpad": "on"},
            {"attention": "this Paddle has no flash_attn_unpadded"},
        ),
        (CPU, {"amp": True}, {"attention": "there is no GPU"}),
    ],
)
def test_a_kernel_that_cannot_be_used_has_a_reason(device, settings, reasons):
    assert lacking_kernels(tiny_config(**settings), device) == reasons


def test_a_kernel_that_another_rank_lacks_is_off():
    config = tiny_config(amp=True, fuse_linear="on")
    kernels = resolve_auto(config, A100, {"linear": "", "attention": "it is older (rank 2)"}).kernels()
    assert kernels == FusedKernels(linear=True)


def test_packed_tokens_of_a_window_have_no_flash_attention():
    window = {"model_type": "modernbert", "objective": "mlm", "local_attention": 16, "amp": True}
    for unpad, attention in (("on", "off"), ("off", "on"), ("auto", "on")):
        assert resolved(A100, **window, unpad=unpad)[4] == attention
    assert resolved(A100, amp=True, unpad="on")[4] == "on"
    packed = lacking_kernels(tiny_config(**window, unpad="on"), A100)
    assert packed == {"attention": "FlashAttention of packed tokens has no local attention; --unpad off has it"}
