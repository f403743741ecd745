"""Reads the record of a job, OUTPUT_DIR/job.json: the seconds used, and facts that steps stored."""

from pathlib import Path
from typing import Any

from bert.files import read_json
from bert.reporting.old_records import OWN_TEXT_FILE, job_of_own_text

JOB_FILE = "job.json"


def job_file(output_dir: Path) -> Path:
    """Path of the record in a folder; an earlier version's file, if there is no other."""
    file, old = output_dir / JOB_FILE, output_dir / OWN_TEXT_FILE
    return old if old.exists() and not file.exists() else file


def read_job(output_dir: Path) -> dict[str, Any]:
    """The record in a folder (seconds_used, facts); empty if there is none or it is damaged."""
    file = job_file(output_dir)
    return read_json(file) if file.name == JOB_FILE else job_of_own_text(output_dir)


def job_facts(output_dir: Path, name: str) -> dict[str, Any]:
    """Facts that the job in a folder stored under a name; empty if there are none."""
    facts = read_job(output_dir).get("facts")
    fact = facts.get(name) if isinstance(facts, dict) else None
    return fact if isinstance(fact, dict) else {}
