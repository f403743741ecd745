"""The comparison of inference: orders to the processes, figures, what is behind; the competitors run by hand."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.inference import BASE, behind, check, figures, measure, precision_of, table
from tests.benchmarks.inference_cases import prepare
from tests.benchmarks.measuring import serve


def batch(rows: int, length: int) -> dict[str, np.ndarray]:
    return {"input_ids": np.full((rows, length), rows, "int64"), "attention_mask": np.ones((rows, length), "int64")}


def test_a_process_runs_the_batches_of_an_order_and_saves_outputs(tmp_path, monkeypatch, capsys):
    seen: list[int] = []

    def run(feed):
        seen.append(len(feed["input_ids"]))
        return feed["input_ids"][:, :2].astype("float32")

    orders = [
        {"variant": "ours", "case": "8 x mix", "first": 1, "runs": 3},
        {"variant": "ours", "case": "8 x mix", "save": str(tmp_path / "o.npz")},
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(order) + "\n" for order in orders)))
    serve({"ours": run}, {"8 x mix": [batch(8, 5), batch(3, 9)]})
    hello, timed, saved = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert hello == {"variants": ["ours"]} and len(timed["seconds"]) == len(timed["cpu"]) == 3 and saved == {}
    assert seen == [3, 8, 3, 8, 3]
    with np.load(tmp_path / "o.npz") as arrays:
        assert [len(arrays[name]) for name in arrays.files] == [8, 3]


def test_the_exports_of_another_model_are_not_measured(tmp_path):
    (tmp_path / "checkpoint.txt").write_text("/other/model")
    with pytest.raises(ValueError, match="holds the exports of /other/model; remove it"):
        prepare(Path("/mine/model"), tmp_path, tmp_path)
    (tmp_path / "checkpoint.txt").unlink()
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match="holds the exports of another model"):
        prepare(Path("/mine/model"), tmp_path, tmp_path)


class Process:
    """A competitor whose batches take a fixed time."""

    def __init__(self, seconds: dict[str, float], outputs: dict[str, np.ndarray] | None = None) -> None:
        self.hello, self._seconds, self._outputs = {"variants": list(seconds)}, seconds, outputs or {}
        self.orders: list[dict] = []

    def order(self, **order) -> dict:
        self.orders.append(order)
        if "save" in order:
            np.savez(order["save"], self._outputs[order["variant"]])
            return {}
        return {name: [self._seconds[order["variant"]]] * order["runs"] for name in ("seconds", "cpu")}


def test_competitors_take_turns_and_a_mix_is_run_whole_by_each():
    ours, theirs = Process({"ours, ONNX": 0.1}), Process({BASE: 0.4})
    rows = list(measure([ours, theirs], {"8 x mix": 7, "8 x 64": 1}, rounds=3, seconds=2.5))
    for process, runs in ((ours, 8), (theirs, 2)):
        mixed = [order for order in process.orders if order["case"] == "8 x mix"][1:]
        assert [(order["first"], order["runs"]) for order in mixed] == [(0, 3), (3, 3), (6, 3)]
        assert [order["runs"] for order in process.orders if order["case"] == "8 x 64"] == [2, runs, runs, runs]
    rates = {(row["variant"], row["case"]): row["sequences_per_cpu_second"] for row in rows}
    assert rates["ours, ONNX", "8 x mix"] == pytest.approx(80) and rates[BASE, "8 x 64"] == pytest.approx(20)


def test_figures_have_the_names_of_nvidias_benchmark():
    row = figures("4 x 64", "ours, ONNX, INT8", 4, {"seconds": [0.1] * 98 + [0.3, 0.5], "cpu": [0.2] * 100})
    assert row["inference_sequences_per_second"] == pytest.approx(4 / 0.106)
    assert row["sequences_per_cpu_second"] == pytest.approx(20) and row["precision"] == "INT8"
    assert row["latency_p50_ms"] == row["latency_p90_ms"] == pytest.approx(100) and 290 < row["latency_p99_ms"] < 310
    assert [precision_of(name) for name in (BASE, "a, bfloat16")] == ["float32", "bfloat16"]


def test_the_table_has_ratios_and_what_is_behind_is_named():
    rows = [
        {**figures("8 x mix", name, 8, {"seconds": [t], "cpu": [t]}), "threads": 1}
        for name, t in (("ours, ONNX", 0.2), (BASE, 0.4), ("ours, ONNX, INT8", 0.2), (f"{BASE}, INT8", 0.1))
    ]
    scores = {row["variant"]: {"same_decision": 1.0, "accuracy": 0.78} for row in rows}
    assert "| ours, ONNX | 40 (2.0) | 100% | 78% |" in table(rows, 1, scores)
    (slower,) = behind(rows)
    assert slower.startswith("INT8, 8 x mix, 1 threads: 40.0 against 80.0")


@pytest.mark.parametrize(("error", "is_same"), [(1e-6, True), (0.1, False)])
def test_a_competitor_that_computes_something_else_ends_the_comparison(tmp_path: Path, error, is_same):
    wanted = np.array([[1.0, -1.0], [-2.0, 2.0]], "float32")
    processes = [Process({BASE: 1.0}, {BASE: wanted}), Process({"ours, ONNX": 1.0}, {"ours, ONNX": wanted + error})]
    if is_same:
        scores = check(processes, tmp_path, "labelled", np.array([0, 0]))
        assert scores["ours, ONNX"]["accuracy"] == 0.5 and scores["ours, ONNX"]["same_decision"] == 1.0
    else:
        with pytest.raises(RuntimeError, match="ours, ONNX computes something else"):
            check(processes, tmp_path, "labelled", None)
