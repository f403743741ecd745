"""Tests of all heads against plain Python. A stub in place of the network computes outputs from token ids."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert.arrays.vectors import unit
from bert.conversion.usage import RerankingForm, Usage, VectorForm
from bert.conversion.vocabularies import Tokens
from bert.finetuning.squad.predictions import AnswerCandidate
from bert.inference.heads import AnsweredQuestion, Classifier, MaskFiller, QuestionAnswerer, SentenceEncoder, Tagger
from bert.inference.model_folder import OpenedModel
from bert.inference.nearest import NearestSentences, hybrid_weight, ranking_of
from bert.inference.reranked import Reranker
from bert.tokenization.normalization import UNCASED
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from data.text.encodings import Decoding
from tests.references.search import hybrid_scores, lucene_scores, words_of

WORDS = [f"w{number}" for number in range(20)]
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *WORDS, "##ing", ".", "-"))
ID = {token: number for number, token in enumerate(VOCABULARY.tokens)}
CLS, SEP, MASK, PAD = (ID[f"[{name}]"] for name in ("CLS", "SEP", "MASK", "PAD"))
FEW = settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.generate])  # all are small already
VALUES = np.random.RandomState(3).randn(len(VOCABULARY), 6).astype("float32")  # of each token


def opened(task: str, forward: Callable, usage: Usage | None = None, labels=None, most: int = 12) -> OpenedModel:
    tokens = Tokens(VOCABULARY, UNCASED)
    return OpenedModel(Path("nowhere"), task, forward, tokens, usage or Usage(), labels, most, 6, list)


class Forward:
    """Returns a batch's outputs; `ids` has the real tokens of each sequence that it was given, `sizes` the batches."""

    def __init__(self, name: str, of_sequence: Callable[[list[int], int], np.ndarray]) -> None:
        self.name, self.of_sequence = name, of_sequence
        self.ids: list[list[int]] = []
        self.sizes: list[int] = []

    def __call__(self, task: str, feed) -> dict[str, np.ndarray]:
        lengths = feed["attention_mask"].sum(1)
        rows = [row[:length].tolist() for row, length in zip(feed["input_ids"], lengths, strict=True)]
        self.ids += rows
        self.sizes.append(len(rows))
        width = feed["input_ids"].shape[1]
        return {self.name: np.stack([self.of_sequence(row, width) for row in rows])}


def sums(ids: list[int], width: int) -> np.ndarray:
    """Return [3], which depends on each token and on its place."""
    return 3 * np.sin(sum((place + 1) * VALUES[index, :3] for place, index in enumerate(ids)))


def states(ids: list[int], width: int) -> np.ndarray:
    """Return [width, 6]; the values of padding are large, so that a read of them is noticed."""
    return np.concatenate([VALUES[ids], np.full((width - len(ids), 6), 1e6, np.float32)])


def sequence(*texts: str) -> list[int]:
    return [CLS, *(index for text in texts for index in [*(ID[word] for word in text.split()), SEP])]


def softmax(values) -> list[float]:
    weights = [math.exp(value - max(values)) for value in values]
    return [weight / sum(weights) for weight in weights]


LABELS = ("cat", "dog", "fox")
TEXTS = [" ".join(WORDS[number : number + 1 + number % 5]) for number in range(12)]


@pytest.mark.parametrize("batch_size", [1, 5, 32])
def test_classes_follow_the_logits_and_the_threshold(batch_size):
    """Single texts and pairs may be mixed; results come in the order of the requests."""
    forward = Forward("logits", sums)
    usage = Usage("ours", 12, positive_label="dog", threshold=0.3)
    classifier = Classifier(opened("sequence-classification", forward, usage, LABELS), batch_size=batch_size)
    requests = [(text,) if number % 3 else (text, "w7 w8") for number, text in enumerate(TEXTS)]
    wanted = []
    for texts in requests:
        likely = dict(zip(LABELS, softmax(sums(sequence(*texts), 0).tolist()), strict=True))
        others = max(("cat", "fox"), key=likely.__getitem__)
        label = "dog" if likely["dog"] >= 0.3 else others
        wanted.append((label, likely))
    found = classifier.predict(requests)
    assert [result["label"] for result in found] == [label for label, _ in wanted]
    assert len({result["label"] for result in found}) == 3
    for result, (label, likely) in zip(found, wanted, strict=True):
        assert result["probabilities"] == {name: pytest.approx(value, abs=6e-7) for name, value in likely.items()}
        assert result["probability"] == result["probabilities"][label]
        assert all(round(value, 6) == value for value in result["probabilities"].values())
    assert max(forward.sizes) == min(batch_size, 8) and sum(forward.sizes) == 12


