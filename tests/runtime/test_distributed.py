"""Ranks as processes over Gloo compute what one rank computes with the same global batch."""

import importlib.util
import json
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from bert.runtime.distributed import Group, group_from_environment
from bert.runtime.gloo import RankBarrier, interface_of, join
from bert.runtime.paddle_api import IS_PADDLE_3
from tests.support import tiny
from tests.support.disk_cache import made_once
from tests.support.launching import RANKS, free_ports, launch, launch_two_hosts
from tests.vectors import test_contrastive, test_reranking

_spec = importlib.util.spec_from_file_location("cases", RANKS / "cases.py")
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """Start two ranks once; return the output folder of all cases."""

    def make(output):
        launch(RANKS / "cases.py", str(output), log_dir=output / "log")

    return made_once(tmp_path_factory, "two_ranks", make)


def results(output, name: str) -> list[dict]:
    return [json.loads((output / f"{name}.{rank}.json").read_text()) for rank in range(2)]


@cache
def one_rank_parameters(name: str, micro_steps: int = 1) -> dict:
    """Make the same updates on one rank, with `passes` micro-batches per update."""
    precision, optimizer, _ = cases.EQUALITY_CASES[name]
    session = tiny.Session(precision=precision, optimizer=optimizer, micro_steps=micro_steps)
    for step in range(cases.NUM_UPDATES):
        session.update(tiny.feeds(tiny.random_batch(step, cases.GLOBAL_BATCH), micro_steps))
    return session.parameters()


@pytest.mark.long
@pytest.mark.parametrize("name", cases.EQUALITY_CASES)
def test_two_ranks_with_and_without_accumulation_equal_one_rank_with_one_pass(two_ranks, name):
    with np.load(two_ranks / f"{name}.npz") as found:
        assert tiny.relative_difference(dict(found), one_rank_parameters(name)) < 1e-5


@pytest.mark.long
def test_two_ranks_search_among_the_passages_of_both(two_ranks):
    """Vectors gathered from micro-batches of two ranks have the losses and the gradient of one whole batch."""
    one_rank = test_contrastive.update(1)
    (whole,), gradients = one_rank.losses, one_rank.moments
    for result in results(two_ranks, "contrastive"):
        assert result["losses"] == pytest.approx([whole] * 2, abs=1e-6)
    with np.load(two_ranks / "contrastive.npz") as found:
        assert tiny.relative_difference(dict(found), gradients) < 3e-6


@pytest.mark.long
def test_two_ranks_train_a_reranker_as_one_does(two_ranks):
    one_rank, _ = test_reranking.update(1)
    with np.load(two_ranks / "reranking.npz") as found:
        assert tiny.relative_difference(dict(found), test_reranking.parameters(one_rank)) < 1e-5


@pytest.mark.long
def test_a_mean_of_means_would_be_noticed():
    session = tiny.Session(micro_steps=2, optimizer=tiny.STEADY_LAMB)
    for step in range(cases.NUM_UPDATES):
        micro_batches = tiny.feeds(tiny.random_batch(step, cases.GLOBAL_BATCH), 2)
        for feed in micro_batches:
            feed["masked_lm_normalizer"] = feed["masked_lm_weights"].sum(keepdims=True)
        session.update(micro_batches)
    assert tiny.relative_difference(session.parameters(), one_rank_parameters("float32_2_passes")) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("name", cases.EQUALITY_CASES)
def test_ranks_start_and_end_with_the_same_bytes_though_seeded_apart(two_ranks, name):
    first, second = results(two_ranks, name)
    assert first["start"] == second["start"]
    assert first["end"] == second["end"]
    assert first["start"] != first["end"][0]


@pytest.mark.long
@pytest.mark.parametrize("name", cases.OVERFLOW_CASES)
def test_an_overflow_on_one_rank_skips_the_update_on_all(two_ranks, name):
    first, second = (result["history"] for result in results(two_ranks, name))
    assert first == second
    before, skipped, after = first
    assert [entry["counters"] for entry in first] == [[1, 0, 0], [1, 1, 1], [2, 1, 0]]
    for key in ("parameters", "optimizer_state"):
        assert skipped[key] == before[key]
        assert after[key] != before[key]
    # The update after the skipped one has the learning rate that the skipped one would have had.
    assert after["learning_rate"] == skipped["learning_rate"] > before["learning_rate"]
    if name.startswith("overflow_float16"):
        assert skipped["loss_scale"] == before["loss_scale"] / 2 == after["loss_scale"]


@pytest.mark.long
def test_a_rank_that_drifts_by_one_bit_is_caught_and_the_parameter_named(two_ranks):
    for result in results(two_ranks, "drift"):
        assert "at step 7 the ranks hold different values of 1 of 46 parameters" in result["error"]
        assert "bert.encoder.layer.1.output.dense.weight" in result["error"]
        assert result["error_on_device"] == result["error"], "as GPUs compare them"


@pytest.mark.long
def test_a_signal_to_one_rank_stops_and_saves_all(two_ranks):
    first, second = results(two_ranks, "trainer")
    assert first["step"] == second["step"] == 5
    assert first["saved"] == second["saved"] == [5]
    assert (first["interrupted_by"], second["interrupted_by"]) == ("a signal to another rank", "SIGTERM")
    assert first["sequences"] == second["sequences"] == 5 * cases.GLOBAL_BATCH


