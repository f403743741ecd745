"""Makes pairs of training lines with the same class, on which an encoder is trained before its classifier (SetFit).

Tunstall et al. (2022), "Efficient Few-Shot Learning Without Prompts".
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from bert.labels.examples import Examples, discover_labels, read_examples
from bert.labels.preparation import prepare
from bert.labels.settings import LabelConfig
from bert.randomness import permutation, stream_key

MOST_LINES = 64  # most lines of a class in pairs; the classifier learns from all lines
PARTNERS, LEAST_PAIRS = 4, 400  # pairs of each line; if all pairs are too few, each line gets more


def training_lines(config: LabelConfig) -> Examples:
    """Read the rows on which the classifier is trained; held-out rows are left out."""
    schema = config.label_schema()
    examples = read_examples(config.file_of("train"), schema.split("train"), schema, config.data.max_bad_line_fraction)
    return prepare(config, schema.with_labels(discover_labels(examples, schema)), examples).training


def equal_class_pairs(texts: Sequence[str], labels: Sequence[str], seed: int) -> Iterator[dict[str, str]]:
    """Make pairs of texts of equal class: rows with `query`, `passage` and their class, `query_class`.

    The different texts of a class are shuffled in a circle, and each text is paired with the next ones.

    Raises:
        ValueError: fewer than two classes have two different texts.
    """
    classes = defaultdict[str, dict[str, None]](dict)
    for text, label in zip(texts, labels, strict=True):
        classes[label][text] = None
    circles = dict[str, list[str]]()
    for label, different in classes.items():
        order = permutation(stream_key(seed, "contrastive start", label), len(different))[:MOST_LINES]
        if len(order) > 1:
            circles[label] = [[*different][place] for place in order]
    if len(circles) < 2:
        raise ValueError(
            f"contrastive_start needs two classes with two different texts each, and {len(circles)} of {len(classes)} "
            "have them; label more lines, or omit --contrastive-start"
        )
    number = sum(map(len, circles.values()))
    partners = max(PARTNERS, -(-LEAST_PAIRS // number))
    for label, circle in circles.items():
        for place, text in enumerate(circle):
            for distance in range(1, min(partners, len(circle) - 1) + 1):
                partner = circle[(place + distance) % len(circle)]
                yield {"query": text, "passage": partner, "query_class": label}


def pairs_file(config: LabelConfig) -> bytes:
    """The content of the file of pairs, in JSON lines."""
    lines = training_lines(config)
    pairs = equal_class_pairs(lines.texts[0], lines.labels or (), config.run.seed)
    return "".join(f"{json.dumps(pair, ensure_ascii=False)}\n" for pair in pairs).encode("utf-8", "surrogatepass")
