"""The choice of fused kernels by settings, card and Paddle, equal on all ranks; the cards are simulated."""

import json
import logging
import os
import subprocess
import sys

import pytest

from bert import REPOSITORY
from bert.config.architecture import FusedKernels
from bert.config.automatic import DeviceFeatures
from bert.runtime.distributed import Group
from bert.training import devices, fused_kernels
from bert.training.fused_kernels import choose_kernels
from tests.support import tiny
from tests.support.launching import free_ports

ALL_ON = {"fuse_linear": "on", "fuse_dropout_add": "on", "fuse_attention": "on"}


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """Return the kernels for the settings, on ranks whose cards lack some: {kernel: reason} for each."""

    def choose(*cards, **settings):
        cards = cards or ({},)

        def exchange(group, text):
            of_ranks = [{name: card.get(name, "") for name in json.loads(text)} for card in cards]
            assert of_ranks[0] == json.loads(text)
            return [json.dumps(reasons) for reasons in of_ranks]

        reasons = fused_kernels.lacking_kernels

        def lacking(config, device):
            return {name: cards[0].get(name, reason) for name, reason in reasons(config, device).items()}

        monkeypatch.setattr(fused_kernels, "lacking_kernels", lacking)
        monkeypatch.setattr(fused_kernels, "device_features", lambda group: DeviceFeatures("gpu", (8, 0)))
        monkeypatch.setattr(fused_kernels, "exchange_texts", exchange)
        config = tiny.pretraining_config(tmp_path, **{"amp": True, **settings})
        return choose_kernels(config, Group(0, len(cards), "gpu"))

    return choose


def test_automatic_is_attention_in_mixed_precision(chosen):
    assert chosen() == FusedKernels(attention=True)
    assert chosen(amp=False) == chosen(fuse_attention="off") == FusedKernels()
    assert chosen(**ALL_ON) == FusedKernels(linear=True, dropout_add=True, attention=True)
    assert chosen(amp=False, fuse_linear="on") == FusedKernels(linear=True)


def test_what_a_card_lacks_is_used_by_no_rank_and_the_log_says_why(chosen, caplog):
    with caplog.at_level(logging.INFO):
        kernels = chosen({}, {}, {"attention": "it is older"}, **ALL_ON)
    assert kernels == FusedKernels(linear=True, dropout_add=True)
    assert [line for line in caplog.messages if "fuse" in line] == [
        "fused kernels: dropout_add, linear",
        "fuse_attention: plain operators instead, because it is older (rank 2)",
    ]
    assert chosen({"attention": "it is older"}) == FusedKernels()


def test_a_cpu_uses_none(tmp_path):
    config = tiny.pretraining_config(tmp_path, amp=True, fuse_linear="on")
    assert choose_kernels(config, tiny.ONE_RANK) == FusedKernels(unpad=True)


def test_the_features_of_a_rank_are_those_of_its_card_and_its_paddle(tmp_path, monkeypatch):
    """The cards are a V100, then an A100 whose Paddle has FlashAttention, but not for packed tokens."""
    monkeypatch.setattr(devices.core, "get_all_op_names", lambda: ["flash_attn"])
    config = tiny.pretraining_config(tmp_path, amp=True, fuse_linear="on")
    for capability, attention in (((7, 0), False), ((8, 0), True)):
        monkeypatch.setattr(devices.paddle.device.cuda, "get_device_capability", lambda has=capability: has)
        assert choose_kernels(config, Group(0, 1, "gpu")) == FusedKernels(attention=attention)
    packed = tiny.pretraining_config(tmp_path, amp=True, unpad="on")
    assert choose_kernels(packed, Group(0, 1, "gpu")) == FusedKernels(unpad=True)


@pytest.mark.long
def test_ranks_exchange_their_findings_before_they_have_a_communicator():
    """Two processes meet over the store that NCCL's set-up uses on GPUs."""
    endpoints = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
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
