"""Initial attention of a BERT; test_modernbert.py tests a ModernBERT's."""

import numpy as np

from bert.config.architecture import BUILT_IN_MODELS
from bert.model.initial_attention import attend_to_neighbours
from tests.support import tiny


def test_heads_of_a_bert_begin_with_the_tokens_before_and_after():
    model = BUILT_IN_MODELS["bert-quickstart"].model_copy(update={"vocab_size": 200, "hidden_size": 126})  # heads of 63
    session = tiny.Session(model=model)
    before = session.parameters()
    attend_to_neighbours(model, session.scope, session.place)
    after = session.parameters()
    names = {f"encoder.layer.{layer}.attention.self.{part}" for layer in (0, 1) for part in ("query", "key")}
    changed = {name for name in before if (before[name] != after[name]).any()}
    assert changed == {f"bert.{name}.weight" for name in (*names, "embeddings.position_embeddings")}

    words, positions = (after[f"bert.embeddings.{kind}_embeddings.weight"] for kind in ("word", "position"))
    heads, hidden = model.num_attention_heads, {}
    for part, first in (("query", 20), ("key", 100)):  # of different words, as a word is like itself
        embedded = words[first : first + 64] + positions[:64]
        hidden[part] = (embedded - embedded.mean(1, keepdims=True)) / embedded.std(1, keepdims=True)
    layer = "bert.encoder.layer.0.attention.self"
    added = {part: after[f"{layer}.{part}.weight"] - before[f"{layer}.{part}.weight"] for part in ("query", "key")}
    for head in range(heads):
        queries, keys = (np.split(hidden[part] @ added[part], heads, axis=1)[head] for part in ("query", "key"))
        scores = queries @ keys.T / model.head_size() ** 0.5
        mean = {offset: np.diagonal(scores, offset).mean() for offset in range(-8, 9)}
        assert max(mean, key=mean.get) == (1 if head % 2 else -1)
        assert 5 < max(mean.values()) < 10 and max(mean[-8], mean[8]) < 0.5 * max(mean.values())
