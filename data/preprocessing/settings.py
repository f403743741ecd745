"""Settings that decide the samples of a source, validated when they are made."""

import re
from dataclasses import asdict, dataclass

from data.preprocessing.pairs import PairSettings
from data.text.word_boundaries import version_of

OBJECTIVES = ("mlm_nsp", "mlm")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")


def check_language(language: str) -> None:
    """Raises ValueError unless it is written like a code of ISO 639."""
    if not _LANGUAGE.fullmatch(language):
        raise ValueError(
            f"language={language!r} must be a code of ISO 639 in small letters, as 'en' or 'de', "
            "which selects the rules for sentences (general rules if it has none)"
        )


@dataclass(frozen=True)
class SampleSettings:
    """Settings of preprocessing: with the source and the vocabulary they decide every sample.

    bin_size None makes no bins; masking is "static" or "dynamic"; max_predictions_per_seq None sets no limit;
    objective "mlm" packs documents into single sequences instead of sentence pairs, "mlm_nsp";
    word_segmenter "jieba" finds the words of Chinese text for whole-word masks; shards record them.
    """

    pairs: PairSettings
    block_bytes: int
    bin_size: int | None = None
    masking: str = "dynamic"
    whole_word_masking: bool = False
    masked_lm_ratio: float = 0.15
    max_predictions_per_seq: int | None = None
    sample_ratio: float = 1.0
    lowercase: bool = True
    language: str = "en"
    word_segmenter: str | None = None
    objective: str = "mlm_nsp"

    def __post_init__(self) -> None:
        if self.block_bytes < 1:
            raise ValueError(f"block_bytes={self.block_bytes} must be at least 1 (4 MiB by default)")
        if self.bin_size is not None and not 0 < self.bin_size <= self.pairs.target_seq_length:
            raise ValueError(
                f"bin_size={self.bin_size} must lie between 1 and target_seq_length="
                f"{self.pairs.target_seq_length}; 64 is usual for 512"
            )
        check_language(self.language)
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective={self.objective!r} must be one of {', '.join(OBJECTIVES)}")
        if self.masking not in ("static", "dynamic"):
            raise ValueError(f"masking={self.masking!r} must be 'static' or 'dynamic'")
        if not 0.0 < self.sample_ratio <= 1.0:
            raise ValueError(f"sample_ratio={self.sample_ratio} must be above 0 and at most 1")
        if self.whole_word_masking and self.masking == "dynamic":
            raise ValueError(
                "whole_word_masking=True shapes the masks in the shards, but masking='dynamic' puts none "
                "there: pass --masking static, or give --whole-word-masking to the training alone"
            )
        if self.word_segmenter is not None:
            version_of(self.word_segmenter)
            if self.masking == "static" and not self.whole_word_masking:
                raise ValueError(
                    f"word_segmenter={self.word_segmenter!r} finds the words that masks cover whole, but "
                    "masking='static' masks single tokens: add --whole-word-masking, or use dynamic masks (the shards "
                    "then record the words for a training with --whole-word-masking)"
                )

    def record(self) -> dict:
        """The settings as written to the manifest, with the version of the word segmenter if there is one."""
        found = asdict(self)
        if self.word_segmenter is None:
            del found["word_segmenter"]
        else:
            found["word_segmenter_version"] = version_of(self.word_segmenter)
        if self.objective == "mlm_nsp":  # as in the manifests of versions that had only pairs
            del found["objective"]
        return found
