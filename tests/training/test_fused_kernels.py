"""Which fused kernels a run uses: decided by a self-test, alike on all ranks; the kernels are injected."""

import json
import logging
import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from bert import REPOSITORY
from bert.config.architecture import FusedKernels
from bert.model import attention
from bert.model.modeling import PLAIN
from bert.runtime.distributed import Group
from bert.runtime.paddle_api import nn
from bert.samples.packing import Packing
from bert.training import fused_kernels, kernel_comparison
from bert.training.fused_kernels import agreed, choose_kernels, self_test
from bert.training.kernel_comparison import TOLERANCE, Comparison, disagreement, lacking, slowness
from tests.support import tiny
from tests.support.launching import free_port

GPU = Group(0, 1, "gpu")
FINE = dict.fromkeys(("linear", "dropout_add", "attention"), "")
ALL = FusedKernels(linear=True, dropout_add=True, attention=True)


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """Settings -> the kernels, and the kernels of each self-test: (to compare, whose card is only looked at)."""

    def choose(group=GPU, findings=None, others=(), **settings):
        tested = []

        def self_test(config, automatic, forced):
            tested.append((list(automatic), list(forced)))
            return {name: (findings or {}).get(name, "") for name in (*automatic, *forced)}, {"linear": "2 ms"}

        def exchange(group, text):
            return [text, *(json.dumps({**FINE, **other}) for other in others)]

        monkeypatch.setattr(fused_kernels, "self_test", self_test)
        monkeypatch.setattr(fused_kernels, "exchange_texts", exchange)
        return choose_kernels(tiny.pretraining_config(tmp_path, **{"amp": True, **settings}), group), tested

    return choose


def test_what_is_automatic_is_used_where_the_self_test_agrees(chosen):
    assert chosen() == (ALL, [(["linear", "dropout_add", "attention"], [])])


def test_a_kernel_that_fails_or_differs_is_replaced_and_the_log_says_why(chosen, caplog):
    with caplog.at_level(logging.INFO):
        kernels, _ = chosen(findings={"attention": "its self-test differs from plain operators: output by 0.3"})
    assert kernels == FusedKernels(linear=True, dropout_add=True)
    assert [line for line in caplog.messages if "fuse" in line] == [
        "fused kernels: linear (2 ms), dropout_add",
        "fuse_attention=auto: plain operators instead, because its self-test differs from plain operators: output by "
        "0.3 (rank 0)",
    ]


def test_all_ranks_use_a_kernel_or_none(chosen, caplog):
    """This rank's card agrees; that of rank 2 is older."""
    with caplog.at_level(logging.INFO):
        kernels, _ = chosen(Group(0, 3, "gpu"), others=[{}, {"attention": "it is older"}])
    assert kernels == FusedKernels(linear=True, dropout_add=True)
    assert "because it is older (rank 2)" in caplog.text
    assert agreed([{"linear": "a"}, {"linear": "b"}]) == {"linear": "a (rank 0)"}


def test_on_is_not_compared_but_falls_back_on_a_card_without_the_kernel(chosen):
    on = {"fuse_attention": "on", "fuse_linear": "off"}
    assert chosen(**on) == (FusedKernels(dropout_add=True, attention=True), [(["dropout_add"], ["attention"])])
    assert chosen(findings={"attention": "needs 8.0"}, **on)[0] == FusedKernels(dropout_add=True)


def test_without_mixed_precision_only_what_is_on_is_used(chosen, caplog):
    with caplog.at_level(logging.INFO):
        assert chosen(amp=False) == (FusedKernels(), [])
    assert "fuse_linear=auto: plain operators instead, because they are for mixed precision (--amp)" in caplog.text
    assert chosen(amp=False, fuse_linear="on") == (FusedKernels(linear=True), [([], ["linear"])])


def test_nothing_is_tested_on_a_cpu_or_when_all_is_off(chosen):
    assert chosen(tiny.ONE_RANK, fuse_linear="on") == (FusedKernels(unpad=True), [])
    assert chosen(tiny.ONE_RANK, unpad="off") == (FusedKernels(), [])
    off = {"fuse_linear": "off", "fuse_dropout_add": "off", "fuse_attention": "off"}
    assert chosen(**off) == (FusedKernels(), [])


# ---- the self-test ---------------------------------------------------------------------------------------------------


