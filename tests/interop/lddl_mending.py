"""Patches lddl 0.1.0 to run with the packages of requirements-lddl.txt; import it before lddl.

Runs in LDDL's own environment, in every Dask worker too (as a preload). It changes nothing of what LDDL computes:
names that moved, the order of four returned values, one assignment that Paddle 2.6 refuses, and, where NLTK's punkt
model is not there and cannot be had, Punkt's algorithm without that model's list of abbreviations.
"""

import os
import sys
import types

import dask
import dask.bytes
import fsspec
import nltk

dask.config.set({"dataframe.convert-string": False})  # as in the release that lddl pins
dask.bytes.open_files = fsspec.open_files


def _mend_sentence_splitter() -> None:
    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        splitter = nltk.tokenize.punkt.PunktSentenceTokenizer()
        nltk.tokenize.sent_tokenize = lambda text, language="english": splitter.tokenize(text)
    nltk.download = lambda *args, **kwargs: True


def _mend_paddle_names() -> None:
    import paddle

    framework = types.ModuleType("paddle.fluid.framework")
    framework._non_static_mode = paddle.in_dynamic_mode
    fluid = types.ModuleType("paddle.fluid")
    fluid.framework = framework
    sys.modules.setdefault("paddle.fluid", fluid)
    sys.modules.setdefault("paddle.fluid.framework", framework)
    for name, value in (("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:6170"), ("PADDLE_CURRENT_ENDPOINT", "127.0.0.1:6170")):
        os.environ.setdefault(name, value)


def mend_preprocessor() -> None:
    """Give the binned writer the results of Dask's Parquet engine in their former order."""
    import lddl.dask.bert.binning as binning

    found = binning.get_engine

    def get_engine(name):
        engine = found(name)

        class Engine(engine):
            @classmethod
            def initialize_write(cls, *args, **kwargs):
                offset, metadata, _, extra = super().initialize_write(*args, **kwargs)
                return metadata, extra["schema"], offset

        return Engine

    binning.get_engine = get_engine
    binning.Delayed = lambda name, graph: None  # made and never used; Dask checks its name now


def mend_loader() -> None:
    """Dynamic masking by paddle.where and randint(0, ...): Paddle 2.6 raises at assignments through a 2-D boolean mask
    and takes the shape of randint's second place for a number."""
    _mend_paddle_names()
    import lddl.paddle.bert as loader
    import paddle

    def mask_tokens(inputs, special_tokens_mask=None, tokenizer=None, mlm_probability=0.15, ignore_index=-1):
        shape = inputs.shape
        allowed = paddle.where(
            special_tokens_mask.astype("bool"), paddle.zeros(shape), paddle.full(shape, mlm_probability)
        )
        masked = paddle.bernoulli(allowed).astype("bool")
        labels = paddle.where(masked, inputs, paddle.full_like(inputs, ignore_index))
        replaced = paddle.bernoulli(paddle.full(shape, 0.8)).astype("bool") & masked
        mask_id = tokenizer.convert_tokens_to_ids(tokenizer.mask_token)
        inputs = paddle.where(replaced, paddle.full_like(inputs, mask_id), inputs)
        random = paddle.bernoulli(paddle.full(shape, 0.5)).astype("bool") & masked & ~replaced
        words = paddle.randint(0, len(tokenizer), shape, dtype="int64")
        return paddle.where(random, words, inputs), labels

    loader._mask_tokens = mask_tokens


_mend_sentence_splitter()
