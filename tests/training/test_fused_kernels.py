"""Which fused kernels a run uses: decided by a self-test, alike on all ranks; the kernels are injected."""

import json
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from bert import REPOSITORY
from bert.config.architecture import FusedKernels
from bert.model import attention
from bert.runtime.distributed import Group
from bert.training import fused_kernels
from bert.training.fused_kernels import Comparison, agreed, choose_kernels, disagreement, lacking, self_test
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
            return {name: (findings or {}).get(name, "") for name in (*automatic, *forced)}

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
        "fused kernels: linear, dropout_add",
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
    against = disagreement(kernel(fused), fused_kernels.TOLERANCE["float16"])
    assert reason in against and bool(against) == bool(reason)


def test_flash_attention_needs_ampere(monkeypatch):
    monkeypatch.setattr(fused_kernels, "default_device", lambda: "gpu")
    monkeypatch.setattr(fused_kernels, "core", SimpleNamespace(get_all_op_names=lambda: ["flash_attn"]))
    for capability, reason in (((7, 0), "flash_attn needs compute capability 8.0, this card has 7.0"), ((8, 0), "")):
        monkeypatch.setattr(fused_kernels.paddle.device.cuda, "get_device_capability", lambda has=capability: has)
        assert lacking("attention") == reason
    assert lacking("linear") == "this Paddle has no fused_gemm_epilogue"


def comparison():
    return Comparison(tiny.MODEL, "float32", "cpu")


def test_attention_of_packed_tokens_is_compared_where_real_tokens_are(monkeypatch):
    ours = Comparison(tiny.MODEL, "float32", "cpu", unpad=True)
    assert disagreement(lambda kind: ours.attention(kind) if kind == "plain" else ours.packed_attention(2), 1e-5) == ""
    monkeypatch.setattr(fused_kernels, "core", SimpleNamespace(get_all_op_names=lambda: ["flash_attn"]))
    assert lacking("attention", unpad=True) == "this Paddle has no flash_attn_unpadded"


def test_tokens_are_packed_on_gpus_only_if_asked(chosen):
    assert not chosen()[0].unpad
    assert chosen(unpad="on")[0] == FusedKernels(linear=True, dropout_add=True, attention=True, unpad=True)


def test_the_comparisons_are_of_output_and_all_gradients():
    """With the plain operators in the place of the kernels, which this machine does not have."""
    ours = comparison()
    assert ours.linear("plain").keys() == {
        "output",
        *(f"gradient of {n}" for n in ("x", "linear.weight", "linear.bias")),
    }
    attention = ours.attention("plain")
    assert len(attention) == 7 and all(np.abs(values).max() > 1e-3 for values in attention.values())
    assert disagreement(lambda kind: ours.attention("plain"), 1e-6) == ""


def test_a_kernel_that_ignores_the_mask_is_noticed(monkeypatch):
    ours, bias = comparison(), attention.attention_bias

    def run(kind):
        monkeypatch.setattr(attention, "attention_bias", bias if kind == "plain" else lambda *given: bias(*given) * 0.0)
        return ours.attention("plain")

    assert "differs from plain operators" in disagreement(run, fused_kernels.TOLERANCE["bfloat16"])


def test_dropout_is_undone_before_it_is_compared():
    """Plain dropout in the place of the fused kernel agrees with no dropout; one that scales wrongly does not."""
    ours = comparison()
    assert disagreement(lambda kind: ours.dropout_add(kind, FusedKernels()), 0.02) == ""

    def downscaled(kind):
        found = ours.dropout_add(kind, FusedKernels())
        return found if kind == "plain" else {**found, "gradient of x": found["gradient of x"] * 0.9}

    assert "gradient of x" in disagreement(downscaled, 0.02)


def test_on_this_machine_every_kernel_is_refused_with_a_reason(tmp_path):
    """The process that a GPU rank starts."""
    found = self_test(tiny.pretraining_config(tmp_path, amp=True), ["linear", "dropout_add"], ["attention"])
    assert found.keys() == {"linear", "dropout_add", "attention"}
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
        assert self_test(config, ["linear"], ["attention"]) == {"linear": reason, "attention": ""}
    assert len(started) == 1


@pytest.mark.thorough
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
