"""How a model is used, and the small files beside its weights that say so.

task.json                 the task, the longest sequence, columns of the texts, the decision, vectors
question_answering.json   windows and answers, of our fine-tuning for questions
tokenizer_config.json     do_lower_case and strip_accents, as Hugging Face's, word_segmenter and equal_letters
labels.json               classes
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
WHOLE = "whole"  # key of Usage.held_out: the scores of the decision as it is


@dataclass(frozen=True)
class VectorForm:
    """How a text becomes a vector: the prefix of its kind, then a pooling of its last hidden states.

    Attributes:
        pooling: "mean" of the states of all tokens, or that of "cls".
        normalize: whether vectors have length 1, after a cut too.
        query_prefix, passage_prefix: put before a text as they are.
        dimensions: shorter vectors that were trained too, the first so many numbers of each (Kusupati et al., 2022).
        hybrid_weight: share of the vectors in a hybrid ranking (`bert.search.fusion`), from 0 to 1; None: not fitted.
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
        weight: share of its standardised scores in the order, from 0 to 1; the first stage has the rest.
        depth: hits that are reranked.
    """

    weight: float = 1.0
    depth: int = 50


@dataclass(frozen=True)
class Usage:
    """How a model is used, which is the content of task.json; None and empty: not known.

    The file is flat, and folders of all versions have it: so is this record, of which each task fills its own fields.
    """

    name: str | None = None  # of the task: "SST-2", "custom", "ner", "phase2" ...
    max_seq_length: int | None = None  # longest sequence in training, in tokens
    text_columns: tuple[str, ...] = ()  # names of the columns (or keys) of the text, or of both texts of a pair
    regression: bool = False  # the one output is a number
    document_context: bool = False  # of a tagger: it reads each sentence with its neighbours in the document
    label_column: str | None = None  # of the user's own tables
    label_separator: str | None = None  # between the labels of a text, which may have several
    positive_label: str | None = None  # the class that is predicted from `threshold` on
    threshold: float = 0.5
    word_rules: Mapping[str, bool] | None = None  # of a tagger: how its training's words are cut (`ner.plain_words`)
    encoding: str | None = None  # by which files are decoded as those of the training were; None: detected
    language: str | None = None  # of the text, by which encodings are detected
    header: bool = True  # the first line of a CSV or TSV names the columns
    vectors: VectorForm | None = None  # of an encoder that was trained for search
    reranking: RerankingForm | None = None  # of a classifier with one output, the score of a query and a passage
    # Scores on the held-out rows of the training, by name: of the WHOLE decision, and without a part that other
    # libraries leave out ("threshold", "token weights"); None: no such part.
    held_out: Mapping[str, Mapping[str, float]] | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def usage_texts(
    usage: Usage, normalization: Normalization | None, labels: tuple[str, ...] | None = None
) -> dict[str, str]:
    """Files to keep beside weights, name -> content; `labels` are the classes of a classifier, in order."""
    texts = {TASK_FILE: usage.to_json()}
    if normalization is not None:
        texts[TOKENIZER_FILE] = json.dumps(normalization.settings()) + "\n"
    if labels:
        texts[LABELS_FILE] = json.dumps(labels, ensure_ascii=False) + "\n"
    return texts
