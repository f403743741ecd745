"""Parts of a prediction outside the network (thresholds, prefixes, lengths) that an export cannot contain.

A note has the cost in points where the training measured it: scores of the same held-out rows with and without.
"""

import json
from collections.abc import Mapping
from typing import Any

from bert.conversion.model import Model
from bert.conversion.task_file import read_usage
from bert.conversion.usage import READER_FILE, WHOLE, Usage
from bert.model.head_specs import TOKEN_WEIGHTS
from bert.reporting.progress import metrics_line

_OTHER_LIBRARIES = {"hf": "transformers", "paddlenlp": "PaddleNLP"}
_THRESHOLD, _TOKENS = "threshold", "token weights"  # keys of Usage.held_out: the scores without


def facts_beside_network(model: Model) -> dict[str, Any]:
    """Content of serving.json: how text becomes tokens, and how outputs become a result."""
    usage = read_usage(model.folder)
    most = model.config.max_position_embeddings
    facts: dict[str, Any] = {"max_seq_length": min(usage.max_seq_length or most, most)}
    if model.tokens is not None:
        facts["normalization"] = model.tokens.normalization.settings()
    decision: dict[str, Any] = {}
    if usage.positive_label is not None and model.task == "sequence-classification":
        decision = {"positive_label": usage.positive_label, "threshold": usage.threshold}
    elif usage.label_separator is not None:
        decision = {"several_labels": True, "threshold": usage.threshold}
    elif model.task == "token-classification":
        decision = {"word_rules": usage.word_rules, "document_context": usage.document_context}
    elif model.task == "question-answering" and READER_FILE in model.texts:
        decision = json.loads(model.texts[READER_FILE])
    return {**facts, **({"decision": decision} if decision else {})}


def what_is_lost(model: Model, to_format: str) -> list[str]:
    """Sentences about the parts of a prediction that another program has to do, or cannot do."""
    if to_format == "native":
        return []
    usage = read_usage(model.folder)
    lines = [
        _token_weights(model, usage, to_format),
        _threshold(model, usage, to_format),
        _vectors(model, usage, to_format),
        _answers(model),
    ]
    return [line for line in lines if line]


def _token_weights(model: Model, usage: Usage, to_format: str) -> str:
    weights, library = model.parameters.get(TOKEN_WEIGHTS), _OTHER_LIBRARIES.get(to_format)
    if weights is None or library is None:
        return ""
    number = weights[: model.config.vocab_size].size
    cost = _cost(usage, _TOKENS) or "the scores of the training are not its scores"
    return (
        f"{library} ignores the {number:,} token weights of this classifier, so it gives other logits than this "
        f"project's programs, and {cost}. For a model that both compute alike, train with --no-token-weights."
    )


def _threshold(model: Model, usage: Usage, to_format: str) -> str:
    if usage.positive_label is None or model.task != "sequence-classification":
        return ""
    file = "task.json" if to_format in _OTHER_LIBRARIES else "serving.json"
    cost = _cost(usage, _THRESHOLD)
    return (
        f"The network has no threshold: predict {usage.positive_label} from a probability of {usage.threshold:.3f} on, "
        f"which {file} states, and else the likeliest other class."
        + (f" Whoever takes the likeliest class: {cost}." if cost else "")
    )


def _vectors(model: Model, usage: Usage, to_format: str) -> str:
    form = usage.vectors
    if form is None or model.task != "encoder" or to_format == "hf":  # sentence-transformers reads all of it
        return ""
    prefixes = {"query": form.query_prefix, "passage": form.passage_prefix}
    named = " and ".join(f"{prefix!r} before a {kind}" for kind, prefix in prefixes.items() if prefix)
    lines = [f"The network adds no prefix: put {named}." if named else ""]
    if to_format == "paddlenlp":
        pooling = "the mean of the states of all tokens" if form.pooling == "mean" else "the state of the first token"
        scaled = ", scaled to length 1" if form.normalize else ""
        lines.append(f"PaddleNLP gives hidden states: the vector of a text is {pooling}{scaled}.")
    return " ".join(filter(None, lines))


def _answers(model: Model) -> str:
    if model.task != "question-answering" or READER_FILE not in model.texts:
        return ""
    return f"The rules by which an answer is chosen from the outputs are not in the network; they are in {READER_FILE}."


def _cost(usage: Usage, part: str) -> str:
    """A clause that states the loss of accuracy on the held-out rows of the training; "" if it is unknown."""
    scores: Mapping[str, Mapping[str, float]] = usage.held_out or {}
    if part not in scores or WHOLE not in scores:
        return ""
    without, whole = metrics_line(scores[part]), metrics_line(scores[WHOLE])
    return f"on the held-out rows of the training it has {without}, not {whole}"