def test_several_labels_are_those_from_the_threshold_on():
    usage = Usage("ours", 12, label_separator=";")
    classifier = Classifier(opened("sequence-classification", Forward("logits", sums), usage, LABELS))
    for text, result in zip(TEXTS, classifier.predict(TEXTS), strict=True):
        likely = [1 / (1 + math.exp(-value)) for value in sums(sequence(text), 0)]
        assert result["labels"] == [name for name, value in zip(LABELS, likely, strict=True) if value >= 0.5]
        assert [*result["probabilities"].values()] == pytest.approx(likely, abs=6e-7)
    one = Classifier(opened("sequence-classification", Forward("logits", sums), usage, LABELS[:1]))
    assert not one.is_regression and classifier.columns()["labels"] is str


def test_a_number_is_rounded_to_six_digits():
    forward = Forward("logits", lambda ids, width: np.array([len(ids) / 7], np.float32))
    for usage, labels in ((Usage(regression=True), ("score",)), (Usage(), ("score",))):
        classifier = Classifier(opened("sequence-classification", forward, usage, labels))
        assert classifier.predict(["w1 w2", "w1"]) == [{"value": 0.571429}, {"value": 0.428571}]
        assert classifier.columns() == {"value": float}


def test_the_numbers_of_texts_are_those_of_the_training():
    forward = Forward("logits", sums)
    for columns, numbers, splits in (((), (1, 2), True), (("a",), (1,), False), (("a", "b"), (2,), True)):
        classifier = Classifier(opened("sequence-classification", forward, Usage(text_columns=columns), LABELS))
        assert (classifier.num_texts, classifier.splits_tabs) == (numbers, splits)
    with pytest.raises(ValueError, match=r'1 text.* takes two texts \(two: separated by a tab, or \{"text": '):
        classifier.predict(["w1"])


def test_sizes_are_checked_and_the_length_is_that_of_the_training_or_of_the_positions():
    def length(trained: int | None, most: int, **given) -> int:
        return SentenceEncoder(
            opened("encoder", Forward("a", states), Usage(max_seq_length=trained), None, most), **given
        ).max_seq_length

    assert [length(None, 12), length(9, 12), length(20, 12), length(9, 12, max_seq_length=12)] == [12, 9, 12, 12]
    assert length(9, 12, max_seq_length=8) == 8
    for wrong in ({"max_seq_length": 7}, {"max_seq_length": 13}):
        with pytest.raises(ValueError, match="must be from 8 to the model's 12 positions"):
            length(9, 12, **wrong)
    for wrong in ({"batch_size": 0}, {"top_k": 0}):
        with pytest.raises(ValueError, match="=0 must be a whole number of at least 1"):
            length(9, 12, **wrong)
    assert length(9, 12, batch_size=1, top_k=1) == 9


def test_vectors_pool_the_states_of_real_tokens():
    long = " ".join(WORDS[:15])
    texts = [*TEXTS, long]
    for pooling, pool in (("mean", np.mean), ("max", np.max), ("cls", lambda rows, axis: rows[0])):
        encoder = SentenceEncoder(opened("encoder", Forward("last_hidden_state", states)), batch_size=4)
        encoder.pooling = pooling
        wanted = [pool(VALUES[[*sequence(text)[:-1][:11], SEP]], axis=0) for text in texts]
        np.testing.assert_allclose(encoder.encode(texts), wanted, rtol=1e-6)
        assert encoder.predict(texts[:2])[1] == {
            "vector": [float(f"{value:.7g}") for value in encoder.encode(texts)[1]]
        }
    encoder.pooling = "none"
    for text, result in zip(texts, encoder.predict(texts), strict=True):
        ids = [*sequence(text)[:-1][:11], SEP]
        assert result["tokens"] == [VOCABULARY.tokens[index] for index in ids]
        np.testing.assert_allclose(result["vectors"], VALUES[ids], rtol=1e-6)
    assert encoder.columns() == {"tokens": str, "vectors": str} and encoder.encode([]).shape == (0, VALUES.shape[1])


