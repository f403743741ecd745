"""Metrics and times as people read them. Files keep numbers: shares from 0 to 1, SQuAD's official scores to 100."""

import math
from collections.abc import Mapping

_SHARES = ("accuracy", "f1", "precision", "recall", "mfu")


def metric_form(name: str, all_names: Mapping[str, object] | None = None) -> str:
    """The format of a metric: `,.0f` for a number of sequences, `.1%` for a share, `.2f` for SQuAD's scores, which are
    percentages already, else `.4f`.

    Args:
        all_names: the metrics that come with it; SQuAD's have an exact match.
    """
    if name.endswith("sequences"):
        return ",.0f"
    if any("exact" in other for other in (name, *(all_names or ()))):
        return ".4f" if name.endswith("loss") else ".2f"
    return ".1%" if name.endswith(_SHARES) else ".4f"


def metrics_line(metrics: Mapping[str, float]) -> str:
    """`masked_lm_loss 5.6250  masked_lm_accuracy 17.4%`."""
    shown = (f"{name.removeprefix('eval_')} {value:{metric_form(name, metrics)}}" for name, value in metrics.items())
    return "  ".join(shown)


def duration(seconds: float) -> str:
    """`45 seconds`, `6.7 minutes`, `3.5 hours`, `4.2 days`; `unknown` before there is a rate."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 60:
        return f"{seconds:.0f} second{'' if round(seconds) == 1 else 's'}"
    if seconds < 5400:
        return f"{seconds / 60:.1f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
