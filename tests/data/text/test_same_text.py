"""Whether two texts are the same, compared with sets of shingles of all pairs in plain Python."""

import hashlib
import random
import subprocess
import sys

import numpy as np
import pytest

from bert import REPOSITORY
from data.text import same_text
from data.text.same_text import TextDigest, near_numbers, normalized
from tests.references.groups import components, jaccard, same_partition

WORDS = [f"word{number}" for number in range(2_000)]


def test_case_and_white_space_make_no_other_text():
    assert normalized(" The\tSEA \n runs ") == "the sea runs" == normalized("the sea RUNS")
    assert normalized("the sea runs.") != normalized("the sea runs")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_the_hash_of_a_normalized_text_does_not_depend_on_its_pieces(size):
    text = "  The SEA  runs\u00a0down\nto \tit  "
    digest = TextDigest("exact")
    for start in range(0, len(text), size):
        digest.add(text[start : start + size].encode())
    assert digest.normalized_sha256() == hashlib.sha256(b"the sea runs down to it").digest()
    assert digest.sha256() == hashlib.sha256(text.encode()).digest()


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("The printer is broken", "the printer  is broken.", True),
        ("The printer is broken!", '"The printer, is broken"', True),
        ("The printer is broken", "The printer was broken", False),
        ("Dune", "Dune!", True),
        ("Dune", "Duna", False),
        ("The Old House", "The New House", False),
        ("one two three four five six seven eight", "one two three four five six seven eight nine", True),
        ("one two three four five six", "one two three four five seven", False),
        ("?", "?", True),
        ("?", "!", False),
        ("", " ", True),
        ("?", "a", False),
    ],
)
def test_two_texts_are_the_same_if_their_words_are_or_most_of_their_shingles(one, other, are_same):
    assert near_numbers([one, other]).tolist() == [0, 0 if are_same else 1]


@pytest.mark.parametrize("seed", range(3))
def test_nearly_equal_texts_get_one_number_also_through_others(seed):
    """Families have 3 to 200 words; in a family of long texts the beginning changes from text to text."""
    rng, texts = random.Random(seed), list[str]()
    while len(texts) < 70:
        words = rng.sample(WORDS, rng.choice([3, 5, 8, 200]))
        changed = 4 if len(words) == 200 else 0
        for member in range(rng.randint(9, 12) if changed else rng.randint(1, 4)):
            words[changed * member : changed * (member + 1)] = rng.sample(WORDS, changed)
            words[-1] = words[-1] if changed or rng.random() < 0.5 else rng.choice(WORDS)
            texts.append(" ".join(words) + rng.choice(["", ".", " !"]))
    rng.shuffle(texts)
    near = [[jaccard(one, other) for other in texts] for one in texts]
    expected = components(len(texts), lambda one, other: near[one][other] > 0.87)
    assert expected == components(len(texts), lambda one, other: near[one][other] > 0.7), "MinHash is not exact"
    assert near_numbers(texts).tolist() == expected
    chained = [
        near[one][other] for one in range(len(texts)) for other in range(one) if expected[one] == expected[other]
    ]
    assert min(chained) < 0.75 and len(set(expected)) < len({normalized(text) for text in texts}) - 5


def test_many_different_short_texts_stay_different():
    """Titles have three words out of fifty: many titles share two words with others."""
    rng = random.Random(1)
    titles = list({" ".join(rng.sample(WORDS[:50], 3)) for _ in range(3_000)})
    assert near_numbers(titles).tolist() == list(range(len(titles)))


def test_texts_of_a_large_family_are_found_in_any_order(monkeypatch):
    """Each text is compared with few others of its band; the comparisons are made a few at a time."""
    monkeypatch.setattr(same_text, "_COMPARED_AT_ONCE", 7)
    rng = random.Random(2)
    families = [rng.sample(WORDS, 80) for _ in range(3)]
    rows = [(number % 3, " ".join([*families[number % 3], WORDS[number]])) for number in range(600)]
    rng.shuffle(rows)
    numbers = near_numbers([text for _, text in rows])
    assert len(set(numbers)) == 3 and same_partition([family for family, _ in rows], numbers.tolist())


def test_only_texts_with_common_shingles_get_a_signature(monkeypatch):
    """Each text has nine shingles; at least six of them must be in other texts."""
    counts = list[int]()
    signatures = same_text._signatures

    def counted(texts):
        texts = list(texts)
        counts.append(len(texts))
        return signatures(texts)

    monkeypatch.setattr(same_text, "_signatures", counted)
    text = WORDS[:13]
    for kept, number in ((13, None), (12, 2), (10, 2), (9, None)):
        other = text[:kept] + WORDS[500 : 500 + 13 - kept]
        rows = [" ".join(text), " ".join(other).upper(), "a b", "a b c d e", "a b c d f"]
        near_numbers(rows * 3)
        assert counts == ([] if number is None else [number]), kept
        counts.clear()


def test_nearly_equal_texts_alone_load_the_library_of_signatures():
    code = """if True:
        import sys
        from data.text.same_text import near_numbers
        rows = [" ".join(f"{letter}{row}" for letter in "abcdefghijklm") for row in range(50)]
        near_numbers([*rows, *rows, *(f"{row}." for row in rows)])
        before = {"datasketch", "scipy"} & sys.modules.keys()
        near_numbers([*rows, rows[0] + " z"])
        sys.exit(bool(before or "datasketch" not in sys.modules))
    """
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def test_no_text_gives_no_number():
    assert near_numbers([]).tolist() == [] and near_numbers([]).dtype == np.int64
