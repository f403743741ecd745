"""Converts a model of any known format to a folder for this project, Hugging Face or PaddleNLP; reports all changes."""

import glob
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bert.checkpoints import directories as checkpoint_files
from bert.conversion.lost_on_export import what_is_lost
from bert.conversion.model import Model, read
from bert.conversion.model_card import write_card
from bert.conversion.settings import ConversionRequest
from bert.conversion.untrusted_files import ConversionError, write_json
from bert.conversion.writers import WRITERS
from bert.files import only_writer, read_json, sync

REPORT_FILE = "conversion.json"


def convert(request: ConversionRequest, check: Callable[[Path, Model], str] | None = None) -> dict[str, Any]:
    """Read, map, write and check a model; returns the report.

    Args:
        check: (the folder as it was written, the model) -> a note; it raises ConversionError for another model.
    """
    check_target(request.target)
    model = read(request)

    def write(folder: Path) -> None:
        WRITERS[request.to_format](folder, model)
        if check is not None:
            model.notes.append(check(folder, model))
        write_notes(folder, model, request)
        if request.to_format == "native":
            checkpoint_files.write_manifest(folder, step=0)

    write_directory(request.target, write)
    return model.report(request.to_format)


def write_notes(folder: Path, model: Model, request: ConversionRequest) -> None:
    """Write the files beside the weights: how the model is used, its card, and the report."""
    model.write_texts(folder)
    model.notes.extend(what_is_lost(model, request.to_format))
    write_card(folder, model, request.to_format, request, request.name or request.target.name)
    write_json(folder / REPORT_FILE, model.report(request.to_format))


def table(report: dict[str, Any]) -> str:
    """The report as a table for the terminal."""
    rows = {
        "from": f"{report['source']} ({report['source_format']})",
        "to": report["to_format"],
        "for": report["task"],
        "tensors": f"{report['tensors']:,}",
        "parameters": f"{report['parameters']:,}",
    }
    lines = [f"{name:<12}{value}" for name, value in rows.items()]
    return "\n".join([*lines, "changes:", *(f"  {note}" for note in report["notes"])])


def write_directory(target: Path, write: Callable[[Path], None]) -> None:
    """Create `target` atomically; `write(folder)` fills a temporary folder beside it."""
    check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".writing-{glob.escape(target.name)}-*"):  # of a killed run, which holds no lock
        with suppress(ValueError), only_writer(left):
            shutil.rmtree(left)
    temporary = target.parent / f".writing-{target.name}-{os.getpid()}"
    try:
        with only_writer(temporary):
            write(temporary)
            for path in temporary.rglob("*"):
                if path.is_file():
                    path.chmod(0o644)  # safetensors makes its files readable to their owner only
                    sync(path)
            sync(temporary)
            if target.exists():
                target.rmdir()
            temporary.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_target(target: Path) -> None:
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise ConversionError(f"{target} is there already; nothing was overwritten: name a new folder")
    for folder in target.absolute().parents:
        if "format_version" in read_json(folder / checkpoint_files.MANIFEST):
            raise ConversionError(
                f"{target} would lie in {folder}, which has to hold what its {checkpoint_files.MANIFEST} lists and "
                "nothing else; name a folder elsewhere"
            )
