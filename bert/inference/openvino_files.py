"""Writes a model for OpenVINO from its ONNX graph; NNCF finds the scales of INT8 in a sample.

Neither library sends a usage report: NNCF's reports are switched off, and OpenVINO's converter, which sends reports, is
not called.
"""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from bert.conversion.model import Model
from bert.inference.export_files import ONNX_FILE, OPENVINO_FILE
from bert.inference.onnx_graph import write_onnx
from bert.inference.samples import Sample
from bert.telemetry import switch_off_telemetry

# Parts that stay in float32: heads, whose few columns cost no time and decide the result, embeddings, and the products
# of attention.
_KEPT = (".*classifier.*", ".*qa_outputs.*", "bert.embeddings.*", "matmul_.*")


def write_openvino_export(folder: Path, model: Model, calibration: Sample | None) -> dict[str, Any]:
    """Write the .xml and .bin files, in INT8 if there is a calibration; returns their entries in serving.json."""
    switch_off_telemetry("nncf")
    import openvino

    plain, details = folder / f"float32-{ONNX_FILE}", {}
    write_onnx(plain, model)
    network = openvino.Core().read_model(plain)
    if calibration is not None:
        network = _to_int8(network, calibration)
        details["quantization"] = {
            "activations": f"static, calibrated on {calibration.source}",
            "weights": "per column",
        }
    openvino.save_model(network, folder / OPENVINO_FILE, compress_to_fp16=False)
    plain.unlink()
    return details


def _to_int8(network: Any, calibration: Sample) -> Any:
    import nncf

    batches = calibration.batches(names=[port.any_name for port in network.inputs])
    with redirect_stdout(sys.stderr):  # its progress
        return nncf.quantize(
            network,
            nncf.Dataset(batches),
            subset_size=len(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            ignored_scope=nncf.IgnoredScope(patterns=list(_KEPT), validate=False),
        )
