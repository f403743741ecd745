"""Switches off the telemetry of packages that report their use to their makers. Standard library only."""

import os
import sys

# Package -> the environment variable that switches its reports off, and the value. Each reads it when it is imported.
_SWITCHES = {
    "huggingface_hub": ("HF_HUB_DISABLE_TELEMETRY", "1"),  # versions of other packages in the header of each request
    "mlflow": ("MLFLOW_DISABLE_TELEMETRY", "true"),  # its use; beside what it sends to the user's own server
    "nncf": ("NNCF_CI", "1"),  # its use
    "onnxruntime": ("ORT_DISABLE_TELEMETRY", "1"),  # its use, with a number of this machine
    "wandb": ("WANDB_ERROR_REPORTING", "false"),  # its errors; beside what it sends to the user's project
}
# Package -> the module by which it reports its first import whatever the variable is. It does without that module.
_REPORTERS = {"nncf": "openvino_telemetry"}


def switch_off_telemetry(package: str) -> None:
    """Switch off a package's telemetry before its import. Variables that the user has set stay."""
    name, value = _SWITCHES[package]
    os.environ.setdefault(name, value)
    if package in _REPORTERS:
        sys.modules.setdefault(_REPORTERS[package], None)  # type: ignore[arg-type]
