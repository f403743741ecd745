"""What a plan for own text rests on: facts of the text, of the machine, and of the weights that were given."""

import dataclasses
from collections.abc import Iterable, Mapping

from bert.config.architecture import BertConfig


@dataclasses.dataclass(frozen=True)
class TextFacts:
    """Counts of the text in a folder.

    Attributes:
        distinct_characters: different ones; they are the least that a vocabulary must hold.
        num_bytes: in UTF-8.
        is_chinese: it is written in Chinese characters, and is not Japanese.
        is_estimate: only a part was read, and the counts are scaled to all of it.
        parts: the counts of each source, if there are several; those of --replay are no part of the sums.
    """

    files: int
    documents: int
    words: int
    characters: int
    distinct_characters: int
    num_bytes: int
    is_estimate: bool = False
    is_chinese: bool = False
    parts: Mapping[str, "TextFacts"] = dataclasses.field(default_factory=dict)

    @staticmethod
    def of(parts: Mapping[str, "TextFacts"], summed: Iterable[str]) -> "TextFacts":
        """The sums over sources. The alphabet of the whole text is at least the largest one."""
        counted = [parts[name] for name in summed]
        if len(parts) == 1:
            return counted[0]
        names = ("files", "documents", "words", "characters", "num_bytes")
        sums = {name: sum(getattr(part, name) for part in counted) for name in names}
        largest = max(counted, key=lambda part: part.num_bytes)
        return TextFacts(
            **sums,
            distinct_characters=max(part.distinct_characters for part in counted),
            is_estimate=any(part.is_estimate for part in counted),
            is_chinese=largest.is_chinese,
            parts=parts,
        )

    def all_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts.values()) or self.num_bytes

    def language(self) -> str:
        """The code of the language whose rules end its sentences, if none was given."""
        return "zh" if self.is_chinese else "en"

    def has_spaces(self) -> bool:
        """Whether spaces separate its words."""
        return self.characters < 12 * self.words

    def extent(self) -> str:
        """For a reader: `85,775 words`, or the characters of a script without spaces."""
        return f"{self.words:,} words" if self.has_spaces() else f"{self.characters:,} characters"

    def learnable_words(self) -> float:
        """The words; of scripts without spaces, two characters count as one."""
        return self.words if self.has_spaces() else self.characters / 2


@dataclasses.dataclass(frozen=True)
class MachineFacts:
    """The devices that training can use.

    Attributes:
        gpu_bytes: memory of the smallest GPU; 0 without.
        memory_bytes: free memory of the machine.
        disk_bytes: free on the disk of the output folder.
        segmenter: of Chinese words that is installed; "" without one.
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


@dataclasses.dataclass(frozen=True)
class Weights:
    """Pre-trained weights that the training continues.

    Attributes:
        heads: the heads that they have.
        warnings: what their tokenizer states that is not followed.
    """

    name: str
    config: BertConfig
    lowercase: bool
    heads: tuple[str, ...]
    warnings: tuple[str, ...] = ()