def test_a_text_has_the_prefix_of_its_kind_and_a_vector_that_was_trained_stays_as_it_is():
    form = VectorForm(query_prefix="w1 ", passage_prefix="w2 w3 ")
    forward = Forward("sentence_embedding", lambda ids, width: VALUES[ids].sum(0))
    encoder = SentenceEncoder(opened("encoder", forward, Usage(vectors=form)))
    for kind, prefix in (("query", ["w1"]), ("passage", ["w2", "w3"]), ("", [])):
        ids = [CLS, *(ID[word] for word in [*prefix, "w9"]), SEP]
        np.testing.assert_allclose(encoder.encode(["w9"], kind), [VALUES[ids].sum(0)], rtol=1e-6)
    np.testing.assert_array_equal(encoder.encode(["w9"]), encoder.encode(["w9"], "passage"))


def mask_logits(task: str, feed) -> dict[str, np.ndarray]:
    """Return [masks, vocabulary + 3] by the token before each mask; the last three are rows without a token."""
    flat = feed["input_ids"].ravel()
    positions = feed["masked_lm_positions"]
    rows = np.random.RandomState(5).randint(-2, 3, (len(VOCABULARY), len(VOCABULARY) + 3)).astype("float32")
    rows[:, len(VOCABULARY) :] = 50
    rows[:, [MASK, CLS]] = 9  # special tokens are likely
    return {"masked_lm_logits": rows[flat[positions - 1]]}


def test_a_mask_has_the_likeliest_words_and_equal_ones_in_the_order_of_the_vocabulary():
    filler = MaskFiller(opened("masked-lm", mask_logits), top_k=4, batch_size=2)
    texts = ["w3 [MASK] w4 [MASK]", "w5 w6 [MASK]", "[MASK]"]
    rows = mask_logits(
        "", {"input_ids": np.arange(len(VOCABULARY)), "masked_lm_positions": np.arange(1, len(VOCABULARY) + 1)}
    )
    for text, result in zip(texts, filler.predict(texts), strict=True):
        words = sequence(text)
        before = [words[place - 1] for place, index in enumerate(words) if index == MASK]
        for index, fills in zip(before, result["masks"], strict=True):
            likely = softmax(rows["masked_lm_logits"][index][: len(VOCABULARY)].tolist())
            best = sorted(range(len(SPECIAL_TOKENS), len(VOCABULARY)), key=lambda token: -likely[token])[:4]
            assert [fill["token"] for fill in fills] == [VOCABULARY.tokens[token] for token in best]
            assert [fill["probability"] for fill in fills] == pytest.approx([likely[token] for token in best], abs=6e-7)
    assert [len(fills) for fills in filler.fill_mask(texts[0], top_k=2)] == [2, 2]


@FEW
@given(st.integers(0, 14), st.integers(0, 14), st.integers(0, 3))
def test_a_long_text_is_read_around_its_masks_with_as_much_before_as_behind(before, behind, between):
    """Ten tokens fit beside [CLS] and [SEP]; at an end of the text the other side has more."""
    seen = []

    def forward(task, feed):
        seen.extend(feed["input_ids"].tolist())
        return mask_logits(task, feed)

    middle = ["[MASK]", *["w1"] * between, "[MASK]"]
    words = [*["w2"] * before, *middle, *["w3"] * behind]
    MaskFiller(opened("masked-lm", forward, most=12)).fill_mask(" ".join(words))
    ids = [index for index in seen[0] if index != PAD]
    assert ids[0] == CLS and ids[-1] == SEP and len(ids) == min(12, len(words) + 2)
    shown = [VOCABULARY.tokens[index] for index in ids[1:-1]]
    first, last = shown.count("w2"), shown.count("w3")
    assert shown == [*["w2"] * first, *middle, *["w3"] * last]
    room = 10 - len(middle)
    half = room // 2
    if len(words) > 10:
        assert first == max(min(before, half), room - behind) and first + last == room


def test_masks_that_just_fit_are_filled_and_others_are_refused():
    filler = MaskFiller(opened("masked-lm", mask_logits, most=12))
    fitting = " ".join(["w5", "[MASK]", *["w1"] * 8, "[MASK]", "w5"])
    assert len(filler.fill_mask(fitting)) == 2
    with pytest.raises(ValueError, match="the masks are more than max_seq_length=12 tokens apart; split the text"):
        filler.fill_mask(" ".join(["[MASK]", *["w1"] * 9, "[MASK]"]))


