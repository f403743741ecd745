"""Scores of tasks over seeds: the average of GLUE."""

from bert.reporting.spread import Repetitions, average


def test_the_average_is_glues():
    """BERT-large on the leaderboard (Devlin et al., 2019; metrics as there): 80.5."""
    published = {"cola": (60.5,), "sst-2": (94.9,), "mrpc": (89.3, 85.4), "sts-b": (87.6, 86.5), "qqp": (72.1, 89.3)}
    published |= {"qnli": (92.7,), "rte": (70.1,), "wnli": (65.1,)}
    metrics = {name: {"score": sum(values) / len(values) / 100} for name, values in published.items()}
    metrics["mnli"] = {"matched_score": 0.867, "mismatched_score": 0.859}
    runs = [Repetitions(name, name.upper(), {1: found}) for name, found in metrics.items()]
    title, (value,) = average([*runs, Repetitions("mine", "", {1: {"score": 0.1}})])
    assert title == "average of 9 tasks of GLUE" and round(value, 1) == 80.5
