"""Reads the facts that a plan for own text rests on: what is in the folder, and what this machine has."""

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from bert.doctor.facts import gpus, has_package
from bert.launching.ranks import num_gpus
from bert.own_text.facts import MachineFacts, TextFacts
from bert.own_text.sources import Source
from bert.runtime import topology
from data.text.inputs import Findings, Input, list_inputs
from data.text.readers import Reading
from data.text.survey import survey
from data.text.word_boundaries import SEGMENTERS


def text_facts(
    paths: Sequence[Path], reading: Reading, follow_links: bool = False, show: Callable[[str], object] | None = None
) -> TextFacts:
    """Count the text below the paths; of much text, a part, scaled to the whole.

    Args:
        show: gets the lines about the files: what is read, left out and why.
    """
    found = survey(paths, reading, follow_links, "text")
    if show is not None:
        for line in found.lines():
            show(line)
    return TextFacts(
        files=found.files.total() * found.every,
        documents=found.scaled(found.documents.total()),
        words=found.scaled(found.words),
        characters=found.scaled(found.characters),
        distinct_characters=len(found.alphabet),
        num_bytes=found.scaled(found.text_bytes),
        is_chinese=found.is_chinese(),
        is_estimate=found.scale > 1.0,
    )


def files_of(sources: Sequence[Source], follow_links: bool = False) -> dict[str, tuple[Path, int, int]]:
    """`NAME:PATH` in its source -> the file, its size and time, of all files that are read; none of a folder that is
    gone. The number of its folder stands before the path in the second and later folders of a source."""
    found: dict[str, tuple[Path, int, int]] = {}
    for source in sources:
        for number, root in enumerate(source.paths):
            for file in _inputs([root], follow_links):
                inside = file.path.relative_to(root) if root.is_dir() else Path(root.name)
                key = f"{source.name}:{number or ''}{'/' if number else ''}{inside}"
                found[key] = (file.path, (fact := file.path.stat()).st_size, fact.st_mtime_ns)
    return found


def fingerprint(paths: Sequence[Path], follow_links: bool = False) -> str:
    """Changes with the names, sizes and times of the files that are read; "" if there are none any more."""
    facts = [(source.path.name, source.path.stat()) for source in _inputs(paths, follow_links)]
    files = sorted((name, fact.st_size, fact.st_mtime_ns) for name, fact in facts)
    return "" if not files else hashlib.sha256(repr(files).encode()).hexdigest()


def _inputs(paths: Sequence[Path], follow_links: bool) -> list[Input]:
    """The files that are read; none if there are none any more."""
    with contextlib.suppress(ValueError):
        return list_inputs(paths, "auto", Findings(), follow_links, "text")
    return []


def machine_facts(output_dir: Path) -> MachineFacts:
    """The devices, memory and disk of this machine, within the limits of its control group."""
    cores = len(topology.usable_cores(topology.allowed_processors()))
    quota = topology.cpu_quota()
    if quota is not None:
        cores = max(1, min(cores, round(quota)))
    memory = psutil.virtual_memory().available
    existing = next(path for path in (output_dir.absolute(), *output_dir.absolute().parents) if path.is_dir())
    cards, note = gpus(), ""
    if cards and not has_package("paddlepaddle-gpu"):
        cards, note = (), f" that Paddle can use: {len(cards)} GPUs are idle without paddlepaddle-gpu"
    if len(cards) > (visible := num_gpus()):
        cards, note = cards[:visible], "" if visible else " that CUDA_VISIBLE_DEVICES leaves visible"
    return MachineFacts(
        cores=cores,
        memory_bytes=min(memory, topology.memory_limit() or memory),
        disk_bytes=shutil.disk_usage(existing).free,
        gpus=len(cards),
        gpu_name=cards[0].name if cards else "",
        gpu_bytes=min((card.memory_mib for card in cards), default=0) << 20,
        note=note,
        segmenter=next(filter(has_package, SEGMENTERS), ""),
    )
