"""Reads the facts that a plan for own text rests on: what is in the folder, and what this machine has."""

import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import psutil

from bert.doctor.facts import gpus, has_package
from bert.launching.settings import num_gpus
from bert.own_text.facts import MachineFacts, TextFacts
from bert.runtime import topology
from data.text.encodings import NotTextError
from data.text.inputs import Findings, Input, list_inputs
from data.text.readers import Reading, read_pieces
from data.text.word_boundaries import SEGMENTERS

_CHINESE, _KANA = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"), re.compile("[\u3040-\u30ff]")
_CHINESE_SHARE = 1 / 3  # of the characters of a Chinese text; the rest are marks, digits, Latin letters and markup
_MOST_KANA = 0.1  # for each Chinese character
MOST_READ_BYTES = 100_000_000  # of a larger folder every n-th file, and of a file at most this


def text_facts(paths: Sequence[Path], reading: Reading) -> TextFacts:
    """Count the text below the paths; of much text, a part, scaled to the whole."""
    findings = Findings()
    inputs = list_inputs(paths, "auto", findings)
    sizes = [source.path.stat().st_size for source in inputs]
    every = max(1, round(sum(sizes) / MOST_READ_BYTES))
    chosen = inputs[::every] if len(inputs) >= 20 * every else inputs
    counts = _Counts()
    for source in chosen:
        counts.read(source, reading, findings)
    whole = sum(sizes) / max(counts.file_bytes, 1)
    scale = whole if whole > 1.001 else 1.0
    return TextFacts(
        files=len(inputs),
        documents=round(counts.documents * scale),
        words=round(counts.words * scale),
        characters=round(counts.characters * scale),
        distinct_characters=len(counts.alphabet),
        num_bytes=round(counts.text_bytes * scale),
        is_chinese=counts.are_chinese(),
        is_estimate=scale > 1.0,
    )


def fingerprint(paths: Sequence[Path]) -> str:
    """Changes with the names, sizes and times of the files that are read; "" if there are none any more."""
    try:
        inputs = list_inputs(paths, "auto", Findings())
    except ValueError:
        return ""
    facts = [(source.path.name, source.path.stat()) for source in inputs]
    files = sorted((name, fact.st_size, fact.st_mtime_ns) for name, fact in facts)
    return hashlib.sha256(repr(files).encode()).hexdigest()


class _Counts:
    def __init__(self) -> None:
        self.documents = self.words = self.characters = self.text_bytes = self.file_bytes = 0
        self.alphabet: set[str] = set()
        self.chinese = self.kana = 0

    def read(self, source: Input, reading: Reading, findings: Findings) -> None:
        """Count a file, or its beginning if it is very large."""
        size, begun = source.path.stat().st_size, self.text_bytes
        try:
            for piece in read_pieces(source, reading, findings):
                self._add(piece.text)
                self.documents += piece.ends
                if self.text_bytes - begun > MOST_READ_BYTES and source.compression == "" and source.kind == "txt":
                    size = self.text_bytes - begun
                    self.documents += not piece.ends
                    break
        except NotTextError:
            if source.named:
                raise
        self.file_bytes += size

    def _add(self, text: str) -> None:
        self.words += len(text.split())
        self.characters += len(text)
        self.text_bytes += len(text.encode("utf-8", "surrogatepass"))
        self.alphabet.update(text.lower())
        if not text.isascii():
            self.chinese += len(_CHINESE.findall(text))
            self.kana += len(_KANA.findall(text))

    def are_chinese(self) -> bool:
        """Whether Chinese characters are a third of the text and more; Japanese has as many kana among them."""
        return self.chinese > _CHINESE_SHARE * self.characters and self.kana < _MOST_KANA * self.chinese


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
