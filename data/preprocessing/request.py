"""The command line of data.preprocess_bert_pretrain, resolved for a source and a vocabulary."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from bert.config.flags import Flag
from bert.config.setting_errors import SettingsWithRules, explain
from bert.samples.settings import MASKED_SHARE
from bert.tokenization.segmentation import SEGMENTERS
from bert.tokenization.unknown import MOST_UNKNOWN_TO_TRAIN
from bert.tokenization.vocabulary import Vocabulary
from data.preprocessing.settings import (
    COMPRESSION_HELP,
    MASKING,
    OBJECTIVES,
    SHARD_FORMATS,
    Compression,
    PairSettings,
    SampleSettings,
)
from data.preprocessing.workers import SCHEDULERS, NumWorkers, all_cores
from data.text.code_pages import base_language, check_language
from data.text.lddl_reader import Block, SourceFile, list_sources, numbered_documents, plan_blocks
from data.text.script_facts import ScriptFacts, segmenter_of

_CORPORA = ("text", "wikipedia", "books", "common_crawl", "open_webtext")
_DEFAULT_BLOCK_BYTES = 4 << 20
_MEASURED_BLOCKS, _MEASURED_DOCUMENTS, _MEASURED_CHARACTERS = 16, 50, 2_000  # to choose a segmenter by
_SAMPLED_DOCUMENTS = 800  # of all these blocks together; their words are looked up in the vocabulary
_SHORT_SEQ_PROB = {"mlm_nsp": PairSettings.short_seq_prob, "mlm": 0.0}  # by objective

SourceFolders = Annotated[tuple[Path, ...], Flag(placeholder="DIR", is_repeatable=True)]
_FOLDER_HELP = "source folder: DIR/<language>/N.txt, one document per line, id first"


class SourceText(NamedTuple):
    """The *.txt files of a source, their blocks, and the number of other files."""

    files: tuple[SourceFile, ...]
    block_bytes: int
    blocks: tuple[Block, ...]
    others: Counter


_MASKS, _FILES = Flag(group="static masks"), Flag(group="shards and processes")


class ShardRequest(SettingsWithRules):
    """The settings of data.preprocess_bert_pretrain, read from its flags."""

    text: SourceFolders = Field((), description=_FOLDER_HELP)
    wikipedia: SourceFolders = Field((), description=_FOLDER_HELP)
    books: SourceFolders = Field((), description=_FOLDER_HELP)
    common_crawl: SourceFolders = Field((), description=_FOLDER_HELP)
    open_webtext: SourceFolders = Field((), description=_FOLDER_HELP)
    sink: Annotated[Path, Flag(name="--output-dir", hidden_aliases=("--sink",), placeholder="DIR")] = Field(
        description="gets the shards"
    )
    vocab_file: Path = Field(description="vocab.txt or tokenizer.json")
    lowercase: Annotated[bool | None, Flag(default_text="unless the vocabulary has capitals")] = Field(
        None, description="lower-case the text"
    )
    strip_accents: Annotated[
        bool | None, Flag(default_text="if the text is lower-cased, unless the vocabulary has them")
    ] = Field(None, description="strip accents")
    language: Annotated[
        str | None,
        Flag(name="--language", hidden_aliases=("--lang",), default_text="of the source's folder, or of its script"),
    ] = Field(None, description="language of the sentence splitter")
    target_seq_length: Annotated[
        int, Flag(name="--max-seq-length", hidden_aliases=("--target-seq-length",), unit="TOKENS")
    ] = Field(128, description="length of the longest sample, special tokens included")
    objective: Literal[*OBJECTIVES] = Field(  # type: ignore[valid-type]
        "mlm_nsp",
        description="mlm_nsp: sentence pairs, as BERT; mlm: documents packed to the full length, for masked LM alone, "
        "as RoBERTa",
    )
    separate_documents: bool = Field(
        False,
        description="with --objective mlm: attention and positions are of each document alone, of which a sequence "
        "holds several whole ones; without it the text runs on from document to document",
    )
    short_seq_prob: Annotated[float | None, Flag(default_text="0.1; with --objective mlm 0")] = Field(
        None, description="share of shorter pairs or sequences"
    )
    block_size: Annotated[int | None, Flag(group=_FILES.group, unit="BYTES", default_text="4 MiB")] = Field(
        None, ge=1, description="source bytes per block"
    )
    num_blocks: Annotated[int | None, _FILES] = Field(
        None, ge=1, description="instead of --block-size: cut the source into this many blocks (default: off)"
    )
    bin_size: Annotated[int | None, Flag(unit="TOKENS", default_text="no bins")] = Field(
        None, description="bin samples by number of tokens"
    )
    masking: Annotated[Literal[*MASKING], Flag(group=_MASKS.group, value_alone="static")] = Field(  # type: ignore[valid-type]
        "dynamic", description="static: the shards hold the masks; dynamic: the training draws them"
    )
    whole_word_masking: Annotated[bool, _MASKS] = Field(False, description="static masks cover whole words")
    word_segmenter: Annotated[Literal["auto", *SEGMENTERS, "none"], _MASKS] = Field(  # type: ignore[valid-type]
        "auto",
        description="jieba finds the words of Chinese text for --whole-word-masking (extra chinese); icu, the default "
        "for text in Thai, Lao, Khmer or Burmese, cuts it into words (extra segmentation), syllables Javanese",
    )
    masked_lm_ratio: Annotated[float, _MASKS] = Field(
        MASKED_SHARE, description="share of the tokens that static masks cover"
    )
    max_predictions_per_seq: Annotated[int | None, _MASKS] = Field(
        None, ge=1, description="limit of static masks per sample (default: no limit)"
    )
    duplicate_factor: int = Field(PairSettings.duplicate_factor, description="times each document is used")
    sample_ratio: float = Field(SampleSettings.sample_ratio, description="share of the documents to use")
    seed: int = Field(PairSettings.seed, description="seed of the samples; 12345 is LDDL's")
    num_shards: Annotated[int | None, Flag(group=_FILES.group, default_text="one part per block")] = Field(
        None, ge=1, description="balanced shards (per bin)"
    )
    output_format: Annotated[Literal[*SHARD_FORMATS], _FILES] = Field("parquet", description="format of the shards")  # type: ignore[valid-type]
    compression: Annotated[Compression, _FILES] = Field("snappy", description=COMPRESSION_HELP)
    local_n_workers: NumWorkers = Field(default_factory=all_cores, ge=1, description="processes, or Slurm jobs")
    scheduler: Annotated[Literal[*SCHEDULERS], _FILES] = Field(  # type: ignore[valid-type]
        "local", description="what runs the processes; see data/preprocessing/workers.py"
    )
    scheduler_address: Annotated[str | None, _FILES] = Field(
        None, description="address of a running Dask scheduler (default: a new one)"
    )

    def _mistakes(self) -> Iterator[str]:
        if not self._folders():
            yield f"no source given; name at least one of --{' --'.join(_CORPORA).replace('_', '-')}"
        if self.num_blocks and self.block_size:
            yield (
                f"--num-blocks={self.num_blocks} and --block-size={self.block_size} both set the size of blocks; give "
                "one of them"
            )
        try:
            self._settings(self.block_size or _DEFAULT_BLOCK_BYTES, {})
        except ValueError as error:
            yield from explain(error)

    def _folders(self) -> list[str]:
        return [os.path.abspath(folder) for name in _CORPORA for folder in getattr(self, name)]

    def read_source(self) -> SourceText:
        """List the files of the source folders and their blocks.

        Raises:
            ValueError: a folder has no source text.
        """
        others: Counter = Counter()
        files = list_sources(self._folders(), others)
        block_bytes = self.block_size or _DEFAULT_BLOCK_BYTES
        if self.num_blocks:
            block_bytes = -(-sum(file.num_bytes for file in files) // self.num_blocks)
        return SourceText(files, block_bytes, plan_blocks(files, block_bytes), others)

    def sample_settings(self, vocabulary: Vocabulary, source: SourceText) -> SampleSettings:
        """Settings of the samples; missing values follow from the vocabulary and the text.

        Raises:
            ValueError: the vocabulary does not fit the settings.
        """
        case = vocabulary.normalization(self.lowercase, self.strip_accents)
        facts, sample = _facts_of(source)
        resolved = {
            "language": self.language or _language_of(source, facts),
            "lowercase": case.lowercase,
            "strip_accents": case.strip_accents,
            "word_segmenter": self._word_segmenter(vocabulary, facts),
            "equal_letters": vocabulary.is_wordpiece(),  # another tokenizer has rules of its own
        }
        from bert.tokenization.library import text_tokenizer  # both load packages that --help does not need
        from data.preprocessing.problems import unknown_words

        settings = self._settings(source.block_bytes, resolved)
        unknown = unknown_words(sample, text_tokenizer(vocabulary, settings.normalization()))
        if unknown.share > MOST_UNKNOWN_TO_TRAIN:
            raise ValueError(
                f"{unknown}, by {vocabulary.source}, more than {MOST_UNKNOWN_TO_TRAIN:.0%}: it is not of this text, or "
                "not of its case; pass the vocabulary of its language, or make one by data.train_vocabulary"
            )
        return settings

    def _settings(self, block_bytes: int, found: dict) -> SampleSettings:
        short_seq_prob = _SHORT_SEQ_PROB[self.objective] if self.short_seq_prob is None else self.short_seq_prob
        pairs = PairSettings(
            target_seq_length=self.target_seq_length,
            short_seq_prob=short_seq_prob,
            duplicate_factor=self.duplicate_factor,
            seed=self.seed,
        )
        return SampleSettings(
            pairs=pairs,
            block_bytes=block_bytes,
            bin_size=self.bin_size,
            masking=self.masking,
            whole_word_masking=self.whole_word_masking,
            masked_lm_ratio=self.masked_lm_ratio,
            max_predictions_per_seq=self.max_predictions_per_seq,
            sample_ratio=self.sample_ratio,
            objective=self.objective,
            separate_documents=self.separate_documents,
            **found,
        )

    def _word_segmenter(self, vocabulary: Vocabulary, facts: ScriptFacts) -> str | None:
        """The requested segmenter; for auto, the segmenter that the text needs."""
        if not vocabulary.is_wordpiece():
            if self.word_segmenter in ("auto", "none"):
                return None
            raise ValueError(
                f"--word-segmenter={self.word_segmenter}: the tokens of {vocabulary.source} may span its words, which "
                "are for a WordPiece; leave it out"
            )
        if self.word_segmenter != "auto":
            return None if self.word_segmenter == "none" else self.word_segmenter
        return segmenter_of(facts.cutter(), "auto")


def _facts_of(source: SourceText) -> tuple[ScriptFacts, list[str]]:
    """Facts about the scripts in a sample of some blocks, and the sampled texts."""
    facts, sample = ScriptFacts(), list[str]()
    blocks = source.blocks[:: -(-len(source.blocks) // _MEASURED_BLOCKS)]
    sampled_of_a_block = -(-_SAMPLED_DOCUMENTS // max(1, len(blocks)))  # at least 50
    for block in blocks:
        for number, (_, text) in enumerate(islice(numbered_documents(block, Counter()), sampled_of_a_block)):
            start = text[:_MEASURED_CHARACTERS]
            sample.append(start)
            if number < _MEASURED_DOCUMENTS:
                facts.add(start)
    return facts, sample


def _language_of(source: SourceText, facts: ScriptFacts) -> str:
    """Language whose folder source/<language> has most text; for the default name en the script decides."""
    sizes = Counter[str]()
    for file in source.files:
        folder = Path(file.path).parent
        language = base_language(folder.name) if folder.parent.name == "source" else ""
        sizes["en" if language in ("", "simple") else language] += file.num_bytes
    language = min(sizes, key=lambda name: (-sizes[name], name), default="en")
    with suppress(ValueError):  # a folder with another name
        return facts.language() if check_language(language) == "en" else language
    return facts.language()
