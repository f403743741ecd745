"""Settings that decide the samples of a source, validated on construction."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from bert.config.setting_errors import refuse_mistakes
from bert.samples.settings import MASKED_SHARE, check_predictions
from bert.tokenization.normalization import Normalization
from bert.tokenization.segmentation import CUTTING, version_of
from data.text.code_pages import check_language

OBJECTIVES = ("mlm_nsp", "mlm")
MASKING = ("static", "dynamic")
SHARD_FORMATS = ("parquet", "arrow")
Compression = Literal["none", "snappy", "zstd", "lz4"]
COMPRESSION_HELP = "compression of parquet shards; snappy is LDDL's, lz4 is quicker to read and write"
_LONGEST = (1 << 16) - 1


@dataclass(frozen=True)
class PairSettings:
    """Settings of sentence pairs; target_seq_length is the longest pair in tokens, with special ones."""

    target_seq_length: int
    short_seq_prob: float = 0.1
    duplicate_factor: int = 1
    seed: int = 12345

    def __post_init__(self) -> None:
        refuse_mistakes(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        length = self.target_seq_length
        if not 8 <= length <= _LONGEST:
            yield (
                f"target_seq_length={length} must be at least 8, as three tokens of a pair are special, and at most "
                f"{_LONGEST}, as shards keep lengths and positions in 16 bits (128 and 512 in the paper)"
            )
        if not 0.0 <= self.short_seq_prob <= 1.0:
            yield f"short_seq_prob={self.short_seq_prob} must lie between 0 and 1 (0.1 in the paper)"
        if self.duplicate_factor < 1:
            yield f"duplicate_factor={self.duplicate_factor} must be at least 1"

    def longest_sentence(self) -> int:
        """Tokens of the longest sentence of which two fit into a sample."""
        return (self.target_seq_length - 3) // 2


@dataclass(frozen=True)
class SampleSettings:
    """Settings of preprocessing; with source and vocabulary they decide every sample.

    bin_size None makes no bins; max_predictions_per_seq None sets no limit; objective "mlm" packs documents into single
    sequences instead of sentence pairs, "mlm_nsp"; separate_documents gives each its own [CLS], where
    attention and positions restart in a training; word_segmenter "jieba" finds the words of Chinese text for whole-word
    masks, and shards record them; "icu" cuts scripts without spaces into words.
    """

    pairs: PairSettings
    block_bytes: int
    bin_size: int | None = None
    masking: str = "dynamic"
    whole_word_masking: bool = False
    masked_lm_ratio: float = MASKED_SHARE
    max_predictions_per_seq: int | None = None
    sample_ratio: float = 1.0
    lowercase: bool = True
    strip_accents: bool | None = None
    language: str = "en"
    word_segmenter: str | None = None
    equal_letters: bool = False
    objective: str = "mlm_nsp"
    separate_documents: bool = False

    def __post_init__(self) -> None:
        refuse_mistakes(self._mistakes())
        check_language(self.language)
        if self.max_predictions_per_seq is not None:
            check_predictions(self.pairs.target_seq_length, self.masked_lm_ratio, self.max_predictions_per_seq)

    def _mistakes(self) -> Iterator[str]:
        """An error line for each rule that the settings break."""
        if self.block_bytes < 1:
            yield f"block_bytes={self.block_bytes} must be at least 1 (4 MiB by default)"
        if self.bin_size is not None and not 0 < self.bin_size <= self.pairs.target_seq_length:
            yield (
                f"bin_size={self.bin_size} must lie between 1 and target_seq_length="
                f"{self.pairs.target_seq_length}; 64 is usual for 512"
            )
        for name, value, choices in (("objective", self.objective, OBJECTIVES), ("masking", self.masking, MASKING)):
            if value not in choices:
                yield f"{name}={value!r} must be one of {', '.join(choices)}"
        if self.separate_documents and (self.objective != "mlm" or self.pairs.short_seq_prob):
            yield (
                f"separate_documents=True packs documents for objective=mlm and short_seq_prob=0, not for "
                f"{self.objective} and {self.pairs.short_seq_prob:g}: pass --objective mlm without --short-seq-prob, "
                "or drop --separate-documents"
            )
        if not 0.0 < self.sample_ratio <= 1.0:
            yield f"sample_ratio={self.sample_ratio} must be above 0 and at most 1"
        if self.whole_word_masking and self.masking == "dynamic":
            yield (
                "whole_word_masking=True shapes the masks in the shards, but masking='dynamic' puts none "
                "there: pass --masking static, or give --whole-word-masking to the training alone"
            )
        yield from self._segmenter_mistakes()

    def _segmenter_mistakes(self) -> Iterator[str]:
        if self.word_segmenter is None:
            return
        version_of(self.word_segmenter)
        if self.word_segmenter not in CUTTING and self.masking == "static" and not self.whole_word_masking:
            yield (
                f"word_segmenter={self.word_segmenter!r} finds the words that masks cover whole, but "
                "masking='static' masks single tokens: add --whole-word-masking, or use dynamic masks (the shards "
                "then record the words for a training with --whole-word-masking)"
            )

    def normalization(self) -> Normalization:
        return Normalization(self.lowercase, self.strip_accents, self.cutter(), self.equal_letters)

    def cutter(self) -> str | None:
        """The segmenter for scripts without spaces."""
        return self.word_segmenter if self.word_segmenter in CUTTING else None

    def record(self) -> dict:
        """The settings for the manifest, with the version of the word segmenter if there is one."""
        version = {} if self.word_segmenter is None else {"word_segmenter_version": version_of(self.word_segmenter)}
        return asdict(self) | version
