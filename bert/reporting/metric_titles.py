"""Titles of metrics, shared by the table at the end of a training and the report."""

from bert.reporting.progress import metric_form

_TITLES = {
    "loss": "training loss",
    "final_loss": "training loss",
    "unigram_entropy": "unigram entropy, to be below (nats)",
    "seqs_per_sec": "sequences a second",
    "training_sequences_per_second": "sequences a second",
    "inference_sequences_per_second": "sequences a second, inference",
    "tokens_per_sec": "tokens a second",
    "tokens_per_second": "tokens a second",
    "eval_total": "questions, held out",
    "mfu": "model FLOPs utilisation",
    "skipped_steps": "updates skipped for overflow",
}
BASELINE_TITLES = {  # by their names in summary.json, scores and kept models, which users' scripts read
    "words alone": "bag-of-words baseline",
    "characters alone": "character baseline",
    "bm25": "BM25",
}
IN_NATS = ("masked_lm_loss", "next_sentence_loss")
_WORDS = (
    ("masked_lm", "masked-LM"),
    ("next_sentence", "next-sentence"),
    ("HasAns_", "answerable questions: "),
    ("NoAns_", "unanswerable questions: "),
    ("exact_match", "exact"),
    ("exact", "exact match"),
    ("thresh", "threshold"),
    ("_", " "),
)
_CAPITALS = {"f1": "F1", "auc": "AUC", "mrr": "MRR", "ndcg": "NDCG"}


def short_title(name: str) -> str:
    """`eval_masked_lm_loss` -> `masked-LM loss`."""
    title = name.removeprefix("eval_")
    for written, shown in _WORDS:
        title = title.replace(written, shown)
    return with_baseline_title(" ".join(_CAPITALS.get(word, word) for word in title.split(" ")))


def with_baseline_title(title: str) -> str:
    """`words alone accuracy` -> `bag-of-words baseline accuracy`; other titles as they are."""
    for name, shown in BASELINE_TITLES.items():
        title = title.replace(name, shown)
    return title


def metric_title(name: str) -> str:
    """Title of a metric: `eval_masked_lm_loss` -> `masked-LM loss, held out (nats)`; others end with `training`."""
    if name in _TITLES:
        return _TITLES[name]
    title = short_title(name)
    if name.startswith("eval_"):
        title += ", held out"
    elif name.endswith(("loss", "accuracy")):
        title += ", training"
    return f"{title} (nats)" if name.endswith(IN_NATS) else title


def is_count(name: str) -> bool:
    """Whether a metric is a number of sequences or questions, which all evaluations share."""
    return metric_form(name) == ",.0f"
