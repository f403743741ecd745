"""Uses trained models: loading, prediction, vectors, search in a file, and export.

Nothing here trains. Weights are read through `bert.conversion`.
"""

from bert.telemetry import switch_off_telemetry

switch_off_telemetry("onnxruntime")  # here: several modules below import it
