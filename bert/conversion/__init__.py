"""Checkpoints of other libraries: found, read and written without those libraries, and without executing anything.

Paddle is not imported here; our own checkpoint directories are in `bert.checkpoints`. README.md names the main files.
"""

from bert.telemetry import switch_off_telemetry

switch_off_telemetry("huggingface_hub")  # here: modules below import it at their top
