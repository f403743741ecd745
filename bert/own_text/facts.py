"""Facts for a plan: about the user's text, this machine, and the initial weights."""

import dataclasses
import hashlib
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from bert.config.architecture import BertConfig
from bert.doctor.facts import gpus, has_package
from bert.launching.ranks import num_gpus
from bert.own_text.sources import REPLAY
from bert.runtime import topology
from bert.tokenization.normalization import CASED, UNCASED, Normalization
from data.text.findings import Findings
from data.text.inputs import list_inputs
from data.text.readers import Reading
from data.text.survey import survey

_USABLE_MEMORY = 0.85  # share of what is free


@dataclasses.dataclass(frozen=True)
class TextFacts:
    """Counts of the text in a folder.

    Attributes:
        distinct_characters: different ones; they are the least that a vocabulary must hold.
        num_bytes: in UTF-8.
        is_chinese: it is written in Chinese characters, and is not Japanese.
        language: one that ends sentences as the text does, by its script.
        case: that keeps its letters, and why.
        cutter: the segmenter without which it has no words; "" if it needs none.
        characters_per_token: of a sample, with a vocabulary of `sampled_tokens`; None: not measured.
        unknown: what is said of unknown words, if there are many.
        reading_seconds: of a processor, that reading all files once takes.
        slowness: times that work takes here now, of what it takes alone on the machine.
        is_estimate: only a part was read, and the counts are scaled to all of it.
        parts: the counts of each source, if there are several; the sums exclude --replay.
    """

    files: int
    documents: int
    words: int
    characters: int
    distinct_characters: int
    num_bytes: int
    is_estimate: bool = False
    is_chinese: bool = False
    language: str = "en"
    case: Normalization = UNCASED
    why_case: str = ""
    cutter: str = ""
    characters_per_token: float | None = None
    sampled_tokens: int = 0
    unknown: str = ""
    reading_seconds: float = 0.0
    slowness: float = 1.0
    parts: Mapping[str, "TextFacts"] = dataclasses.field(default_factory=dict)

    @staticmethod
    def of(parts: Mapping[str, "TextFacts"]) -> "TextFacts":
        """The sums over sources; the alphabet has at least the size of the largest one."""
        counted = [part for name, part in parts.items() if name != REPLAY]
        if len(parts) == 1:
            return counted[0]
        names = ("files", "documents", "words", "characters", "num_bytes")
        largest = max(counted, key=lambda part: part.num_bytes)
        cased = next((part for part in counted if part.case == CASED), counted[0])
        return TextFacts(
            **{name: sum(getattr(part, name) for part in counted) for name in names},
            distinct_characters=max(part.distinct_characters for part in counted),
            is_estimate=any(part.is_estimate for part in counted),
            is_chinese=largest.is_chinese,
            language=largest.language,
            case=cased.case,
            why_case=cased.why_case,
            cutter=min((part.cutter for part in counted if part.cutter), default=""),  # icu cuts all
            reading_seconds=sum(part.reading_seconds for part in parts.values()),
            parts=parts,
        )

    def all_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts.values()) or self.num_bytes

    def has_spaces(self) -> bool:
        """Whether spaces separate the words."""
        return self.characters < 12 * self.words

    def extent(self) -> str:
        """The length of the text in words: `85,775 words`; in characters for a script without spaces."""
        return f"{self.words:,} words" if self.has_spaces() else f"{self.characters:,} characters"

    def learnable_words(self) -> float:
        """Number of words; in scripts without spaces two characters count as one word."""
        return self.words if self.has_spaces() else self.characters / 2


def text_facts(
    paths: Sequence[Path], reading: Reading, follow_links: bool = False
) -> tuple[TextFacts, set[str], Sequence[str]]:
    """Count the text below the paths; a large text is sampled. Prints which files are left out, and why.

    Returns:
        The counts, the groups of the documents, and a sample of the text.
    """
    begun = time.process_time()
    counts = survey(paths, reading, follow_links, "text")
    print(*counts.lines(), sep="\n", flush=True)
    facts = TextFacts(
        files=counts.files.total() * counts.every,
        documents=counts.scaled(counts.documents.total()),
        words=counts.scaled(counts.script.words),
        characters=counts.scaled(counts.script.characters),
        distinct_characters=len(counts.alphabet),
        num_bytes=counts.scaled(counts.text_bytes),
        is_chinese=counts.script.is_chinese(),
        language=counts.script.language(),
        case=counts.script.case(),
        why_case=counts.script.why(),
        cutter=counts.script.cutter(),
        is_estimate=counts.scale > 1.0,
        reading_seconds=counts.scale * (time.process_time() - begun),
    )
    return facts, counts.groups, counts.sample


def fingerprint(paths: Sequence[Path], follow_links: bool = False, source_code: bool = False) -> str:
    """Hash of the names, sizes and times of the text files; "" if they are gone."""
    try:
        inputs = list_inputs(paths, "code" if source_code else "auto", Findings(), follow_links, "text")
    except ValueError:
        return ""
    facts = [(source.path.name, source.path.stat()) for source in inputs]
    files = sorted((name, fact.st_size, fact.st_mtime_ns) for name, fact in facts)
    return hashlib.sha256(repr(files).encode()).hexdigest() if files else ""


@dataclasses.dataclass(frozen=True)
class MachineFacts:
    """Devices, memory and disk for the training.

    Attributes:
        gpu_bytes: memory of the smallest GPU; 0 without.
        memory_bytes: free memory of the machine.
        disk_bytes: free on the disk of the output folder.
        segmenter: of Chinese words that is installed; "" without one.
        is_planned: it is another machine, whose memory, cores and disk are assumed.
        note: why a device that is there is not used; "" otherwise.
    """

    cores: int
    memory_bytes: int
    disk_bytes: int
    gpus: int = 0
    gpu_name: str = ""
    gpu_bytes: int = 0
    note: str = ""
    segmenter: str = ""
    is_planned: bool = False

    def device(self, asked: str) -> str:
        """The device, cpu or gpu, by --device."""
        if asked == "gpu" and not self.gpus:
            raise ValueError(f"device=gpu must be a GPU of this machine, which has none{self.note}; pass --device cpu")
        return ("gpu" if self.gpus else "cpu") if asked == "auto" else asked

    def usable_bytes(self, device: str, ranks: int) -> float:
        """Memory that a rank may use, in bytes."""
        return (self.gpu_bytes if device == "gpu" else self.memory_bytes / ranks) * _USABLE_MEMORY


def machine_facts(output_dir: Path) -> MachineFacts:
    """The devices, memory and disk of this machine, within the limits of its control group."""
    cores = len(topology.usable_cores(topology.allowed_processors()))
    if (quota := topology.cpu_quota()) is not None:
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
        segmenter="jieba" if has_package("jieba") else "",
    )


@dataclasses.dataclass(frozen=True)
class Weights:
    """Facts about the pre-trained weights that the training continues.

    Attributes:
        heads: the heads that they have.
        warnings: what their tokenizer states that is not followed.
    """

    path: Path
    config: BertConfig
    normalization: Normalization
    heads: tuple[str, ...]
    warnings: tuple[str, ...] = ()