@pytest.mark.long
def test_ranks_that_look_for_a_stop_now_and_then_stop_together(two_ranks):
    """They are asked in update 5 and look after every third update, as on GPUs, where rank 0's measure counts."""
    found = results(two_ranks, "trainer_as_on_gpus")
    assert [(rank["step"], rank["saved"]) for rank in found] == [(6, [6])] * 2


@pytest.mark.long
def test_logged_metrics_are_of_the_global_batch(two_ranks):
    """Two ranks with two micro-batches each log the loss, accuracies and counts of one large micro-batch."""
    lines = (two_ranks / "trainer-0" / "results" / "phase1" / "metrics.jsonl").read_text().splitlines()
    session = tiny.Session()
    for step, line in enumerate(lines):
        row = json.loads(line)
        expected = session.update(tiny.feeds(tiny.random_batch(step, cases.GLOBAL_BATCH)))
        assert row["step"] == step + 1
        for name in ("loss", "masked_lm_loss", "next_sentence_loss"):
            assert row[name] == pytest.approx(expected[name], rel=1e-4)
        assert row["masked_lm_accuracy"] == pytest.approx(expected["masked_lm_correct"] / expected["masked_tokens"])
        assert row["next_sentence_accuracy"] == pytest.approx(expected["next_sentence_correct"] / cases.GLOBAL_BATCH)
        assert row["gradient_norm"] == pytest.approx(session.value("gradient_norm"), rel=1e-4)
    assert len(lines) == 5


@pytest.mark.long
def test_two_launchers_that_meet_on_loopback_equal_one_rank(tmp_path):
    launch_two_hosts(RANKS / "cases.py", str(tmp_path), "float32_2_passes", log_dir=tmp_path / "log")
    with np.load(tmp_path / "float32_2_passes.npz") as found:
        assert tiny.relative_difference(dict(found), one_rank_parameters("float32_2_passes")) < 1e-5


def test_one_process_without_a_launcher_is_a_group_of_one(monkeypatch):
    for name in ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"):
        monkeypatch.delenv(name, raising=False)
    assert group_from_environment("cpu") == Group(0, 1, "cpu", 0, 1)


def test_the_group_knows_which_ranks_share_its_host(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170,10.0.0.2:6171")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "4")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "3")
    assert group_from_environment("gpu") == Group(3, 4, "gpu", local_rank=1, local_world_size=2)


def test_a_group_without_addresses_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:6170")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    with pytest.raises(ValueError, match="lists 1 addresses; start the ranks with `python -m paddle.distributed"):
        group_from_environment("cpu")


def test_the_interface_of_a_rank_is_found_by_its_address():
    assert interface_of(["192.0.2.1:1", "192.0.2.1:2"], 1) == "lo"  # on one host
    assert interface_of(["127.0.0.1:1", "192.0.2.1:2"], 0) == "lo"
    with pytest.raises(ValueError, match=r"rank 1 should be at 192.0.2.1, .* \(127.0.0.1 on lo.*--host"):
        interface_of(["127.0.0.1:1", "192.0.2.1:2"], 1)


class Store:
    """Stands in for Paddle's store with one key for all: `get` waits for it."""

    def __init__(self):
        self._value, self._is_set = "", threading.Event()

    def set(self, key: str, value: str) -> None:
        self._value = value
        self._is_set.set()

    def get(self, key: str) -> bytes:
        assert self._is_set.wait(10)
        return self._value.encode()


@pytest.fixture
def barriers():
    """Make barriers of three ranks, which a stranger entered first."""
    store = Store()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(RankBarrier, store, 0, 3, "127.0.0.1")
        with socket.create_connection(("127.0.0.1", json.loads(store.get("rank_barrier"))[0])) as stranger:
            stranger.sendall(b"no token of ours")
        others = [pool.submit(RankBarrier, store, rank, 3, "127.0.0.1") for rank in (1, 2)]
        made = [each.result(10) for each in (first, *others)]
    yield made
    for barrier in made:
        barrier.close()


def test_no_rank_passes_before_the_last_has_come(barriers):
    with ThreadPoolExecutor(2) as pool:
        early = [pool.submit(barrier.wait) for barrier in barriers[:2]]
        time.sleep(0.1)
        assert not any(each.done() for each in early)
        barriers[2].wait()
        assert [each.result(10) for each in early] == [None, None]


def test_the_others_notice_when_rank_0_ends(barriers):
    barriers[0].close()
    with pytest.raises(ConnectionError):
        barriers[1].wait()


def test_rank_0_notices_when_another_ends(barriers):
    barriers[2].close()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(barriers[1].wait)
        with pytest.raises(ConnectionError, match="another rank has ended"):
            barriers[0].wait()
        barriers[0].close()  # as its end would
        with pytest.raises(ConnectionError):
            other.result(10)


@pytest.mark.skipif(IS_PADDLE_3, reason="with Paddle 3 the ranks meet without a socket in a folder")
def test_a_temporary_folder_whose_path_is_too_long_for_a_socket_is_named(tmp_path, monkeypatch):
    folder, addresses = tmp_path / ("long" * 20), [f"127.0.0.1:{port}" for port in free_ports(2)]
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(ValueError, match="may have 107, so it may have 75; set TMPDIR to a shorter folder"):
        join(0, addresses)
