"""How the user's text becomes words and tokens: case, segmenter, and token counts of a sample."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence

from bert.own_text import constants
from bert.own_text.facts import TextFacts
from bert.own_text.request import TextRequest
from bert.tokenization.library import text_tokenizer
from bert.tokenization.normalization import Normalization
from bert.tokenization.unknown import MOST_UNKNOWN_TO_TRAIN
from data.preprocessing.problems import MOST_UNKNOWN, unknown_words
from data.text.script_facts import case_of, segmenter_of
from data.text.vocabulary_training import learn_vocabulary

SAMPLED_TOKENS = 4_096  # of the vocabulary that is made of the sample, if none is given


def normalization_of(request: TextRequest, text: TextFacts) -> Normalization:
    """The normalisation: as requested, else from the user's vocabulary, else as the text needs it.

    Raises:
        ValueError: the text needs a segmenter that is not installed.
    """
    tokens, requested = request.tokens, (request.lowercase, request.strip_accents)
    if tokens is None:
        case = case_of(text.case, *requested)
    else:
        case = tokens.normalization if requested == (None, None) else tokens.vocabulary.normalization(*requested)
        if not tokens.vocabulary.is_wordpiece():  # it cuts texts by itself
            return case
    segmenter = (
        case.word_segmenter if case.word_segmenter and request.word_segmenter == "auto" else request.word_segmenter
    )
    cutter = segmenter_of(text.cutter, segmenter)
    return dataclasses.replace(case, word_segmenter=cutter, equal_letters=True)


def with_tokens(
    text: TextFacts, sample: Sequence[str], request: TextRequest, normalization: Normalization
) -> TextFacts:
    """The facts with token counts of a sample, by the user's vocabulary or one trained on the sample.

    Raises:
        ValueError: too many of them are unknown.
    """
    begun, begun_alone = time.monotonic(), time.process_time()
    if request.tokens is not None:
        vocabulary = request.tokens.vocabulary
    else:
        with _one_thread():
            vocabulary = learn_vocabulary(lambda: iter(sample), SAMPLED_TOKENS, normalization=normalization)
    tokenizer = text_tokenizer(vocabulary, normalization)
    unknown = unknown_words(sample, tokenizer)
    if unknown.share > MOST_UNKNOWN_TO_TRAIN:
        raise ValueError(f"{unknown}; {_remedy(request, normalization)}")
    seconds, alone = time.monotonic() - begun, time.process_time() - begun_alone
    return dataclasses.replace(
        text,
        characters_per_token=sum(map(len, sample)) / max(1, unknown.tokens),
        slowness=min(constants.MOST_SLOWNESS, max(1.0, seconds / max(alone, 0.01))),
        sampled_tokens=len(vocabulary),
        unknown=str(unknown) if unknown.share > MOST_UNKNOWN else "",
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Context manager that uses one thread: the library warns at each fork after it has used threads."""
    name = "TOKENIZERS_PARALLELISM"
    before, os.environ[name] = os.environ.get(name), "false"
    try:
        yield
    finally:
        del os.environ[name]
        os.environ.update({} if before is None else {name: before})


def _remedy(request: TextRequest, normalization: Normalization) -> str:
    if request.weights is not None:
        return "continue weights that were trained on such text, or leave --from-pretrained-params out"
    if request.tokens is not None:
        return (
            f"the vocabulary is read as {normalization} (--lowercase, --no-lowercase, --strip-accents and "
            "--no-strip-accents change that); pass the one of this text, or leave --vocab-file out to train one"
        )
    return "pass --word-segmenter icu if the script has no spaces between words, or a tokenizer.json as --vocab-file"