def kernel(fused):
    """A comparison whose plain result is 1, 2, 3."""
    return lambda kind: {"output": np.array([1.0, 2.0, 3.0])} if kind == "plain" else fused()


def raising():
    raise RuntimeError("----\n\n  (External) CUBLAS_STATUS_NOT_SUPPORTED  \n")


@pytest.mark.parametrize(
    ("fused", "reason"),
    [
        (lambda: {"output": np.array([1.0, 2.0, 3.001])}, ""),
        (lambda: {"output": np.array([1.0, 2.0, 3.1])}, "differs from plain operators: output by 0.033, at most 0.02"),
        (lambda: {"output": np.array([1.0, np.nan, 3.0])}, "values that are not finite: output"),
        (lambda: {"output": np.array([1.0, 2.0])}, "another shape"),
        (raising, "failed: RuntimeError: (External) CUBLAS_STATUS_NOT_SUPPORTED"),
    ],
)
def test_a_kernel_that_passes_differs_or_fails(fused, reason):
    against = disagreement(kernel(fused), TOLERANCE["float16"])
    assert reason in against and bool(against) == bool(reason)


@pytest.mark.parametrize(
    ("fused", "plain", "reason", "text"),
    [
        (0.0031, 0.0045, "", "3.1 ms, plain operators 4.5 ms"),
        (0.0046, 0.0045, "", "4.6 ms, plain operators 4.5 ms"),  # as fast, but for what times vary
        (0.0050, 0.0045, "it is slower: 5 ms, plain operators 4.5 ms", "5 ms, plain operators 4.5 ms"),
        (0.0050, MemoryError(), "", "5 ms, plain operators fail"),
        (MemoryError("none is left"), 0.0045, "failed at the run's micro-batch: MemoryError: none is left", ""),
    ],
)
def test_a_kernel_that_is_slower_is_not_used(fused, plain, reason, text):
    def seconds(kind):
        value = {"fused": fused, "plain": plain}[kind]
        if isinstance(value, Exception):
            raise value
        return value

    against, times = slowness(seconds)
    assert reason in against and bool(against) == bool(reason) and times == text


def test_flash_attention_needs_ampere(monkeypatch):
    monkeypatch.setattr(kernel_comparison, "default_device", lambda: "gpu")
    monkeypatch.setattr(kernel_comparison, "core", SimpleNamespace(get_all_op_names=lambda: ["flash_attn"]))
    for capability, reason in (((7, 0), "flash_attn needs compute capability 8.0, this card has 7.0"), ((8, 0), "")):
        monkeypatch.setattr(kernel_comparison.paddle.device.cuda, "get_device_capability", lambda has=capability: has)
        assert lacking("attention") == reason
    assert lacking("linear") == "this Paddle has no fused_gemm_epilogue"
    assert lacking("attention", unpad=True) == "this Paddle has no flash_attn_unpadded"


PADDED, PACKED = None, Packing(tiny.MODEL.num_attention_heads, 2, per_token=True)


def comparison(packing=PADDED, model=tiny.MODEL_WITH_DROPOUT):
    """Plain operators in the place of the kernels, which this machine does not have; 13 tokens, 8 numbers a head."""
    return Comparison(model, "float32", "cpu", (3, 13), PLAIN, packing)


def against(name, ours=None):
    return disagreement(partial((ours or comparison()).arrays, name), 1e-5)


def test_attention_to_near_tokens_is_compared_too():
    modern = {"model_type": "modernbert", "local_attention": 4, "num_hidden_layers": 2}
    ours = comparison(model=tiny.MODEL.model_copy(update=modern))
    assert against("attention", ours) == ""

    def without_window(name, kind):
        ours._window = 4 if kind == "plain" else 100
        return ours.arrays(name, kind)

    assert "its self-test differs from plain operators: output" in disagreement(
        partial(without_window, "attention"), 1e-5
    )


@pytest.mark.parametrize("name", ["linear", "dropout_add", "attention"])
def test_plain_operators_agree_with_themselves_in_output_and_all_gradients(name):
    ours = comparison()
    assert against(name, ours) == "" == against(name, comparison(model=tiny.MODEL))
    inputs = {"linear": "x linear.weight linear.bias", "dropout_add": "x residual", "attention": "query key value"}
    arrays = ours.arrays(name, "plain")
    assert arrays.keys() == {"output", *(f"gradient of {part}" for part in inputs[name].split())}
    assert all(np.abs(values).max() > 1e-3 for values in arrays.values())
    assert all(ours.seconds(name, kind) > 0 for kind in ("plain", "fused"))


