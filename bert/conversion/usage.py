"""Records how a model is used, in small files beside its weights.

task.json                 the task, the longest sequence, columns of the texts, the decision, vectors
question_answering.json   windows and answers of a model fine-tuned on questions
tokenizer_config.json     do_lower_case and strip_accents, as in Hugging Face's file, word_segmenter and equal_letters
labels.json               names of the classes
linear_model.json         a kept baseline, which has no network
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from bert.tokenization.normalization import Normalization

TASK_FILE = "task.json"
READER_FILE = "question_answering.json"
TOKENIZER_FILE = "tokenizer_config.json"  # Hugging Face's name
LABELS_FILE = "labels.json"
LINEAR_MODEL_FILE = "linear_model.json"
RERANKER_FOLDER = "reranker"  # the reranker of a model of vectors, in the output folder of its training
WHOLE = "whole"  # key of Usage.held_out: the scores of the decision as it is


@dataclass(frozen=True)
class VectorForm:
    """How a text becomes a vector: the prefix of its kind, then a pooling of its last hidden states.

    Attributes:
        pooling: "mean" of the states of all tokens, or "cls", the state of the first token.
        normalize: whether vectors have length 1, also if they are cut to fewer dimensions.
        query_prefix, passage_prefix: texts that are put before a query or a passage, unchanged.
        dimensions: sizes of shorter vectors that were trained too: the first dimensions (Kusupati et al., 2022).
        hybrid_weight: weight of the vectors in a hybrid ranking (`bert.search.fusion`), from 0 to 1; None: not fitted.
    """

    pooling: Literal["mean", "cls"] = "mean"
    normalize: bool = True
    query_prefix: str = ""
    passage_prefix: str = ""
    dimensions: tuple[int, ...] = ()
    hybrid_weight: float | None = None


@dataclass(frozen=True)
class RerankingForm:
    """How a reranker changes the order of the first hits of a search.

    Attributes:
        weight: weight of the reranker's standardised scores, from 0 to 1; the first stage has the rest.
        depth: number of first hits that are reranked.
    """

    weight: float = 1.0
    depth: int = 50


@dataclass(frozen=True)
class Usage:
    """The content of task.json: how a model is used. None or an empty value means: not known.

    The record is flat, as the file is in all versions; each task fills the fields that it needs.
    """

    name: str | None = None  # name of the task: "SST-2", "custom", "ner", "phase2" ...
    max_seq_length: int | None = None  # longest sequence in training, in tokens
    text_columns: tuple[str, ...] = ()  # names of the columns (or keys) of the text, or of both texts of a pair
    regression: bool = False  # whether the model predicts a number
    document_context: bool = False  # whether a tagger reads each sentence with its neighbours in the document
    label_column: str | None = None  # column of the labels in the user's tables
    label_separator: str | None = None  # separates the labels in a cell, if a text can have several
    positive_label: str | None = None  # class that is predicted if its probability is at least `threshold`
    threshold: float = 0.5
    word_rules: Mapping[str, bool] | None = None  # how a tagger splits text into words (`ner.plain_words`)
    encoding: str | None = None  # encoding of the training files, with which other files are decoded; None: detected
    language: str | None = None  # language of the text, which helps to detect encodings
    header: bool = True  # whether the first line of a CSV or TSV names the columns
    vectors: VectorForm | None = None  # how an encoder that was trained for search makes vectors
    reranking: RerankingForm | None = None  # how a reranker is used; None for other models
    # Scores on the held-out rows of the training: of the WHOLE decision, and without each part that other libraries
    # leave out ("threshold", "token weights"); None if there is no such part.
    held_out: Mapping[str, Mapping[str, float]] | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def usage_texts(
    usage: Usage, normalization: Normalization | None, labels: tuple[str, ...] | None = None
) -> dict[str, str]:
    """The contents of the files beside the weights, by file name; `labels` are a classifier's classes, in order."""
    texts = {TASK_FILE: usage.to_json()}
    if normalization is not None:
        texts[TOKENIZER_FILE] = json.dumps(normalization.settings()) + "\n"
    if labels:
        texts[LABELS_FILE] = json.dumps(labels, ensure_ascii=False) + "\n"
    return texts
