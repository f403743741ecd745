"""Packages report nothing to their makers: tested by a user's calls, outside of CI."""

import os
import site
import subprocess
import sys
import types

import pytest

from bert.telemetry import switch_off_telemetry
from tests.inference import models
from tests.support.connections import foreign_places, run_listened

folders = models.folders  # fixture

# What the sources of packages say where they report, or let others switch it off.
_SIGNS = (
    "(send|collect|disable|enable|no)[a-z_ -]{0,12}telemetry|DO_NOT_TRACK|google-analytics\\.com|sentry_sdk|posthog"
)
_NATIVE_SIGNS = "OneCollector|google-analytics\\.com|sentry\\.io|_TELEMETRY|DO_NOT_TRACK|posthog\\.com"
KNOWN = {  # package of Python -> why nothing leaves this machine
    "databricks": "names itself to the user's own Databricks server alone",
    "fastapi": "the word in a comment",
    "huggingface_hub": "switched off",
    "mlflow": "switched off",
    "nncf": "switched off",
    "onnxruntime": "switched off",
    "opentelemetry": "sends to a collector that the user names, and none is named here",
    "openvino": "its commands for conversion report, which are not used here",
    "openvino_telemetry": "what openvino and nncf report by",
    "starlette": "the word in a comment",
    "transformers": "its example scripts report, which are not used here; it obeys huggingface_hub's switch",
    "visualdl": "its server reports, and each documented command has --disable-telemetry",
    "wandb": "switched off; installed by who uses it",
}

MLFLOW = """
import scipy  # before Paddle
from pathlib import Path
from bert.reporting.trackers import MLflow
tracker = MLflow(Path("runs/phase1"))
tracker.directory.mkdir(parents=True)
tracker.open(0)
tracker.write(1, {"loss": 2.0})
tracker.end()
import time; time.sleep(1)  # it reports from a thread
"""


@pytest.mark.long
@pytest.mark.parametrize("given", ["", "false"], ids=["by default", "asked for by the user"])
def test_mlflow_reports_to_its_maker_only_if_the_user_asks_for_it(tmp_path, given):
    pytest.importorskip("mlflow")
    variables = {"MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}
    run_listened(tmp_path, ["-c", MLFLOW], **variables, **({"MLFLOW_DISABLE_TELEMETRY": given} if given else {}))
    assert (tmp_path / "runs/phase1/mlflow_run").is_file()
    reported = [place for place in foreign_places(tmp_path) if "mlflow-telemetry" in place]
    assert bool(reported) is bool(given) and (given or foreign_places(tmp_path) == [])


@pytest.mark.long
def test_an_export_by_nncf_reports_nothing(tmp_path, folders):
    pytest.importorskip("nncf")
    source = folders["sequence-classification"]
    code = "import run_export, sys; sys.exit(run_export.main(sys.argv[1:]))"
    (tmp_path / "texts.txt").write_text("word1 word2\nword3\n")
    words = ["--checkpoint", str(source), "--to", str(tmp_path / "export"), "--format", "openvino"]
    words += ["--precision", "int8", "--calibration", str(tmp_path / "texts.txt")]
    run_listened(tmp_path, ["-c", code, *words], HOME=str(tmp_path))  # whose first import it is
    assert list((tmp_path / "export").glob("*.xml")) and foreign_places(tmp_path) == []


ONNX = """
import os, sys
if sys.argv[1:] == ["ours"]:
    import bert.inference.predictor
import onnxruntime
from onnx import TensorProto, helper
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:])
model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
onnxruntime.InferenceSession(model.SerializeToString())
"""


@pytest.mark.parametrize("whose", ["ours", "another program"])
def test_onnx_runtime_gets_no_number_of_this_machine_and_keeps_no_events(tmp_path, whose):
    """ONNX Runtime sends from C++, which is not listened to; it keeps unsent events in the user's cache folder."""
    pytest.importorskip("onnxruntime")
    run_listened(tmp_path, ["-c", ONNX, whose], HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    kept = [path.name for path in tmp_path.rglob("deviceid")]
    assert kept == ([] if whose == "ours" else ["deviceid"])


@pytest.mark.parametrize(
    "module", ["data.fetching.model_cache", "bert.conversion.sharing", "bert.conversion.model_card"]
)
def test_requests_to_the_hub_name_no_other_packages(tmp_path, module):
    code = (
        f"import {module}; from huggingface_hub.utils import build_hf_headers; print(build_hf_headers()['user-agent'])"
    )
    agent = run_listened(tmp_path, ["-c", code]).strip()
    assert agent.startswith("unknown/None; hf_hub/") and agent.count(";") == 2, agent  # and Python's version


@pytest.mark.parametrize(("package", "variable", "value"), [("wandb", "WANDB_ERROR_REPORTING", "false")])
def test_a_variable_is_set_before_the_import_and_one_of_the_user_stays(monkeypatch, package, variable, value):
    monkeypatch.delenv(variable, raising=False)
    switch_off_telemetry(package)
    assert os.environ[variable] == value
    monkeypatch.setenv(variable, "other")
    switch_off_telemetry(package)
    assert os.environ[variable] == "other"


def test_wandb_is_told_before_it_is_imported(tmp_path, monkeypatch):
    from bert.reporting.trackers import WeightsAndBiases

    class Wandb(types.ModuleType):
        def __getattr__(self, name):
            assert os.environ.get("WANDB_ERROR_REPORTING") == "false"
            raise RuntimeError("asked")

    monkeypatch.delenv("WANDB_ERROR_REPORTING", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", Wandb("wandb"))
    with pytest.raises(RuntimeError, match="asked"):
        WeightsAndBiases(tmp_path).open(0)
    monkeypatch.delenv("WANDB_ERROR_REPORTING")


@pytest.mark.long
def test_every_installed_package_that_speaks_of_reports_is_known():
    """A new package or version that reports is inspected before it is installed for users."""
    (packages,) = site.getsitepackages()[:1]
    unknown = set()
    for signs, files in ((_SIGNS, "*.py"), (_NATIVE_SIGNS, "*.so*")):
        words = ["grep", "-rlaE", f"--include={files}", signs, "."]
        found = subprocess.run(words, cwd=packages, capture_output=True, text=True, check=True).stdout.splitlines()
        unknown |= {path.split("/")[1].removesuffix(".py") for path in found} - KNOWN.keys()
    assert not unknown, f"look what they send, switch it off in bert/telemetry.py, and name them here: {unknown}"