def test_attention_of_packed_tokens_is_compared_where_real_tokens_are():
    assert against("attention", comparison(PACKED, tiny.MODEL)) == ""


def test_a_kernel_that_ignores_the_mask_is_noticed(monkeypatch):
    real = attention.attention_bias
    monkeypatch.setattr(attention, "attention_bias", lambda *given: real(*given) * 0.0)
    assert "differs from plain operators" in against("attention")


def _another_mask_in_backward(x, p, training):
    """The gradient is that of dropout with other random numbers."""
    backward = REAL_DROPOUT(x, p, training=training)
    difference = REAL_DROPOUT(x, p, training=training) - backward
    difference.stop_gradient = True
    return backward + difference


REAL_DROPOUT = nn.functional.dropout
WRONG_DROPOUTS = {
    "another mask in backward": (_another_mask_in_backward, "differs from plain operators: gradient of"),
    "another scale": (lambda x, p, training: 0.9 * REAL_DROPOUT(x, p, training=training), "differs from plain"),
    "another share": (lambda x, p, training: REAL_DROPOUT(x, 0.5, training=training), "of the values, not 90.00%"),
}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("dropout_add", "another mask in backward"),
        ("attention", "another mask in backward"),
        ("dropout_add", "another scale"),
        ("attention", "another share"),
    ],
)
def test_a_kernel_with_wrong_dropout_is_noticed(name, wrong, monkeypatch):
    dropout, reason = WRONG_DROPOUTS[wrong]
    monkeypatch.setattr(nn.functional, "dropout", dropout)
    assert reason in against(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("dropout_add", "the same seed does not draw the same"), ("attention", "differs from plain operators: output")],
)
def test_a_kernel_that_does_not_heed_the_seed_is_noticed(name, reason, monkeypatch):
    """A resumed run would not draw the masks of the run that was not interrupted."""
    monkeypatch.setattr(kernel_comparison.paddle, "seed", lambda seed: None)
    assert reason in against(name)


def test_on_this_machine_every_kernel_is_refused_with_a_reason(tmp_path):
    """The process that a GPU rank starts."""
    found, times = self_test(tiny.pretraining_config(tmp_path, amp=True), ["linear", "dropout_add"], ["attention"])
    assert found.keys() == {"linear", "dropout_add", "attention"} and not times
    assert all("this Paddle has no" in reason or reason == "there is no GPU" for reason in found.values())


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os; os.kill(os.getpid(), 11)", "the self-test ended with exit code -11"),
        ("print('no JSON')", "the self-test gave no answer"),
        ("import time; time.sleep(60)", "the self-test took more than 1 s"),
    ],
)
def test_a_self_test_that_dies_or_hangs_speaks_against_what_it_should_compare(tmp_path, monkeypatch, program, reason):
    run, started = subprocess.run, []

    def run_program(command, **options):
        started.append(command)
        return run([sys.executable, "-c", program], **options)

    monkeypatch.setattr(fused_kernels, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(subprocess, "run", run_program)
    fused_kernels._answer.cache_clear()
    config = tiny.pretraining_config(tmp_path, amp=True)
    for _ in range(2):
        assert self_test(config, ["linear"], ["attention"]) == ({"linear": reason, "attention": ""}, {})
    assert len(started) == 1


@pytest.mark.long
def test_ranks_exchange_their_findings_before_they_have_a_communicator():
    """Two processes over the store that NCCL's set-up uses on GPUs."""
    port = free_port()
    endpoints = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    program = (
        "from bert.runtime.distributed import exchange_texts, group_from_environment as group\n"
        "print([exchange_texts(group('gpu'), f'{what} of {group(\"gpu\").rank}') for what in ('first', 'second')])"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLE_TRAINERS_NUM": "2",
                "PADDLE_TRAINER_ENDPOINTS": endpoints,
                "PADDLE_CURRENT_ENDPOINT": endpoints.split(",")[rank],
            },
        )
        for rank in range(2)
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == [
        "[['first of 0', 'first of 1'], ['second of 0', 'second of 1']]\n"
    ] * 2