def test_a_filled_text_has_the_best_words_and_joins_pieces():
    def forward(task, feed):
        number = len(feed["masked_lm_positions"])
        logits = np.zeros((number, len(VOCABULARY)), np.float32)
        logits[np.arange(number), [ID["##ing"], ID["w4"]] * (number // 2)] = 3
        return {"masked_lm_logits": logits}

    (result,) = MaskFiller(opened("masked-lm", forward)).predict(["W1 [MASK],  [MASK]!"])
    assert result["filled"] == "W1ing,  w4!"


def test_a_question_answerer_has_usual_sizes_of_its_windows():
    def sizes(most: int, **given) -> tuple[int, int, int]:
        model = QuestionAnswerer(opened("question-answering", Forward("a", states), most=most), **given)
        assert model.max_seq_length == model.reader.max_seq_length
        return model.reader.max_seq_length, model.reader.doc_stride, model.reader.max_query_length

    assert sizes(512) == (384, 128, 64) and sizes(90) == (90, 30, 43) and sizes(384) == (384, 128, 64)
    assert sizes(512, max_seq_length=100) == (100, 128, 64)


def test_the_answers_of_a_question_are_the_best_with_a_text():
    candidates = [
        AnswerCandidate("", 0.5, 0, 0, 0, 0),
        AnswerCandidate("b", 0.3, 0, 0, 4, 5),
        AnswerCandidate("c", 0.1234567, 0, 0, 6, 7),
    ]
    answered = AnsweredQuestion("", 0.5, 0, 0, tuple(candidates), 1.0)
    place = {"probability": 0.3, "start": 4, "end": 5}
    result = answered.to_result(1)
    assert result["answers"] == [{"text": "b", **place}] and result["no_answer_probability"] == 0.5
    assert (result["answer"], result["probability"], result["start"], result["end"]) == ("", 0.5, 0, 0)
    assert [each["probability"] for each in answered.to_result(5)["answers"]] == [0.3, 0.123457]
    always = AnsweredQuestion("b", 0.3, 4, 5, tuple(candidates[1:]))
    assert "no_answer_probability" not in always.to_result(5)


def test_questions_are_answered_in_windows_of_their_own_contexts():
    """An answer starts at the word w9 and ends at the next word."""

    def forward(task, feed):
        ids = feed["input_ids"]
        starts = np.where(ids == ID["w9"], 4.0, 0.0) * feed["token_type_ids"]
        ends = np.roll(starts, 1, axis=1)
        return {"start_logits": starts.astype("float32"), "end_logits": ends.astype("float32")}

    model = QuestionAnswerer(opened("question-answering", forward, most=12), batch_size=2)
    contexts = ["w1 w9  w2", " ".join(["w3"] * 14 + ["w9", "w4", "w5"]), "w6 w9 w7 w8"]
    requests = [("w9", contexts[number]) for number in (0, 1, 2, 0)]
    found = model.predict(requests)
    assert [result["answer"] for result in found] == ["w9  w2", "w9 w4", "w9 w7", "w9  w2"]
    for (_, context), result in zip(requests, found, strict=True):
        assert context[result["start"] : result["end"]] == result["answer"]


TAGS = ("O", "B-PER", "I-PER", "B-LOC")


def tag_logits(ids: list[int], width: int) -> np.ndarray:
    table = np.zeros((width, 4), np.float32)
    for place, index in enumerate(ids):
        word = VOCABULARY.tokens[index]
        tag = {"w1": 1, "w2": 2, "w3": 3}.get(word, 0)
        table[place, tag] = 1 + index / 10
    return table


def test_an_entity_has_the_mean_probability_of_its_words_and_its_place():
    tagger = Tagger(opened("token-classification", Forward("logits", tag_logits), labels=TAGS), batch_size=2)
    texts = ["w9 w1  w2. w3 w1", "w5", "w3."]

    def likely(word: str) -> float:
        return math.exp(1 + ID[word] / 10) / (math.exp(1 + ID[word] / 10) + 3)

    first, second, third = tagger.predict(texts)
    assert second == {"entities": []}
    wanted = [
        ("w1  w2", "PER", (likely("w1") + likely("w2")) / 2),
        ("w3", "LOC", likely("w3")),
        ("w1", "PER", likely("w1")),
    ]
    words = [(entity["text"], entity["type"]) for entity in first["entities"]]
    assert words == [(text, kind) for text, kind, _ in wanted]
    assert [entity["probability"] for entity in first["entities"]] == pytest.approx([p for *_, p in wanted], abs=6e-7)
    for text, result in zip(texts, (first, second, third), strict=True):
        assert all(text[entity["start"] : entity["end"]] == entity["text"] for entity in result["entities"])
    assert third["entities"][0]["probability"] == pytest.approx(likely("w3"), abs=6e-7)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_outputs_that_are_no_numbers_are_refused(number):
    """Damaged weights have such outputs, or weights that do not fit into half precision."""

    def broken(task, feed):
        width = feed["input_ids"].shape
        outputs = {
            "sequence-classification": {"logits": np.zeros((width[0], 3))},
            "masked-lm": {"masked_lm_logits": np.zeros((1, len(VOCABULARY)))},
            "token-classification": {"logits": np.zeros((*width, 4))},
            "question-answering": {"start_logits": np.zeros(width), "end_logits": np.zeros(width)},
        }[task]
        for values in outputs.values():
            values[..., 2] = number
        return outputs

    for head, task, labels, request in (
        (Classifier, "sequence-classification", LABELS, "w1 w2"),
        (MaskFiller, "masked-lm", None, "w1 [MASK]"),
        (Tagger, "token-classification", TAGS, "w1 w2"),
        (QuestionAnswerer, "question-answering", None, ("w1", "w2 w3")),
    ):
        with pytest.raises(ValueError, match="outputs are NaN or infinite"):
            head(opened(task, broken, labels=labels)).predict([request])


def test_rows_are_decoded_as_those_of_the_training_unless_another_decoding_is_given():
    usage = Usage(encoding="cp1252", text_columns=("headline",), header=False)
    classifier = Classifier(opened("sequence-classification", Forward("logits", sums), usage, LABELS))
    form = classifier.row_form()
    assert (form.decoding.encoding, form.decoding.header, form.keys[0], form.kind) == (
        "cp1252",
        False,
        ("headline",),
        "auto",
    )
    other = classifier.row_form("tsv", [("x",)], Decoding("cp1250"))
    assert (other.decoding, other.keys, other.kind) == (Decoding("cp1250"), [("x",)], "tsv")


@pytest.mark.parametrize("form", [None, VectorForm(), VectorForm(normalize=False)])
@pytest.mark.parametrize("sizes", [(2, 3), (1 << 16, 64)])
def test_the_nearest_are_those_of_a_search_through_all_whatever_the_blocks(form, sizes):
    """Each different text is found once, never the query itself; without a form of vectors, all states are averaged."""
    rng = np.random.RandomState(8)
    texts = ["a", "b", "", "c", "a", "d", "e", "f", "b", "g"]
    vectors = rng.randn(10, 4).astype("float32")
    vectors[4], vectors[8], vectors[2] = vectors[0], vectors[1], np.nan
    if form is not None and form.normalize:
        vectors = unit(vectors).astype("float32")
    of_query = {text: rng.randn(4).astype("float32") for text in ("x", "b", "g", "y")}
    kinds = []

    class Model:
        top_k = 3
        opened = opened("encoder", None, Usage(vectors=form))

        def encode(self, queries, kind):
            kinds.append((len(queries), kind))
            return np.stack([of_query[query] for query in queries])

    nearest = NearestSentences(Model(), texts, vectors, sizes)
    known = [place for place, text in enumerate(texts) if text and text not in texts[:place]]
    mean = vectors[known].mean(0) if form is None else np.zeros(4)

    def cosine(query: str, place: int) -> float:
        a, b = of_query[query] - mean, vectors[place] - mean
        return float(a @ b / math.hypot(*a) / math.hypot(*b))

    for itself in (False, True):
        found = nearest.run([(query,) for query in of_query], itself=itself)
        for query, result in zip(of_query, found, strict=True):
            best = sorted(
                (place for place in known if itself or texts[place] != query), key=lambda p: -cosine(query, p)
            )
            wanted = [
                {"text": texts[place], "similarity": pytest.approx(cosine(query, place), abs=1e-4)}
                for place in best[:3]
            ]
            assert result == {"nearest": wanted}
    assert kinds == ([(3, "query"), (1, "query")] if sizes[1] == 3 else [(4, "query")]) * 2
    Model.top_k = 20
    assert len(nearest.run([("x",)])[0]["nearest"]) == 7
    assert json.dumps(nearest.run([("b",)]))


RANKED = ["open the lock", "the tree", "", "a lock", "open the lock", "read the tree", "a door"]


@pytest.mark.parametrize("weight", [None, 0.0, 0.3, 1.0])
def test_texts_are_ranked_by_words_or_by_the_weighted_sum_of_both(weight):
    """As in plain Python, each different text is found once; a text that shares no word is not found by words."""
    rng = np.random.RandomState(3)
    vectors = unit(rng.randn(len(RANKED), 4)).astype("float32")
    of_query = {text: unit(rng.randn(4)).astype("float32") for text in ("lock the tree", "a lock", "zzz")}
    usage = Usage(vectors=VectorForm(hybrid_weight=weight))
    encode = lambda texts, kind: np.stack([of_query[text] for text in texts])  # noqa: E731
    model = SimpleNamespace(top_k=3, opened=opened("encoder", None, usage), encode=encode)
    known, share = [0, 1, 3, 5, 6], 0.75 if weight is None else weight
    texts = [RANKED[place] for place in known]
    words = lucene_scores([*map(words_of, of_query)], [*map(words_of, texts)])
    cosines = [[float(vector @ vectors[place]) for place in known] for vector in of_query.values()]
    nothing = [[False] * len(known)] * len(of_query)
    sums = hybrid_scores(words, cosines, [share] * len(of_query), nothing)
    for ranking, scores in (("words", words), ("hybrid", sums)):
        search = NearestSentences(model, RANKED, None if ranking == "words" else vectors, (2, 2), ranking)
        assert search.describe().startswith("ranked by ")
        results = search.run([(query,) for query in of_query])
        for query, row, similarities, result in zip(of_query, scores, cosines, results, strict=True):
            places = sorted(range(len(known)), key=lambda place: -row[place])
            places = [place for place in places if texts[place] != query]
            if ranking == "words":
                places = [place for place in places if row[place] > 0]
            wanted = [{"text": texts[place], "score": pytest.approx(row[place], abs=1e-3)} for place in places[:3]]
            if ranking == "hybrid":
                for each, place in zip(wanted, places, strict=False):
                    each["similarity"] = pytest.approx(similarities[place], abs=1e-3)
            assert result == {"nearest": wanted}


def test_a_reranker_sorts_the_first_hits_and_leaves_the_rest():
    """The reranker's best hit within its depth comes first; the query itself is no hit."""
    vectors = unit(np.array([[1, 0.1 * place] for place in range(8)])).astype("float32")
    texts, asked = [f"text {place}" for place in range(8)], []

    def rank_scores(query, passages):
        asked.append((query, list(passages)))
        return np.array([float(text[-1]) for text in passages], np.float32)

    usage = Usage(reranking=RerankingForm(1.0, 3))
    reranker = Reranker(SimpleNamespace(opened=SimpleNamespace(usage=usage), rank_scores=rank_scores))
    encoder = opened("encoder", None, Usage(vectors=VectorForm()))
    model = SimpleNamespace(top_k=4, opened=encoder, encode=lambda texts, kind: vectors[:1])
    search = NearestSentences(model, texts, vectors, reranker=reranker)
    (result,) = search.run([("text 0",)])
    assert [near["text"] for near in result["nearest"]] == ["text 3", "text 2", "text 1", "text 4"]
    assert asked == [("text 0", ["text 1", "text 2", "text 3"])]
    assert search.describe() == "ranked by vectors; the first 3 are sorted by a reranker"
    (best,) = search.run([("text 0",)], top_k=1)
    assert [near["text"] for near in best["nearest"]] == ["text 3"], "it sorts more than are shown"
    (alone,) = NearestSentences(model, ["text 0", "text 0"], vectors[:2], reranker=reranker).run([("text 0",)])
    assert alone == {"nearest": []}


def test_a_search_is_hybrid_if_the_vectors_were_trained_for_it():
    trained = SimpleNamespace(opened=opened("encoder", None, Usage(vectors=VectorForm())))
    plain = SimpleNamespace(opened=opened("encoder", None, Usage()))
    assert [ranking_of(trained, each) for each in (None, "vectors", "words")] == ["hybrid", "vectors", "words"]
    assert [ranking_of(plain, each) for each in (None, "vectors", "words")] == ["vectors", "vectors", "words"]
    assert [hybrid_weight(each) for each in (trained, plain)] == [0.75, 0.0]
    with pytest.raises(ValueError, match="--ranking hybrid needs a model that was trained for search, and"):
        ranking_of(plain, "hybrid")
