"""Conversion between tags and spans in all schemes; span F1 equals seqeval's."""

import numpy as np
import pytest

from bert.finetuning.ner.tags import SCHEMES, Span, detect_scheme, read_spans, score_spans, split_tag, write_tags

pytest.importorskip("seqeval", reason="not among the packages for tests on Paddle 3")
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

TYPES = ("LOC", "PER", "x-y")
ALL_TAGS = ("O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in TYPES))


def random_spans(rng, num_words, starts):
    """Return random spans within sentences."""
    spans, place = [], 0
    while place < num_words:
        stop = min([place + rng.randint(1, 4), num_words, *(start for start in starts if start > place)])
        if rng.rand() < 0.5:
            spans.append(Span(TYPES[rng.randint(len(TYPES))], place, stop))
        place = stop
    return spans


BY_HAND = [
    ("iob1", "I-PER I-PER O I-LOC B-LOC I-LOC I-PER"),
    ("iob2", "B-PER I-PER O B-LOC B-LOC I-LOC B-PER"),
    ("iobes", "B-PER E-PER O S-LOC B-LOC E-LOC S-PER"),
]
SPANS_BY_HAND = [Span("PER", 0, 2), Span("LOC", 3, 4), Span("LOC", 4, 6), Span("PER", 6, 7)]


@pytest.mark.parametrize("scheme, tags", BY_HAND)
def test_schemes_by_hand(scheme, tags):
    assert read_spans(tags.split()) == SPANS_BY_HAND
    assert " ".join(write_tags(SPANS_BY_HAND, 7, scheme)) == tags
    assert detect_scheme(tags.split(), [0]) == (scheme, 0)


def test_bilou_is_read_too():
    for tags in ("B-PER L-PER O U-LOC B-LOC L-LOC U-PER".split(), "B-PER E-PER O W-LOC B-LOC E-LOC S-PER".split()):
        assert read_spans(tags) == SPANS_BY_HAND
        assert detect_scheme(tags, [0]) == ("iobes", 0)
    assert detect_scheme("B-PER M-PER L-PER".split(), [0]) == ("iobes", 0)


def test_a_sentence_ends_every_span():
    assert read_spans(["I-PER", "I-PER", "I-PER"], [0, 1]) == [Span("PER", 0, 1), Span("PER", 1, 3)]
    assert write_tags([Span("PER", 0, 1), Span("PER", 1, 3)], 3, "iob1", [0, 1]) == ["I-PER"] * 3


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_survive_every_scheme(scheme):
    rng = np.random.RandomState(4)
    for _ in range(300):
        num_words = rng.randint(1, 20)
        starts = [0, *sorted(set(rng.randint(0, num_words, 2)) - {0})]
        spans = random_spans(rng, num_words, starts)
        tags = write_tags(spans, num_words, scheme, starts)
        assert read_spans(tags, starts) == spans
        found, misfits = detect_scheme(tags, starts)
        assert misfits == 0 and write_tags(spans, num_words, found, starts) == tags


@pytest.mark.parametrize("tag", ["", "B", "B-", "PER", "X-PER", "-PER", "o", "B_PER", "0"])
def test_what_is_no_tag_is_refused(tag):
    with pytest.raises(ValueError, match="must be O, or B-"):
        split_tag(tag)


def test_any_row_of_tags_means_what_seqeval_says():
    rng = np.random.RandomState(5)
    for _ in range(400):
        sentences = [list(rng.choice(ALL_TAGS, rng.randint(1, 9))) for _ in range(rng.randint(1, 4))]
        starts = np.cumsum([0, *map(len, sentences)])[:-1].tolist()
        ours = read_spans([tag for sentence in sentences for tag in sentence], starts)
        theirs = []
        for start, sentence in zip(starts, sentences, strict=True):
            theirs += [Span(kind, start + first, start + last + 1) for kind, first, last in get_entities(sentence)]
        assert ours == theirs, sentences


def test_scores_equal_seqevals():
    rng = np.random.RandomState(6)
    for case in range(300):
        gold = [list(rng.choice(ALL_TAGS, size)) for size in rng.randint(1, 8, 3)]
        predicted = [[tag if rng.rand() < 0.7 else rng.choice(ALL_TAGS) for tag in tags] for tags in gold]
        if case % 10 == 0:
            predicted = [["O"] * len(tags) for tags in predicted]
        if case % 15 == 0:
            gold = [["O"] * len(tags) for tags in gold]
        starts = np.cumsum([0, *map(len, gold)])[:-1].tolist()
        spans = [read_spans([tag for tags in side for tag in tags], starts) for side in (gold, predicted)]
        found = score_spans(*spans)
        ours = (found["precision"], found["recall"], found["f1"])
        if not spans[0] and not spans[1]:
            assert ours == (0, 0, 0)
            continue
        precision, recall, f1, _ = precision_recall_fscore_support(gold, predicted, average="micro", zero_division=0)
        assert ours == pytest.approx((precision, recall, f1), abs=1e-12)
        if case % 20 == 1:
            report = classification_report(gold, predicted, output_dict=True, zero_division=0)
            kinds = {span.type for side in spans for span in side}
            assert {kind: found[f"{kind}_f1"] for kind in kinds} == pytest.approx(
                {kind: report[kind]["f1-score"] for kind in kinds}
            )
