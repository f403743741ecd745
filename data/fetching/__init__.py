"""Downloads: resumed, verified, and visible under their final name only when complete; published models by name.

`transfer` does not depend on what is downloaded.
"""

from bert.telemetry import switch_off_telemetry

switch_off_telemetry("huggingface_hub")  # here: modules below import it at their top
