"""Duplicates against sets of shingles in plain Python."""

import hashlib
import random
import zlib

import numpy as np
import pytest
from datasketch import MinHash

from data.text.deduplication import SeenDocuments
from data.text.same_text import TextDigest

WORDS = [f"word{number}" for number in range(20_000)]


def digest_of(text: str, mode: str = "near", size: int = 1 << 30) -> TextDigest:
    """Return the digest of a text that is added in pieces of whole words."""
    digest, words = TextDigest(mode), text.split(" ")
    for start in range(0, len(words), size):
        digest.add((" ".join(words[start : start + size]) + " ").encode())
    return digest


def shingles(words: list[str]) -> set[str]:
    """Return all sequences of five neighbouring words; a shorter text is one shingle."""
    return {" ".join(words[place : place + 5]) for place in range(max(1, len(words) - 4))}


@pytest.mark.parametrize("count", [1, 4, 5, 6, 4099, 4100, 4101, 4102, 9000])
@pytest.mark.parametrize("size", [1000, 1 << 30])
def test_a_signature_is_the_minhash_of_all_shingles_of_five_words(count, size):
    """The pieces do not matter: shingles across two pieces, and across batches of 4,096, count too."""
    words = WORDS[:count]
    expected = MinHash(128, seed=1, hashfunc=zlib.crc32, scheme="affine32")
    expected.update_batch([shingle.encode() for shingle in shingles(words)])
    found = digest_of(" ".join(words), size=size).signature()
    assert found.tolist() == expected.hashvalues.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The SEA runs, runs; down to it!", "the sea runs runs down to it".split()),
        ("\u5317\u4eac\u5e02 \u304b\u306a 42 abc", ["\u5317", "\u4eac", "\u5e02", "\u304b", "\u306a", "42", "abc"]),
    ],
)
def test_words_are_lower_case_without_marks_and_chinese_is_taken_by_character(text, words):
    expected = MinHash(128, seed=1, hashfunc=zlib.crc32, scheme="affine32")
    expected.update_batch([shingle.encode() for shingle in shingles(words)])
    assert digest_of(text).signature().tolist() == expected.hashvalues.tolist()


def test_a_document_without_a_word_has_no_signature_and_an_exact_one_none_at_all():
    assert digest_of("... !").signature() is None and digest_of("a b c", "exact").signature() is None
    assert digest_of("a b c", "exact").sha256() == hashlib.sha256(b"a b c ").digest()


@pytest.fixture(params=["exact", "near"])
def seen(request, tmp_path):
    index = SeenDocuments(tmp_path / "index", request.param)
    yield index
    index.close()
    assert not (tmp_path / "index").exists()


def test_the_first_of_equal_texts_is_kept(seen):
    texts = ["one two three four five six", "nine eight seven six five four", "..."]
    for number, text in enumerate(texts * 3):
        found = seen.earlier(str(number), digest_of(text, "near" if seen.near else "exact"))
        assert found == (None if number < 3 else ("exact", str(number % 3)))


def test_texts_that_differ_in_case_and_white_space_are_equal(seen):
    mode = "near" if seen.near else "exact"
    assert seen.earlier("first", digest_of("The sea runs", mode)) is None
    assert seen.earlier("second", digest_of("the  SEA\n runs", mode)) == ("exact", "first")
    assert seen.earlier("third", digest_of("thesea runs", mode)) is None


def changed(words: list[str], number: int) -> list[str]:
    """Replace this many words, far from each other."""
    words = words[:]
    for place in range(number):
        words[place * len(words) // number + 3] = f"other{place}"
    return words


def test_alike_texts_are_found_where_four_fifths_of_the_shingles_are_common(tmp_path):
    """The estimate of 128 hashes is exact to about 0.04: texts farther from the limit are judged correctly."""
    index, rng = SeenDocuments(tmp_path / "index", "near"), random.Random(1)
    judged = {"alike": [], "unlike": []}
    for trial in range(30):
        words = rng.sample(WORDS, 600)
        assert index.earlier(f"{trial}", digest_of(" ".join(words))) is None
        for number, kind in ((5, "alike"), (35, "unlike")):
            others = changed(words, number)
            one, other = shingles(words), shingles(others)
            share = len(one & other) / len(one | other)
            assert share > 0.9 if kind == "alike" else share < 0.6
            judged[kind].append(index.earlier(f"{trial} {kind}", digest_of(" ".join(others))))
    assert judged["alike"] == [("near", f"{trial}") for trial in range(30)] and judged["unlike"] == [None] * 30
    index.close()


@pytest.mark.parametrize(
    ("seed", "changes", "named"), [(0, (11, 4), "second"), (0, (4, 11), "first"), (16, (9, 9), "first")]
)
def test_the_most_alike_of_several_is_named_and_the_first_of_equals(tmp_path, seed, changes, named):
    index, words = SeenDocuments(tmp_path / "index", "near"), random.Random(seed).sample(WORDS, 600)
    first, second = changed(words, changes[0]), changed(words[::-1], changes[1])[::-1]
    signatures = [digest_of(" ".join(own)).signature() for own in (words, first, second)]
    shares = [np.mean(signatures[0] == signature) for signature in signatures[1:]]
    assert min(shares) >= 0.8 > np.mean(signatures[1] == signatures[2])
    assert named == ("second" if shares[1] > shares[0] else "first") and (shares[0] == shares[1]) == (seed == 16)
    for name, own in (("first", first), ("second", second)):
        assert index.earlier(name, digest_of(" ".join(own))) is None
    assert index.earlier("whole", digest_of(" ".join(words))) == ("near", named)
    index.close()


def test_another_mode_is_refused(tmp_path):
    with pytest.raises(ValueError, match="deduplicate='some' must be one of exact near"):
        SeenDocuments(tmp_path / "index", "some")
