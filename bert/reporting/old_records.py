"""Reads records that older versions (88b30792 and earlier) wrote, in today's form.

A run that such a version began can be resumed. May go in December 2027, a year after that version: remove this module
and its callers.
"""

from pathlib import Path
from typing import Any

from bert.files import read_json

OWN_TEXT_FILE = "own_text.json"


def job_of_own_text(output_dir: Path) -> dict[str, Any]:
    """Content of OUTPUT_DIR/own_text.json in the form of job.json; empty if it is missing or damaged."""
    facts = read_json(output_dir / OWN_TEXT_FILE)
    if not facts:
        return {}
    seconds = facts.pop("seconds_used", 0.0)
    return {"seconds_used": seconds, "facts": {"own_text": facts}}
